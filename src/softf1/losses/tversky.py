"""Tversky loss, the paper's TL (Eq. 8 and 9): dice with a trade of precision and recall."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Unpack

from softf1.losses._core import check_at_least
from softf1.losses._family import DiceFamilyOptions, family_loss, of_dice_family
from softf1.losses._module import LossModule

if TYPE_CHECKING:
    from torch import Tensor


@of_dice_family
def tversky_loss(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 0.5,
    beta: float = 0.5,
    squared: bool = False,
    **shared: Unpack[DiceFamilyOptions],
) -> Tensor:
    r"""Tversky loss, Eq. 9: `1 − (TP + smooth) / (TP + alpha·FP + beta·FN + smooth)`.

    Per class one against the rest, with `TP = p·y`, `FP = p·(1 − y)`, `FN = (1 − p)·y`. At alpha =
    beta = 0.5 it is `dice_loss(squared=False)` with twice the smooth; `alpha = 1 / (1 + b²)`,
    `beta = b² / (1 + b²)`, `smooth = 0` at batch level is the soft form of F_b.

    Args:
        logits: (..., C), classes last.
        target: Class indices (...), or 0/1 (or in between) of the shape of `logits` for sigmoid.
        alpha: Weight of false positives: larger raises precision and lowers recall.
        beta: Weight of false negatives: larger raises recall and lowers precision.
        squared: `FP = p²·(1 − y)`, `FN = (1 − p)²·y`, `TP = y − FN`: easy terms fade sooner, and a
            start far from the optimum still has a gradient.
        **shared: Options of the whole family: `DiceFamilyOptions`.

    Returns:
        A float32 tensor (float64 for float64 logits): a scalar; for `none` (...) at example level,
        (C,) at batch level.

    >>> import torch
    >>> missed = torch.tensor([[-20.0]])  # p = 0 for a positive: 1 − 1 / (beta + 1)
    >>> tversky_loss(missed, torch.tensor([1]), alpha=0.3, beta=0.7)
    tensor(0.4118)
    """
    check_at_least("alpha", alpha, 0.0)
    check_at_least("beta", beta, 0.0)
    formula = SquaredTverskyFormula if squared else TverskyFormula
    return family_loss(logits, target, formula(alpha, beta), shared, kernel="tversky")


class TverskyFormula(NamedTuple):
    """`TP` over `TP + alpha·FP + beta·FN`, linear in q."""

    false_positives: float
    false_negatives: float
    power: int = 1

    def overlap(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns q·y."""
        return q * y

    def overlap_growth(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns q·y."""
        return q * y

    def total(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns q·y + alpha·q·(1 − y) + beta·(1 − q)·y."""
        return self.total_growth(q, y) + self.false_negatives * y

    def total_growth(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns q·(alpha + (1 − alpha − beta)·y)."""
        both = 1.0 - self.false_positives - self.false_negatives
        return q * (self.false_positives + both * y)


class SquaredTverskyFormula(NamedTuple):
    """The same with `FP = q²·(1 − y)`, `FN = (1 − q)²·y` and `TP = y − FN`."""

    false_positives: float
    false_negatives: float
    power: int = 2

    def overlap(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns y − (1 − q)²·y, as q·(2 − q)·y."""
        return q * (2.0 - q) * y

    def overlap_growth(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns 2·q·(1 − q)·y."""
        return 2.0 * q * (1.0 - q) * y

    def total(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns TP + alpha·q²·(1 − y) + beta·(1 − q)²·y."""
        false_positives = self.false_positives * q * q * (1.0 - y)
        return self.overlap(q, y) + false_positives + self.false_negatives * (1.0 - q) ** 2 * y

    def total_growth(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns 2·q·(alpha·q·(1 − y) + (1 − beta)·(1 − q)·y)."""
        positive = (1.0 - self.false_negatives) * (1.0 - q) * y
        return 2.0 * q * (self.false_positives * q * (1.0 - y) + positive)


class TverskyLoss(LossModule):
    """`tversky_loss` as a module with the same options."""

    function = staticmethod(tversky_loss)
    summary = "Tversky: dice with weights of false positives and negatives; alpha, beta, …"
    compared = True
    # On real data the linear form collapses to p = 0 everywhere, whatever alpha is.
    tunes_positions = (
        {"squared": True, "alpha": 0.5, "beta": 0.5},
        {"squared": True, "alpha": 0.3, "beta": 0.7},
        {"squared": True, "alpha": 0.7, "beta": 0.3},
    )
    tunes = tuple({"over": "batch", **setting} for setting in tunes_positions)
