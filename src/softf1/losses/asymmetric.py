"""Asymmetric loss (Ridnik et al. 2021): focal loss in which easy negatives fade sooner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from softf1.losses._core import (
    Reduction,
    Rows,
    check_at_least,
    check_choice,
    check_weight,
    prepare,
    reduce_rows,
)
from softf1.losses._module import LossModule
from softf1.losses.ce import mean_of_terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def asymmetric_loss(
    logits: Tensor,
    target: Tensor,
    *,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    clip: float = 0.05,
    weight: Tensor | Sequence[float] | None = None,
    mask: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    check_labels: bool | None = None,
) -> Tensor:
    r"""Asymmetric loss for several labels per text (sigmoids).

    A positive costs `−(1 − p)^gamma_positive · log p`, a negative `−q^gamma_negative · log(1 − q)`
    with `q = max(p − clip, 0)`. With one gamma for both and `clip=0` it is `focal_loss`.

    Args:
        logits: (..., C), classes last.
        target: 0/1 (or in between) of the shape of `logits`, or (...) if there is one class. Class
            indices (softmax) are refused.
        gamma_positive: How fast easy positives fade, from 0 up.
        gamma_negative: How fast easy negatives fade, from 0 up; more than `gamma_positive` raises
            recall and lowers precision.
        clip: Negatives up to this probability cost nothing, from 0 to below 1. It bounds the cost
            of a wrong label: a negative at p = 1 costs `−log clip` and has no gradient.
        weight: The positive term of a class is multiplied by it, as in `cross_entropy_loss`.
        mask: (...), True = counts.
        ignore_index: Target value that does not count.
        reduction: `mean` over what counts, `sum`, or `none`: (...) with 0 where ignored.
        check_labels: Check labels for their range; by default on the CPU only.

    Returns:
        A float32 tensor (float64 for float64 logits): a scalar, or (...) for `none`.

    >>> import torch
    >>> logits = torch.zeros(1, 2)  # log 2, and −0.45⁴ · log 0.55, in the mean
    >>> asymmetric_loss(logits, torch.tensor([[1.0, 0.0]]))
    tensor(0.3588)
    """
    check_choice("reduction", reduction)
    check_at_least("gamma_positive", gamma_positive, 0.0)
    check_at_least("gamma_negative", gamma_negative, 0.0)
    if not 0.0 <= clip < 1.0:
        raise ValueError(f"wanted 0 <= clip < 1, got {clip!r}")
    rows = prepare(logits, target, mask=mask, ignore_index=ignore_index, check_labels=check_labels)
    if rows.softmax:
        raise ValueError(
            "asymmetric loss is refused for classes that exclude each other: wanted 0/1 of the "
            f"shape of the logits (multi-label), {tuple(logits.shape)}, got class indices "
            f"{tuple(target.shape)}"
        )
    weights = check_weight(weight, rows.logits)
    values = sigmoid_losses(rows, weights, gamma_positive, gamma_negative, clip)
    return reduce_rows(values, counts=rows.kept(), shape=rows.shape, reduction=reduction)


def sigmoid_losses(
    rows: Rows, weight: Tensor | None, gamma_positive: float, gamma_negative: float, clip: float
) -> Tensor:
    """Returns the mean loss of the terms of each row (N,)."""
    x = torch.where(rows.wanted, rows.logits, 0.0)
    log_p, log_not_p = functional.logsigmoid(x), functional.logsigmoid(-x)
    positive = rows.y * torch.exp(gamma_positive * log_not_p) * log_p
    if weight is not None:
        positive = positive * weight
    negative = 1.0 - rows.y
    if clip == 0.0:  # from the logarithms, however small p is
        negative = negative * torch.exp(gamma_negative * log_p) * log_not_p
    else:
        # The floor is the smallest normal number: its power and the power's derivative are finite
        # for every gamma, and log(1 − q) is 0 there, so it changes neither value nor gradient.
        q = (torch.sigmoid(x) - clip).clamp_min(torch.finfo(x.dtype).tiny)
        not_q = (torch.sigmoid(-x) + clip).clamp_max(1.0)
        negative = negative * (q.pow(gamma_negative) * not_q.log())
    return mean_of_terms(-(positive + negative), rows)


class AsymmetricLoss(LossModule):
    """`asymmetric_loss` as a module with the same options."""

    function = staticmethod(asymmetric_loss)
    summary = "asymmetric focal loss for multi-label; gamma_positive, gamma_negative, clip"
    tunes = ({"gamma_negative": 4.0}, {"gamma_negative": 2.0}, {"gamma_negative": 1.0})
