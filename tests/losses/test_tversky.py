import pytest
import torch

from softf1.losses import dice_loss, tversky_loss
from tests.losses.cases import batch, every_mode


def test_equation_9_by_hand():
    # p = 0.8, smooth 0. Positive: 1 − 0.8 / (0.8 + beta·0.2), beta = 0.7; negative: 1 − 0 / … = 1.
    logits = torch.logit(torch.tensor([[0.8], [0.8]], dtype=torch.float64))
    options = {"alpha": 0.3, "beta": 0.7, "reduction": "none"}
    values = tversky_loss(logits, torch.tensor([1, 0]), smooth=0.0, **options)
    assert values.tolist() == pytest.approx([1 - 0.8 / 0.94, 1.0])
    # smooth 1, the negative: 1 − 1 / (0.3·0.8 + 1)
    values = tversky_loss(logits, torch.tensor([1, 0]), **options)
    assert values.tolist() == pytest.approx([1 - 1.8 / 1.94, 1 - 1 / 1.24])


def test_squared_by_hand():
    # Positive, p = 0.8: FN = 0.04, TP = 0.96: 1 − 1.96 / (0.96 + 0.7·0.04 + 1)
    # Negative, p = 0.8: FP = 0.64: 1 − 1 / (0.3·0.64 + 1)
    logits = torch.logit(torch.tensor([[0.8], [0.8]], dtype=torch.float64))
    values = tversky_loss(
        logits, torch.tensor([1, 0]), alpha=0.3, beta=0.7, squared=True, reduction="none"
    )
    assert values.tolist() == pytest.approx([1 - 1.96 / 1.988, 1 - 1 / 1.192])


@every_mode
@pytest.mark.parametrize("over", ["example", "batch"])
def test_half_and_half_is_linear_dice_with_twice_the_smooth(mode, over):
    logits, target = batch(mode)
    for smooth in (0.0, 1.0):
        torch.testing.assert_close(
            tversky_loss(logits, target, smooth=smooth, over=over),
            dice_loss(logits, target, smooth=2 * smooth, squared=False, over=over),
        )


def test_half_and_half_on_hard_predictions_is_f1():
    # TP 2, FP 1, FN 1: F1 = 4 / 6
    predicted, gold = torch.tensor([1, 1, 1, 0, 0]), torch.tensor([1, 1, 0, 1, 0])
    logits = (predicted * 2.0 - 1).unsqueeze(1) * 200
    assert tversky_loss(logits, gold, smooth=0.0, over="batch").item() == pytest.approx(1 - 4 / 6)


def test_f_beta_on_hard_predictions():
    # b = 2, TP 2, FP 1, FN 1: F2 = 5·2 / (5·2 + 4·1 + 1) = 10 / 15
    predicted, gold = torch.tensor([1, 1, 1, 0, 0]), torch.tensor([1, 1, 0, 1, 0])
    logits = (predicted * 2.0 - 1).unsqueeze(1) * 200
    loss = tversky_loss(logits, gold, alpha=1 / 5, beta=4 / 5, smooth=0.0, over="batch")
    assert loss.item() == pytest.approx(1 - 10 / 15)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("over", ["example", "batch"])
def test_alpha_weighs_false_positives_and_beta_false_negatives(over, squared):
    false_positive = (torch.tensor([[5.0], [5.0]]), torch.tensor([1, 0]))
    false_negative = (torch.tensor([[5.0], [-5.0]]), torch.tensor([1, 1]))
    options = {"over": over, "squared": squared}
    precise = {"alpha": 0.9, "beta": 0.1, **options}
    complete = {"alpha": 0.1, "beta": 0.9, **options}
    assert (
        tversky_loss(*false_positive, **precise) > tversky_loss(*false_positive, **complete) + 0.1
    )
    assert (
        tversky_loss(*false_negative, **complete) > tversky_loss(*false_negative, **precise) + 0.1
    )


@pytest.mark.parametrize("squared", [False, True])
def test_training_moves_precision_and_recall_as_documented(squared):
    """Two overlapping groups, 20% positive: alpha > beta ends precise, beta > alpha complete."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.arange(400) % 5 == 0).long()
    x = torch.randn(400, generator=generator) + 1.5 * target
    scores = {}
    for alpha in (0.1, 0.9):
        parameters = torch.tensor([1.0, -1.0], requires_grad=True)
        optimizer = torch.optim.Adam([parameters], lr=0.1)
        for _ in range(150):
            optimizer.zero_grad()
            logits = (parameters[0] * x + parameters[1]).unsqueeze(1)
            tversky_loss(
                logits, target, alpha=alpha, beta=1 - alpha, over="batch", squared=squared
            ).backward()
            optimizer.step()
        positive = logits.squeeze(1) > 0
        hits = (positive & (target == 1)).sum().item()
        scores[alpha] = hits / positive.sum().item(), hits / 80
    assert scores[0.9][0] > scores[0.1][0] + 0.1  # precision
    assert scores[0.1][1] > scores[0.9][1] + 0.1  # recall


def test_softmax_is_not_one_minus_p_of_the_gold_class():
    """Three libraries' Tversky equals 1 − p[gold] for every alpha + beta = 1 (softmax rows)."""
    logits, target = batch("softmax")
    kept = target >= 0
    mae = 1 - logits.softmax(-1)[kept].gather(1, target[kept].unsqueeze(1)).squeeze(1)
    values = [
        tversky_loss(logits, target, alpha=alpha, beta=1 - alpha, reduction="none")[kept]
        for alpha in (0.1, 0.5, 0.9)
    ]
    for value in values:
        assert (value - mae).abs().min() > 1e-3
    assert (values[0] - values[2]).abs().min() > 1e-3
