"""How far two predictions for the same rows are apart: the consistency term of R-Drop (2021)."""

from __future__ import annotations

import torch
from torch import Tensor

HIDDEN = -1e30
"""Stands for a logit of −inf: probability 0, and the difference of two such logits is 0."""


def consistency_loss(
    logits: Tensor,
    other: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Symmetric Kullback-Leibler divergence of two predictions, over the rows that count.

    `½·KL(a‖b) + ½·KL(b‖a) = ½·Σ_c (a_c − b_c)·(log a_c − log b_c)`

    The two predictions come from the same model with other dropout. The target only says which rows
    count, and whether the classes of a row exclude each other: a target of the shape of the logits,
    or one class alone, means a sigmoid for each entry, as in all losses here.

    Args:
        logits: `(..., C)`; a logit of −inf takes its class out of the row.
        other: The second prediction, of the same shape.
        target: `(...)` integers, or the shape of the logits; `ignore_index` leaves out.
        ignore_index: Marks what is left out.
        reduction: `mean` over the rows (sigmoid: the entries) that count, or `sum`.

    Returns:
        A scalar, 0 where nothing counts.

    >>> a, b = torch.zeros(1, 2), torch.tensor([[2.0, 0.0]])
    >>> consistency_loss(a, b, torch.tensor([0]))  # ½·(½ − 0.8808)·(0 − 2), by hand
    tensor(0.3808)
    >>> consistency_loss(a, a, torch.tensor([0]))
    tensor(0.)
    """
    if logits.shape != other.shape:
        raise ValueError(
            f"wanted two predictions of one shape, got {tuple(logits.shape)} and "
            f"{tuple(other.shape)}"
        )
    if reduction not in ("mean", "sum"):
        raise ValueError(f"wanted reduction to be mean or sum, got {reduction!r}")
    shown = torch.isfinite(logits) & torch.isfinite(other)
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    a, b = (x.to(wide).masked_fill(~shown, HIDDEN) for x in (logits, other))
    sigmoid = logits.shape[-1] == 1 or target.shape == logits.shape
    if sigmoid:
        each = 0.5 * (a.sigmoid() - b.sigmoid()) * (a - b)
        kept = target.reshape(logits.shape) != ignore_index
    else:
        log_a, log_b = a.log_softmax(-1), b.log_softmax(-1)
        each = 0.5 * ((log_a.exp() - log_b.exp()) * (log_a - log_b)).sum(-1)
        kept = target != ignore_index
    total = torch.where(kept, each, 0.0).sum()
    return total if reduction == "sum" else total / kept.sum().clamp(min=1)
