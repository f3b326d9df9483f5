"""Defects of other implementations, each named after what a user would have seen.

B and F are the defects of the authors' code (ShannonAI/dice_loss_for_NLP), by their numbers in our
notes on peers.
"""

import math
import time

import pytest
import torch

from softf1.losses import (
    FocalLoss,
    dice_loss,
    focal_loss,
    make_loss,
    self_adjusting_dice_loss,
    tversky_loss,
)
from tests.losses.cases import batch


def perfect(n, classes):
    target = torch.arange(n) % classes
    return torch.full((n, classes), -50.0).scatter(1, target.unsqueeze(1), 50.0), target


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("over", ["example", "batch"])
def test_b1_the_loss_of_a_perfect_prediction_grows_with_the_batch(over, squared):
    for n in (6, 60, 600):
        logits, target = perfect(n, 3)
        assert dice_loss(logits, target, over=over, squared=squared).item() == pytest.approx(
            0, abs=1e-6
        )


def test_b1_the_set_level_loss_sums_nothing_over_the_batch():
    logits, target = batch("softmax")
    rows = dice_loss(logits, target, reduction="none")
    assert abs(dice_loss(logits, target, over="batch") - rows.sum() / (target >= 0).sum()) > 1e-2


@pytest.mark.parametrize("over", ["example", "batch"])
def test_b2_the_loss_grows_with_the_number_of_classes(over):
    for classes in (3, 15, 50):
        logits = torch.zeros(2 * classes, classes)
        loss = dice_loss(logits, torch.arange(2 * classes) % classes, over=over)
        assert 0 < loss <= 1


def test_b3_a_mask_only_scales_the_loss():
    # p = ½ for one positive and three negatives, the last two masked; batch level, linear:
    # 1 − (2·½ + 1) / (2·½ + 1 + 1); all four: 1 − 2 / (4·½ + 1 + 1), half of which the peer gives.
    logits, target = torch.zeros(4, 1, requires_grad=True), torch.tensor([1, 0, 0, 0])
    mask = torch.tensor([True, True, False, False])
    loss = dice_loss(logits, target, mask=mask, over="batch", squared=False)
    assert loss.item() == pytest.approx(1 - 2 / 3)
    loss.backward()
    assert (logits.grad[2:] == 0).all()
    assert (logits.grad[:2] != 0).all()


def test_b4_a_mask_with_as_many_rows_as_classes_masks_classes():
    logits, target = torch.randn(4, 4), torch.tensor([0, 1, 2, 3])
    mask = torch.tensor([True, True, True, False])
    for over in ("example", "batch"):
        masked = dice_loss(logits, target, mask=mask, over=over)
        torch.testing.assert_close(masked, dice_loss(logits[:3], target[:3], over=over))


def test_b5_multi_class_ohem_raises():
    logits, target = batch("softmax")
    assert torch.isfinite(dice_loss(logits, target, over="batch", ohem_ratio=0.3))


@pytest.mark.parametrize(
    ("positives", "negatives", "ratio"),
    [(4, 1532, 0.3), (2, 766, 0.1), (7, 500, 0.3), (10, 500, 0.3), (1, 0, 0.3), (0, 1, 0.3)],
)
def test_b6_ohem_keeps_nearly_all_or_none_of_the_negatives(positives, negatives, ratio):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(positives + negatives, 1, generator=generator).requires_grad_()
    target = (torch.arange(positives + negatives) < positives).long()
    dice_loss(logits, target, over="batch", ohem_ratio=ratio).backward()
    kept = int((logits.grad[positives:] != 0).sum())
    assert kept == min(negatives, max(1, math.ceil(ratio * positives)))


