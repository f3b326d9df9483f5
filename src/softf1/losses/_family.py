"""What dice, Tversky and self-adjusting dice share: options, levels, averages, reductions."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Literal, NamedTuple, ParamSpec, TypedDict

import torch
from torch import Tensor

from softf1.losses._core import (
    Average,
    Over,
    Reduction,
    can_read,
    check_at_least,
    check_choice,
    check_weight,
    divide,
    prepare,
    reduce_rows,
    refuse_gradient,
)
from softf1.losses._dispatch import fused_family, use_kernel
from softf1.losses._probability import Link
from softf1.losses._ratio import Formula, ratio_loss, row_losses, statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from softf1.losses._core import Backend, Rows

Kernel = Literal["dice", "tversky"]
Given = ParamSpec("Given")


class DiceFamilyOptions(TypedDict, total=False):
    """The options that dice, Tversky and self-adjusting dice share.

    Attributes:
        smooth: Added to numerator and denominator, from 0 up, by default 1. At example level, a
            negative costs `p² / (p² + smooth)` with dice; a larger value makes negatives cheaper
            and raises recall.
        weight: One weight per class in the mean over classes, `Σ w·l / Σ w`; for `micro`, in the
            sums.
        mask: (...), True = counts.
        ignore_index: Target value that does not count, by default −100.
        reduction: `mean`, `sum` or `none`: over examples at example level, classes at batch level.
        over: `example`: the ratio of every example and class. `batch`: sums over the batch first.
        average: Batch level only. `macro`: the mean of the classes' ratios, so that rare classes
            weigh as much as frequent ones. `micro`: one ratio of the sums over the classes.
        exclude: Classes without a term in the loss, such as O. Another class predicted on their
            rows is still a false positive.
        ohem_ratio: Batch level only: per class, keep all positives and this many of the hardest
            negatives for each.
        min_kept: The minimum number of negatives that `ohem_ratio` keeps, by default 1, so that a
            batch without positives still learns.
        check_labels: Check labels for their range; by default on the CPU only.
        backend: `triton`, the fused kernel, or `torch`; by default the kernel on CUDA.
    """

    smooth: float
    weight: Tensor | Sequence[float] | None
    mask: Tensor | None
    ignore_index: int
    reduction: Reduction
    over: Over
    average: Average
    exclude: Sequence[int]
    ohem_ratio: float | None
    min_kept: int
    check_labels: bool | None
    backend: Backend | None


class Shared(NamedTuple):
    """The options of `DiceFamilyOptions` with their defaults."""

    smooth: float = 1.0
    weight: Tensor | Sequence[float] | None = None
    mask: Tensor | None = None
    ignore_index: int = -100
    reduction: Reduction = "mean"
    over: Over = "example"
    average: Average = "macro"
    exclude: Sequence[int] = ()
    ohem_ratio: float | None = None
    min_kept: int = 1
    check_labels: bool | None = None
    backend: Backend | None = None

    def prepare(self, logits: Tensor, target: Tensor) -> Rows:
        """Checks logits and target and brings them into one form."""
        return prepare(
            logits,
            target,
            mask=self.mask,
            ignore_index=self.ignore_index,
            check_labels=self.check_labels,
        )


def of_dice_family(loss: Callable[Given, Tensor]) -> Callable[Given, Tensor]:
    """Writes the shared options into the signature and docstring of `loss(…, **shared)`."""
    own = inspect.signature(loss)
    shared = [
        one.replace(kind=one.KEYWORD_ONLY, annotation=one.annotation.__forward_arg__)
        for one in inspect.signature(Shared).parameters.values()
    ]
    kept = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
    loss.__signature__ = own.replace(parameters=[*kept, *shared])  # type: ignore[attr-defined]
    if loss.__doc__ and DiceFamilyOptions.__doc__:  # not with python -OO
        described = DiceFamilyOptions.__doc__.partition("Attributes:\n")[2].strip()
        loss.__doc__ = re.sub(
            r"\*\*shared:.*?(?=\n\n)", lambda _: described, loss.__doc__, flags=re.DOTALL
        )
    return loss


def family_loss(
    logits: Tensor,
    target: Tensor,
    formula: Formula,
    options: DiceFamilyOptions,
    *,
    alpha: float = 0.0,
    paper: bool = False,
    kernel: Kernel | None = None,
) -> Tensor:
    """Returns the loss of `formula` over q = (1 − p)^alpha · p.

    Args:
        logits: (..., C).
        target: (...) or (..., C).
        formula: Defines overlap and total.
        options: Options that the family shares.
        alpha: The exponent of the decay (1 − p)^alpha.
        paper: Differentiate through the decay.
        kernel: The fused kernel that computes this formula. None: there is none, and the PyTorch
            form runs on every device.
    """
    try:
        shared = Shared(**options)
    except TypeError:
        unknown = sorted(options.keys() - set(Shared._fields))
        raise TypeError(
            f"the dice family has no option {', '.join(map(repr, unknown))}; "
            f"it has {', '.join(sorted(Shared._fields))}"
        ) from None
    _check(shared)
    refuse_gradient("target", target)
    if shared.over == "example" and isinstance(shared.weight, Tensor):
        refuse_gradient("weight", shared.weight)
    if use_kernel(
        logits,
        target,
        shared.weight,
        backend=shared.backend,
        reduction=shared.reduction,
        obstacle=_obstacle(shared, formula, kernel),
    ):
        return fused_family(
            logits, target, formula, shared, alpha=alpha, paper=paper, kernel=kernel
        )
    rows = shared.prepare(logits, target)
    refuse_degenerate_micro(shared, softmax=rows.softmax)
    weight = class_weight(rows.logits, shared)
    link = Link(rows.softmax, alpha, paper)
    if shared.over == "example":
        values, counts = row_losses(rows, link, formula, smooth=shared.smooth, weight=weight)
        return reduce_rows(values, counts=counts, shape=rows.shape, reduction=shared.reduction)
    easy = None
    if shared.ohem_ratio is not None:
        easy = easy_negatives(rows, link, ratio=shared.ohem_ratio, min_kept=shared.min_kept)
    overlap, total = statistics(rows, link, formula, easy=easy)
    if shared.reduction == "sums":
        return torch.stack([overlap, total])
    return _reduce_classes(overlap, total, weight, shared)


def _obstacle(shared: Shared, formula: Formula, kernel: Kernel | None) -> str | None:
    """Returns why the kernels cannot compute this loss, None if they can."""
    if kernel is None:
        return f"no kernel knows {type(formula).__name__}, it has the PyTorch form only"
    if shared.ohem_ratio is not None:
        return "ohem_ratio has the PyTorch form only"
    return None


def fold_classes(sums: Tensor, shared: Shared) -> Tensor:
    """Returns the batch-level loss from (2, C): overlap and total of each class."""
    overlap, total = sums
    return _reduce_classes(overlap, total, class_weight(sums, shared), shared)


def _reduce_classes(
    overlap: Tensor, total: Tensor, weight: Tensor | None, shared: Shared
) -> Tensor:
    """Returns the batch-level loss from the statistics of the classes (C,)."""
    if shared.average == "micro":
        if weight is not None:
            overlap, total = weight * overlap, weight * total
        return ratio_loss(overlap.sum(), total.sum(), shared.smooth)
    losses = ratio_loss(overlap, total, shared.smooth)
    if shared.reduction == "none":
        return losses * kept_classes(total, shared.exclude)
    if weight is None:
        return losses.sum() if shared.reduction == "sum" else losses.mean()
    summed = (weight * losses).sum()
    return summed if shared.reduction == "sum" else divide(summed, weight.sum())


def kept_classes(like: Tensor, exclude: Sequence[int]) -> Tensor:
    """Returns (C,): 1 for a class that counts, 0 for an excluded one."""
    kept = like.new_ones(like.shape[-1])
    for c in exclude:  # one by one: indices, or a 0 to assign, would be copied to the device
        kept[c].zero_()
    return kept


def class_weight(like: Tensor, shared: Shared) -> Tensor | None:
    """Returns (C,) class weights with 0 for excluded classes, or None where all count alike."""
    weight = check_weight(shared.weight, like)
    classes = like.shape[-1]
    excluded = set(shared.exclude)
    if not excluded:
        return weight
    if not excluded.issubset(range(classes)):
        raise ValueError(
            f"wanted classes from 0 to {classes - 1} in exclude, got {list(shared.exclude)}"
        )
    if len(excluded) == classes:
        raise ValueError(f"exclude leaves none of the {classes} classes to learn from")
    kept = kept_classes(like, shared.exclude)
    if weight is None:
        return kept
    if can_read(weight) and not bool((kept * weight).any()):
        raise ValueError(f"wanted a class weight above 0 outside of exclude {sorted(excluded)}")
    return kept * weight


def _check(shared: Shared) -> None:
    for name in ("reduction", "over", "average", "backend"):
        check_choice(name, getattr(shared, name))
    check_at_least("smooth", shared.smooth, 0.0)
    if shared.over == "example" and shared.average == "micro":
        raise ValueError(
            'average="micro" sums over the batch and needs over="batch", got over="example"'
        )
    if shared.ohem_ratio is not None:
        check_at_least("ohem_ratio", shared.ohem_ratio, 0.0)
        check_at_least("min_kept", shared.min_kept, 0)
        if shared.over != "batch":
            raise ValueError('ohem_ratio chooses among the rows of a batch and needs over="batch"')


def refuse_degenerate_micro(shared: Shared, *, softmax: bool) -> None:
    """Raises for micro over all classes of a softmax, where precision always equals recall."""
    if softmax and shared.average == "micro" and not shared.exclude:
        raise ValueError(
            'softmax with average="micro" over all classes is refused: every false positive is '
            "another class's false negative, so no trade of precision and recall is left (linear "
            "dice is then 1 − mean p[gold]); exclude the background class, "
            'or use average="macro"'
        )


@torch.no_grad()
def easy_negatives(rows: Rows, link: Link, *, ratio: float, min_kept: int) -> Tensor:
    """Online hard example mining: (N, C) bool, the negatives that are too easy to be kept.

    Per class, the `min(available, max(min_kept, ceil(ratio · positives)))` negatives of the highest
    probability are kept; ties go to the lower row. Their number stays on the device: no host sync.
    """
    terms = rows.terms()
    positive = terms & rows.positives()
    negative = terms & ~positive
    # In float64, the product is what Python's floats give.
    wanted = (ratio * positive.sum(0).to(torch.float64)).ceil().clamp_min(min_kept)
    hardness = link.probabilities(rows.logits).masked_fill(~negative, -1.0)
    order = hardness.sort(dim=0, descending=True, stable=True).indices
    rank = torch.arange(len(hardness), device=wanted.device).unsqueeze(1)
    return negative.scatter(0, order, rank >= wanted) & negative
