"""What smooth AP and partial AUC share: scores, the pairs of rows that they compare, reductions.

Each class is ranked by its log-odds z, one against the rest: the logit itself for sigmoid, and
z_c = x_c − logsumexp(the others) for softmax. So a softmax loss is the sigmoid loss of its
log-odds, and the loss of a window needs just the log-odds and labels of all its rows
(`reduction="sums"`). Over micro-batches these are concatenated, where other losses add up sums.

A ranking compares every positive with every row. The pairs are made for a chunk of positives at a
time, and give the values of the classes (C,) and their derivative by the scores (N, C) at once: a
tensor of all pairs never exists, and backward keeps no pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from softf1.losses._core import (
    HandWritten,
    Rows,
    apply_function,
    can_read,
    check_choice,
    divide,
    first_derivative,
    refuse_gradient,
)
from softf1.losses._family import Shared, class_weight, kept_classes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK = 2**20
"""Pairs that are in memory at a time."""

LEFT_OUT = -1
"""Label of a term that does not count, in the result of `reduction="sums"`."""

SCHEMA = "(Tensor scores, Tensor positive, Tensor negative, float option, SymInt most)"


def ranking_loss(
    logits: Tensor,
    target: Tensor,
    differentiate: Callable[..., tuple[Tensor, Tensor]],
    option: float,
    shared: Shared,
) -> Tensor:
    """Returns the mean over the classes that have something to rank: positives and negatives.

    Args:
        logits: (..., C).
        target: (...) or (..., C); a soft target from 0.5 up is a positive.
        differentiate: An operator made by `ranking_operator`.
        option: The operator's option, such as tau.
        shared: Options that rankings share with the dice family; `reduction` is over the classes.
    """
    check_choice("reduction", shared.reduction)
    refuse_gradient("target", target)
    rows = shared.prepare(logits, target)
    weights = class_weight(rows.logits, shared)
    scores, positive, counted = _scores(rows)
    if shared.reduction == "sums":
        return torch.stack([scores, torch.where(counted, positive.to(scores.dtype), LEFT_OUT)])
    negative = counted & ~positive
    most = positive.shape[0] if rows.softmax else positive.numel()
    inputs = scores, positive, negative, option, most, differentiate
    values: Tensor = apply_function(_ClassLosses, _ClassLossesOfTransforms, *inputs)[0]
    if shared.reduction == "none":
        return values * kept_classes(values, shared.exclude)
    ranked = (positive.any(0) & negative.any(0)).to(values.dtype)
    weights = ranked if weights is None else ranked * weights
    total = (values * weights).sum()
    return total if shared.reduction == "sum" else divide(total, weights.sum())


def _scores(rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the log-odds (N, C), 0 where a term does not count; the positives; what counts."""
    terms, x = rows.terms(), rows.logits
    if rows.softmax:
        terms = terms & (
            terms.sum(-1, keepdim=True) > 1
        )  # a class alone in its row has no odds against others
        # 0 in the rows that do not count: they may hold NaN, or only −inf.
        x = _log_odds(torch.where(terms.any(-1, keepdim=True), x, 0.0))
    return torch.where(terms, x, 0.0), terms & rows.positives(), terms


def _log_odds(x: Tensor) -> Tensor:
    """Returns log p − log(1 − p) of each class (N, C) of a softmax.

    1 − p of the largest class may round to 0: its log-odds are its distance from the others.
    """
    largest, top = x.max(-1, keepdim=True)
    is_top = torch.zeros_like(x, dtype=torch.bool).scatter(1, top, True)  # noqa: FBT003
    others = x.masked_fill(is_top, -torch.inf).logsumexp(-1, keepdim=True)
    log_p = functional.log_softmax(x, dim=-1)
    p = log_p.exp().masked_fill(is_top, 0.0)  # ½ at most
    return torch.where(is_top, largest - others, log_p - torch.log1p(-p))


def ranking_operator(
    name: str,
) -> Callable[[Callable[..., tuple[Tensor, Tensor]]], Callable[..., tuple[Tensor, Tensor]]]:
    """Decorates a function that compares rows: makes it a PyTorch operator.

    The function takes scores, positives and negatives (N, C), an option, and the largest possible
    number of positives. It returns the values of the classes (C,), 0 where there is nothing to
    rank, and their derivative by the scores (N, C). As an operator it is one node for
    torch.compile, whatever the number of its chunks.
    """

    def decorate(
        function: Callable[..., tuple[Tensor, Tensor]],
    ) -> Callable[..., tuple[Tensor, Tensor]]:
        def run(scores: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
            with torch.autocast(scores.device.type, enabled=False):
                return function(scores, *rest)

        operator = torch.library.custom_op(
            f"softf1::{name}", run, mutates_args=(), schema=f"{SCHEMA} -> (Tensor, Tensor)"
        )
        operator.register_fake(
            lambda scores, *_: (scores.new_empty(scores.shape[1]), torch.empty_like(scores))
        )
        return operator

    return decorate


def chunk_positives(positive: Tensor, *, most: int, others: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields rows and classes of the positives in chunks, each positive once.

    If only the device knows how many there are, it yields `most` terms, all positives among them.

    Args:
        positive: (N, C) bool.
        most: The largest possible number of positives.
        others: How many rows each positive is compared with; a chunk has `CHUNK` such pairs.
    """
    flat = positive.flatten()
    if can_read(flat):
        places = flat.nonzero().squeeze(1)
    else:
        places = flat.to(torch.uint8).argsort(descending=True, stable=True)[:most]
    for part in torch.split(places, max(1, CHUNK // max(1, others))):
        yield part // positive.shape[1], part % positive.shape[1]


def sum_by_class(values: Tensor, classes: Tensor, count: int) -> Tensor:
    """Returns (count, M): for each class, the sum of its rows of `values` (K, M).

    A matrix product: index_add would not be deterministic on the GPU.
    """
    return functional.one_hot(classes, count).to(values.dtype).t() @ values


class _ClassLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, *rest: Any) -> tuple[Tensor]:
        *arguments, differentiate = rest
        values, slopes = differentiate(scores, *arguments)
        ctx.save_for_backward(scores, slopes)
        return (values,)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        scores, slopes = ctx.saved_tensors
        with torch.no_grad():
            dz = slopes * gradient
        return first_derivative(dz, scores), *(None,) * 5


class _ClassLossesOfTransforms(HandWritten, _ClassLosses):
    """The same for torch.func, which lets backward save only inputs and outputs."""

    @staticmethod
    def forward(scores: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        *arguments, differentiate = rest
        values, slopes = differentiate(scores, *arguments)
        return values, slopes

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], output[1])
