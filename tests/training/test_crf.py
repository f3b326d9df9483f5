"""A tagger with a CRF, from training to a saved model."""

import json
from dataclasses import replace

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from softf1.errors import InputError
from softf1.metrics.schemes import find_invalid
from softf1.models.crf import add_crf
from softf1.training.evaluation import evaluate
from softf1.training.publish import load_model
from softf1.training.run import train_run
from tests.training.toys import make_data, make_recipe, read_lines

SIZES = {"train": 40, "dev": 20, "test": 20}


def train(folder, encoder="bilstm", *, decoder="crf", loss="ce", dropout=None, **values):
    recipe = make_recipe(
        {"kind": "tagging", "decoder": decoder},
        encoder={"name": str(encoder), "dropout": dropout},
        loss={"name": loss},
        train={"epochs": 3.0, "lr": 1e-2, "batch_size": 8, **values},
        evaluate={"tune": True},
    )
    data = make_data("tagging", sizes=SIZES)
    return train_run(recipe, folder, data=data, quiet=True), data


@pytest.mark.parametrize("decoder", ["crf", "crf-marginals"])
@pytest.mark.parametrize("loss", ["ce", "ce+dice"])
def test_it_learns_and_gives_valid_sequences(tmp_path, decoder, loss):
    result, _ = train(tmp_path / "run", decoder=decoder, loss=loss)
    assert result["scores"]["test"]["f1"] > 0.5
    lines = read_lines(tmp_path / "run" / "predictions.test.jsonl")
    assert not any(find_invalid(line["tags"], "BIO") for line in lines)
    assert all(0 < share <= 1 for line in lines for share in line["confidence"])


@pytest.mark.parametrize(("decoder", "tuned"), [("crf", False), ("argmax", True)])
def test_nothing_is_tuned_with_it_and_a_note_says_so(tmp_path, capsys, decoder, tuned):
    task = {"kind": "tagging", "decoder": decoder}
    recipe = make_recipe(task, train={"max_steps": 1}, evaluate={"tune": True})
    result = train_run(recipe, tmp_path / "run", data=make_data("tagging", sizes=SIZES))
    assert ("tuned" in result) == tuned
    assert bool(list((tmp_path / "run").glob("predictions.*.tuned.jsonl"))) == tuned
    shown = capsys.readouterr()
    assert ("note: nothing is tuned on dev" in shown.out + shown.err) != tuned


def test_the_score_of_a_pipeline_is_in_the_result_and_on_the_card(tmp_path):
    result, data = train(tmp_path / "run")
    model, task, tokenizer = load_model(tmp_path / "run")
    alone = replace(task, decoder="argmax")
    features = task.encode(data["test"], tokenizer)
    found = evaluate(model, alone, features, data["test"], tokenizer, device="cpu")
    score = result["pipeline_scores"]["test"]
    assert score == pytest.approx(found.scores["f1"])
    assert 0 < score <= result["scores"]["test"]["f1"]
    card = (tmp_path / "run/model/README.md").read_text("utf-8")
    own = f"where softf1 has {result['scores']['test']['f1']:.4f};"
    assert f"a pipeline would have f1 {score:.4f} on test, {own}" in card
    result, _ = train(tmp_path / "other", decoder="argmax")
    assert "pipeline_scores" not in result


def test_with_consistency_and_an_adversarial_step(tmp_path):
    result, _ = train(tmp_path / "run", consistency=1.0, adversarial_relative=0.5)
    assert result["scores"]["test"]["f1"] > 0.5


def test_accumulated_steps_are_those_of_the_whole_batch(tmp_path):
    results = [
        train(tmp_path / f"{parts}", accumulate=parts, epochs=1.0, dropout=0.0)[0]
        for parts in (1, 4)
    ]
    events = [
        [one["loss"] for one in read_lines(tmp_path / name / "metrics.jsonl") if "loss" in one]
        for name in ("1", "4")
    ]
    assert events[0] == pytest.approx(events[1], rel=1e-4)
    assert results[0]["steps"] == results[1]["steps"]


