"""Asymmetric loss: its special cases, what clip does, and that it is for sigmoid alone."""

import math

import pytest
import torch

from softf1.losses import asymmetric_loss, cross_entropy_loss, focal_loss


def value_and_slope(p, label, **options):
    x = torch.logit(torch.tensor([[p]], dtype=torch.float64)).requires_grad_()
    value = asymmetric_loss(x, torch.tensor([[label]]), **options)
    value.backward()
    return value.item(), x.grad.item()


def test_one_gamma_and_no_clip_is_focal_and_gamma_0_cross_entropy():
    logits, target = torch.randn(9, 3, dtype=torch.float64), torch.arange(27).view(9, 3) % 2
    same = {"gamma_positive": 2.0, "gamma_negative": 2.0, "clip": 0.0}
    torch.testing.assert_close(asymmetric_loss(logits, target, **same), focal_loss(logits, target))
    none = {"gamma_positive": 0.0, "gamma_negative": 0.0, "clip": 0.0}
    for weight in (None, [2.0, 1.0, 0.5]):
        torch.testing.assert_close(
            asymmetric_loss(logits, target, weight=weight, **none),
            cross_entropy_loss(logits, target, weight=weight),
        )


def test_values_by_hand():
    # a positive at p = 0.8 with gamma 1: −0.2 · log 0.8; a negative at 0.5 − 0.1 with gamma 2
    assert value_and_slope(0.8, 1, gamma_positive=1.0)[0] == pytest.approx(-0.2 * math.log(0.8))
    found, _ = value_and_slope(0.5, 0, gamma_negative=2.0, clip=0.1)
    assert found == pytest.approx(-(0.4**2) * math.log(0.6))


def test_negatives_below_clip_cost_nothing_and_are_not_pushed():
    for gamma in (0.0, 0.5, 4.0):
        assert value_and_slope(0.04, 0, gamma_negative=gamma) == (0.0, 0.0)
        value, slope = value_and_slope(0.06, 0, gamma_negative=gamma)
        assert value > 0
        assert slope > 0


def test_gamma_negative_turns_negatives_down_and_leaves_positives_alone():
    for p in (0.2, 0.5, 0.8):
        soft, hard = ({"gamma_negative": gamma} for gamma in (1.0, 4.0))
        assert value_and_slope(p, 1, **soft) == value_and_slope(p, 1, **hard)
        assert value_and_slope(p, 0, **soft)[0] > value_and_slope(p, 0, **hard)[0]


def test_classes_that_exclude_each_other_are_refused():
    with pytest.raises(ValueError, match="refused for classes that exclude each other"):
        asymmetric_loss(torch.zeros(2, 3), torch.tensor([0, 1]))


@pytest.mark.parametrize("clip", [-0.1, 1.0])
def test_bad_options_are_refused(clip):
    logits, target = torch.zeros(2, 1), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="wanted 0 <= clip < 1"):
        asymmetric_loss(logits, target, clip=clip)
    for name in ("gamma_positive", "gamma_negative"):
        with pytest.raises(ValueError, match=f"wanted {name} >= 0"):
            asymmetric_loss(logits, target, **{name: -1.0})
