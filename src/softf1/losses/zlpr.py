"""Zero-bounded log-sum-exp and pairwise rank loss (Su et al. 2022): labels against a threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from softf1.losses._core import (
    Reduction,
    Rows,
    check_at_least,
    check_choice,
    check_weight,
    prepare,
    reduce_rows,
    refuse_gradient,
)
from softf1.losses._dispatch import fused_zlpr, use_kernel
from softf1.losses._module import LossModule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from softf1.losses._core import Backend

EXACT = 40.0
"""From here on, log(1 + exp(x)) is x in float64, too."""


def zlpr_loss(
    logits: Tensor,
    target: Tensor,
    *,
    margin: float = 0.0,
    weight: Tensor | Sequence[float] | None = None,
    mask: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    check_labels: bool | None = None,
    backend: Backend | None = None,
) -> Tensor:
    r"""ZLPR (Su et al. 2022): positives of a row above 0, its negatives below.

    `log(1 + Σ (1−y)·exp(margin + x)) + log(1 + Σ weight·y·exp(margin − x))`, both sums over the
    classes of a row.
    It is softmax cross entropy with an extra class of logit 0 as a threshold: positives must be
    above it, negatives below. Zhou et al. (2021) learn that logit for each text. Most of the
    gradient goes to the highest negatives, so that many easy ones do not outweigh a few positives.
    With one class and `margin=0` it is `cross_entropy_loss`.

    Args:
        logits: (..., C), classes last.
        target: Class indices (...), one positive per row, or 0/1 (or in between) of
            the shape of `logits`.
        margin: Pushes positives above `margin` and negatives below `−margin`, from 0 up.
        weight: Multiplies `exp(−x)` of a positive, so its logit must be higher by `log weight`.
            Above 1 it raises recall.
        mask: (...), True = counts.
        ignore_index: Target value that does not count.
        reduction: `mean` over what counts, `sum`, or `none`: (...) with 0 where ignored.
        check_labels: Check labels for their range; by default on the CPU only.
        backend: `triton`, the fused kernel, or `torch`; by default the kernel on CUDA.

    Returns:
        A float32 tensor (float64 for float64 logits): a scalar, or (...) for `none`.

    >>> import torch
    >>> zlpr_loss(torch.zeros(1, 3), torch.tensor([[1, 0, 0]]))  # log(1 + 2) + log(1 + 1)
    tensor(1.7918)
    """
    check_choice("reduction", reduction)
    check_at_least("margin", margin, 0.0)
    check_choice("backend", backend)
    if use_kernel(logits, target, weight, backend=backend, reduction=reduction):
        return fused_zlpr(
            logits,
            target,
            margin=margin,
            weight=weight,
            mask=mask,
            ignore_index=ignore_index,
            reduction=reduction,
            check_labels=check_labels,
        )
    refuse_gradient("target", target)
    rows = prepare(logits, target, mask=mask, ignore_index=ignore_index, check_labels=check_labels)
    weights = check_weight(weight, rows.logits)
    refuse_gradient("weight", weights)
    values = (_one_positive if rows.softmax else _several)(rows, weights, margin)
    counts = None if rows.complete else rows.kept()
    return reduce_rows(values, counts=counts, shape=rows.shape, reduction=reduction)


def _one_positive(rows: Rows, weight: Tensor | None, margin: float) -> Tensor:
    """Returns the loss of each row (N,) with one positive.

    The negatives cost a cross entropy in which the threshold stands in the place of the positive.
    """
    assert rows.gold is not None  # noqa: S101 — softmax rows only
    gold = rows.gold.squeeze(1)
    x = rows.logits if rows.complete else torch.where(rows.wanted, rows.logits, 0.0)
    others = x.scatter(1, rows.gold, -margin)
    short = margin - x.gather(1, rows.gold).squeeze(1)
    if weight is not None:
        short = short + weight.log()[gold]
    if not rows.complete:  # a gold class of −inf is out of its row
        short = torch.where(rows.y.squeeze(1) > 0, short, -torch.inf)
    of_positive = functional.softplus(short, threshold=EXACT)
    values = functional.cross_entropy(others, gold, reduction="none") + of_positive
    return values if rows.complete else torch.where(rows.wanted.squeeze(1), values, 0.0)


def _several(rows: Rows, weight: Tensor | None, margin: float) -> Tensor:
    """Returns the loss of each row (N,) with any number of positives."""
    negative = torch.where(rows.wanted, 1.0 - rows.y, 0.0)
    positive = rows.y if weight is None else rows.y * weight
    x = torch.where(rows.wanted, rows.logits, 0.0)
    return _log_one_plus(margin + x, negative) + _log_one_plus(margin - x, positive)


def _log_one_plus(x: Tensor, factors: Tensor) -> Tensor:
    """Returns log(1 + Σ factors · exp(x)) of each row."""
    x = x.masked_fill(factors == 0, -torch.inf)
    highest = x.detach().amax(-1, keepdim=True).clamp_min(0.0)
    total = (factors * (x - highest).exp()).sum(-1, keepdim=True) + (-highest).exp()
    return (highest + total.log()).squeeze(-1)


class ZLPRLoss(LossModule):
    """`zlpr_loss` as a module with the same options."""

    function = staticmethod(zlpr_loss)
    summary = "ZLPR: log-sum-exp of positives above 0, of negatives below; margin"
    tunes = ({"margin": 0.0}, {"margin": 0.5}, {"margin": 1.0})
