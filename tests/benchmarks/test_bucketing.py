"""Ways of batching: what each changes, and the differences over seeds."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from benchmarks import bucketing


def make_rows(way, *scores):
    return [{"grid": "a", "way": way, "seed": str(n), "dev": x} for n, x in enumerate(scores)]


def test_differences_are_those_of_the_same_seeds():
    rows = make_rows("targets", 0.5, 0.6, 0.7) + make_rows("random", 0.51, 0.63)
    by_length, random = bucketing.describe(rows)
    # The half width of an interval over two seeds is 12.7 standard errors.
    assert by_length == "a targets: 60.00, 3 seeds; -2.00 ± 12.71 against random, 2 seeds"
    assert random == "a random: 57.00, 2 seeds"


@pytest.mark.parametrize("way", bucketing.WAYS)
def test_a_way_is_a_change_of_the_recipe(way, tmp_path, monkeypatch):
    recipes = []

    def run(recipe, *_, **__):
        recipes.append(recipe)
        scores = {"dev": {"f1": 0.25}}
        found = {"headline": "f1", "scores": scores, "steps": 3, "seconds": {"train": 1.0}}
        return found | {"device": "cpu"}

    monkeypatch.setattr(bucketing, "train_run", run)
    row = bucketing.train(tmp_path, [], "conll03-tagger:encoder.name=bilstm", way, 4)
    train = recipes[0].train
    assert train.group_by_length == (way != "random")
    assert train.step_weights == ("equal" if way == "equal" else "targets")
    assert (recipes[0].encoder.name, train.seed, row["dev"]) == ("bilstm", 4, 0.25)
    assert set(row) == set(bucketing.COLUMNS)
