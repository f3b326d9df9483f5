"""Self-adjusting dice loss, the paper's DSC (Eq. 11, with alpha as in the authors' code)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.losses._core import check_at_least, check_choice
from softf1.losses._family import Shared, family_loss
from softf1.losses._module import LossModule
from softf1.losses.dice import DiceFormula

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from softf1.losses._core import Average, Backend, Decay, Over, Reduction


def self_adjusting_dice_loss(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    smooth: float = 1.0,
    squared: bool = False,
    decay: Decay = "detached",
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
    r"""Self-adjusting dice, Eq. 11: dice with `q = (1 − p)^alpha · p` in place of p.

    `1 − (2·q·y + smooth) / (q + y + smooth)`, with `q² + y²` below if `squared`. Confident examples
    count less, as in focal loss. The value of a perfect positive is not 0 but 1 / (1 + smooth), and
    with the detached decay it is no measure of progress: the gradient is what counts.

    Args:
        logits: (..., C), classes last.
        target: Class indices (...), or 0/1 (or in between) of the shape of `logits` for sigmoid.
        alpha: How fast confident examples fade, from 0 (this is then `dice_loss`) up.
        smooth: Added above and below, from 0 up.
        squared: `q² + y²` below, else `q + y`.
        decay: `detached`: the decay is a weight of the example, as the paper describes it, and the
            gradient pushes a positive up until p = 1. `paper`: Eq. 11 as printed, differentiated
            through the decay; q is largest at p = 1 / (1 + alpha), so a positive is pushed back
            from there, and alpha = 1 stalls at 0.5. The authors' scripts use alpha = 0.01.
        weight: One weight a class, as in `dice_loss`.
        mask: (...), True = counts.
        ignore_index: Target value that does not count.
        reduction: `mean`, `sum` or `none`, as in `dice_loss`.
        over: `example` or `batch`, as in `dice_loss`.
        average: `macro` or `micro`, as in `dice_loss`.
        exclude: Classes left out of the loss, such as O.
        ohem_ratio: Hardest negatives kept for each positive, as in `dice_loss`.
        min_kept: The least number of negatives that `ohem_ratio` keeps.
        check_labels: Check labels for their range; by default on the CPU only.
        backend: `triton`, the fused kernel, or `torch`; by default the kernel on CUDA.

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
    formula = DiceFormula(2 if squared else 1)
    return family_loss(logits, target, formula, shared, alpha=alpha, paper=decay == "paper")


class SelfAdjustingDiceLoss(LossModule):
    """`self_adjusting_dice_loss` as a module with the same options."""

    function = staticmethod(self_adjusting_dice_loss)