def check_loaded(folder, data):
    """A model that is loaded decides as it did when it was trained."""
    loaded = load_model(folder)
    features = loaded.task.encode(data["test"], loaded.tokenizer)
    again = evaluate(
        loaded.model, loaded.task, features, data["test"], loaded.tokenizer, device="cpu"
    )
    lines = read_lines(folder / "predictions.test.jsonl")
    assert [one["tags"] for one in again.predictions] == [one["tags"] for one in lines]
    return loaded


def test_a_sentence_alone_is_decided_as_among_others(tmp_path):
    """A batch of fewer rows than tags keeps all transitions."""
    _, data = train(tmp_path / "run", epochs=1.0)
    loaded = load_model(tmp_path / "run")
    lines = read_lines(tmp_path / "run" / "predictions.test.jsonl")
    for example, line in zip(data["test"][:3], lines, strict=False):
        features = loaded.task.encode([example], loaded.tokenizer)
        alone = evaluate(
            loaded.model, loaded.task, features, [example], loaded.tokenizer, device="cpu"
        )
        assert alone.predictions[0]["tags"] == line["tags"]


def test_a_bias_that_a_crf_does_not_have_is_refused(tmp_path):
    recipe = make_recipe({"kind": "tagging", "decoder": "crf"}, evaluate={"target": "f2"})
    with pytest.raises(InputError, match="CRF, which has no bias"):
        train_run(recipe, tmp_path / "run", data=make_data("tagging"), quiet=True)
    assert not (tmp_path / "run").exists()


def change_weights(folder, change):
    """Other weights in the folder, without the checksums that would tell."""
    path, about = folder / "model/model.safetensors", folder / "model/softf1.json"
    weights = load_file(path)
    change(weights)
    save_file(weights, path, metadata={"format": "pt"})
    content = json.loads(about.read_text("utf-8"))
    del content["files"]
    about.write_text(json.dumps(content), "utf-8")


def test_a_saved_model_that_started_from_nothing_decides_alike(tmp_path):
    _, data = train(tmp_path / "run")
    check_loaded(tmp_path / "run", data)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda weights: weights.pop("crf.transitions"), "wanted weights of crf.transitions"),
        (lambda weights: weights.update({"crf.transitions": torch.zeros(2, 2)}), "of the shape"),
    ],
)
def test_transitions_that_are_missing_or_do_not_fit_are_refused(tmp_path, change, said):
    train(tmp_path / "run", epochs=1.0)
    change_weights(tmp_path / "run", change)
    with pytest.raises(InputError, match=said):
        load_model(tmp_path / "run")


@pytest.mark.parametrize("transitions", [[], [[1.0]], [[float("nan")] * 4] * 4])
def test_transitions_of_the_task_that_do_not_fit_are_refused(tmp_path, transitions):
    train(tmp_path / "run", epochs=1.0)
    about = tmp_path / "run/model/softf1.json"
    content = json.loads(about.read_text("utf-8"))
    about.write_text(json.dumps(content | {"transitions": transitions}), "utf-8")
    with pytest.raises(InputError, match="transitions of the CRF"):
        load_model(tmp_path / "run")


def test_transitions_in_the_second_file_of_a_large_model_are_found(tmp_path):
    model, start = torch.nn.Linear(1, 1), torch.zeros(3, 3)
    save_file({"a": torch.zeros(1)}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"crf.transitions": start + 7}, tmp_path / "model-00002-of-00002.safetensors")
    add_crf(model, start, saved=tmp_path)
    assert (model.crf.transitions == 7).all()


def test_a_saved_model_decides_alike_and_is_a_plain_tagger_in_transformers(tmp_path, bert):
    _, data = train(tmp_path / "run", bert)
    loaded = check_loaded(tmp_path / "run", data)
    plain = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "run/model")
    assert plain.classifier.out_features == len(loaded.task.labels)
    card = (tmp_path / "run/model/README.md").read_text("utf-8")
    assert "best sequence of tags" in card
    saved = json.loads((tmp_path / "run/model/softf1.json").read_text("utf-8"))
    assert "crf" in json.dumps(saved)
    # What was trained is not what it started from.
    start = loaded.task.transitions[0][0]
    assert loaded.model.crf.transitions[0, 0].item() != pytest.approx(start, abs=1e-6)


def test_an_unknown_decoder_is_refused(tmp_path):
    with pytest.raises(InputError, match="decoder"):
        train(tmp_path / "run", decoder="viterbi")
