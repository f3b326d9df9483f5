"""NaN in a row that does not count changes nothing; in one that counts it is not hidden."""

import math

import pytest
import torch

from softf1.losses import dice_loss, self_adjusting_dice_loss, tversky_loss
from softf1.losses._ratio import _sum_by_class

LOSSES = pytest.mark.parametrize(
    ("loss", "options"),
    [
        (dice_loss, {}),
        (tversky_loss, {"squared": True}),
        (self_adjusting_dice_loss, {}),
        (self_adjusting_dice_loss, {"alpha": 0.5, "decay": "paper"}),
    ],
)
LEVELS = pytest.mark.parametrize("over", ["example", "batch"])
CLASSES = pytest.mark.parametrize("classes", [3, 20])  # two ways to a softmax


def rows(classes, target):
    logits = torch.randn(len(target), classes, generator=torch.Generator().manual_seed(0))
    return logits, torch.tensor(target)


def value_and_gradient(loss, logits, target, **options):
    logits = logits.clone().requires_grad_()
    value = loss(logits, target, **options)
    value.backward()
    return value.detach(), logits.grad


@LOSSES
@LEVELS
@CLASSES
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e4])
def test_what_an_ignored_row_holds_changes_nothing(loss, options, over, classes, garbage):
    logits, target = rows(classes, [0, 1, -100, 2])
    expected, gradient = value_and_gradient(loss, logits, target, over=over, **options)
    logits[2] = garbage
    value, changed = value_and_gradient(loss, logits, target, over=over, **options)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(changed, gradient)
    assert not changed[2].any()


@LOSSES
@LEVELS
@CLASSES
@pytest.mark.parametrize("where", [0, 1, slice(None)])
def test_nan_in_a_row_that_counts_reaches_value_and_gradient(loss, options, over, classes, where):
    logits, target = rows(classes, [0, 1, -100, 2])
    logits[1, where] = math.nan
    value, gradient = value_and_gradient(loss, logits, target, over=over, **options)
    assert value.isnan()
    assert gradient[1].isnan().all()
    if over == "example":  # over the batch, one NaN is in everything
        assert gradient[0].isfinite().all()
        assert not gradient[2].any()


@LOSSES
@CLASSES
def test_logits_without_gradient_give_the_same_value(loss, options, classes):
    logits, target = rows(classes, [0, 1, -100, 2])
    expected, _ = value_and_gradient(loss, logits, target, **options)
    torch.testing.assert_close(loss(logits, target, **options), expected)


def test_a_negative_far_above_a_small_smooth_keeps_the_precision_of_its_gradient():
    # l = p² / (p² + smooth) of both wrong classes is nearly 1, so 1 − l is mostly rounding.
    logits, target = torch.tensor([[-20.0, 0.0, 0.5]]), torch.tensor([0])
    _, gradient = value_and_gradient(dice_loss, logits, target, smooth=1e-6)
    _, exact = value_and_gradient(dice_loss, logits.double(), target, smooth=1e-6)
    torch.testing.assert_close(gradient.double(), exact, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("classes", [3, 20])  # overlaps of few classes are summed otherwise
def test_sums_over_many_rows_are_exact(classes):
    target = torch.arange(50_000) % classes
    logits = torch.randn(50_000, classes, generator=torch.Generator().manual_seed(0))
    options = {"over": "batch", "reduction": "none"}
    found = dice_loss(logits, target, **options)
    wanted = dice_loss(logits.double(), target, **options)
    torch.testing.assert_close(found, wanted.float(), rtol=1e-6, atol=0)


def test_overlaps_are_summed_where_the_logits_are_whatever_the_default_device_is():
    gold, values = torch.arange(40)[:, None] % 8, torch.ones(40, 1)
    buffer = torch.zeros(40, 8)
    with torch.device("meta"):
        sums = _sum_by_class(values, gold, buffer)
    assert sums.tolist() == [5.0] * 8
