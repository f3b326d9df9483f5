"""Online hard example mining keeps exactly what it says."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softf1.losses import dice_loss
from softf1.losses._core import prepare
from softf1.losses._family import easy_negatives
from softf1.losses._probability import Link


def dropped(logits, target, ratio, min_kept=1, mask=None):
    rows = prepare(logits, target, mask=mask, ignore_index=-100, check_labels=None)
    return easy_negatives(rows, Link(rows.softmax), ratio=ratio, min_kept=min_kept)


@settings(max_examples=100, deadline=None)
@given(
    n=st.integers(1, 30),
    classes=st.integers(2, 4),
    ratio=st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0, 2.5, 100.0]),
    min_kept=st.integers(0, 3),
    seed=st.integers(0, 10_000),
)
def test_exactly_the_ceiling_of_ratio_times_positives_is_kept(n, classes, ratio, min_kept, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=generator)
    target = torch.randint(0, classes, (n,), generator=generator)
    target[torch.rand(n, generator=generator) < 0.2] = -100
    mask = torch.rand(n, generator=generator) < 0.8
    easy = dropped(logits, target, ratio, min_kept, mask)
    kept_rows = mask & (target != -100)
    p = logits.softmax(-1)
    for c in range(classes):
        positive = kept_rows & (target == c)
        negative = kept_rows & (target != c)
        wanted = min(int(negative.sum()), max(min_kept, math.ceil(ratio * int(positive.sum()))))
        stay = negative & ~easy[:, c]
        assert int(stay.sum()) == wanted
        assert not (easy[:, c] & ~negative).any()  # neither positives nor ignored rows
        if 0 < wanted < int(negative.sum()):  # what stays is harder than what goes
            assert p[stay, c].min() >= p[easy[:, c], c].max()


def test_ties_go_to_the_lower_row():
    easy = dropped(torch.zeros(5, 1), torch.tensor([0, 0, 1, 0, 0]), ratio=2.0)
    assert easy.squeeze(1).tolist() == [False, False, False, True, True]


def test_a_batch_without_positives_still_learns():
    logits = torch.tensor([[-1.0], [0.5], [2.0]], requires_grad=True)
    dice_loss(logits, torch.zeros(3, dtype=torch.long), over="batch", ohem_ratio=0.3).backward()
    assert logits.grad[2] > 0
    assert (logits.grad[:2] == 0).all()


def test_masked_negatives_do_not_compete():
    # Row 1 is the hardest negative but masked: row 0 stays in its place.
    logits, target = torch.tensor([[0.0], [9.0], [-2.0], [1.0]]), torch.tensor([0, 0, 0, 1])
    mask = torch.tensor([True, False, True, True])
    assert dropped(logits, target, 1.0, mask=mask).squeeze(1).tolist() == [
        False,
        False,
        True,
        False,
    ]


def test_the_loss_is_that_of_the_kept_terms():
    # positives 0.8; negatives 0.6, 0.4, 0.1; ratio 2 keeps 0.6 and 0.4. Linear, smooth 1:
    # 1 − (1.6 + 1) / (0.8 + 0.6 + 0.4 + 1 + 1)
    logits = torch.logit(torch.tensor([[0.8], [0.6], [0.1], [0.4]], dtype=torch.float64))
    options = {"over": "batch", "squared": False, "ohem_ratio": 2.0}
    loss = dice_loss(logits, torch.tensor([1, 0, 0, 0]), **options)
    assert loss.item() == pytest.approx(1 - 2.6 / 3.8)


def test_it_needs_the_batch_level():
    with pytest.raises(ValueError, match='needs over="batch"'):
        dice_loss(torch.zeros(2, 2), torch.tensor([0, 1]), ohem_ratio=0.3)
