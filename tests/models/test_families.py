"""Every family of encoders that people use trains every task, and transformers loads the result."""

import json
from itertools import chain

import numpy as np
import pytest
import transformers

from softf1.errors import InputError
from softf1.models import tokenizers
from softf1.models.encoders import AUTO, make_tokenizer
from softf1.models.tokenizers import FastTokenizer
from softf1.training.evaluation import predict_logits
from softf1.training.publish import load_model
from softf1.training.run import train_run
from tests.models.families import FAMILIES, cut_words, write_encoder
from tests.training.toys import make_data, make_recipe

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # DeBERTa

TASKS = {
    "tagging": ({"kind": "tagging"}, "tokens"),
    "classification": ({"kind": "classification"}, "text"),
    "multi-label": ({"kind": "classification", "multi_label": True}, "text"),
    "pairs": ({"kind": "pairs"}, "text"),
    "qa": ({"kind": "qa"}, "span"),
    "mrc_ner": ({"kind": "mrc_ner", "answerable": True}, None),
    "span_ner": ({"kind": "span_ner"}, None),
}
SIZES = {"train": 12, "dev": 8, "test": 4}
FAST = {
    *{("xlm-roberta", task) for task in TASKS},
    *{("llama", task) for task in ("classification", "qa", "mrc_ner")},
    *{("t5", task) for task in ("pairs", "qa", "span_ner")},
    *{("roberta", "classification"), ("camembert", "multi-label"), ("qwen2", "multi-label")},
    *{("deberta-v2", "tagging"), ("deberta-v3", "qa"), ("electra", "pairs"), ("albert", "tagging")},
    *{("distilbert", "classification"), ("mpnet", "pairs"), ("modernbert", "qa")},
    *{("xlnet", "classification"), ("bert", "multi-label")},
}
"""What every run of the tests tries: each family, and each task with several of them."""

MATRIX = [
    pytest.param(family, task, marks=() if (family, task) in FAST else pytest.mark.slow)
    for family in FAMILIES
    for task in TASKS
]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    """The folder of each family, made when it is first asked for."""
    made = {}

    def give(name):
        if name not in made:
            made[name] = write_encoder(name, tmp_path_factory.mktemp(name))
        return made[name]

    return give


@pytest.mark.parametrize(("family", "name"), MATRIX)
def test_every_family_trains_every_task_and_transformers_loads_it(family, name, encoders, tmp_path):
    task, head = TASKS[name]
    data = make_data(task["kind"], several="multi_label" in task, sizes=SIZES)
    recipe = make_recipe(
        task,
        encoder={"name": str(encoders(family))},
        loss={"name": "ce+dice"},
        train={"max_steps": 2, "batch_size": 6},
    )
    result = train_run(recipe, tmp_path, data=data, quiet=True)
    assert result["steps"] == 2
    model, learned, tokenizer = load_model(tmp_path)
    features = learned.encode(data["test"], tokenizer)
    found = predict_logits(model, learned, features, tokenizer, device="cpu")
    assert learned.score(learned.decode(found, features, data["test"]), data["test"])
    if head is not None:
        plain = getattr(transformers, AUTO[head]).from_pretrained(tmp_path / "model").eval()
        same = predict_logits(plain, learned, features, tokenizer, device="cpu")
        for key, values in found.items():
            np.testing.assert_array_equal(same[key], values, err_msg=key)
    moved = learned.heads(model).values()
    assert all(bool(layer.weight.isfinite().all()) for layer, _ in moved)


@pytest.mark.parametrize("family", FAMILIES)
def test_words_have_the_pieces_that_they_have_in_running_text(family, encoders):
    """RoBERTa saw "and" behind a space: as a word of a sentence it is that piece too."""
    tokenizer = make_tokenizer(encoders(family))
    ids, counts = tokenizer.pieces(["Paris", "and", "Paris"])
    (text,) = tokenizer.text_ids(["who Paris and Paris"])
    assert ids.tolist() == text[-counts.sum() :]


@pytest.mark.parametrize("family", FAMILIES)
def test_words_that_are_encoded_together_have_the_pieces_that_each_has_alone(
    family, encoders, monkeypatch
):
    tokenizer = make_tokenizer(encoders(family))
    odd = ["\x00", "\u5c0f", "\u5c0f\u660e", "don't", "U.S.", "a b", "", "[SEP]", "</s>", "e\u0301"]
    words = ["Paris", "and", *odd, "working", "Paris"]
    (lone,) = tokenizer.text_ids([tokenizer.space])
    wanted = []
    for word in words:
        (one,) = tokenizer.backend.encode_batch(
            [[tokenizer.space + word]], is_pretokenized=True, add_special_tokens=False
        )
        alone = one.ids[: len(lone)] == lone
        wanted.append(one.ids[len(lone) :] if alone else one.ids)
    for group in (1, 3, 256):
        monkeypatch.setattr(tokenizers, "GROUP", group)
        ids, counts = tokenizer.pieces(words)
        assert ids.tolist() == [*chain(*wanted)]
        assert counts.tolist() == [len(own) for own in wanted]
    assert [part.tolist() for part in tokenizer.pieces([])] == [[], []]


def test_a_space_that_is_a_piece_of_its_own_is_no_piece_of_a_word(encoders):
    """No space stands before a Chinese character; its tag would be read off that space."""
    tokenizer = make_tokenizer(encoders("roberta"))
    (alone,) = tokenizer.text_ids(["\u5c0f"])
    ids, counts = tokenizer.pieces(["and", "\u5c0f"])
    assert ids[counts[0] :].tolist() == alone
    assert counts[1] == len(alone)


def test_llama_has_no_padding_and_gets_its_end_token(encoders, tmp_path):
    tokenizer = make_tokenizer(encoders("llama"))
    assert tokenizer.pad_id == tokenizer.tokenizer.eos_token_id
    tokenizer.save_pretrained(tmp_path)
    saved = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert saved.pad_token == saved.eos_token


def test_a_family_without_a_head_of_a_kind_says_so_before_training(tmp_path):
    """CTRL has a class for texts, none for tags and none for answers."""
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "dff": 32, "vocab_size": 340}
    transformers.CTRLModel(transformers.CTRLConfig(**sizes)).save_pretrained(tmp_path)
    made = cut_words("bytes")
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", unk_token="<unk>"
    ).save_pretrained(tmp_path)
    recipe = make_recipe({"kind": "tagging"}, encoder={"name": str(tmp_path)})
    with pytest.raises(InputError, match="no ModelForTokenClassification for encoders ctrl"):
        train_run(recipe, tmp_path / "run", data=make_data(sizes=SIZES), quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_that_cannot_encode_a_text_is_one_line(tmp_path):
    write_encoder("bert", tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    unknown = content["model"]["unk_token"]
    content["model"]["vocab"].pop(unknown)
    content["added_tokens"] = [one for one in content["added_tokens"] if one["content"] != unknown]
    path.write_text(json.dumps(content), "utf-8")
    tokenizer = FastTokenizer(transformers.PreTrainedTokenizerFast(tokenizer_file=str(path)))
    for encode, texts in (
        (tokenizer.text_ids, ["ꙮ"]),
        (tokenizer.aligned, ["ꙮ"]),
        (tokenizer.pieces, ["ꙮ"]),
    ):
        with pytest.raises(InputError, match="the tokenizer cannot encode a text: "):
            encode(texts)
