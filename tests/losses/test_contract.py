"""What every loss promises, run for every registry entry and option set."""

import pytest
import torch

from softf1.losses import loss_names, make_loss
from tests.losses.cases import (
    OPTIONS,
    WEIGHT,
    batch,
    build,
    every_case,
    every_mode,
    has_decay,
    is_batch_level,
    is_by_class,
    is_detached,
    is_ranking,
)
from tests.operations import Recorder


def value_and_gradient(loss, logits, target, mask=None, factor=1.0):
    x = logits.clone().requires_grad_()
    value = loss(x, target, mask)
    (value * factor).sum().backward()
    return value.detach(), x.grad


def test_every_registered_loss_has_cases():
    assert set(loss_names()) <= set(OPTIONS)


@every_case()
def test_logits_and_targets_must_be_tensors(name, options):
    loss, logits = build(name, options), torch.zeros(2, 4)
    with pytest.raises(TypeError, match="wanted logits as a tensor, got list"):
        loss([[0.0, 1.0]], [1])
    with pytest.raises(TypeError, match="wanted target as a tensor, got list"):
        loss(logits, [0, 1])


@every_mode
@every_case(but=is_detached)  # its gradient is not the derivative of its value: see test_dsc.py
def test_gradient_is_the_derivative_of_the_value(name, options, mode):
    logits, target = batch(mode)
    loss = build(name, options)
    assert torch.autograd.gradcheck(lambda x: loss(x, target), (logits.requires_grad_(),))


@every_mode
@every_case()
def test_what_is_ignored_or_masked_changes_nothing(name, options, mode):
    logits, target = batch(mode)
    mask = torch.tensor([True] * 5 + [False, True])
    loss = build(name, options)
    value, gradient = value_and_gradient(loss, logits, target, mask)
    other = logits.clone()
    other[5] = torch.tensor([1e4, float("nan"), -1e4, float("inf")])
    if mode == "softmax":
        other[1] = float("nan")
        rows = [1, 5]
    else:
        other[1, 2] = float("nan")
        rows = [5]
        assert gradient[1, 2] == 0
    changed, changed_gradient = value_and_gradient(loss, other, target, mask)
    assert torch.equal(value, changed)
    assert torch.equal(gradient, changed_gradient)
    assert (gradient[rows] == 0).all()


@every_mode
@every_case()
def test_leaving_rows_out_is_the_same_as_not_having_them(name, options, mode):
    logits, target = batch(mode)
    mask = torch.tensor([True, False, True, True, False, True, True])
    loss = build(name, options)
    value, gradient = value_and_gradient(loss, logits, target, mask)
    without, without_gradient = value_and_gradient(loss, logits[mask], target[mask])
    torch.testing.assert_close(value, without)
    torch.testing.assert_close(gradient[mask], without_gradient)


@every_mode
@every_case()
@pytest.mark.parametrize("n", [0, 3])
def test_nothing_to_count_gives_zero_with_zero_gradient(name, options, mode, n):
    logits, target = batch(mode)
    loss = build(name, options)
    value, gradient = value_and_gradient(loss, logits[:n], torch.full_like(target[:n], -100))
    assert value == 0
    assert (gradient == 0).all()


@every_mode
@every_case()
def test_the_order_of_the_rows_does_not_matter(name, options, mode):
    logits, target = batch(mode)
    order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(1))
    loss = build(name, options)
    value, gradient = value_and_gradient(loss, logits, target)
    shuffled, shuffled_gradient = value_and_gradient(loss, logits[order], target[order])
    torch.testing.assert_close(value, shuffled)
    torch.testing.assert_close(gradient[order], shuffled_gradient)


@every_mode
@every_case()
def test_leading_axes_are_only_rows(name, options, mode):
    logits, target = batch(mode, n=6)
    loss = build(name, options)
    flat, flat_gradient = value_and_gradient(loss, logits, target)
    folded, gradient = value_and_gradient(
        loss, logits.unflatten(0, (2, 3)), target.unflatten(0, (2, 3)), torch.ones(2, 3)
    )
    torch.testing.assert_close(flat, folded)
    torch.testing.assert_close(flat_gradient, gradient.flatten(0, 1))


@every_mode
@every_case()
def test_non_contiguous_logits_are_taken(name, options, mode):
    logits, target = batch(mode)
    loss = build(name, options)
    value, gradient = value_and_gradient(loss, logits, target)
    strided = torch.stack([logits, logits * 0], dim=-1)[..., 0].t().contiguous().t()
    assert not strided.is_contiguous()
    other, other_gradient = value_and_gradient(loss, strided, target)
    torch.testing.assert_close(value, other)
    torch.testing.assert_close(gradient, other_gradient)


@every_mode
@every_case()
def test_the_incoming_gradient_is_used(name, options, mode):
    logits, target = batch(mode)
    loss = build(name, options)
    _, once = value_and_gradient(loss, logits, target)
    _, thrice = value_and_gradient(loss, logits, target, factor=3.0)
    assert once.abs().sum() > 0
    torch.testing.assert_close(3 * once, thrice)


