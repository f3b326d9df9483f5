"""How far two predictions for the same rows are apart: the consistency term of R-Drop (2021)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from softf1.losses._core import (
    Reduction,
    check_shapes,
    check_tensor,
    counted,
    plain_integers,
    reduce_rows,
)
from softf1.losses.compound import CompoundLoss

IGNORED = -100
"""The `ignore_index` of losses that do not set another."""

HIDDEN = -1e30
"""Replaces a logit that does not count: probability 0, and two such logits differ by 0."""


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
        logits: `(..., C)`; a logit of −inf in either prediction takes its class out of the row
            (sigmoid: leaves the entry out). A row without a class does not count.
        other: The second prediction, of the same shape.
        target: `(...)` integers, or the shape of the logits; `ignore_index` leaves out.
        mask: `(...)`, True or 1 where a row counts.
        ignore_index: Marks what is left out.
        reduction: `mean` over the rows (sigmoid: the entries) that count; `sum`; or `sums`, the sum
            and the number that count, `(2, 1)`.

    Returns:
        A scalar, 0 where nothing counts.

    >>> a, b = torch.zeros(1, 2), torch.tensor([[2.0, 0.0]])
    >>> consistency_loss(a, b, torch.tensor([0]))  # ½·(½ − 0.8808)·(0 − 2), by hand
    tensor(0.3808)
    >>> consistency_loss(a, a, torch.tensor([0]))
    tensor(0.)
    """
    check_tensor("logits", logits)
    check_tensor("other", other)
    if logits.shape != other.shape:
        raise ValueError(
            f"wanted two predictions of one shape, got {tuple(logits.shape)} and "
            f"{tuple(other.shape)}"
        )
    if reduction not in ("mean", "sum", "sums"):
        raise ValueError(f"wanted reduction to be mean or sum, got {reduction!r}")
    softmax = check_shapes(logits, target, mask)
    labels = plain_integers(target[..., None] if softmax else target.reshape(logits.shape))
    kept = counted(labels, ignore_index) & (logits != -torch.inf) & (other != -torch.inf)
    if mask is not None:
        kept = kept & mask.to(torch.bool)[..., None]
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    # Logits that do not count are made equal: they add 0 to the sum and to the gradient.
    a, b = (x.to(wide).masked_fill(~kept, HIDDEN) for x in (logits, other))
    if softmax:
        log_a, log_b = a.log_softmax(-1), b.log_softmax(-1)
        each = ((log_a.exp() - log_b.exp()) * (log_a - log_b)).sum(-1)
        kept = kept.any(-1)
    else:
        each = (a.sigmoid() - b.sigmoid()) * (a - b)
    return reduce_rows(0.5 * each, counts=kept, shape=kept.shape, reduction=reduction)


class ConsistentLoss(nn.Module):
    """A loss with the consistency term, for logits of every example twice.

    `½·loss(a, y) + ½·loss(b, y) + factor · consistency_loss(a, b, y)`, where a is the first half of
    the logits and b the second: run the model on `torch.cat([inputs, inputs])` in training mode,
    and pass the targets once.

    Args:
        loss: The loss for both halves. The consistency term leaves out what its `ignore_index`
            does.
        factor: κ, from 0 up; 1 is a good start.

    >>> from softf1.losses import CrossEntropyLoss
    >>> loss = ConsistentLoss(CrossEntropyLoss(), 1.0)
    >>> loss(torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([0]))  # ½(0.693 + 0.127) + 0.381
    tensor(0.7908)
    """

    def __init__(self, loss: nn.Module, factor: float) -> None:
        super().__init__()
        if not 0.0 <= factor < math.inf:
            raise ValueError(f"wanted a finite factor from 0 up, got {factor!r}")
        self.loss, self.factor = loss, factor
        self.ignore_index = find_ignore_index(loss)

    def forward(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the mean of both losses and the consistency term."""
        first, second = self.split(logits, target)
        both = self.loss(first, target, mask) + self.loss(second, target, mask)
        apart = consistency_loss(first, second, target, mask=mask, ignore_index=self.ignore_index)
        value: Tensor = both / 2 + self.factor * apart
        return value

    def advance(self) -> None:
        """Moves the schedule of the loss on, if it has one."""
        getattr(self.loss, "advance", lambda: None)()

    def split(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the logits of the first and of the second copy of the examples."""
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


def find_ignore_index(loss: nn.Module) -> int:
    """Returns the `ignore_index` of a loss; raises if the parts of a compound loss differ in it.

    >>> from softf1.losses import make_loss
    >>> find_ignore_index(make_loss("ce+dice", ignore_index=0)), find_ignore_index(nn.L1Loss())
    (0, -100)
    """
    if isinstance(loss, CompoundLoss):
        found = sorted({find_ignore_index(part) for part in loss.parts})
        if len(found) > 1:
            raise ValueError(f"wanted one ignore_index in all parts of the loss, got {found}")
        return found[0]
    options = getattr(loss, "options", None)  # another package may mean anything by it
    return int(options.get("ignore_index", IGNORED)) if isinstance(options, dict) else IGNORED
