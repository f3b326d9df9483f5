"""Objectives: the losses of a recipe with the labels, counts and steps of its data."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from softf1.errors import InputError
from softf1.losses import loss_facts, loss_names, make_loss, registry
from softf1.recipe import LossSection
from softf1.training.batching import BatchSampler, collate_rows
from softf1.training.datasets import load_datasets
from softf1.training.objective import Objective, count_targets, make_objective
from softf1.training.processes import Processes
from softf1.training.trainer import Trainer
from tests.training.test_run import CASES, case
from tests.training.toys import make_data, make_recipe

LABELS = ("B-LOC", "B-PER", "O")
COUNTS = {"tags": np.array([10, 30, 60])}


def make(name="ce", *, keys=("tags",), counts=COUNTS, steps=40, expected=None, **options):
    known = {key: options.pop(key) for key in ("weights", "statistics") if key in options}
    section = LossSection(name=name, keys=options.pop("shares", {}), options=options, **known)
    return make_objective(
        section, keys=keys, counts=counts, labels=LABELS, steps=steps, expected=expected
    )


def test_excluded_labels_are_named():
    assert make("dice", over="batch", exclude=["O"]).losses["tags"].options["exclude"] == (2,)
    assert make("dice", over="batch", exclude="B-PER").losses["tags"].options["exclude"] == (1,)
    assert make("dice", over="batch", exclude=[0, "O"]).losses["tags"].options["exclude"] == (0, 2)


@pytest.mark.parametrize("name", ["dice", "smooth_ap", "pauc"])
def test_a_loss_without_any_label_left_is_refused(name):
    with pytest.raises(InputError, match=r"loss\.exclude leaves none of the 3 labels"):
        make(name, exclude=["O", 0, 1])


def test_of_several_sigmoids_some_are_excluded_and_of_one_none():
    counts = {"tags": np.array([[9, 1], [8, 2], [7, 3]])}
    loss = make("dice", over="batch", exclude=["O"], counts=counts).losses["tags"]
    assert loss.options["exclude"] == (2,)
    with pytest.raises(InputError, match=r"loss\.exclude: tags is one output"):
        make("dice", over="batch", exclude=["O"], counts={"tags": np.array([[9, 1]])})


def test_excluded_labels_are_named_in_parts_too():
    loss = make("ce+dice", dice={"over": "batch", "exclude": ["O", "B-LOC"]}).losses["tags"]
    assert loss.parts[1].options["exclude"] == (2, 0)


def test_an_unknown_label_is_an_error_that_lists_the_known():
    with pytest.raises(InputError, match=r"loss\.exclude: wanted one of B-LOC, B-PER, O, got 'X'"):
        make("dice", exclude=["X"])


def test_options_that_the_loss_refuses_are_errors_of_input():
    with pytest.raises(InputError, match=r"\[loss\]: .*smoth"):
        make("dice", smoth=1.0)


def test_class_weights_come_from_the_counts():
    # balanced: n / (C · n_t) = 100 / (3 · 10), 100 / (3 · 30), 100 / (3 · 60)
    for options in ({"name": "wce"}, {"name": "ce", "weights": "balanced"}):
        weight = make(**options).losses["tags"].weight
        torch.testing.assert_close(weight, torch.tensor([10 / 3, 10 / 9, 5 / 9]))
    assert make("ce").losses["tags"].weight is None
    # log: log10((n − n_t) / n_t + 1)
    weight = make("wfocal", weights="log").losses["tags"].weight
    torch.testing.assert_close(weight, torch.tensor([1.0, math.log10(10 / 3), math.log10(10 / 6)]))


def test_weights_of_your_own_are_one_for_each_class():
    weight = make("ce", weight=[1.0, 2.0, 0.5]).losses["tags"].weight
    torch.testing.assert_close(weight, torch.tensor([1.0, 2.0, 0.5]))
    said = r"wanted 3 weights, one for each of B-LOC, B-PER, O; got 2"
    with pytest.raises(InputError, match=rf"loss\.weight: {said}"):
        make("focal", weight=[1.0, 2.0])
    with pytest.raises(InputError, match=rf"loss\.dice\.weight: {said}"):
        make("ce+dice", dice={"weight": [1.0, 2.0]})
    with pytest.raises(InputError, match="class weights: start is one of the positions"):
        make("ce", weight=[1.0, 2.0], keys=["start"], counts={})


def test_class_weights_of_a_sigmoid_are_ratios():
    counts = {"start": np.array([[90, 10]])}
    weight = make("wce", keys=("start",), counts=counts).losses["start"].weight
    torch.testing.assert_close(weight, torch.tensor([9.0]))


def test_positions_have_no_class_weights():
    with pytest.raises(InputError, match="class weights: start is one of the positions of a text"):
        make("wce", keys=("start",), counts={})


def test_ratios_over_the_batch_are_refused_for_positions_with_the_reason():
    for options in (
        {"name": "dice", "over": "batch"},
        {"name": "ce+dice", "dice": {"over": "batch"}},
    ):
        with pytest.raises(InputError, match="position 7 of two texts is not one class"):
            make(keys=("start", "end"), counts={}, **options)
    make("dice", keys=("start", "end"), counts={})


def test_a_loss_of_another_package_trains_on_positions_but_not_in_pieces(monkeypatch):
    class Own(nn.Module):
        options = ("its", "own")

        def forward(self, logits, target, mask=None):  # noqa: ARG002
            return logits.sum() * 0

    monkeypatch.setitem(registry._registry, "own", Own)
    objective = make("own", keys=("start",), counts={})
    with pytest.raises(InputError, match="losses, got Own"):
        objective.open_windows()
    monkeypatch.setattr(Own, "compares_rows", True, raising=False)
    with pytest.raises(InputError, match="position 7 of two texts is not one class"):
        make("own", keys=("start",), counts={})


def test_no_loss_is_over_the_batch_unless_told():
    assert {loss_facts(name).options.get("over", "example") for name in loss_names()} == {"example"}


def test_hard_negatives_are_refused_in_pieces():
    objective = make("dice", over="batch", ohem_ratio=1.0)
    with pytest.raises(InputError, match="ohem_ratio is refused here"):
        objective.open_windows()


def test_keys_have_weights():
    counts = {key: np.array([[90, 10]]) for key in ("start", "end")}
    objective = make(keys=("start", "end"), counts=counts, shares={"end": 0.25})
    logits = {key: torch.randn(4, 1) for key in ("start", "end")}
    targets = {key: torch.tensor([1, 0, 0, -100]) for key in ("start", "end")}
    one = {key: make_loss("ce")(logits[key], targets[key]) for key in logits}
    _, value = objective.whole(logits, targets)
    torch.testing.assert_close(value, one["start"] + 0.25 * one["end"])


def test_the_weight_of_an_unknown_key_is_an_error():
    with pytest.raises(InputError, match=r"loss\.keys: wanted one of tags, got 'start'"):
        make(shares={"start": 1.0})


def test_a_schedule_lasts_as_long_as_the_training():
    objective = make("ce+dice", schedule="linear", steps=8)
    for _ in range(2):
        objective.advance()
    assert objective.losses["tags"].shares().tolist() == [0.75, 0.25]
    assert make("ce+dice", schedule="linear", schedule_steps=2).losses["tags"].schedule_steps == 2


def test_only_the_gradient_is_weighed():
    objective = make(expected=6.0)
    logits = {"tags": torch.zeros(4, 3, requires_grad=True)}
    weighed, value = objective.whole(logits, {"tags": torch.tensor([0, 1, 2, -100])})
    assert value.item() == pytest.approx(math.log(3))
    assert weighed.item() == pytest.approx(math.log(3) * 3 / 6)


def test_a_run_goes_on_in_one_piece_with_what_it_saved_in_several():
    """Running statistics are of no use there, and no trouble."""
    objective = make("dice", over="batch", statistics="running")
    objective.restore_statistics({"tags": torch.tensor([[1.0, 2.0], [3.0, 4.0]])})
    assert objective.running_statistics() == {}


def test_running_statistics_come_back():
    def run():
        found = make("dice", over="batch", statistics="running")
        found.open_windows()
        return found

    first, second = run(), run()
    logits, target = {"tags": torch.randn(5, 3)}, {"tags": torch.tensor([0, 1, 2, 2, -100])}
    first.collect(logits, target)
    first.reduce()
    first.part(logits, target)
    first.finish()
    assert first.running_statistics()["tags"].numel()
    second.restore_statistics(first.running_statistics())
    assert torch.equal(second.running_statistics()["tags"], first.running_statistics()["tags"])
    assert not second.needs_statistics


@pytest.mark.parametrize("name", CASES)
def test_steps_weigh_one_on_average(name, bert):
    """Whatever the task, so that clipping sees gradients of the usual size."""
    recipe, data = case(name, bert)
    datasets = load_datasets(recipe, data)
    trainer = Trainer(recipe=recipe, folder=None, datasets=datasets, processes=Processes())
    features, expected = datasets.features["train"], trainer.stepper.objective.expected
    weights = [
        sum(
            count_targets(collate_rows(datasets.task, features, micro, datasets.tokenizer).targets)
            for micro in step
        ).item()
        / expected
        for step in trainer.batch_sampler.epoch(0)
    ]
    assert np.mean(weights) == pytest.approx(1.0, rel=0.02)


def test_equal_steps_are_asked_for():
    recipe = make_recipe(train={"step_weights": "equal"})
    datasets = load_datasets(recipe, make_data())
    trainer = Trainer(recipe=recipe, folder=None, datasets=datasets, processes=Processes())
    assert trainer.stepper.objective.expected is None


def test_shapes_are_known_from_targets_alone(bert):
    """The first pass of a mean over rows makes up logits: they must be of the right shape."""
    for name in CASES:
        recipe, data = case(name, bert)
        datasets = load_datasets(recipe, data)
        task, features = datasets.task, datasets.features["train"]
        model = task.build_model(recipe.encoder.name, datasets.tokenizer, **recipe.encoder.options)
        micro = BatchSampler(features["length"], batch_size=4).epoch(0)[0][0]
        batch = collate_rows(task, features, micro, datasets.tokenizer)
        logits = task.logits(model.train()(**batch.inputs), batch)
        objective = Objective({}, weights={}, counts=task.class_counts(features))
        for key, target in batch.targets.items():
            found, wanted = objective._shape(key, target, batch), tuple(logits[key].shape)
            assert found[-1] == wanted[-1], (name, key)
            assert math.prod(found) == math.prod(wanted), (name, key)
