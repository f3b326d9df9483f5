"""ZLPR: against its formula, its special cases, and which negatives it pushes."""

import math

import pytest
import torch

from softf1.losses import cross_entropy_loss, zlpr_loss


def by_formula(row, labels, weights, margin):
    """log(1 + Σ of negatives) + log(1 + Σ of positives); a label of None is left out."""
    above = sum(
        (1 - y) * math.exp(margin + x) for x, y in zip(row, labels, strict=True) if y is not None
    )
    below = sum(
        w * y * math.exp(margin - x)
        for x, y, w in zip(row, labels, weights, strict=True)
        if y is not None
    )
    return math.log(1 + above) + math.log(1 + below)


def test_values_are_those_of_the_formula():
    draw = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(6, 4, dtype=torch.float64, generator=draw)
    target = torch.randint(0, 2, (6, 4), generator=draw).double()
    target[0, 1], target[1] = 0.3, 0.0  # a soft one; a row without positives
    target[2, 3] = -100
    mask = torch.tensor([True] * 5 + [False])
    for weights, margin in (([1.0] * 4, 0.0), ([0.5, 2.0, 1.0, 3.0], 0.7)):
        given = {"weight": weights, "margin": margin, "mask": mask}
        wanted = [
            by_formula(row, [None if y == -100 else y for y in labels], weights, margin)
            for row, labels in zip(logits.tolist(), target.tolist(), strict=True)
        ]
        found = zlpr_loss(logits, target, **given, reduction="none")
        assert found.tolist() == pytest.approx([*wanted[:5], 0.0], abs=1e-12)
        assert zlpr_loss(logits, target, **given).item() == pytest.approx(sum(wanted[:5]) / 5)


def test_a_class_index_is_one_positive():
    logits, target = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 2, 1, -100, 2])
    same = torch.nn.functional.one_hot(target.clamp_min(0), 3)
    same[3] = -100
    torch.testing.assert_close(zlpr_loss(logits, target), zlpr_loss(logits, same))


def test_one_class_is_cross_entropy():
    logits, target = torch.randn(9, 1, dtype=torch.float64), torch.arange(9) % 2
    torch.testing.assert_close(zlpr_loss(logits, target), cross_entropy_loss(logits, target))


def test_positions_without_a_token_have_no_part():
    logits = torch.tensor([[1.0, -2.0, 0.5, -math.inf, -math.inf]], requires_grad=True)
    zlpr_loss(logits, torch.tensor([2])).backward()
    shorter = torch.tensor([[1.0, -2.0, 0.5]], requires_grad=True)
    zlpr_loss(shorter, torch.tensor([2])).backward()
    torch.testing.assert_close(logits.grad, torch.nn.functional.pad(shorter.grad, (0, 2)))


def test_many_easy_negatives_do_not_outweigh_a_positive():
    """Of 1,000 negatives, cross entropy pushes all alike; here the highest has the push."""
    logits = torch.full((1, 1001), -9.0, dtype=torch.float64)
    logits[0, 0], logits[0, 1] = -1.0, 3.0  # a missed positive, and a false one
    target = torch.zeros(1, 1001)
    target[0, 0] = 1
    x = logits.requires_grad_()
    (slope,) = torch.autograd.grad(zlpr_loss(x, target), x)
    # e³ of 1 + e³ + 999·e⁻⁹ for the negative, e of 1 + e for the positive
    assert slope[0, 1].item() == pytest.approx(math.exp(3) / (1 + math.exp(3) + 999 / math.exp(9)))
    assert slope[0, 0].item() == pytest.approx(-math.e / (1 + math.e))
    assert slope[0, 2:].sum() < 0.01


def test_a_weight_is_a_margin():
    logits = torch.tensor([[0.7, -0.2]], dtype=torch.float64)
    moved = logits - torch.tensor([[math.log(3.0), 0.0]])
    weighted = zlpr_loss(logits, torch.tensor([[1, 0]]), weight=[3.0, 1.0])
    torch.testing.assert_close(weighted, zlpr_loss(moved, torch.tensor([[1, 0]])))


@pytest.mark.parametrize("name", ["target", "weight"])
def test_targets_and_weights_have_no_gradient(name):
    given = {"target": torch.rand(2, 3), "weight": torch.ones(3)}
    given[name].requires_grad_()
    with pytest.raises(ValueError, match=f"no gradient with respect to {name}"):
        zlpr_loss(torch.zeros(2, 3), given["target"], weight=given["weight"])


def test_a_negative_margin_is_refused():
    with pytest.raises(ValueError, match="wanted margin >= 0"):
        zlpr_loss(torch.zeros(2, 3), torch.tensor([0, 1]), margin=-0.1)
