"""Steps: however they are cut their gradient is the same; what is not finite is left out."""

import math

import numpy as np
import pytest
import torch

from softf1.errors import InputError
from softf1.recipe import with_values
from softf1.training.batching import BatchSampler, collate_rows
from softf1.training.build import make_model
from softf1.training.datasets import load_datasets
from softf1.training.objective import make_objective, make_optimizer, parameter_groups
from softf1.training.run import train_run
from softf1.training.step import LOSS, NORM, RUN, SKIPPED, STEPS, Attack, Stepper
from tests.training.toys import make_data, make_recipe

LOSSES = {
    "rows": {"name": "ce"},
    "batch": {"name": "dice", "over": "batch", "exclude": ["O"]},
    "both": {"name": "ce+tversky", "tversky": {"over": "batch", "alpha": 0.3, "beta": 0.7}},
}


@pytest.fixture(scope="module")
def datasets():
    return load_datasets(make_recipe(), make_data())


def make_stepper(
    datasets,
    loss,
    *,
    dropout=0.0,
    expected=None,
    windows=False,
    fused=True,
    clip=0.0,
    consistency=0.0,
    dtype=torch.float32,
    **options,
):
    recipe = with_values(make_recipe(loss=loss), {"encoder.dropout": dropout})
    model = make_model(recipe, datasets).to(dtype).train()
    task, features = datasets.task, datasets.features["train"]
    objective = make_objective(
        recipe.loss,
        keys=tuple(task.heads(model)),
        counts=task.class_counts(features),
        labels=task.labels,
        steps=10,
        expected=expected,
        consistency=consistency,
    ).to(dtype)
    if windows:
        objective.open_windows()
    groups = parameter_groups(model, task, recipe.train)
    optimizer = make_optimizer(groups, recipe.train, fused=fused, capturable=False)
    return Stepper(
        model,
        task=task,
        objective=objective,
        optimizer=optimizer,
        device=torch.device("cpu"),
        clip=clip,
        alone=not windows,
        **options,
    )


def make_batches(datasets, size=24, accumulate=1, step=0, micro_tokens=0):
    """The micro-batches of a step; the items of a step do not depend on their number."""
    features = datasets.features["train"]
    plan = BatchSampler(
        features["length"], batch_size=size, accumulate=accumulate, micro_tokens=micro_tokens
    )
    return [
        collate_rows(datasets.task, features, micro, datasets.tokenizer)
        for micro in plan.epoch(0)[step]
    ]


def gradient(stepper, batches):
    """The gradient as one vector."""
    torch.manual_seed(3)
    stepper.gradient(batches)
    found = torch.cat([p.grad.flatten() for p in stepper.parameters if p.grad is not None])
    stepper.optimizer.zero_grad()
    return found