def test_b7_masked_negatives_take_the_places_of_hard_ones():
    logits = torch.tensor([[1.0], [-8.0], [-9.0], [0.0]], requires_grad=True)
    mask = torch.tensor([True, True, True, False])
    target = torch.tensor([1, 0, 0, 0])
    dice_loss(logits, target, mask=mask, over="batch", ohem_ratio=1.0).backward()
    assert logits.grad[1] != 0
    assert (logits.grad[2:] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("decay", ["detached", "paper"])
def test_b8_nan_as_soon_as_the_model_is_sure(dtype, decay):
    for alpha in (0.01, 0.5):
        for logits, target in (
            (torch.tensor([[17.0], [9.0], [30.0]]), torch.tensor([1, 1, 0])),
            (torch.tensor([[17.0, 0.0], [-40.0, 40.0]]), torch.tensor([0, 0])),
        ):
            x = logits.to(dtype).requires_grad_()
            loss = self_adjusting_dice_loss(x, target, alpha=alpha, decay=decay)
            loss.backward()
            assert torch.isfinite(loss)
            assert torch.isfinite(x.grad).all()


def test_b9_a_correct_prediction_is_pushed_back_to_one_half():
    for p in (0.55, 0.7, 0.9, 0.99):
        x = torch.logit(torch.tensor([[p]])).requires_grad_()
        self_adjusting_dice_loss(x, torch.tensor([1])).backward()
        assert x.grad < 0


def test_b10_the_ignored_label_of_transformers_raises():
    logits = torch.randn(2, 3, 5)
    assert torch.isfinite(dice_loss(logits, torch.tensor([[1, -100, 2], [0, -100, -100]])))


def test_b11_token_logits_of_three_axes_fail():
    logits, target = torch.randn(2, 7, 5).transpose(0, 1), torch.zeros(7, 2, dtype=torch.long)
    assert not logits.is_contiguous()
    for over in ("example", "batch"):
        flat = dice_loss(logits.reshape(-1, 5), target.reshape(-1), over=over)
        torch.testing.assert_close(dice_loss(logits, target, over=over), flat)


def test_b12_two_labels_of_a_span_head_fail():
    logits = torch.randn(2, 7, 2)
    assert torch.isfinite(dice_loss(logits, torch.randint(0, 2, (2, 7)), over="batch"))
    assert torch.isfinite(dice_loss(logits, torch.randint(0, 2, (2, 7, 2)), over="batch"))


def test_b13_time_grows_with_a_python_loop_over_labels():
    def seconds(classes):
        logits = torch.randn(512, classes, requires_grad=True)
        target = torch.randint(0, classes, (512,))
        best = math.inf
        for _ in range(5):
            start = time.perf_counter()
            dice_loss(logits, target, over="batch").backward()
            best = min(best, time.perf_counter() - start)
        return best

    # A loop of one label at a time takes 100 times as long for 100 times the labels, whatever the
    # size of the batch; with one pass over so small a batch it is the fixed cost that counts.
    assert seconds(200) < 40 * seconds(2)


def test_b14_smooth_caps_a_missed_positive_at_one_half_without_saying_so():
    # With smooth 1 that is what the formula gives; a small smooth gives a missed positive its 1.
    missed = torch.tensor([[-50.0]]), torch.tensor([1])
    assert dice_loss(*missed).item() == pytest.approx(0.5)
    assert dice_loss(*missed, smooth=0.01).item() == pytest.approx(1 - 0.01 / 1.01)


def test_b15_no_weights_no_exclusion_no_multi_label_no_soft_targets():
    logits = torch.randn(6, 3)
    soft = torch.rand(6, 3)
    options = {"weight": [1.0, 2.0, 3.0], "exclude": (0,), "over": "batch"}
    assert torch.isfinite(dice_loss(logits, soft, **options))
    assert torch.isfinite(dice_loss(logits, soft.argmax(-1), **options))


def test_f1_class_weights_stay_on_the_cpu():
    loss = FocalLoss(weight=[0.2, 0.8]).to("meta")
    assert loss.weight.device.type == "meta"


def test_f2_a_hard_positive_gets_no_gradient():
    # focal with gamma 0 is cross entropy: the gradient of a positive at logit −20 is −1, and with
    # gamma 2 it is (1 − p)²·(…) ≈ −1 as well. The peer gives −2e-5.
    for gamma in (0.0, 2.0):
        logits = torch.tensor([[-20.0]], requires_grad=True)
        focal_loss(logits, torch.tensor([1]), gamma=gamma).backward()
        assert logits.grad.item() == pytest.approx(-1, abs=1e-4)


@pytest.mark.parametrize("name", ["dice", "tversky"])
@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("over", ["example", "batch"])
def test_dice_and_tversky_equal_one_minus_p_of_the_gold_class(name, squared, over):
    logits, target = batch("softmax")
    kept = target >= 0
    mae = (1 - logits.softmax(-1)[kept].gather(1, target[kept].unsqueeze(1))).mean()
    loss = make_loss(name, squared=squared, over=over, smooth=0.0 if over == "batch" else 1.0)
    assert abs(loss(logits, target) - mae) > 1e-2


def test_tversky_is_the_same_for_every_alpha():
    logits, target = batch("softmax")
    losses = [tversky_loss(logits, target, alpha=a, beta=1 - a).item() for a in (0.1, 0.5, 0.9)]
    assert max(losses) - min(losses) > 1e-2


def test_a_class_absent_from_the_batch_is_never_punished():
    logits = torch.tensor([[0.0, 3.0], [0.0, 3.0]], requires_grad=True)
    dice_loss(logits, torch.tensor([0, 0]), over="batch", exclude=(0,)).backward()
    assert (logits.grad[:, 1] > 0).all()


def test_all_rows_ignored_gives_nan():
    for name in ("ce", "focal", "dice", "tversky", "dsc"):
        logits = torch.randn(3, 4, requires_grad=True)
        loss = make_loss(name)(logits, torch.full((3,), -100))
        loss.backward()
        assert loss == 0
        assert (logits.grad == 0).all()
