import pytest
import torch

from softf1.losses import dice_loss
from tests.losses.cases import batch


def one(p, y, **options):
    """The loss of one sigmoid example with probability p."""
    logits = torch.logit(torch.tensor([[p]], dtype=torch.float64))
    return dice_loss(logits, torch.tensor([y]), **options).item()


def test_equation_7_one_example():
    # positive, p = 0.8, smooth 1: 1 − (2·0.8 + 1) / (0.64 + 1 + 1) = 1 − 2.6 / 2.64 = 0.0151515
    assert one(0.8, 1) == pytest.approx(1 - 2.6 / 2.64)
    # negative: 1 − 1 / (0.64 + 1) = 0.3902
    assert one(0.8, 0) == pytest.approx(1 - 1 / 1.64)


def test_equations_5_and_6_with_the_factor_two():
    # The paper prints Eq. 5 and 6 without the factor 2 of its Eq. 4; with it, a perfect prediction
    # has DSC 1. Eq. 5, p = 0.8: 2·0.8 / 1.8 = 0.8889; Eq. 6, smooth 1: 2.6 / 2.8 = 0.9286.
    assert one(0.8, 1, squared=False, smooth=0.0) == pytest.approx(1 - 1.6 / 1.8)
    assert one(0.8, 1, squared=False) == pytest.approx(1 - 2.6 / 2.8)
    # Eq. 5: without smoothing a negative has DSC 0, whatever p is: it does not contribute.
    assert one(0.8, 0, squared=False, smooth=0.0) == one(0.1, 0, squared=False, smooth=0.0) == 1.0
    # Eq. 6: with it, DSC = smooth / (p + smooth) = 1 / 1.8
    assert one(0.8, 0, squared=False) == pytest.approx(1 - 1 / 1.8)


def test_footnote_4_sums_over_the_set_first():
    # p = (0.9, 0.6, 0.2), y = (1, 0, 1): 1 − (2·1.1 + 1) / (0.81 + 0.36 + 0.04 + 2 + 1)
    logits = torch.logit(torch.tensor([[0.9], [0.6], [0.2]], dtype=torch.float64))
    loss = dice_loss(logits, torch.tensor([1, 0, 1]), over="batch")
    assert loss.item() == pytest.approx(1 - 3.2 / 4.21)


def test_softmax_batch_level_by_hand():
    # p = (¾, ¼) and (½, ½), gold 0 and 1, linear, smooth 1. Class 0: 1 − (2·¾ + 1)/(1¼ + 1 + 1);
    # class 1: 1 − (2·½ + 1)/(¾ + 1 + 1).
    logits = torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=torch.float64).log()
    target = torch.tensor([0, 1])
    options = {"over": "batch", "squared": False}
    expected = [1 - 2.5 / 3.25, 1 - 2.0 / 2.75]
    assert dice_loss(logits, target, reduction="none", **options).tolist() == pytest.approx(
        expected
    )
    assert dice_loss(logits, target, **options).item() == pytest.approx(sum(expected) / 2)
    assert dice_loss(logits, target, reduction="sum", **options).item() == pytest.approx(
        sum(expected)
    )
    # weights 1 and 3: Σ w·l / Σ w
    weighted = dice_loss(logits, target, weight=[1.0, 3.0], **options).item()
    assert weighted == pytest.approx((expected[0] + 3 * expected[1]) / 4)


def test_micro_is_one_ratio_of_the_sums():
    # Classes 1 and 2; p = (.2, .5, .3) gold 1, (.6, .3, .1) gold 0; linear, smooth 1:
    # overlap 2·.5 = 1; total (.5 + .3) + (.3 + .1) + 1 = 2.2: 1 − (1 + 1) / (2.2 + 1)
    logits = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]], dtype=torch.float64).log()
    options = {"over": "batch", "average": "micro", "exclude": (0,), "squared": False}
    loss = dice_loss(logits, torch.tensor([1, 0]), **options)
    assert loss.item() == pytest.approx(1 - 2 / 3.2)
    # with weight 2 for class 2: overlap 1; total .5 + .3 + 1 + 2·(.3 + .1) = 2.6
    weighted = dice_loss(logits, torch.tensor([1, 0]), weight=[1.0, 1.0, 2.0], **options)
    assert weighted.item() == pytest.approx(1 - 2 / 3.6)


def test_micro_over_all_softmax_classes_is_refused_with_the_reason():
    logits, target = batch("softmax")
    with pytest.raises(ValueError, match="no trade of precision and recall is left"):
        dice_loss(logits, target, over="batch", average="micro")


def test_an_excluded_class_has_no_loss_of_its_own_but_its_rows_count():
    # All rows are of the excluded class 0: the other classes are all false positives.
    logits = torch.tensor([[1.0, 0.5, -0.5]], dtype=torch.float64, requires_grad=True)
    for over in ("example", "batch"):
        loss = dice_loss(logits, torch.tensor([0]), exclude=(0,), over=over)
        p = logits.detach().softmax(-1)[0, 1:]
        assert loss.item() == pytest.approx((p**2 / (p**2 + 1)).mean().item())
        (gradient,) = torch.autograd.grad(loss, logits)
        # pushing p1 and p2 down lifts p0, through softmax alone
        assert gradient[0, 0] < 0 < gradient[0, 1]
    sigmoid = logits.detach().requires_grad_()
    dice_loss(sigmoid, torch.tensor([[1, 0, 0]]), exclude=(0,)).backward()
    assert sigmoid.grad[0, 0] == 0


def test_a_class_without_positives_is_punished_for_its_false_positives():
    logits = torch.tensor([[0.0, 2.0], [0.0, 1.0]], requires_grad=True)
    loss = dice_loss(logits, torch.tensor([0, 0]), over="batch", reduction="none")
    assert loss[1] > 0.4
    loss[1].backward()
    assert (logits.grad[:, 1] > 0).all()


def test_batch_level_is_not_the_mean_of_its_halves():
    logits, target = batch("softmax", n=8)
    whole = dice_loss(logits, target, over="batch")
    halves = [dice_loss(logits[i::2], target[i::2], over="batch") for i in (0, 1)]
    assert abs(whole - sum(halves) / 2) > 1e-3


def test_more_smooth_makes_negatives_cheaper():
    assert one(0.5, 0, smooth=0.1) > one(0.5, 0, smooth=1.0) > one(0.5, 0, smooth=10.0)


def test_soft_targets_by_hand():
    # p = ½, y = 0.6: 1 − (2·0.3 + 1) / (0.25 + 0.36 + 1)
    loss = dice_loss(torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[0.6]]).double())
    assert loss.item() == pytest.approx(1 - 1.6 / 1.61)
