"""Logit adjustment (Menon et al. 2021): cross entropy corrected for the class prior."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from softf1.losses._core import (
    Reduction,
    check_at_least,
    check_choice,
    check_logits,
    check_weight,
)
from softf1.losses._dispatch import fused_entropy, use_kernel
from softf1.losses._module import LossModule
from softf1.losses.ce import cross_entropy_loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from softf1.losses._core import Backend


def logit_adjusted_loss(
    logits: Tensor,
    target: Tensor,
    *,
    tau: float = 1.0,
    weight: Tensor | Sequence[float] | None = None,
    mask: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    check_labels: bool | None = None,
    backend: Backend | None = None,
) -> Tensor:
    r"""Cross entropy of `logits − tau · log weight`, with the weights of inverse class frequency.

    With `weight = 1 / π` this is `logits + tau · log π`: the log prior is added in training and
    left out in prediction, so a rare class needs less evidence to be predicted. With tau = 1 this
    gives the best balanced accuracy for any class frequencies.

    Args:
        logits: (..., C), classes last.
        target: Class indices (...), or 0/1 (or in between) of the shape of `logits` for sigmoid.
        tau: How strongly to correct for the prior, from 0 (this is then cross entropy) up; more
            raises the recall of rare classes and lowers their precision.
        weight: Inverse class frequencies, as `class_weights` gives them with `balanced` or
            `inverse`: a common factor changes nothing for softmax, for sigmoid it is
            negatives / positives. A class with weight 0, never seen, is treated as the rarest.
            Without weights there is no adjustment.
        mask: (...), True = counts.
        ignore_index: Target value that does not count.
        reduction: `mean` over what counts, `sum`, or `none`: (...) with 0 where ignored.
        check_labels: Check labels for their range; by default on the CPU only.
        backend: `triton`, the fused kernel, or `torch`; by default the kernel on CUDA.

    Returns:
        A float32 tensor (float64 for float64 logits): a scalar, or (...) for `none`.

    >>> import torch
    >>> from softf1.losses import class_weights
    >>> weight = class_weights([90, 10])
    >>> logit_adjusted_loss(torch.zeros(1, 2), torch.tensor([1]), weight=weight)  # −log 0.1
    tensor(2.3026)
    """
    check_choice("reduction", reduction)
    check_at_least("tau", tau, 0.0)
    check_choice("backend", backend)
    if use_kernel(logits, target, weight, backend=backend, reduction=reduction):
        return fused_entropy(
            logits,
            target,
            gamma=0.0,
            tau=tau,
            weight=weight,
            mask=mask,
            ignore_index=ignore_index,
            reduction=reduction,
            check_labels=check_labels,
        )
    check_logits(logits)
    exact = torch.float64 if logits.dtype == torch.float64 else torch.float32
    weights = check_weight(weight, logits.new_empty((0, *logits.shape[-1:]), dtype=exact))
    if weights is not None and tau:
        seen = torch.where(weights > 0, weights, weights.amax())
        logits = logits - tau * seen.log()  # in the weights' dtype, without casting logits first
    return cross_entropy_loss(
        logits,
        target,
        mask=mask,
        ignore_index=ignore_index,
        reduction=reduction,
        check_labels=check_labels,
        backend="torch",
    )


class LogitAdjustedLoss(LossModule):
    """`logit_adjusted_loss` as a module with the same options."""

    function = staticmethod(logit_adjusted_loss)
    summary = "logit adjustment: cross entropy with the log class prior added; tau"
    needs_counts = True
    adds_prior = True
    compared = True
    tunes = ({"tau": 1.0}, {"tau": 0.5}, {"tau": 1.5})
