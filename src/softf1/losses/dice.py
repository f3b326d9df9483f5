"""Dice loss, the paper's DL (Eq. 7; footnote 4 for the batch level)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Unpack

from softf1.losses._family import DiceFamilyOptions, family_loss, of_dice_family
from softf1.losses._module import LossModule

if TYPE_CHECKING:
    from torch import Tensor


@of_dice_family
def dice_loss(
    logits: Tensor,
    target: Tensor,
    *,
    squared: bool = True,
    **shared: Unpack[DiceFamilyOptions],
) -> Tensor:
    r"""Dice loss, Eq. 7: `1 − (2·p·y + smooth) / (p² + y² + smooth)`, per class against the rest.

    A soft F1: false positives and false negatives cost the same, true negatives nothing. With
    `over="batch"` it is the set-level loss that the paper's runs used.

    Args:
        logits: (..., C), classes last.
        target: Class indices (...), or 0/1 (or in between) of the shape of `logits` for sigmoid.
        squared: `p² + y²` in the denominator, else `p + y`, which is `tversky_loss` at .5/.5 with
            half the smooth.
        **shared: Options of the whole family: `DiceFamilyOptions`.

    Returns:
        A float32 tensor (float64 for float64 logits): a scalar; for `none` (...) at example level,
        (C,) at batch level.

    >>> import torch
    >>> logits = torch.zeros(1, 1)  # p = ½ for a positive: 1 − (2·½ + 1) / (¼ + 1 + 1)
    >>> dice_loss(logits, torch.tensor([1]))
    tensor(0.1111)
    """
    return family_loss(logits, target, DiceFormula(2 if squared else 1), shared, kernel="dice")


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
    summary = "dice: soft F1; smooth, squared, over, average, exclude, ohem_ratio"
    compared = True
    tunes = ({"over": "example"}, {"over": "batch"}, {"over": "example", "smooth": 0.1})
    tunes_positions = ({}, {"squared": False}, {"smooth": 0.1})
