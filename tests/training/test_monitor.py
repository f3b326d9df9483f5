"""Warnings in words, each once."""

import math

import pytest

from softf1.errors import RunError
from softf1.recipe import LossSection
from softf1.tasks import make_task
from softf1.training.progress import MOST_SKIPPED, Monitor, advise

GOOD = {"skipped": 0, "run": 0, "loss": 0.5}
TAGS, SPANS, ANSWERS = make_task("tagging"), make_task("mrc_ner"), make_task("qa")
LABEL = make_task("classification")
DICE = LossSection(name="dice")
LABELS = make_task("classification", multi_label=True)


def test_nothing_wrong_is_nothing_said():
    monitor = Monitor(TAGS, DICE)
    assert monitor.watch_steps(**GOOD) == []
    assert monitor.watch_predictions([{"tags": ["O", "B-PER"]}], epoch=2.0) == []
    assert monitor.watch_predictions([], epoch=2.0) == []
    assert monitor.warnings == []


def test_steps_left_out_are_told_once_with_what_to_try():
    monitor = Monitor(TAGS, DICE)
    (said,) = monitor.watch_steps(skipped=2, run=0, loss=0.5)
    assert "gradient not finite" in said
    assert "lower train.lr" in said
    assert monitor.watch_steps(skipped=3, run=1, loss=0.5) == []
    assert monitor.warnings == [said]


def test_too_many_in_a_row_end_the_run():
    Monitor(TAGS, DICE).watch_steps(skipped=900, run=MOST_SKIPPED - 1, loss=0.5)
    with pytest.raises(RunError, match=f"not finite in {MOST_SKIPPED} steps in a row; try a lower"):
        Monitor(TAGS, DICE).watch_steps(skipped=MOST_SKIPPED, run=MOST_SKIPPED, loss=0.5)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_told(loss):
    (said,) = Monitor(TAGS, DICE).watch_steps(skipped=0, run=0, loss=loss)
    assert said.startswith("the loss is not finite")


NOTHING = [
    (TAGS, {"tags": ["O", "O"]}),
    (SPANS, {"label": "PER", "spans": []}),
    (LABELS, {"labels": []}),
    (ANSWERS, {"answer": ""}),
]


@pytest.mark.parametrize(("task", "prediction"), NOTHING)
def test_no_label_at_all_is_told_with_what_to_try(task, prediction):
    (said,) = Monitor(task, DICE).watch_predictions([prediction, prediction], epoch=2.5)
    assert said.startswith("no label is predicted after 2.5 epochs: try a start with cross entropy")


@pytest.mark.parametrize(
    ("task", "prediction"),
    [(LABEL, {"label": "0"}), (LABEL, {"label": "O"}), (TAGS, {"tags": ["B-PER", "B-PER"]})],
)
def test_a_collapse_names_the_class(task, prediction):
    (said,) = Monitor(task, DICE).watch_predictions([prediction] * 3, epoch=2.0)
    (name,) = set(prediction.get("tags", [prediction.get("label")]))
    assert said.startswith(f"collapse to one class after 2 epochs, all is {name!r}: try ")


@pytest.mark.parametrize(
    ("task", "predictions"),
    [
        (LABEL, [{"label": "0"}, {"label": "1"}]),
        (LABELS, [{"labels": ["a"]}, {"labels": ["a"]}]),  # one label may be all there is
        (SPANS, [{"label": "PER", "spans": [[0, 1]]}, {"label": "PER", "spans": []}]),
        (ANSWERS, [{"answer": "Paris"}, {"answer": ""}]),
        (TAGS, []),
    ],
)
def test_other_predictions_are_fine(task, predictions):
    assert Monitor(task, DICE).watch_predictions(predictions, epoch=2.0) == []


def test_a_task_of_another_package_that_knows_no_collapse_is_never_told_of_one():
    class Other:
        kind = "other"

    monitor = Monitor(Other(), DICE)
    assert monitor.watch_predictions([{"value": 3.5}] * 2, epoch=2.0) == []
    assert not monitor.judge_final([{"value": 3.5}] * 2, score=0.4, epoch=2.0)


def test_after_the_first_epoch_nothing_may_be_predicted_yet():
    monitor = Monitor(TAGS, DICE)
    assert monitor.watch_predictions([{"tags": ["O"]}], epoch=1.0) == []
    assert len(monitor.watch_predictions([{"tags": ["O"]}], epoch=1.0, last=True)) == 1
    assert monitor.watch_predictions([{"tags": ["O"]}], epoch=2.0) == []


def test_a_collapse_that_is_over_at_the_end_is_not_kept():
    monitor = Monitor(LABEL, DICE)
    monitor.warnings = ["gradient not finite: such steps are skipped"]
    monitor.watch_predictions([{"label": "ham"}] * 2, epoch=2.0)
    assert len(monitor.warnings) == 2
    assert not monitor.judge_final([{"label": "ham"}, {"label": "spam"}], score=0.92, epoch=5.0)
    assert monitor.warnings == ["gradient not finite: such steps are skipped"]


def test_a_collapse_of_the_kept_model_is_told_with_its_own_epoch():
    monitor = Monitor(LABEL, DICE)
    monitor.watch_predictions([{"label": "ham"}] * 2, epoch=2.0)
    assert monitor.judge_final([{"label": "ham"}] * 2, score=0.4, epoch=1.0)
    (said,) = monitor.warnings
    assert said.startswith("collapse to one class after 1 epoch, all is 'ham': try ")
    assert monitor.judge_final(
        [{"label": "ham"}, {"label": "spam"}], score=0.0, epoch=1.0
    )  # never right
    assert monitor.warnings == []


def test_one_class_is_right_where_dev_has_no_other():
    monitor = Monitor(LABEL, DICE)
    assert not monitor.judge_final([{"label": "ham"}] * 2, score=1.0, epoch=1.0)
    assert monitor.warnings == []


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


@pytest.mark.parametrize("kind", ["tagging", "mrc_ner", "span_ner", "qa"])
def test_class_weights_are_for_texts(kind):
    """They cost taggers 3.5 points of F1."""
    said = Monitor(make_task(kind), LossSection(name="ce")).advice
    assert said == "try more train.epochs or another train.lr"
    assert "wce" in Monitor(make_task("pairs"), LossSection(name="ce")).advice


def test_what_was_said_before_a_restart_is_not_said_again():
    before = Monitor(TAGS, DICE)
    before.watch_predictions([{"tags": ["O"]}], epoch=2.0)
    after = Monitor(TAGS, DICE)
    after.warnings = list(before.warnings)  # as a resumed trainer does
    assert after.watch_predictions([{"tags": ["O"]}], epoch=2.0) == []
    assert len(after.watch_predictions([{"tags": ["B-PER"]}] * 2, epoch=2.0)) == 1
