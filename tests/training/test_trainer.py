"""The loop: when it saves, what it remembers, what it counts as training."""

import json
import math
import os
import signal
import time
from dataclasses import asdict
from threading import Thread

import pytest

from softf1.files import finite
from softf1.recipe import TrainSection
from softf1.training import trainer
from softf1.training.objective import count_steps
from softf1.training.processes import watch_signals
from softf1.training.run import train_run
from softf1.training.trainer import Trainer, TrainState
from tests.training.toys import make_data, make_recipe, read_lines


def test_the_state_survives_json():
    """Also before the first evaluation, when nothing is the best yet."""
    later = TrainState(step=7, epoch=1, best=0.5, warnings=["a"], journal=90)
    for state in (TrainState(), later):
        text = json.dumps(finite(asdict(state)), allow_nan=False)
        assert TrainState.from_json(json.loads(text)) == state
    assert TrainState.from_json(finite(asdict(TrainState()))).best == -math.inf


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
    plain = Trainer.save
    monkeypatch.setattr(Trainer, "save", lambda self: (found.append(self.state.step), plain(self)))
    recipe = make_recipe(train={"checkpoint_seconds": seconds})
    train_run(recipe, tmp_path, data=make_data(), quiet=True)
    assert found == saves


def test_waiting_for_batches_is_training(tmp_path, monkeypatch):
    """The pipeline is made slow: 8 steps, 50 ms each."""

    def slow(*args, old=trainer.collate_rows, **options):
        time.sleep(0.05)
        return old(*args, **options)

    monkeypatch.setattr(trainer, "collate_rows", slow)
    result = train_run(make_recipe(), tmp_path, data=make_data(), quiet=True)
    assert result["seconds"]["train"] > 0.35
    assert result["seconds"]["train_cpu"] > 0
    last = [x for x in read_lines(tmp_path / "metrics.jsonl") if x["event"] == "step"][-1]
    assert last["seconds"] <= result["seconds"]["train"]


def test_time_spent_evaluating_is_not_training(tmp_path, monkeypatch):
    def slow(*args, old=trainer.predict_logits, **options):
        time.sleep(0.3)
        return old(*args, **options)

    monkeypatch.setattr(trainer, "predict_logits", slow)
    result = train_run(make_recipe(), tmp_path, data=make_data(), quiet=True)
    assert result["seconds"]["evaluate"] > 0.6
    total = result["seconds"]["train"] + result["seconds"]["evaluate"]
    assert result["seconds"]["total"] == pytest.approx(total, abs=0.01)


def test_the_first_evaluation_is_the_best_whatever_it_says(tmp_path, monkeypatch):
    """A score that is no number leaves a model all the same."""
    monkeypatch.setattr(trainer, "read_score", lambda *_: math.nan)
    train_run(make_recipe(train={"max_steps": 2}), tmp_path, data=make_data(), quiet=True)
    assert (tmp_path / "model/model.safetensors").is_file()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_only_asks(number):
    before = signal.getsignal(number)
    with watch_signals() as stop:
        assert not stop.asked
        os.kill(os.getpid(), number)
        assert stop.asked
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_acts_as_ever_whichever_was_the_first(first):
    before = signal.getsignal(signal.SIGTERM)
    with watch_signals() as stop:
        os.kill(os.getpid(), first)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGTERM) == before


def test_handlers_come_back_after_an_error():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), watch_signals():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_nothing_is_watched():
    """Python takes handlers in the main thread only; a training may run in any."""
    found = []

    def work():
        with watch_signals() as stop:
            found.append(stop.asked)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
