import math

import pytest
import torch

from softf1.losses import cross_entropy_loss, focal_loss
from tests.losses.cases import WEIGHT, batch, every_mode


@every_mode
def test_gamma_zero_is_cross_entropy(mode):
    logits, target = batch(mode)
    for weight in (None, WEIGHT):
        torch.testing.assert_close(
            focal_loss(logits, target, gamma=0.0, weight=weight),
            cross_entropy_loss(logits, target, weight=weight),
        )


def test_table_2_by_hand():
    # −(1 − 0.8)² · log 0.8 = 0.04 · 0.2231 = 0.008926
    logits = torch.tensor([[0.8, 0.2]]).log()
    loss = focal_loss(logits, torch.tensor([0]), gamma=2.0)
    assert loss.item() == pytest.approx(-0.04 * math.log(0.8))


def test_sigmoid_by_hand():
    # positive with p = 0.8 and pos_weight 2: 2 · 0.2² · 0.2231; negative: 0.8² · −log 0.2
    logits = torch.logit(torch.tensor([[0.8], [0.8]], dtype=torch.float64))
    values = focal_loss(logits, torch.tensor([1, 0]), weight=[2.0], reduction="none")
    assert values.tolist() == pytest.approx([-2 * 0.04 * math.log(0.8), -0.64 * math.log(0.2)])


def test_a_larger_gamma_turns_easy_examples_down_more_than_hard_ones():
    logits = torch.tensor([[4.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    share = []
    for gamma in (0.0, 1.0, 3.0):
        values = focal_loss(logits, torch.tensor([0, 0]), gamma=gamma, reduction="sum")
        (gradient,) = torch.autograd.grad(values, logits)
        easy, hard = gradient.abs().sum(-1)
        share.append((easy / hard).item())
    assert share[0] > 10 * share[1] > 100 * share[2]


@pytest.mark.parametrize("gamma", [2.0, 4.0])
def test_an_even_gamma_is_one_among_others(gamma):
    # Probabilities from 1e-17 to 1: an even power takes another way than its neighbours.
    x = torch.tensor([-40.0, -2.0, -0.0, 3.0, 40.0], dtype=torch.float64, requires_grad=True)
    logits = torch.stack([x, torch.zeros_like(x)], dim=1)
    found = []
    for near in (gamma, gamma + 1e-9):
        values = focal_loss(logits, torch.zeros(5, dtype=torch.long), gamma=near, reduction="none")
        (first,) = torch.autograd.grad(values.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, retain_graph=True)
        found.append(torch.stack([values, first, second]).detach())
    assert found[0].isfinite().all()
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-12)
