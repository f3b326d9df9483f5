"""What dice, Tversky and self-adjusting dice share: options, levels, averages, reductions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from softf1.losses._ohem import easy_negatives
from softf1.losses._probability import Link
from softf1.losses._ratio import Formula, ratio_loss, row_losses, statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from softf1.losses._core import Backend


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The options that every loss of the family has; each loss's docstring explains them."""

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
    backend: Backend | None = None


def family_loss(
    logits: Tensor,
    target: Tensor,
    formula: Formula,
    shared: Shared,
    *,
    alpha: float = 0.0,
    paper: bool = False,
) -> Tensor:
    """Returns the loss of `formula` over q = (1 − p)^alpha · p."""
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
        obstacle=_obstacle(shared),
    ):
        return fused_family(logits, target, formula, shared, alpha=alpha, paper=paper)
    rows = prepare(
        logits,
        target,
        mask=shared.mask,
        ignore_index=shared.ignore_index,
        check_labels=shared.check_labels,
    )
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


def _obstacle(shared: Shared) -> str | None:
    """Returns what the kernels do not have, in words."""
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
    """Folds the statistics of the classes (C,) into the batch-level loss."""
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
    check_choice("reduction", shared.reduction)
    check_choice("over", shared.over)
    check_choice("average", shared.average)
    check_choice("backend", shared.backend)
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
    """Raises where micro over all softmax classes would leave nothing to trade."""
    if softmax and shared.average == "micro" and not shared.exclude:
        raise ValueError(
            'softmax with average="micro" over all classes is refused: every false positive is '
            "another class's false negative, so no trade of precision and recall is left (linear "
            "dice is then 1 − mean p[gold]); exclude the background class, "
            'or use average="macro"'
        )
