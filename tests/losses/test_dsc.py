import pytest
import torch

from softf1.losses import dice_loss, self_adjusting_dice_loss
from tests.losses.cases import batch, every_mode


def one(p, y, **options):
    logits = torch.logit(torch.tensor([[p]], dtype=torch.float64)).requires_grad_()
    loss = self_adjusting_dice_loss(logits, torch.tensor([y]), **options)
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.item(), gradient.item()


def test_equation_11_and_table_2_with_the_factor_two():
    # p = 0.8: q = 0.2·0.8 = 0.16. Eq. 11 prints 0.16 / 1.16 for a positive; with the factor 2 of
    # Eq. 4 and smooth 0: 1 − 0.32 / 1.16. With smooth 1: 1 − 1.32 / 2.16; a negative 1 − 1 / 1.16.
    assert one(0.8, 1, smooth=0.0)[0] == pytest.approx(1 - 0.32 / 1.16)
    assert one(0.8, 1)[0] == pytest.approx(1 - 1.32 / 2.16)
    assert one(0.8, 0)[0] == pytest.approx(1 - 1 / 1.16)
    # squared: q² + y² below
    assert one(0.8, 1, squared=True)[0] == pytest.approx(1 - 1.32 / (0.16**2 + 2))
    # alpha 2: q = 0.04·0.8 = 0.032
    assert one(0.8, 1, alpha=2.0)[0] == pytest.approx(1 - 1.064 / 2.032)


def test_equation_10_is_the_hard_form_of_equation_5():
    # I(p > .5) in place of p: a correct positive has F1 1, a missed one 0 (smooth 0, alpha 0).
    assert one(1 - 1e-12, 1, alpha=0.0, smooth=0.0)[0] == pytest.approx(0.0, abs=1e-9)
    assert one(1e-12, 1, alpha=0.0, smooth=0.0)[0] == pytest.approx(1.0, abs=1e-9)


@every_mode
@pytest.mark.parametrize("over", ["example", "batch"])
@pytest.mark.parametrize("squared", [True, False])
def test_alpha_zero_is_dice(mode, over, squared):
    logits, target = batch(mode)
    options = {"over": over, "squared": squared}
    for decay in ("detached", "paper"):
        dsc = self_adjusting_dice_loss(logits, target, alpha=0.0, decay=decay, **options)
        assert torch.equal(dsc, dice_loss(logits, target, **options))


def test_a_perfect_positive_costs_one_over_one_plus_smooth():
    for smooth in (0.5, 1.0, 2.0):
        value, gradient = one(1 - 1e-15, 1, smooth=smooth)
        assert value == pytest.approx(1 / (1 + smooth))
        assert gradient == pytest.approx(0, abs=1e-12)


@every_mode
@pytest.mark.parametrize("alpha", [0.01, 0.5, 1.0, 2.5])
@pytest.mark.parametrize("options", [{}, {"over": "batch"}, {"squared": True}])
def test_detached_is_the_gradient_with_the_decay_held_constant(mode, alpha, options):
    """The same loss written with plain autograd and the decay under no_grad."""
    logits, target = batch(mode)
    x = logits.clone().requires_grad_()
    self_adjusting_dice_loss(x, target, alpha=alpha, **options).backward()
    z = logits.clone().requires_grad_()
    p = z.softmax(-1) if mode == "softmax" else z.sigmoid()
    q = p * ((1 - p) ** alpha).detach()
    if mode == "softmax":
        y = torch.nn.functional.one_hot(target.clamp_min(0), 4).double()
        kept = (target >= 0).unsqueeze(1).expand_as(p)
    else:
        y, kept = target.clamp_min(0).double(), target >= 0
    power = 2 if options.get("squared") else 1
    top, bottom = 2 * q * y * kept, (q**power + y**power) * kept
    if options.get("over") == "batch":
        expected = (1 - (top.sum(0) + 1) / (bottom.sum(0) + 1)).mean()
    else:
        rows = ((1 - (top + 1) / (bottom + 1)) * kept).sum(-1) / kept.sum(-1).clamp_min(1)
        expected = rows[kept.any(-1)].mean()
    expected.backward()
    torch.testing.assert_close(x.grad, z.grad)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_as_printed_a_correct_prediction_is_pushed_back_to_one_over_one_plus_alpha(alpha):
    turn = 1 / (1 + alpha)
    for p in (0.05, 0.3, 0.6, 0.9, 0.99):
        _, gradient = one(p, 1, alpha=alpha, decay="paper")
        assert (gradient < 0) == (p < turn)
        assert one(p, 1, alpha=alpha)[1] < 0  # detached: up to p = 1


def test_a_larger_alpha_turns_confident_examples_down():
    # the share of a confident positive in the gradient, against an undecided one
    shares = [
        one(0.95, 1, alpha=alpha)[1] / one(0.5, 1, alpha=alpha)[1] for alpha in (0.0, 1.0, 2.0)
    ]
    assert shares[0] > 2 * shares[1] > 4 * shares[2]
