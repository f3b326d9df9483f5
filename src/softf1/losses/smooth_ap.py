"""Smooth average precision (Brown et al. 2020): how high each positive is ranked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from softf1.losses._family import Shared
from softf1.losses._module import LossModule
from softf1.losses._ranking import chunk_positives, ranking_loss, ranking_operator, sum_by_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from softf1.losses._core import Reduction


def smooth_ap_loss(
    logits: Tensor,
    target: Tensor,
    *,
    tau: float = 1.0,
    weight: Tensor | Sequence[float] | None = None,
    mask: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    exclude: Sequence[int] = (),
    check_labels: bool | None = None,
) -> Tensor:
    r"""One minus the average precision of each class, with a sigmoid for every "ranked above".

    `1 − mean over positives i of (1 + Σ_{j≠i positive} s_ji) / (1 + Σ_{j≠i} s_ji)`, where
    `s_ji = sigmoid((z_j − z_i) / tau)` says how far row j is ranked above row i, and z are the
    log-odds of the class: the logit for sigmoid, `x_c − logsumexp(the others)` for softmax.

    Only the order of the rows counts: the loss does not learn a threshold. Add cross
    entropy (`ce+smooth_ap`), or tune a threshold. A class without positives or without negatives
    has nothing to rank and is left out of the mean.

    Args:
        logits: (..., C), classes last.
        target: Class indices (...), or 0/1 of the shape of `logits` for sigmoid; soft targets count
            as positive from 0.5 up.
        tau: How soft a comparison is, in logits, above 0. Smaller is closer to average precision
            and has a gradient for close pairs only.
        weight: One weight per class in the mean over classes, `Σ w·l / Σ w`.
        mask: (...), True = counts.
        ignore_index: Target value that does not count.
        reduction: `mean` or `sum` over the classes with something to rank, or `none`: (C,).
        exclude: Classes left out of the loss, such as O. Their rows are still negatives of the
            other classes.
        check_labels: Check labels for their range; by default on the CPU only.

    Returns:
        A float32 tensor (float64 for float64 logits): a scalar, or (C,) for `none`.

    >>> import torch
    >>> logits = torch.tensor([[50.0], [0.0], [-50.0]])
    >>> smooth_ap_loss(logits, torch.tensor([1, 0, 1]))  # 1 − (1/1 + 2/3) / 2
    tensor(0.1667)
    """
    if not tau > 0.0:
        raise ValueError(f"wanted tau > 0, got {tau!r}")
    shared = Shared(
        weight=weight,
        mask=mask,
        ignore_index=ignore_index,
        reduction=reduction,
        exclude=exclude,
        check_labels=check_labels,
    )
    return ranking_loss(logits, target, differentiate_precision, tau, shared)


@ranking_operator("smooth_ap")
def differentiate_precision(
    scores: Tensor, positive: Tensor, negative: Tensor, tau: float, most: int
) -> tuple[Tensor, Tensor]:
    """Returns 1 − AP of each class (C,), and its derivative by the scores (N, C).

    For a positive i, let a be 1 + Σ s_ji over the other positives j and b be Σ s_ji over the
    negatives j. Then i adds b / (a + b) to the mean, with derivative a / (a + b)² by s_ji of a
    negative and −b / (a + b)² by s_ji of a positive.
    """
    count = scores.shape[1]
    table = scores.t().contiguous() / tau
    is_positive, is_negative = (terms.t().to(scores.dtype) for terms in (positive, negative))
    shares = positive.to(table.dtype) / positive.sum(0).clamp_min(1)
    values, slopes = table.new_zeros(count, 1), torch.zeros_like(table)
    for rows, classes in chunk_positives(positive, most=most, others=len(scores)):
        own = table[classes, rows].unsqueeze(1)
        share = shares[rows, classes].unsqueeze(1)
        above = torch.sigmoid(table[classes] - own)
        right = is_positive[classes].scatter_(1, rows.unsqueeze(1), 0.0)  # not above itself
        wrong = is_negative[classes]
        a = 1.0 + (above * right).sum(1, keepdim=True)
        b = (above * wrong).sum(1, keepdim=True)
        values += sum_by_class(share * b / (a + b), classes, count)
        slope = wrong.mul_(a).sub_(right.mul_(b)).mul_(share / (tau * (a + b) ** 2))
        slope.mul_(above.mul_(1.0 - above))
        slopes += sum_by_class(slope, classes, count)
        slopes[classes, rows] -= slope.sum(1)
    return values.squeeze(1), slopes.t().contiguous()


class SmoothAPLoss(LossModule):
    """`smooth_ap_loss` as a module with the same options."""

    function = staticmethod(smooth_ap_loss)
    summary = "smooth average precision: ranks positives above negatives; tau, exclude"
    compares_rows = True
    tunes = ({"tau": 1.0}, {"tau": 0.3}, {"tau": 0.1})
