"""Warnings in words, each once."""

import math

import pytest

from softf1.errors import RunError
from softf1.recipe import LossSection
from softf1.training.guard import MOST_SKIPPED, Guard, advise

GOOD = {"skipped": 0, "run": 0, "loss": 0.5}


def test_nothing_wrong_is_nothing_said():
    guard = Guard()
    assert guard.watch_steps(**GOOD) == []
    assert guard.watch_predictions([{"tags": ["O", "B-PER"]}], epoch=2.0) == []
    assert guard.watch_predictions([], epoch=2.0) == []
    assert guard.warnings == []


def test_steps_left_out_are_told_once_with_what_to_try():
    guard = Guard()
    (said,) = guard.watch_steps(skipped=2, run=0, loss=0.5)
    assert "gradient not finite" in said
    assert "lower train.lr" in said
    assert guard.watch_steps(skipped=3, run=1, loss=0.5) == []
    assert guard.warnings == [said]


def test_too_many_in_a_row_end_the_run():
    Guard().watch_steps(skipped=900, run=MOST_SKIPPED - 1, loss=0.5)
    with pytest.raises(RunError, match=f"not finite in {MOST_SKIPPED} steps in a row; try a lower"):
        Guard().watch_steps(skipped=MOST_SKIPPED, run=MOST_SKIPPED, loss=0.5)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_told(loss):
    (said,) = Guard().watch_steps(skipped=0, run=0, loss=loss)
    assert said.startswith("the loss is not finite")


NOTHING = [
    {"tags": ["O", "O"]},
    {"label": "PER", "spans": []},
    {"labels": []},
    {"answer": ""},
]


@pytest.mark.parametrize("prediction", NOTHING)
def test_no_label_at_all_is_told_with_what_to_try(prediction):
    (said,) = Guard().watch_predictions([prediction, prediction], epoch=2.5)
    assert said.startswith("no label is predicted after 2.5 epochs: try a start with cross entropy")


@pytest.mark.parametrize("prediction", [{"label": "0"}, {"tags": ["B-PER", "B-PER"]}])
def test_a_collapse_names_the_class(prediction):
    (said,) = Guard().watch_predictions([prediction] * 3, epoch=2.0)
    (name,) = set(prediction.get("tags", [prediction.get("label")]))
    assert said.startswith(f"collapse to one class after 2 epochs, all is {name!r}: try ")


@pytest.mark.parametrize(
    "predictions",
    [
        [{"label": "0"}, {"label": "1"}],
        [{"labels": ["a"]}, {"labels": ["a"]}],  # of several labels one may be all there is
        [{"label": "PER", "spans": [[0, 1]]}, {"label": "PER", "spans": []}],
        [{"answer": "Paris"}, {"answer": ""}],
    ],
)
def test_other_predictions_are_fine(predictions):
    assert Guard().watch_predictions(predictions, epoch=2.0) == []


def test_after_the_first_epoch_nothing_may_be_predicted_yet():
    guard = Guard()
    assert guard.watch_predictions(NOTHING[:1], epoch=1.0) == []
    assert len(guard.watch_predictions(NOTHING[:1], epoch=1.0, last=True)) == 1
    assert guard.watch_predictions(NOTHING[:1], epoch=2.0) == []


def test_a_collapse_that_is_over_at_the_end_is_not_kept():
    guard = Guard(["gradient not finite: such steps are left out"])
    guard.watch_predictions([{"label": "ham"}] * 2, epoch=2.0)
    assert len(guard.warnings) == 2
    assert not guard.settle([{"label": "ham"}, {"label": "spam"}], score=0.92, epoch=5.0)
    assert guard.warnings == ["gradient not finite: such steps are left out"]


def test_a_collapse_of_the_kept_model_is_told_with_its_own_epoch():
    guard = Guard()
    guard.watch_predictions([{"label": "ham"}] * 2, epoch=2.0)
    assert guard.settle([{"label": "ham"}] * 2, score=0.4, epoch=1.0)
    (said,) = guard.warnings
    assert said.startswith("collapse to one class after 1 epoch, all is 'ham': try ")
    assert guard.settle([{"answer": "in Rome"}], score=0.0, epoch=1.0)  # never right
    assert guard.warnings == []


def test_one_class_is_right_where_dev_has_no_other():
    guard = Guard()
    assert not guard.settle([{"label": "ham"}] * 2, score=1.0, epoch=1.0)
    assert guard.warnings == []


BATCH = {"over": "batch"}


@pytest.mark.parametrize(
    ("loss", "outside", "wanted", "unwanted"),
    [
        ({"name": "ce+dice", "options": {"dice": BATCH}}, False, "schedule", "ce+dice"),
        ({"name": "ce+dice", "options": {"dice": BATCH}}, False, "batch_size", 'exclude=["O"]'),
        ({"name": "ce+dice", "options": {"dice": BATCH}}, True, 'exclude=["O"]', "squared"),
        (
            {"name": "ce+dice", "options": {"schedule": "linear", "dice": BATCH}},
            False,
            "batch_size",
            "schedule",
        ),
        ({"name": "dice", "options": BATCH | {"exclude": ["O"]}}, True, "ce+dice", "exclude"),
        ({"name": "dsc", "options": {}}, True, "a lower alpha", "exclude"),
        ({"name": "tversky", "options": BATCH}, False, "squared=true", "alpha"),
        ({"name": "ce", "options": {}}, True, "wce", "dice"),
        ({"name": "wce", "options": {}}, False, "train.epochs", "wce"),
        ({"name": "focal", "options": {}}, False, "train.lr", "dice"),
    ],
)
def test_advice_is_what_the_loss_and_the_task_do_not_have_yet(loss, outside, wanted, unwanted):
    said = advise(LossSection(**loss), outside=outside)
    assert wanted in said
    assert unwanted not in said


def test_what_was_said_before_a_restart_is_not_said_again():
    before = Guard()
    before.watch_predictions(NOTHING[:1], epoch=2.0)
    after = Guard(before.warnings)
    assert after.watch_predictions(NOTHING[:1], epoch=2.0) == []
    assert len(after.watch_predictions([{"label": "0"}] * 2, epoch=2.0)) == 1
