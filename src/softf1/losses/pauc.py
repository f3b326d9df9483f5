"""Partial AUC (after Zhu et al. 2022): positives above the hardest of the negatives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from softf1.losses._family import Shared
from softf1.losses._module import LossModule
from softf1.losses._ranking import chunk_positives, ranking_loss, ranking_operator, sum_by_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from softf1.losses._core import Reduction


def partial_auc_loss(
    logits: Tensor,
    target: Tensor,
    *,
    max_fpr: float = 0.3,
    weight: Tensor | Sequence[float] | None = None,
    mask: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    exclude: Sequence[int] = (),
    check_labels: bool | None = None,
) -> Tensor:
    r"""Logistic loss of all pairs of a positive and one of the highest-scored negatives.

    `mean over positives i and the ⌈max_fpr · negatives⌉ negatives j of the largest z_j of
    log(1 + exp(z_j − z_i))`, per class, where z are the log-odds of the class: the logit for
    sigmoid, `x_c − logsumexp(the others)` for softmax.

    A pair in the wrong order costs more than log 2, one in the right order less: it bounds the area
    that is missing above the ROC curve, left of a false positive rate of `max_fpr`. Among all ways
    to choose that share of the negatives, the hardest cost most, for each positive (the
    conditional value at risk of Zhu et al. 2022).

    Only the order of the rows counts: the loss does not learn a threshold. Add cross
    entropy (`ce+pauc`), or tune a threshold. A class without positives or without negatives has
    nothing to rank and is left out of the mean.

    Args:
        logits: (..., C), classes last.
        target: Class indices (...), or 0/1 of the shape of `logits` for sigmoid; soft targets count
            as positive from 0.5 up.
        max_fpr: The share of the negatives that counts, above 0 up to 1. At 1 it is the AUC over
            all pairs. Smaller looks at the top of the list only, where precision is decided.
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
    >>> logits = torch.tensor([[1.0], [1.0], [-9.0], [-9.0]])
    >>> partial_auc_loss(logits, torch.tensor([1, 0, 0, 0]))  # one of three negatives: log 2
    tensor(0.6931)
    """
    if not 0.0 < max_fpr <= 1.0:
        raise ValueError(f"wanted 0 < max_fpr <= 1, got {max_fpr!r}")
    shared = Shared(
        weight=weight,
        mask=mask,
        ignore_index=ignore_index,
        reduction=reduction,
        exclude=exclude,
        check_labels=check_labels,
    )
    return ranking_loss(logits, target, differentiate_pairs, max_fpr, shared)


@ranking_operator("pauc")
def differentiate_pairs(
    scores: Tensor, positive: Tensor, negative: Tensor, max_fpr: float, most: int
) -> tuple[Tensor, Tensor]:
    """Returns the mean over the pairs of each class (C,), and its derivative by the scores (N, C).

    Of negatives with the same score, the lower row counts as the harder one.
    """
    count, width = scores.shape[1], math.ceil(max_fpr * len(scores))
    # In float64, the product is what Python's floats give.
    wanted = (max_fpr * negative.sum(0).to(torch.float64)).ceil().unsqueeze(1)
    table = scores.t().contiguous()
    ordered = table.masked_fill(~negative.t(), -torch.inf).sort(descending=True, stable=True)
    places = ordered.indices[:, :width]
    counted = torch.arange(width, device=scores.device) < wanted
    hardest = table.gather(1, places)
    of_negative = (counted / wanted.clamp_min(1)).to(scores.dtype)
    shares = positive.to(table.dtype) / positive.sum(0).clamp_min(1)
    values, slopes = table.new_zeros(count, 1), torch.zeros_like(table)
    of_hardest = torch.zeros_like(hardest)
    for rows, classes in chunk_positives(positive, most=most, others=width):
        behind = hardest[classes] - table[classes, rows].unsqueeze(1)
        share = of_negative[classes] * shares[rows, classes].unsqueeze(1)
        cost = (-functional.logsigmoid(-behind)).mul_(share).sum(1, keepdim=True)
        values += sum_by_class(cost, classes, count)
        slope = torch.sigmoid(behind).mul_(share)
        of_hardest += sum_by_class(slope, classes, count)
        slopes[classes, rows] = -slope.sum(1)
    slopes.scatter_(1, places, slopes.gather(1, places) + of_hardest)
    return values.squeeze(1), slopes.t().contiguous()


class PartialAUCLoss(LossModule):
    """`partial_auc_loss` as a module with the same options."""

    function = staticmethod(partial_auc_loss)
    summary = "partial AUC: ranks positives above the hardest negatives; max_fpr, exclude"
    compares_rows = True
    tunes = ({"max_fpr": 0.3}, {"max_fpr": 0.1}, {"max_fpr": 1.0})
