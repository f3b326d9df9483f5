"""Groups of parameters and learning rates, at points worked out by hand."""

import math

import pytest
import torch

from softf1.recipe import TrainSection
from softf1.training.build import make_model
from softf1.training.datasets import load_datasets
from softf1.training.objective import make_optimizer, parameter_groups, rate_factor, set_rate
from softf1.training.processes import Processes
from softf1.training.trainer import Trainer
from tests.training.test_run import CASES, case
from tests.training.toys import make_data, make_recipe


def groups_of(name, bert, **train):
    """The names of the parameters in each group, by (peak, decay)."""
    recipe, data = case(name, bert, weight_decay=0.1, **train)
    datasets = load_datasets(recipe, data)
    model = make_model(recipe, datasets)
    names = {id(p): n for n, p in model.named_parameters()}
    found = parameter_groups(model, datasets.task, recipe.train)
    groups = {
        (group["peak"], group["weight_decay"]): {names[id(p)] for p in group["params"]}
        for group in found
    }
    assert sum(len(group["params"]) for group in found) == len(names)  # each in one group
    return model, groups


@pytest.mark.parametrize("name", CASES)
def test_vectors_do_not_decay_and_the_head_has_its_rate(name, bert):
    model, groups = groups_of(name, bert, lr=1e-4, head_lr=1e-2)
    assert groups.keys() <= {(1e-4, 0.1), (1e-4, 0.0), (1e-2, 0.1), (1e-2, 0.0)}
    shapes = {n: p.ndim for n, p in model.named_parameters()}
    for (_, decay), names in groups.items():
        for own in names:
            assert (decay == 0.0) == (shapes[own] < 2), own
            if own.endswith("bias") or "Norm" in own:
                assert decay == 0.0, own
    head = groups[1e-2, 0.1]
    inside = ("embeddings", "encoder.", "words", "characters", "ahead", "back", "convolutions")
    assert head
    assert not [own for own in head if any(part in own for part in inside)]


def test_the_head_of_a_reading_model_is_all_above_its_encoder(bert):
    _, groups = groups_of("mrc_ner", bert, lr=1e-4, head_lr=1e-2)
    assert {own.split(".")[0] for own in groups[1e-2, 0.1]} == {"start", "end", "match"}
    assert {own.split(".")[0] for own in groups[1e-4, 0.1]} == {"encoder"}


def test_without_a_rate_of_its_own_the_head_has_that_of_all(bert):
    _, groups = groups_of("tagging", bert, lr=1e-4)
    assert {peak for peak, _ in groups} == {1e-4}


# 20 steps, of which 4 rise and 16 fall; step 12 is half-way down.
POINTS = {
    "constant": {0: 0.25, 3: 1.0, 4: 1.0, 12: 1.0, 19: 1.0},
    "linear": {0: 0.25, 3: 1.0, 4: 1.0, 8: 0.75, 12: 0.5, 19: 1 / 16},
    "cosine": {1: 0.5, 4: 1.0, 8: (1 + math.sqrt(0.5)) / 2, 12: 0.5},
    "polynomial": {2: 0.75, 4: 1.0, 8: 0.75**3, 12: 0.125},
}


@pytest.mark.parametrize("schedule", POINTS)
def test_rates_at_points_worked_out_by_hand(schedule):
    train = TrainSection(schedule=schedule, warmup=0.2, power=3.0)
    for step, wanted in POINTS[schedule].items():
        assert rate_factor(step, steps=20, train=train) == pytest.approx(wanted), step


@pytest.mark.parametrize("schedule", ["linear", "cosine", "polynomial"])
def test_rates_end_where_they_should(schedule):
    """A floor of 10%: half-way down a straight line is 0.1 + 0.9 · 0.5."""
    train = TrainSection(schedule=schedule, warmup=0.0, lr_end=0.1)
    assert rate_factor(0, steps=10, train=train) == 1.0
    assert rate_factor(5, steps=10, train=train) == pytest.approx(0.55)
    assert rate_factor(10, steps=10, train=train) == pytest.approx(0.1)


def test_a_rise_of_all_steps_and_of_none():
    assert rate_factor(0, steps=1, train=TrainSection(warmup=0.9)) == 1.0
    assert rate_factor(0, steps=3, train=TrainSection(warmup=0.0)) == 1.0


def test_every_group_keeps_its_share():
    groups = [
        {"params": [torch.nn.Parameter(torch.zeros(2))], "peak": 1e-3},
        {"params": [torch.nn.Parameter(torch.zeros(2))], "peak": 1e-2},
    ]
    optimizer = make_optimizer(groups, TrainSection(), fused=False, capturable=False)
    set_rate(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [5e-4, 5e-3]


def test_a_rate_that_a_graph_reads_changes_in_place():
    groups = [{"params": [torch.nn.Parameter(torch.zeros(2))], "peak": 1e-3}]
    optimizer = make_optimizer(groups, TrainSection(), fused=False, capturable=True)
    rate = optimizer.param_groups[0]["lr"]
    set_rate(optimizer, 0.5)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(5e-4)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_is_that_of_torch_to_the_bit(fused):
    weights = [torch.nn.Parameter(torch.linspace(-1, 1, 12).view(3, 4)) for _ in range(2)]
    train = TrainSection(lr=0.01, weight_decay=0.1)
    groups = [{"params": weights[:1], "peak": 0.01}]
    ours = make_optimizer(groups, train, fused=fused, capturable=False)
    settings = {
        key: value for key, value in ours.defaults.items() if key != "decoupled_weight_decay"
    }
    theirs = torch.optim.AdamW(weights[1:], **settings)
    for step in range(3):
        for weight, optimizer in zip(weights, (ours, theirs), strict=True):
            (weight.sin() * (step + 1)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            assert weight.grad is None
    assert torch.equal(*weights)
    assert not torch.equal(weights[0], torch.linspace(-1, 1, 12).view(3, 4))


def test_options_of_the_recipe_reach_the_optimizer():
    recipe = make_recipe(train={"betas": [0.8, 0.95], "eps": 1e-5, "weight_decay": 0.3})
    datasets = load_datasets(recipe, make_data())
    trainer = Trainer(recipe=recipe, folder=None, datasets=datasets, processes=Processes())
    for group in trainer.stepper.optimizer.param_groups:
        assert (group["betas"], group["eps"]) == ((0.8, 0.95), 1e-5)
        assert group["weight_decay"] in (0.3, 0.0)
