"""How far two predictions for the same rows are apart: the consistency term of R-Drop (2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from softf1.losses._core import Reduction, reduce_rows

HIDDEN = -1e30
"""Stands for a logit of −inf: probability 0, and the difference of two such logits is 0."""


def consistency_loss(
    logits: Tensor,
    other: Tensor,
    target: Tensor,
    *,
    mask: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Symmetric Kullback-Leibler divergence of two predictions, over the rows that count.

    `½·KL(a‖b) + ½·KL(b‖a) = ½·Σ_c (a_c − b_c)·(log a_c − log b_c)`

    The two predictions come from the same model with different dropout. The target only says which
    rows count, and whether the classes of a row exclude each other: a target of the shape of the
    logits, or a single class, means a sigmoid for each entry, as in all losses here.

    Args:
        logits: `(..., C)`; a logit of −inf takes its class out of the row.
        other: The second prediction, of the same shape.
        target: `(...)` integers, or the shape of the logits; `ignore_index` leaves out.
        mask: `(...)`, True where a row counts.
        ignore_index: Marks what is left out.
        reduction: `mean` over the rows (sigmoid: the entries) that count; `sum`; or `sums`, the sum
            and how many it is of, `(2, 1)`.

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
    if reduction not in ("mean", "sum", "sums"):
        raise ValueError(f"wanted reduction to be mean or sum, got {reduction!r}")
    shown = torch.isfinite(logits) & torch.isfinite(other)
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    a, b = (x.to(wide).masked_fill(~shown, HIDDEN) for x in (logits, other))
    sigmoid = logits.shape[-1] == 1 or target.shape == logits.shape
    if sigmoid:
        each = 0.5 * (a.sigmoid() - b.sigmoid()) * (a - b)
        kept = target.reshape(logits.shape) != ignore_index
        rows = None if mask is None else mask[..., None]
    else:
        log_a, log_b = a.log_softmax(-1), b.log_softmax(-1)
        each = 0.5 * ((log_a.exp() - log_b.exp()) * (log_a - log_b)).sum(-1)
        kept, rows = target != ignore_index, mask
    kept = kept if rows is None else kept & rows
    values = torch.where(kept, each, 0.0)
    return reduce_rows(values, counts=kept, shape=kept.shape, reduction=reduction)


class ConsistentLoss(nn.Module):
    """A loss with the consistency term, for logits of every example twice.

    `½·loss(a, y) + ½·loss(b, y) + factor · consistency_loss(a, b, y)`, where a is the first half of
    the logits and b the second: run the model on `torch.cat([inputs, inputs])` in training mode,
    and pass the targets once.

    Args:
        loss: The loss for both halves.
        factor: κ; 1 is a good start.

    >>> from softf1.losses import CrossEntropyLoss
    >>> loss = ConsistentLoss(CrossEntropyLoss(), 1.0)
    >>> loss(torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([0]))  # ½(0.693 + 0.127) + 0.381
    tensor(0.7908)
    """

    def __init__(self, loss: nn.Module, factor: float) -> None:
        super().__init__()
        self.loss, self.factor = loss, factor

    def forward(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the mean of both losses and the consistency term."""
        first, second = self.split(logits, target)
        mean = (self.loss(first, target, mask) + self.loss(second, target, mask)) / 2
        value: Tensor = mean + self.factor * consistency_loss(first, second, target, mask=mask)
        return value

    def advance(self) -> None:
        """Moves the schedule of the loss on, where it has one."""
        getattr(self.loss, "advance", lambda: None)()

    def split(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of either copy of the examples."""
        if len(logits) != 2 * len(target):
            raise ValueError(
                f"wanted the logits of every example twice, {2 * len(target)} rows for "
                f"{len(target)} targets, got {len(logits)}"
            )
        first, second = logits.chunk(2)
        return first, second

    def extra_repr(self) -> str:
        """Shows the factor."""
        return f"factor={self.factor}"
