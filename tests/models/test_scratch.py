"""The encoders that start from nothing: vocabulary, saving, and what padding may not change."""

import json

import pytest
import torch

from softf1.errors import InputError
from softf1.models import bilstm
from softf1.models.encoders import ENCODERS, build_model, find_scratch, make_tokenizer
from softf1.models.scratch import Output

WORDS = [["Ann", "visits", "Paris"], ["Ann", "works"], ["Paris", "works"]]


def example_inputs(name, tokenizer):
    torch.manual_seed(0)
    ids = torch.tensor([[2, 3, 1], [2, 0, 0]])
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    if name == "bilstm":
        spelt = torch.from_numpy(tokenizer.spell(["Ann", "Bob", "", "Xy", "", ""])).long()
        inputs["char_ids"] = spelt.view(2, 3, -1)
    return inputs


def build(name):
    tokenizer = make_tokenizer(name, WORDS)
    torch.manual_seed(0)
    head = find_scratch(name).head
    return (
        build_model(name, head=head, labels=("a", "b", "c"), tokenizer=tokenizer).eval(),
        tokenizer,
        head,
    )


@pytest.mark.parametrize("name", list(ENCODERS))
def test_saved_and_loaded_it_gives_the_same(name, tmp_path):
    model, tokenizer, head = build(name)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
    loaded = build_model(tmp_path, head=head, tokenizer=make_tokenizer(tmp_path)).eval()
    inputs = example_inputs(name, tokenizer)
    torch.testing.assert_close(loaded(**inputs).logits, model(**inputs).logits)
    assert loaded.config.id2label == {0: "a", 1: "b", 2: "c"}
    assert vars(make_tokenizer(tmp_path)) == vars(tokenizer)


@pytest.mark.parametrize("name", list(ENCODERS))
def test_an_unknown_item_is_not_padding(name):
    tokenizer = make_tokenizer(name, WORDS)
    assert tokenizer.unk_id != tokenizer.pad_id
    ids, counts = tokenizer.pieces(["Ω", "Ω"])
    assert (ids.tolist(), counts.tolist()) == ([tokenizer.unk_id] * 2, [1, 1])


def test_a_word_seen_once_stays_unknown_so_that_unknown_is_learned():
    tokenizer = make_tokenizer("bilstm", WORDS)
    assert set(tokenizer.words) == {"Ann", "Paris", "works"}
    ids, counts = tokenizer.pieces(["works", "visits"])
    assert ids.tolist() == [tokenizer.words["works"], tokenizer.unk_id]
    assert counts.tolist() == [1, 1]


def test_two_unknown_words_differ_by_their_spelling():
    model, tokenizer, _ = build("bilstm")
    spelt = torch.from_numpy(tokenizer.spell(["sin", "wok"])).long()[None]
    ids = torch.ones(1, 2, dtype=torch.long)
    logits = model(ids, spelt, torch.ones_like(ids)).logits[0]
    assert not torch.allclose(logits[0], logits[1])


def test_letters_that_are_only_padding_are_left_out_and_change_nothing(monkeypatch):
    model, tokenizer, _ = build("bilstm")
    inputs = example_inputs("bilstm", tokenizer)
    empty = {**inputs, "char_ids": torch.zeros_like(inputs["char_ids"])}
    short, nothing = model(**inputs).logits, model(**empty).logits
    assert bilstm.trim(inputs["char_ids"].flatten(0, 1)).shape[1] < tokenizer.letters
    monkeypatch.setattr(bilstm, "trim", lambda ids: ids)
    torch.testing.assert_close(short, model(**inputs).logits)
    torch.testing.assert_close(nothing, model(**empty).logits)


def test_the_backward_lstm_starts_at_the_last_word():
    model, tokenizer, _ = build("bilstm")
    inputs = example_inputs("bilstm", tokenizer)
    wide = {
        "input_ids": torch.nn.functional.pad(inputs["input_ids"], (0, 4)),
        "attention_mask": torch.nn.functional.pad(inputs["attention_mask"], (0, 4)),
        "char_ids": torch.nn.functional.pad(inputs["char_ids"], (0, 0, 0, 4)),
    }
    narrow, padded = model(**inputs).logits, model(**wide).logits
    torch.testing.assert_close(padded[0, :3], narrow[0])
    torch.testing.assert_close(padded[1, :1], narrow[1, :1])


def test_textcnn_has_the_sizes_of_the_study():
    model, tokenizer, _ = build("textcnn")
    config = model.config
    assert (tokenizer.window, config.embedding_size, config.filters) == (300, 100, 128)
    assert (list(config.widths), config.dropout) == ([2, 3, 4], 0.5)
    assert model.classifier.in_features == 384


def test_textcnn_takes_texts_shorter_than_its_filters():
    model, _, _ = build("textcnn")
    ids = torch.tensor([[2]])
    assert model(ids).logits.isfinite().all()
    padded = torch.tensor([[2, 0, 0, 0, 0, 0]])
    torch.testing.assert_close(model(padded).logits, model(ids).logits)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b'{"vocab_size": "many"}'),
        ("config.json", b"[1]"),
        ("model.safetensors", b""),
    ],
)
def test_a_damaged_folder_is_one_line_that_names_the_file(name, content, tmp_path):
    model, _, _ = build("bilstm")
    model.save_pretrained(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{name}.*wanted") as error:
        type(model).from_pretrained(tmp_path)
    assert "\n" not in str(error.value)


def test_weights_of_another_size_are_refused(tmp_path):
    model, _, _ = build("textcnn")
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {"filters": 7}), "utf-8")
    with pytest.raises(InputError, match=r"wanted weights of TextCnn, got .*size mismatch"):
        type(model).from_pretrained(tmp_path)


def test_outputs_are_read_by_name_and_position():
    output = Output(torch.ones(2))
    assert output["logits"] is output[0] is output.logits
    assert dict(output.items()) == {"logits": output.logits}