@every_mode
@every_case()
def test_two_runs_are_equal_to_the_bit(name, options, mode):
    logits, target = batch(mode, dtype=torch.float32)
    loss = build(name, options)
    first, second = (value_and_gradient(loss, logits, target) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


@every_mode
@every_case(but=lambda name, options: has_decay(name, options) or "label_smoothing" in options)
def test_a_perfect_prediction_costs_nothing(name, options, mode):
    logits, target = batch(mode)
    if mode == "softmax":
        logits = torch.full_like(logits, -60.0).scatter(1, target.clamp_min(0).unsqueeze(1), 60.0)
    else:
        logits = torch.where(target == 1, 60.0, -60.0).to(logits)
    value, gradient = value_and_gradient(build(name, options), logits, target)
    assert abs(value) < 1e-12
    assert gradient.abs().max() < 1e-12


@every_mode
@every_case()
def test_the_result_is_float32_and_the_gradient_has_the_dtype_of_the_logits(name, options, mode):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        logits, target = batch(mode, dtype=dtype)
        value, gradient = value_and_gradient(build(name, options), logits, target)
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert gradient.dtype == dtype


@every_mode
@every_case(but=lambda *case: is_batch_level(*case) or is_by_class(*case))
def test_a_class_at_minus_infinity_is_out_of_its_row(name, options, mode):
    logits, target = batch(mode)
    target[target == 3] = 2
    padded = torch.cat([logits[:, :3], torch.full_like(logits[:, :1], -torch.inf)], dim=1)
    loss = build(name, options)
    few = target[:, :3] if mode == "sigmoid" else target
    value, gradient = value_and_gradient(loss, logits[:, :3].contiguous(), few)
    other, other_gradient = value_and_gradient(loss, padded, target)
    torch.testing.assert_close(value, other)
    torch.testing.assert_close(gradient, other_gradient[:, :3])
    assert (other_gradient[:, 3] == 0).all()


@every_mode
@every_case(but=lambda name, _: "+" in name)  # has no values per row
def test_reductions_agree(name, options, mode):
    logits, target = batch(mode)
    none, total, mean = (
        build(name, options | {"reduction": reduction})(logits, target)
        for reduction in ("none", "sum", "mean")
    )
    if options.get("average") == "micro":
        assert none.shape == ()
        assert none == total == mean
        return
    if is_batch_level(name, options):
        assert none.shape == (logits.shape[1],)
        weight = torch.tensor(options.get("weight", [1.0] * logits.shape[1])).to(none)
        weight[list(options.get("exclude", ()))] = 0
        if is_ranking(name) and mode == "softmax":  # a class that no row has is not ranked
            weight[[c for c in range(len(weight)) if c not in target]] = 0
    else:
        assert none.shape == logits.shape[:-1]
        weight = torch.ones_like(none)
        if mode == "softmax":
            assert none[1] == 0
            weight[1] = 0
    if name in {"ce", "wce", "wfocal"} and "weight" in options and mode == "softmax":
        counts = torch.tensor(options["weight"]).to(none)[target.clamp_min(0)] * weight
        torch.testing.assert_close(total, none.sum())
        torch.testing.assert_close(mean, none.sum() / counts.sum())
    else:
        torch.testing.assert_close(total, (none * weight).sum())
        torch.testing.assert_close(mean, (none * weight).sum() / weight.sum())


@every_case(but=lambda name, options: is_by_class(name, options) and name[0] != "w")
def test_one_logit_takes_targets_with_and_without_the_class_axis(name, options):
    if "weight" in options:
        options = options | {"weight": [2.0]}
    logits = torch.tensor([[0.3], [-1.0], [2.0], [0.1]], dtype=torch.float64)
    target = torch.tensor([1, 0, -100, 1])
    loss = build(name, options)
    value, gradient = value_and_gradient(loss, logits, target)
    other, other_gradient = value_and_gradient(loss, logits, target.unsqueeze(-1))
    assert torch.equal(value, other)
    assert torch.equal(gradient, other_gradient)
    assert gradient[2] == 0
    assert gradient[1] > 0
    if options.get("alpha") != 2.5:  # the decay of the paper pushes back from p = 1 / 3.5
        assert gradient[0] < 0


@every_mode
@every_case()
def test_without_a_kernel_a_device_adds_up_in_a_fixed_order_and_nothing_waits_for_it(
    name, options, mode
):
    """On the device `meta`, which has no values, a loss takes the path of a GPU without Triton."""
    logits, target = (given.to("meta") for given in batch(mode))
    if options.get("weight") == WEIGHT:
        options = options | {"weight": torch.tensor(WEIGHT, device="meta")}
    with Recorder() as recorder:
        make_loss(name, **options)(logits.requires_grad_(), target).sum().backward()
    assert logits.grad is not None
    assert not recorder.unordered()
