"""Zero-bounded log-sum-exp and pairwise rank loss (Su et al. 2022): labels against a threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from softf1.losses._core import (
    Reduction,
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
    terms = rows.terms()
    positive = rows.positives().to(rows.y.dtype) if rows.softmax else rows.y
    negative = torch.where(terms, 1.0 - positive, 0.0)
    if weights is not None:
        positive = positive * weights
    x = torch.where(terms, rows.logits, 0.0)
    values = _log_one_plus(margin + x, negative) + _log_one_plus(margin - x, positive)
    return reduce_rows(values, counts=rows.kept(), shape=rows.shape, reduction=reduction)


def _log_one_plus(x: Tensor, factors: Tensor) -> Tensor:
    """Returns log(1 + Σ factors · exp(x)) of each row."""
    return torch.logsumexp(functional.pad(x + factors.log(), (0, 1)), -1)


class ZLPRLoss(LossModule):
    """`zlpr_loss` as a module with the same options."""

    function = staticmethod(zlpr_loss)
    summary = "ZLPR: log-sum-exp of positives above 0, of negatives below; margin"
    tunes = ({"margin": 0.0}, {"margin": 0.5}, {"margin": 1.0})
