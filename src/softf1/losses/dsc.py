"""Self-adjusting dice loss, the paper's DSC (Eq. 11, with alpha as in the authors' code)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from softf1.losses._core import Decay, check_at_least, check_choice
from softf1.losses._family import DiceFamilyOptions, family_loss, of_dice_family
from softf1.losses._module import LossModule
from softf1.losses.dice import DiceFormula

if TYPE_CHECKING:
    from torch import Tensor


@of_dice_family
def self_adjusting_dice_loss(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    squared: bool = False,
    decay: Decay = "detached",
    **shared: Unpack[DiceFamilyOptions],
) -> Tensor:
    r"""Self-adjusting dice, Eq. 11: dice with `q = (1 − p)^alpha · p` in place of p.

    `1 − (2·q·y + smooth) / (q + y + smooth)`, with `q² + y²` in the denominator if
    `squared`. Confident examples count less, as in focal loss. The value of a perfect positive is
    not 0 but 1 / (1 + smooth), and with the detached decay it does not measure progress; only the
    gradient matters.

    Args:
        logits: (..., C), classes last.
        target: Class indices (...), or 0/1 (or in between) of the shape of `logits` for sigmoid.
        alpha: How fast confident examples fade, from 0 (this is then `dice_loss`) up.
        squared: `q² + y²` in the denominator, else `q + y`.
        decay: `detached`: the decay is a weight of the example, as the paper describes it, and the
            gradient pushes a positive up until p = 1. `paper`: Eq. 11 as printed, differentiated
            through the decay; q is largest at p = 1 / (1 + alpha), so a positive is pushed back
            from there, and alpha = 1 stalls at 0.5. The authors' scripts use alpha = 0.01.
        **shared: Options of the whole family: `DiceFamilyOptions`.

    Returns:
        A float32 tensor (float64 for float64 logits): a scalar; for `none` (...) at example level,
        (C,) at batch level.

    >>> import torch
    >>> logits = torch.zeros(1, 1)  # p = ½, q = ¼ for a positive: 1 − (2·¼ + 1) / (¼ + 1 + 1)
    >>> self_adjusting_dice_loss(logits, torch.tensor([1]))
    tensor(0.3333)
    """
    check_at_least("alpha", alpha, 0.0)
    check_choice("decay", decay)
    formula = DiceFormula(2 if squared else 1)
    return family_loss(
        logits, target, formula, shared, alpha=alpha, paper=decay == "paper", kernel="dice"
    )


class SelfAdjustingDiceLoss(LossModule):
    """`self_adjusting_dice_loss` as a module with the same options."""

    function = staticmethod(self_adjusting_dice_loss)
    summary = "self-adjusting dice of the paper: easy examples count less; alpha, decay, …"
    compared = True
    tunes = (
        {"alpha": 0.01, "squared": True},
        {"alpha": 0.01, "squared": True, "over": "batch"},
        {"alpha": 1.0, "squared": True},
    )
    tunes_positions = tuple({"alpha": alpha, "squared": True} for alpha in (0.01, 1.0, 0.1))
