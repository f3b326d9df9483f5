"""A tagger with a CRF, from training to a saved model."""

import json

import pytest
import transformers

from softf1.errors import InputError
from softf1.metrics.schemes import find_invalid
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


def test_a_saved_model_decides_alike_and_is_a_plain_tagger_in_transformers(tmp_path, bert):
    _, data = train(tmp_path / "run", bert)
    loaded = load_model(tmp_path / "run")
    features = loaded.task.encode(data["test"], loaded.tokenizer)
    again = evaluate(
        loaded.model, loaded.task, features, data["test"], loaded.tokenizer, device="cpu"
    )
    lines = read_lines(tmp_path / "run" / "predictions.test.jsonl")
    assert [one["tags"] for one in again.predictions] == [one["tags"] for one in lines]
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
