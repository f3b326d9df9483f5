"""The dice family: 1 − (overlap + smooth) / (total + smooth), per example or over the batch.

A formula says what overlap and total are for one probability q and its target y, and how both grow:
q times their derivative by q. Example level takes the ratio of every (row, class) term, batch level
sums both over the rows first: counts first, ratio last.

Softmax targets are one class per row, so no one-hot tensor is made. First every class is taken as a
negative, with overlap 0 and total n = false_positives · q^power, so that its loss is
l = n / (n + smooth), and q · dl/dq = power · smooth · l / (n + smooth). Then the entry of each
row's gold class is overwritten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from softf1.losses._core import (
    HandWritten,
    Rows,
    apply_function,
    column_sums,
    divide,
    first_derivative,
    is_short,
    pick,
    sum_classes,
)

if TYPE_CHECKING:
    from softf1.losses._probability import Link

Gradients = tuple[Tensor | None, ...]


class Formula(Protocol):
    """Overlap and total of a ratio loss for probabilities `q` and targets `y` of one shape."""

    @property
    def false_positives(self) -> float:
        """The total of a negative is this times q^power."""

    @property
    def power(self) -> int:
        """1 or 2."""

    def overlap(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns the numerator without smooth, such as 2·q·y; 0 where y is 0."""

    def overlap_growth(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns q times the derivative of the overlap by q."""

    def total(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns the denominator without smooth, such as q + y."""

    def total_growth(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns q times the derivative of the total by q."""


def row_losses(
    rows: Rows, link: Link, formula: Formula, *, smooth: float, weight: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Returns (N,) the class-weighted mean of each row's term losses, and (N,) which rows count.

    The second is None if all rows count.
    """
    wanted = None if rows.complete else rows.wanted
    inputs = rows.logits, rows.gold, rows.y, wanted, weight, link, formula, smooth
    values, kept, *_ = apply_function(_RowLosses, _RowLossesOfTransforms, *inputs)
    return values, kept


def statistics(
    rows: Rows, link: Link, formula: Formula, *, easy: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Returns overlap and total of each class (C,), summed over the rows; they add up over batches.

    `easy` (N, C) bool are negatives to leave out.
    """
    y = rows.y
    if easy is not None and not rows.softmax:
        y = y.masked_fill(easy, 0.0)  # a soft negative is left out with its target
    wanted = None if rows.complete else rows.wanted
    inputs = rows.logits, rows.gold, y, wanted, easy, link, formula
    overlap, total, *_ = apply_function(_Statistics, _StatisticsOfTransforms, *inputs)
    return overlap, total


def ratio_loss(overlap: Tensor, total: Tensor, smooth: float) -> Tensor:
    """Returns 1 − (overlap + smooth) / (total + smooth), and 0 where the denominator is 0."""
    below, tiny = total + smooth, torch.finfo(total.dtype).tiny
    if smooth < tiny:  # a denormal denominator counts as 0: its reciprocal is infinite
        below = below.masked_fill(below < tiny, 1.0)
    return (total - overlap) / below


def _differentiate_rows(
    x: Tensor,
    gold: Tensor | None,
    y: Tensor,
    wanted: Tensor | None,
    weight: Tensor | None,
    link: Link,
    formula: Formula,
    smooth: float,
    *,
    wants_gradient: bool,
) -> tuple[Any, ...]:
    """Returns rows' losses (N,), which rows count, the unscaled derivative (N, C), and its factor.

    The derivative is computed along with the values, so that one (N, C) buffer is kept for
    backward, not two. Without `wanted` everything counts and is finite: one factor for all rows.
    """
    if wanted is None:
        assert gold is not None  # noqa: S101 — complete rows are softmax rows
        p = link.probabilities(x, finite=True)
        values, h = _one_gold_a_row(formula, link, p, x, gold, y, smooth, weight)
        factor = x.new_tensor(1.0 / (x.shape[1] if weight is None else weight.sum().item()))
        if not wants_gradient:
            return values.mul_(factor), None
        dx = link.to_logits(h if weight is None else h.mul_(weight), p, x)
        return values.mul_(factor), None, dx, factor
    # As floats 0 and 1: making and summing bools takes twice as long.
    terms = wanted if gold is None else torch.ne(x, -torch.inf, out=torch.empty_like(x))
    kept, scale = _row_scales(terms, wanted, weight, x.dtype)
    p = link.probabilities(x)
    if gold is None:
        losses, h = _term_losses(formula, _decayed(link, p, x, wanted), y, smooth)
        values = _sum_classes(losses, weight)
    else:
        values, h = _one_gold_a_row(formula, link, p, x, gold, y, smooth, weight, buffer=terms)
    values = torch.where(kept, values * scale, 0.0)
    if not wants_gradient:
        return values, kept
    dx = link.to_logits(h if weight is None else h.mul_(weight), p, x)
    # Rows that do not count may hold NaN, which a factor of 0 would not remove. For a NaN in a row
    # that counts, the factor is NaN.
    return values, kept, dx.nan_to_num_(0.0), torch.add(scale, values, alpha=0.0)


class _RowLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        wants_gradient = ctx.needs_input_grad[0]
        values, kept, *derivative = _differentiate_rows(x, *rest, wants_gradient=wants_gradient)
        if wants_gradient:
            ctx.save_for_backward(x, *derivative)
        if kept is not None:
            ctx.mark_non_differentiable(kept)
        return values, kept

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> Gradients:
        x, dx, factor = ctx.saved_tensors
        with torch.no_grad():
            dx = dx * (gradient * factor).unsqueeze(1)
        return first_derivative(dx, x), *(None,) * 7


class _RowLossesOfTransforms(HandWritten, _RowLosses):
    """The same for torch.func, which lets backward save only inputs and outputs.

    It is used there only: with `setup_context`, `apply` inspects the signature at every call.
    """

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:  # type: ignore[override]
        return _differentiate_rows(*inputs, wants_gradient=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, kept, *derivative = output
        ctx.mark_non_differentiable(kept, *derivative)
        ctx.save_for_backward(inputs[0], *derivative)


def _sum_terms(
    x: Tensor,
    gold: Tensor | None,
    y: Tensor,
    wanted: Tensor | None,
    easy: Tensor | None,
    link: Link,
    formula: Formula,
) -> tuple[Tensor, ...]:
    """Returns overlap and total of each class (C,), then p and q (N, C).

    Without `wanted`, everything counts and is finite.
    """
    p = link.probabilities(x, finite=wanted is None)
    if wanted is None:
        q = link.decayed(p, x)
    else:
        kept = wanted if gold is None else _row_factors(pick(p, gold), y, wanted)
        q = _decayed(link, p, x, kept)
    if easy is not None:
        q = q.masked_fill(easy, 0.0)
    if gold is None:
        return column_sums(formula.overlap(q, y)), column_sums(formula.total(q, y)), p, q
    picked = pick(q, gold)
    total_at_gold, overlap_at_gold = formula.total(picked, y), formula.overlap(picked, y)
    del picked
    buffer = _negative_totals(formula, q).scatter_(1, gold, total_at_gold)
    total = column_sums(buffer)
    return _sum_by_class(overlap_at_gold, gold, buffer), total, p, q


def _sum_by_class(values: Tensor, gold: Tensor, buffer: Tensor) -> Tensor:
    """Returns (C,): for each gold class, the sum of its rows' values; may overwrite `buffer`."""
    if buffer.device.type != "cpu" or is_short(buffer):
        # Column sums of a dense buffer: index_add_ would not be deterministic on the GPU.
        return column_sums(buffer.zero_().scatter_(1, gold, values))
    # index_add_ adds one value after the other, which needs more digits than a sum in blocks.
    sums = buffer.new_zeros(buffer.shape[1], dtype=torch.float64)
    return sums.index_add_(0, gold.squeeze(1), values.squeeze(1).double()).to(buffer.dtype)


class _Statistics(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        overlap, total, p, q = _sum_terms(*inputs)
        x, gold, y, _, _, ctx.link, ctx.formula = inputs
        ctx.save_for_backward(x, p, q, gold, y)
        return overlap, total

    @staticmethod
    def backward(ctx: Any, of_overlap: Tensor, of_total: Tensor, *_: Tensor) -> Gradients:
        x, p, q, gold, y = ctx.saved_tensors
        formula = ctx.formula
        with torch.no_grad():
            if gold is None:
                h = (
                    formula.total_growth(q, y) * of_total
                    + formula.overlap_growth(q, y) * of_overlap
                )
            else:
                picked = pick(q, gold)
                at_gold = of_total.take(gold).mul_(formula.total_growth(picked, y))
                at_gold.addcmul_(formula.overlap_growth(picked, y), of_overlap.take(gold))
                del picked
                h = _negative_totals(formula, q, formula.power * of_total)
                h.scatter_(1, gold, at_gold)
            dx = ctx.link.to_logits(h, p, x)
        return first_derivative(dx, x), *(None,) * 6


class _StatisticsOfTransforms(HandWritten, _Statistics):
    """The same for torch.func."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:  # type: ignore[override]
        overlap, total, p, q = _sum_terms(*inputs)
        return overlap, total, p, q.clone() if q is p else q

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, gold, y, _, _, ctx.link, ctx.formula = inputs
        _, _, p, q = output
        ctx.mark_non_differentiable(p, q)
        ctx.save_for_backward(x, p, q, gold, y)


def _row_scales(
    terms: Tensor, wanted: Tensor, weight: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Returns (N,) which rows count, and (N,) 1 / the weight of their terms, 0 for the others."""
    weights = _sum_classes(terms, weight, dtype)
    rows = wanted.squeeze(1) if wanted.shape[1] == 1 else wanted.any(-1)
    kept = rows & (weights > 0 if weight is None else terms.any(-1))
    return kept, divide(kept, weights)


def _one_gold_a_row(
    formula: Formula,
    link: Link,
    p: Tensor,
    x: Tensor,
    gold: Tensor,
    y: Tensor,
    smooth: float,
    weight: Tensor | None,
    buffer: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns (N,) the sum of each row's losses, and q · dl/dq of its terms, in `buffer`."""
    # The gold terms first: their temporaries are freed before buffers of all terms are allocated.
    at_gold, h_at_gold = _term_losses(formula, _gold_decayed(link, p, x, gold), y, smooth)
    q = link.decayed(p, x)
    losses = _negative_totals(formula, q, out=q if buffer is None and q is not p else buffer)
    del q  # its memory can be reused for `below`
    below = _denominator(losses, smooth)
    losses.div_(below).scatter_(1, gold, at_gold)
    del at_gold
    values = _sum_classes(losses, weight)
    h = losses.div_(below)
    if formula.power * smooth != 1.0:
        h.mul_(formula.power * smooth)
    return values, h.scatter_(1, gold, h_at_gold)


def _gold_decayed(link: Link, p: Tensor, x: Tensor, gold: Tensor) -> Tensor:
    """Returns q of each row's gold class (N, 1)."""
    if link.fractional:
        return pick(link.decayed(p, x), gold)
    return link.decayed(pick(p, gold), x)


def _row_factors(picked: Tensor, y: Tensor, wanted: Tensor) -> Tensor:
    """Returns (N, 1): 1 for rows that count, else 0; NaN if p of a gold class is NaN.

    In a row of only −inf, p is NaN too, but such a row has no gold class and gets 0.
    """
    return torch.where(y > 0, torch.add(y, picked, alpha=0.0), wanted & (picked == picked))


def _decayed(link: Link, p: Tensor, x: Tensor, kept: Tensor) -> Tensor:
    """Returns q; sets it and p to 0 where a term or row does not count."""
    q = link.decayed(_drop(p, kept), x)
    return _drop(q, kept) if link.decay_from_logits else q


def _drop(values: Tensor, kept: Tensor) -> Tensor:
    """Zeroes in place what does not count: terms (N, C) bool, or rows by their factors (N, 1)."""
    if kept.dtype == torch.bool:
        return values.masked_fill_(~kept, 0.0)
    # Two vectorised passes, because masking whole rows takes as long as the softmax itself.
    return values.nan_to_num_(0.0).mul_(kept)


def _sum_classes(values: Tensor, weight: Tensor | None, dtype: torch.dtype | None = None) -> Tensor:
    values = values if weight is None else values * weight
    return values.sum(-1, dtype=dtype) if values.dtype == torch.bool else sum_classes(values)


def _negative_totals(
    formula: Formula, q: Tensor, factor: Tensor | float = 1.0, *, out: Tensor | None = None
) -> Tensor:
    """Returns factor · false_positives · q^power, in `out` or a new tensor."""
    factor = formula.false_positives * factor
    if formula.power == 1:
        return torch.mul(q, factor, out=out)
    totals = torch.mul(q, q, out=out)
    return totals if isinstance(factor, float) and factor == 1.0 else totals.mul_(factor)


def _denominator(total: Tensor, smooth: float) -> Tensor:
    """Returns total + smooth, but never 0: where it would be, the numerator and the loss are 0."""
    below = total + smooth
    return below if smooth > 0.0 else below.clamp_min_(torch.finfo(total.dtype).tiny)


def _term_losses(formula: Formula, q: Tensor, y: Tensor, smooth: float) -> tuple[Tensor, Tensor]:
    """Returns every term's loss l, and q · dl/dq."""
    overlap, total = formula.overlap(q, y), formula.total(q, y)
    below = _denominator(total, smooth)
    losses = total.sub_(overlap).div_(below)
    # One division after the other: the square of a small denominator would underflow.
    growths = overlap.add_(smooth).div_(below).mul_(formula.total_growth(q, y))
    return losses, growths.sub_(formula.overlap_growth(q, y)).div_(below)
