"""Cross entropy and weighted cross entropy (Eq. 1 and 2 of the paper)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from softf1.losses._core import (
    Reduction,
    Rows,
    check_choice,
    check_weight,
    divide,
    pick,
    prepare,
    reduce_rows,
    refuse_gradient,
)
from softf1.losses._dispatch import fused_entropy, use_kernel
from softf1.losses._module import LossModule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from softf1.losses._core import Backend


def cross_entropy_loss(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | Sequence[float] | None = None,
    label_smoothing: float = 0.0,
    mask: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    check_labels: bool | None = None,
    backend: Backend | None = None,
) -> Tensor:
    r"""Cross entropy, Eq. 1: `−log p[y]`; with `weight` Eq. 2.

    Equal to torch's `cross_entropy` (softmax) and `binary_cross_entropy_with_logits` (sigmoid),
    except that a batch in which nothing counts gives 0 instead of NaN, and a logit of −inf leaves
    its class out.

    Args:
        logits: (..., C), classes last.
        target: Class indices (...), or 0/1 (or in between) of the shape of `logits` for sigmoid.
        weight: One weight per class. Softmax: a row has the weight of its gold class,
            `Σ w[y]·l / Σ w[y]`. Sigmoid: multiplies the positive term of a class (torch's
            `pos_weight`); a weight above 1 raises recall, one below 1 raises precision.
        label_smoothing: Share of the target spread evenly over the classes, from 0 to below 1.
        mask: (...), True = counts.
        ignore_index: Target value that does not count.
        reduction: `mean` over what counts, `sum`, or `none`: (...) with 0 where ignored.
        check_labels: Check labels for their range; by default on the CPU only. On the GPU the check
            does not wait for the device.
        backend: `triton`, the fused kernel, or `torch`; by default the kernel on CUDA.

    Returns:
        A float32 tensor (float64 for float64 logits): a scalar, or (...) for `none`.

    >>> import torch
    >>> logits = torch.tensor([[0.0, 0.0], [2.0, -1.0]])
    >>> cross_entropy_loss(logits, torch.tensor([1, -100]))  # log 2; the second row is ignored
    tensor(0.6931)
    """
    check_choice("reduction", reduction)
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"wanted 0 <= label_smoothing < 1, got {label_smoothing!r}")
    check_choice("backend", backend)
    obstacle = "label_smoothing has the PyTorch form only" if label_smoothing else None
    if use_kernel(logits, target, weight, backend=backend, reduction=reduction, obstacle=obstacle):
        return fused_entropy(
            logits,
            target,
            gamma=0.0,
            weight=weight,
            mask=mask,
            ignore_index=ignore_index,
            reduction=reduction,
            check_labels=check_labels,
        )
    rows = prepare(logits, target, mask=mask, ignore_index=ignore_index, check_labels=check_labels)
    weights = check_weight(weight, rows.logits)
    if rows.softmax:
        values, counts = _softmax(rows, weights, label_smoothing)
    else:
        values, counts = _sigmoid(rows, weights, label_smoothing), rows.kept()
    return reduce_rows(values, counts=counts, shape=rows.shape, reduction=reduction)


def gold_log_probability(rows: Rows) -> tuple[Tensor, Tensor]:
    """Returns log p of the gold class (N,), 0 where there is none, and log p of all (N, C)."""
    assert rows.gold is not None  # noqa: S101 — softmax rows only
    if rows.complete:
        log_p = functional.log_softmax(rows.logits, dim=-1)
        return pick(log_p, rows.gold).squeeze(1), log_p
    has_gold = rows.y > 0
    # 0 in the rows without gold: a row of −inf would give NaN, here and in the gradient.
    log_p = functional.log_softmax(torch.where(has_gold, rows.logits, 0.0), dim=-1)
    picked = torch.where(has_gold, pick(log_p, rows.gold), 0.0)
    return picked.squeeze(1), log_p


def gold_weight(rows: Rows, weight: Tensor | None) -> Tensor | None:
    """Returns the weight of each row's gold class (N,), 0 without one; None if all are 1."""
    if rows.complete and weight is None:
        return None
    y = rows.y.squeeze(1)
    return y if weight is None or rows.gold is None else y * weight[rows.gold.squeeze(1)]


def mean_of_terms(values: Tensor, rows: Rows) -> Tensor:
    """Returns the mean over the terms of each row that count (N,)."""
    terms = rows.terms()
    return divide(torch.where(terms, values, 0.0).sum(-1), terms.sum(-1, dtype=torch.int32))


def _softmax(rows: Rows, weight: Tensor | None, smoothing: float) -> tuple[Tensor, Tensor | None]:
    picked, log_p = gold_log_probability(rows)
    counts = gold_weight(rows, weight)
    values = -picked if counts is None else -picked * counts
    if smoothing:
        others = -log_p if weight is None else -log_p * weight
        spread = rows.y.squeeze(1) * mean_of_terms(others, rows)
        values = (1.0 - smoothing) * values + smoothing * spread
    return values, counts


def _sigmoid(rows: Rows, weight: Tensor | None, smoothing: float) -> Tensor:
    refuse_gradient("weight", weight)
    x = torch.where(rows.wanted, rows.logits, 0.0)
    y = rows.y * (1.0 - smoothing) + 0.5 * smoothing if smoothing else rows.y
    values = functional.binary_cross_entropy_with_logits(x, y, pos_weight=weight, reduction="none")
    return mean_of_terms(values, rows)


class CrossEntropyLoss(LossModule):
    """`cross_entropy_loss` as a module with the same options."""

    function = staticmethod(cross_entropy_loss)
    summary = "cross entropy; label_smoothing"
    compared = True
    tunes = ({}, {"label_smoothing": 0.1}, {"label_smoothing": 0.05})


class WeightedCrossEntropyLoss(CrossEntropyLoss):
    """The same with class weights from the data."""

    summary = "cross entropy with class weights from the data; weights"
    needs_counts = True
    tunes = ({"weights": "balanced"}, {"weights": "log"}, {"weights": "effective"})