@pytest.mark.parametrize("expected", [None, 100.0], ids=["equal", "targets"])
@pytest.mark.parametrize("loss", LOSSES)
def test_however_a_step_is_cut_its_gradient_is_that_of_the_whole(datasets, loss, expected):
    whole = make_stepper(datasets, LOSSES[loss], expected=expected)
    cut = make_stepper(datasets, LOSSES[loss], expected=expected, windows=True)
    wanted = gradient(whole, make_batches(datasets))
    assert wanted.abs().max() > 1e-3
    for accumulate in (1, 2, 4):
        found = gradient(cut, make_batches(datasets, accumulate=accumulate))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("expected", [None, 100.0], ids=["equal", "targets"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_cut_by_its_tokens_has_the_gradient_of_the_whole(datasets, loss, expected):
    whole = make_stepper(datasets, LOSSES[loss], expected=expected)
    cut = make_stepper(datasets, LOSSES[loss], expected=expected, windows=True)
    wanted = gradient(whole, make_batches(datasets))
    for tokens in (20, 60, 150):
        batches = make_batches(datasets, micro_tokens=tokens)
        assert len(batches) > 1
        found = gradient(cut, batches)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_loss_that_is_shown_is_that_of_the_whole_and_not_weighed(datasets, loss):
    values = {
        stepper.gradient(make_batches(datasets, accumulate=accumulate)).item()
        for accumulate, stepper in [
            (1, make_stepper(datasets, LOSSES[loss])),
            (1, make_stepper(datasets, LOSSES[loss], expected=7.0)),
            (3, make_stepper(datasets, LOSSES[loss], expected=7.0, windows=True)),
        ]
    }
    assert max(values) == pytest.approx(min(values), rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "cut"),
    [*((loss, {"accumulate": 4}) for loss in LOSSES), ("both", {"micro_tokens": 40})],
    ids=str,
)
def test_steps_that_are_cut_give_the_same_weights(loss, cut, tmp_path):
    """Eight steps of AdamW in one piece and in several."""
    weights = []
    for part in ({}, cut):
        train = {"eps": 1e-6, "lr": 1e-3} | part
        recipe = make_recipe(loss=LOSSES[loss], train=train, evaluate={"metric": "f1"})
        recipe = with_values(recipe, {"encoder.dropout": 0.0})
        folder = tmp_path / str(len(weights))
        with pytest.MonkeyPatch.context() as patch:
            # The last weights, whichever evaluation is best.
            rising = iter(range(9))
            patch.setattr("softf1.training.trainer.read_score", lambda *_, n=rising: next(n))
            train_run(recipe, folder, data=make_data(), quiet=True)
        weights.append((folder / "model/model.safetensors").read_bytes())
    whole, several = (
        np.frombuffer(found[8 + int.from_bytes(found[:8], "little") :], np.float32)
        for found in weights
    )
    assert np.abs(whole - several).max() < 1e-5


def test_hard_negative_mining_takes_a_step_whole_unless_told_to_cut_it(tmp_path):
    mined = {"name": "dice", "over": "batch", "ohem_ratio": 2.0}
    data, values = make_data(), {"max_steps": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("softf1.training.build.MICRO_TOKENS", {"cpu": 40})
        patch.setattr("softf1.training.build.MICRO_TOKENS_ELSEWHERE", 40)
        train_run(make_recipe(loss=mined, train=values), tmp_path / "a", data=data, quiet=True)
    told = make_recipe(loss=mined, train=values | {"micro_tokens": 40})
    with pytest.raises(InputError, match=r"train\.micro_tokens .*ohem"):
        train_run(told, tmp_path / "b", data=data, quiet=True)


def test_both_passes_see_the_same_dropout(datasets):
    stepper = make_stepper(datasets, LOSSES["batch"], dropout=0.5, windows=True)
    stepper.gradient(make_batches(datasets, accumulate=3))
    (window,) = stepper.objective.windows.values()
    assert window.mismatch < 1e-6


def test_two_half_steps_by_their_targets_are_the_whole(datasets):
    """n/E · ∇mean = n₁/E · ∇mean₁ + n₂/E · ∇mean₂: a target weighs the same in either half."""
    (whole,) = make_batches(datasets, size=60)
    parts = make_batches(datasets, size=60, accumulate=2)
    counts = [int((part.targets["tags"] >= 0).sum()) for part in parts]
    assert counts[0] != counts[1]
    weighed, equal = (make_stepper(datasets, LOSSES["rows"], expected=e) for e in (50.0, None))
    wanted = gradient(weighed, [whole])
    halves = [gradient(weighed, [part]) for part in parts]
    torch.testing.assert_close(sum(halves), wanted, rtol=1e-4, atol=1e-6)
    plain = [gradient(equal, [part]) for part in parts]
    same = gradient(equal, [whole])
    assert (sum(plain) / 2 - same).norm() > 0.05 * same.norm()


def test_an_epoch_of_steps_by_their_targets_is_unbiased(datasets):
    """The mean over the steps of an epoch is the gradient over all its targets, at any cut."""
    features = datasets.features["train"]
    targets = int(datasets.task.class_counts(features)["tags"].sum())
    (everything,) = make_batches(datasets, size=len(features))
    wanted = gradient(make_stepper(datasets, LOSSES["rows"]), [everything])
    plan = BatchSampler(features["length"], batch_size=16)
    steps = len(plan.epoch(0))
    means = {}
    for name, expected in (("targets", targets / steps), ("equal", None)):
        stepper = make_stepper(datasets, LOSSES["rows"], expected=expected)
        found = [gradient(stepper, make_batches(datasets, size=16, step=i)) for i in range(steps)]
        means[name] = (torch.stack(found).mean(0) - wanted).norm() / wanted.norm()
    assert means["targets"] < 1e-5
    assert means["equal"] > 0.02


def test_steps_weigh_by_their_targets_with_running_statistics_too(datasets):
    """From the second step on there is no first pass that would count."""
    loss = {"name": "dice", "over": "batch", "statistics": "running"}
    found = {}
    for expected in (None, 50.0):
        stepper = make_stepper(datasets, loss, expected=expected, windows=True)
        stepper.gradient(make_batches(datasets, step=0))
        stepper.optimizer.zero_grad()
        found[expected] = gradient(stepper, make_batches(datasets, step=1))
    kept = sum(int((b.targets["tags"] >= 0).sum()) for b in make_batches(datasets, step=1))
    torch.testing.assert_close(found[50.0], found[None] * (kept / 50), rtol=1e-4, atol=1e-8)


def test_running_statistics_are_those_of_the_clean_passes(datasets):
    loss = {"name": "dice", "over": "batch", "statistics": "running"}
    averages = []
    for attack in (None, Attack(0.5)):
        stepper = make_stepper(datasets, loss, windows=True, attack=attack)
        for step in range(3):
            stepper.gradient(make_batches(datasets, step=step, accumulate=2))
        averages.append(stepper.objective.running_statistics()["tags"])
    assert torch.equal(*averages)


def weights_of(stepper):
    return [parameter.detach().clone() for parameter in stepper.parameters]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(datasets, fused, wrong):
    stepper = make_stepper(datasets, LOSSES["rows"], fused=fused, clip=1.0)
    stepper.step(make_batches(datasets, step=0))
    before = weights_of(stepper)
    state = {k: v.clone() for k, v in stepper.optimizer.state[stepper.parameters[0]].items()}
    stepper.gradient(make_batches(datasets, step=1))
    stepper.parameters[1].grad.view(-1)[0] = wrong
    stepper.update(torch.tensor(wrong))
    assert all(map(torch.equal, before, weights_of(stepper)))
    after = stepper.optimizer.state[stepper.parameters[0]]
    assert all(torch.equal(state[key], after[key]) for key in state)
    assert all(parameter.grad is None for parameter in stepper.parameters)
    stepper.step(make_batches(datasets, step=1))
    assert not all(map(torch.equal, before, weights_of(stepper)))


def test_the_meter_counts_steps_and_those_left_out_in_a_row(datasets):
    stepper = make_stepper(datasets, LOSSES["rows"])
    losses, norms = [], []
    for wrong in (None, math.nan, math.inf, None, math.nan):
        losses.append(stepper.gradient(make_batches(datasets)))
        norms.append(stepper._clip().item())
        if wrong is not None:
            stepper.parameters[0].grad.view(-1)[0] = wrong
        stepper.update(losses[-1] if wrong is None else torch.tensor(wrong))
    meter = stepper.read_meter()
    assert (meter[STEPS], meter[SKIPPED], meter[RUN]) == (5, 3, 1)
    assert meter[LOSS] == pytest.approx((losses[0] + losses[3]).item())
    assert meter[NORM] == pytest.approx(max(norms[0], norms[3]))  # of the steps that were made
    assert stepper.read_meter() == [0, 0, 0, 0, 1]  # a row goes on over readings


@pytest.mark.parametrize(("clip", "wanted"), [(0.0, 1.0), (0.05, None), (100.0, 1.0)])
def test_clipping_scales_the_gradient_to_the_norm(datasets, clip, wanted):
    free = gradient(make_stepper(datasets, LOSSES["rows"]), make_batches(datasets))
    stepper = make_stepper(datasets, LOSSES["rows"], clip=clip)
    stepper.gradient(make_batches(datasets))
    norm = stepper._clip()
    assert norm.item() == pytest.approx(free.norm().item())
    found = torch.cat([p.grad.flatten() for p in stepper.parameters if p.grad is not None])
    share = wanted or clip / norm.item()
    torch.testing.assert_close(found, free * share, rtol=1e-4, atol=1e-8)
    stepper.update(torch.tensor(0.0))
    assert stepper.read_meter()[NORM] == pytest.approx(min(norm.item(), clip or norm.item()), 1e-3)
