"""From a loss's arguments to those of the kernels: flat rows, class weights, numeric options."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from softf1.kernels import autograd
from softf1.kernels._numbers import (
    DETACHED,
    DICE,
    ENTROPY,
    NO_DECAY,
    PAPER,
    TVERSKY,
    ZLPR,
    Numbers,
)
from softf1.losses._core import (
    check_range,
    check_shapes,
    check_weight,
    counted,
    plain_integers,
)
from softf1.losses._family import Shared, class_weight, kept_classes, refuse_degenerate_micro

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from softf1.losses._core import Reduction
    from softf1.losses._family import Kernel
    from softf1.losses._ratio import Formula


def family_loss(
    logits: Tensor,
    target: Tensor,
    formula: Formula,
    shared: Shared,
    *,
    alpha: float,
    paper: bool,
    kernel: Kernel,
) -> Tensor:
    """Dice, Tversky and self-adjusting dice: the twin of `softf1.losses._family.family_loss`."""
    x, labels, mask = _flatten(
        logits, target, shared.mask, shared.ignore_index, check_labels=shared.check_labels
    )
    refuse_degenerate_micro(shared, softmax=labels.dim() == 1)
    weight = None
    if shared.weight is not None or shared.exclude:
        like = x.new_empty((0, x.shape[1]), dtype=torch.float32)
        weight = class_weight(like, shared)
    numbers = Numbers(
        {"dice": DICE, "tversky": TVERSKY}[kernel],
        formula.power,
        NO_DECAY if alpha == 0.0 else PAPER if paper else DETACHED,
        float(alpha),
        float(formula.false_positives),
        float(getattr(formula, "false_negatives", 1.0)),
        float(shared.smooth),
        shared.ignore_index,
    )
    if shared.over == "example":
        value = autograd.example(x, labels, mask, weight, numbers, shared.reduction)
        return value.reshape(logits.shape[:-1]) if shared.reduction == "none" else value
    micro = shared.average == "micro"
    if shared.reduction == "none" and not micro:  # values per class are not weighted
        weight = kept_classes(like, shared.exclude) if shared.exclude else None
    return autograd.batch(x, labels, mask, weight, numbers, shared.reduction, micro=micro)


def entropy_loss(
    logits: Tensor,
    target: Tensor,
    *,
    gamma: float,
    weight: Tensor | Sequence[float] | None,
    mask: Tensor | None,
    ignore_index: int,
    reduction: Reduction,
    check_labels: bool | None,
    tau: float | None = None,
) -> Tensor:
    """Cross entropy (gamma 0) and focal loss; with `tau`, of `logits − tau · log weight`."""
    if tau == 0.0:  # no adjustment, whatever the weights
        check_weight(weight, logits.new_empty((0, *logits.shape[-1:]), dtype=torch.float32))
        weight = None
    tau = 0.0 if tau is None or weight is None else float(tau)
    numbers = Numbers(ENTROPY, 1, NO_DECAY, float(gamma), tau, 1.0, 0.0, ignore_index)
    return _by_row(logits, target, numbers, weight, mask, reduction, check_labels=check_labels)


def log_sum_exp_loss(
    logits: Tensor,
    target: Tensor,
    *,
    margin: float,
    weight: Tensor | Sequence[float] | None,
    mask: Tensor | None,
    ignore_index: int,
    reduction: Reduction,
    check_labels: bool | None,
) -> Tensor:
    """ZLPR: the twin of `softf1.losses.zlpr.zlpr_loss`."""
    numbers = Numbers(ZLPR, 1, NO_DECAY, float(margin), 1.0, 1.0, 0.0, ignore_index)
    return _by_row(logits, target, numbers, weight, mask, reduction, check_labels=check_labels)


def _by_row(
    logits: Tensor,
    target: Tensor,
    numbers: Numbers,
    weight: Tensor | Sequence[float] | None,
    mask: Tensor | None,
    reduction: Reduction,
    *,
    check_labels: bool | None,
) -> Tensor:
    """Runs a loss that has one value per row."""
    x, labels, flat_mask = _flatten(logits, target, mask, numbers.ignore, check_labels=check_labels)
    weights = check_weight(weight, x.new_empty((0, x.shape[1]), dtype=torch.float32))
    value = autograd.example(x, labels, flat_mask, weights, numbers, reduction)
    return value.reshape(logits.shape[:-1]) if reduction == "none" else value


def kernels_of(value: Tensor, inputs: tuple[Tensor | None, ...]) -> Callable[..., Tensor] | None:
    """Returns a function of logits, target, mask and weight that runs the kernels behind `value`.

    None if `value` was not computed from exactly these inputs: from other weights, say.
    """
    node: Any = value.grad_fn
    kernels = getattr(node, "kernels", None)
    if kernels is None:
        return None
    given = zip(node.saved_tensors, inputs, strict=False)  # aux, which forward kept, comes last
    return partial(autograd.run, kernels) if all(a is b for a, b in given) else None


def _flatten(
    logits: Tensor,
    target: Tensor,
    mask: Tensor | None,
    ignore_index: int,
    *,
    check_labels: bool | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns logits (N, C), targets (N,) for softmax or (N, C) for sigmoid, and the mask (N,)."""
    softmax = check_shapes(logits, target, mask)
    classes = logits.shape[-1]
    x = logits if logits.dim() == 2 else logits.reshape(-1, classes)
    shape = x.shape[:1] if softmax else x.shape
    labels = target if target.shape == shape else target.reshape(shape)
    labels = labels.to(torch.uint8) if labels.dtype == torch.bool else plain_integers(labels)
    flat_mask = None if mask is None else mask.reshape(-1).to(torch.bool).contiguous()
    if check_labels or (check_labels is None and not logits.is_cuda):
        counts = counted(labels, ignore_index)
        if flat_mask is not None:
            counts = counts & (flat_mask if softmax else flat_mask.unsqueeze(1))
        highest = classes - 1 if softmax else 1
        check_range(labels.masked_fill(~counts, 0), highest, check=check_labels)
    return x, labels, flat_mask
