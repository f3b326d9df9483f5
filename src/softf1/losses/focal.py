"""Focal loss (Lin et al. 2017), the paper's FL: cross entropy in which easy examples weigh less."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from softf1.losses._core import (
    Reduction,
    Rows,
    check_at_least,
    check_choice,
    check_weight,
    prepare,
    reduce_rows,
)
from softf1.losses._dispatch import fused_entropy, use_kernel
from softf1.losses._module import LossModule
from softf1.losses.asymmetric import sigmoid_losses
from softf1.losses.ce import gold_log_probability, gold_weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from softf1.losses._core import Backend


def focal_loss(
    logits: Tensor,
    target: Tensor,
    *,
    gamma: float = 2.0,
    weight: Tensor | Sequence[float] | None = None,
    mask: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    check_labels: bool | None = None,
    backend: Backend | None = None,
) -> Tensor:
    r"""Focal loss: `−(1 − p[y])^gamma · log p[y]`; one against the rest for sigmoid.

    Args:
        logits: (..., C), classes last.
        target: Class indices (...), or 0/1 (or in between) of the shape of `logits` for sigmoid.
        gamma: How fast easy examples fade, from 0 (this is then cross entropy) up.
        weight: One weight per class, as in `cross_entropy_loss`.
        mask: (...), True = counts.
        ignore_index: Target value that does not count.
        reduction: `mean` over what counts, `sum`, or `none`: (...) with 0 where ignored.
        check_labels: Check labels for their range; by default on the CPU only.
        backend: `triton`, the fused kernel, or `torch`; by default the kernel on CUDA.

    Returns:
        A float32 tensor (float64 for float64 logits): a scalar, or (...) for `none`.

    >>> import torch
    >>> focal_loss(torch.zeros(1, 2), torch.tensor([1]), gamma=2.0)  # (1 − ½)² · log 2
    tensor(0.1733)
    """
    check_choice("reduction", reduction)
    check_at_least("gamma", gamma, 0.0)
    check_choice("backend", backend)
    if use_kernel(logits, target, weight, backend=backend, reduction=reduction):
        return fused_entropy(
            logits,
            target,
            gamma=gamma,
            weight=weight,
            mask=mask,
            ignore_index=ignore_index,
            reduction=reduction,
            check_labels=check_labels,
        )
    rows = prepare(logits, target, mask=mask, ignore_index=ignore_index, check_labels=check_labels)
    weights = check_weight(weight, rows.logits)
    if rows.softmax:
        values, counts = _softmax(rows, weights, gamma)
    else:
        values, counts = sigmoid_losses(rows, weights, gamma, gamma, clip=0.0), rows.kept()
    return reduce_rows(values, counts=counts, shape=rows.shape, reduction=reduction)


def _softmax(rows: Rows, weight: Tensor | None, gamma: float) -> tuple[Tensor, Tensor | None]:
    picked = gold_log_probability(rows)[0]
    counts = gold_weight(rows, weight)
    values = picked
    if gamma > 0.0:
        missing = torch.expm1(picked)  # −(1 − p)
        if gamma % 2.0:
            # The floor is the smallest normal number: its power and the power's derivative are
            # finite for every gamma, and log p is 0 there, so it changes neither value nor
            # gradient. An even power needs neither floor nor sign, and keeps one tensor less.
            missing = -missing.clamp_max(-torch.finfo(picked.dtype).tiny)
        values = missing.pow(gamma) * values
    return -values if counts is None else (values * counts).neg_(), counts


class FocalLoss(LossModule):
    """`focal_loss` as a module with the same options."""

    function = staticmethod(focal_loss)
    summary = "focal loss: confident examples count less; gamma"
    compared = True
    tunes = ({"gamma": 2.0}, {"gamma": 1.0}, {"gamma": 0.5})


class WeightedFocalLoss(FocalLoss):
    """The same with class weights from the data."""

    summary = "focal loss with class weights from the data; gamma, weights"
    needs_counts = True
