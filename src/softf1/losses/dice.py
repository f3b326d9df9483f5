"""Dice loss, the paper's DL (Eq. 7; footnote 4 for the batch level)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from softf1.losses._family import Shared, family_loss
from softf1.losses._module import LossModule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from softf1.losses._core import Average, Backend, Over, Reduction


def dice_loss(
    logits: Tensor,
    target: Tensor,
    *,
    smooth: float = 1.0,
    squared: bool = True,
    weight: Tensor | Sequence[float] | None = None,
    mask: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    over: Over = "example",
    average: Average = "macro",
    exclude: Sequence[int] = (),
    ohem_ratio: float | None = None,
    min_kept: int = 1,
    check_labels: bool | None = None,
    backend: Backend | None = None,
) -> Tensor:
    r"""Dice loss, Eq. 7: `1 − (2·p·y + smooth) / (p² + y² + smooth)`, per class against the rest.

    A soft F1: false positives and false negatives cost alike, true negatives nothing. With
    `over="batch"` it is the set-level loss that the paper's runs used.

    Args:
        logits: (..., C), classes last.
        target: Class indices (...), or 0/1 (or in between) of the shape of `logits` for sigmoid.
        smooth: Added above and below, from 0 up. At example level it is what makes a negative cost
            anything: its loss is `p² / (p² + smooth)`. Larger: negatives cost less, recall rises.
        squared: `p² + y²` below, else `p + y`: `tversky_loss` at .5/.5 with half the smooth.
        weight: One weight a class in the mean over classes, `Σ w·l / Σ w`; in the sums for `micro`.
        mask: (...), True = counts.
        ignore_index: Target value that does not count.
        reduction: `mean`, `sum` or `none`: over examples at example level, classes at batch level.
        over: `example`: the ratio of every example and class. `batch`: sums over the batch first.
        average: Batch level only. `macro`: the mean of the classes' ratios, so that rare classes
            weigh as much as frequent ones. `micro`: one ratio of the sums over the classes.
        exclude: Classes left out of the loss, such as O. A row of theirs still counts against the
            other classes.
        ohem_ratio: Batch level only: per class, keep all positives and this many of the hardest
            negatives for each.
        min_kept: The least number of negatives that `ohem_ratio` keeps, so that a batch without
            positives still learns.
        check_labels: Check labels for their range; by default on the CPU only.
        backend: `triton`, the fused kernel, or `torch`; by default the kernel on CUDA.

    Returns:
        A float32 tensor (float64 for float64 logits): a scalar; for `none` (...) at example level,
        (C,) at batch level.

    >>> import torch
    >>> logits = torch.zeros(1, 1)  # p = ½ for a positive: 1 − (2·½ + 1) / (¼ + 1 + 1)
    >>> dice_loss(logits, torch.tensor([1]))
    tensor(0.1111)
    """
    shared = Shared(
        smooth=smooth,
        weight=weight,
        mask=mask,
        ignore_index=ignore_index,
        reduction=reduction,
        over=over,
        average=average,
        exclude=exclude,
        ohem_ratio=ohem_ratio,
        min_kept=min_kept,
        check_labels=check_labels,
        backend=backend,
    )
    return family_loss(logits, target, DiceFormula(2 if squared else 1), shared)


class DiceFormula(NamedTuple):
    """`2·q·y` over `q² + y²`, or over `q + y`."""

    power: int
    false_positives: float = 1.0

    def overlap(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns 2·q·y."""
        return 2.0 * q * y

    def overlap_growth(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns 2·q·y."""
        return 2.0 * q * y

    def total(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns q² + y², or q + y."""
        return q + y if self.power == 1 else q * q + y * y

    def total_growth(self, q: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 — y adds nothing
        """Returns 2·q², or q."""
        return q if self.power == 1 else 2.0 * q * q


class DiceLoss(LossModule):
    """`dice_loss` as a module with the same options."""

    function = staticmethod(dice_loss)
