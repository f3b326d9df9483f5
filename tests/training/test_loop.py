"""The loop: when it saves, what it remembers, what it counts as training."""

import json
import math
import time

import pytest

from softf1.recipe import TrainSection
from softf1.training import loop
from softf1.training.engine import Engine
from softf1.training.loop import Position, as_state, count_steps, from_state
from softf1.training.run import train_run
from tests.training.toys import make_data, make_recipe, read_lines


def test_a_position_survives_json():
    """Also before the first evaluation, when nothing is the best yet."""
    for at in (Position(), Position(step=7, epoch=1, best=0.5, warnings=["a"], journal=90)):
        assert from_state(json.loads(json.dumps(as_state(at), allow_nan=False))) == at
    assert from_state(as_state(Position())).best == -math.inf


@pytest.mark.parametrize(
    ("train", "steps"),
    [
        ({"epochs": 3}, 30),
        ({"epochs": 0.25}, 2),  # 2.5, to the even one
        ({"epochs": 3, "max_steps": 7}, 7),
        ({"epochs": 0.001}, 1),
        ({"epochs": 1, "max_steps": 70}, 10),
    ],
)
def test_steps_are_counted_from_epochs_and_limits(train, steps):
    assert count_steps(TrainSection(**train), 10) == steps


@pytest.mark.parametrize(("seconds", "saves"), [(0.0, list(range(1, 9))), (1000.0, [])])
def test_checkpoints_come_by_the_clock_alone(seconds, saves, tmp_path, monkeypatch):
    found = []
    plain = Engine.save
    monkeypatch.setattr(Engine, "save", lambda self: (found.append(self.at.step), plain(self)))
    recipe = make_recipe(train={"checkpoint_seconds": seconds})
    train_run(recipe, tmp_path, data=make_data(), quiet=True)
    assert found == saves


def test_waiting_for_batches_is_training(tmp_path, monkeypatch):
    """The pipeline is made slow: 8 steps, 50 ms each."""

    def slow(*args, old=loop.collate_rows, **options):
        time.sleep(0.05)
        return old(*args, **options)

    monkeypatch.setattr(loop, "collate_rows", slow)
    result = train_run(make_recipe(), tmp_path, data=make_data(), quiet=True)
    assert result["seconds"]["train"] > 0.35
    last = [x for x in read_lines(tmp_path / "metrics.jsonl") if x["event"] == "step"][-1]
    assert last["seconds"] <= result["seconds"]["train"]


def test_time_spent_evaluating_is_not_training(tmp_path, monkeypatch):
    def slow(*args, old=loop.find, **options):
        time.sleep(0.3)
        return old(*args, **options)

    monkeypatch.setattr(loop, "find", slow)
    result = train_run(make_recipe(), tmp_path, data=make_data(), quiet=True)
    assert result["seconds"]["evaluate"] > 0.6
    total = result["seconds"]["train"] + result["seconds"]["evaluate"]
    assert result["seconds"]["total"] == pytest.approx(total, abs=0.01)
    assert result["seconds"]["train"] < 0.6


def test_the_first_evaluation_is_the_best_whatever_it_says(tmp_path, monkeypatch):
    """A score that is no number leaves a model all the same."""
    monkeypatch.setattr(loop, "read_score", lambda *_: math.nan)
    train_run(make_recipe(train={"max_steps": 2}), tmp_path, data=make_data(), quiet=True)
    assert (tmp_path / "model/model.safetensors").is_file()
