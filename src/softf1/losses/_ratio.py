"""The dice family: 1 − (overlap + smooth) / (total + smooth), per example or over the batch.

A formula says what overlap and total are for one probability q and its target y, and how both grow:
q times their derivative by q. Example level takes the ratio of every (row, class) term, batch level
sums both over the rows first: counts first, ratio last.

Softmax targets are one class a row, so nothing one-hot is made. Negatives have overlap 0 and total
n = false_positives · q^power, so their loss is l = n / (n + smooth), and
q · dl/dq = power · l · (1 − l); the gold entry of each row is written over them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from softf1.losses._core import divide

if TYPE_CHECKING:
    from softf1.losses._core import Rows
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
        """Returns what prediction and target share, 0 where y is 0."""

    def overlap_growth(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns q times the derivative of the overlap by q."""

    def total(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns what prediction and target are together."""

    def total_growth(self, q: Tensor, y: Tensor) -> Tensor:
        """Returns q times the derivative of the total by q."""


def row_losses(
    rows: Rows, link: Link, formula: Formula, *, smooth: float, weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Returns (N,) the class-weighted mean of each row's term losses, and (N,) which rows count."""
    terms = rows.term_weights(weight)
    kept = rows.kept()
    scale = divide(kept.to(rows.logits.dtype), terms)
    dropped = ~kept.unsqueeze(1) if rows.softmax else ~rows.wanted
    values: Tensor = _RowLosses.apply(  # type: ignore[no-untyped-call]
        rows.logits, rows.gold, rows.y, dropped, scale, weight, link, formula, smooth
    )
    return values, kept


def statistics(
    rows: Rows, link: Link, formula: Formula, *, easy: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Returns overlap and total of each class (C,), summed over the rows; they add up over batches.

    `easy` (N, C) bool are negatives to leave out.
    """
    dropped = ~rows.kept().unsqueeze(1) if rows.softmax else ~rows.wanted
    y = rows.y
    if easy is not None and not rows.softmax:
        y = y.masked_fill(easy, 0.0)  # a soft negative is left out with its target
    overlap: Tensor
    total: Tensor
    overlap, total = _Statistics.apply(  # type: ignore[no-untyped-call]
        rows.logits, rows.gold, y, dropped, easy, link, formula
    )
    return overlap, total


def ratio_loss(overlap: Tensor, total: Tensor, smooth: float) -> Tensor:
    """Returns 1 − (overlap + smooth) / (total + smooth), and 0 where the denominator is 0."""
    below = total + smooth
    # Denormal counts as 0: its reciprocal is infinite.
    return (total - overlap) / below.masked_fill(below < torch.finfo(below.dtype).tiny, 1.0)


class _RowLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gold: Tensor | None,
        y: Tensor,
        dropped: Tensor,
        scale: Tensor,
        weight: Tensor | None,
        link: Link,
        formula: Formula,
        smooth: float,
    ) -> Tensor:
        p = link.probabilities(x).masked_fill_(dropped, 0.0)
        q = link.decayed(p, x)
        if q is not p:
            q.masked_fill_(dropped, 0.0)
        picked = q if gold is None else q.gather(1, gold)
        losses = _term_losses(formula, picked, y, smooth)
        if gold is not None:
            negatives = _negative_totals(formula, q)
            losses = negatives.div_(_denominator(negatives, smooth)).scatter_(1, gold, losses)
        values = (losses if weight is None else losses * weight).sum(-1).mul_(scale)
        ctx.save_for_backward(x, p, picked, losses, gold, y, scale, weight)
        ctx.link, ctx.formula, ctx.smooth = link, formula, smooth
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        x, p, picked, losses, gold, y, scale, weight = ctx.saved_tensors
        with torch.no_grad():
            h = _term_growths(ctx.formula, picked, y, ctx.smooth)
            if gold is not None:
                # power · l · (1 − l) everywhere, then the gold entries
                negatives = torch.addcmul(losses, losses, losses, value=-1.0)
                h = negatives.mul_(ctx.formula.power).scatter_(1, gold, h)
            h.mul_((gradient * scale).unsqueeze(1))
            if weight is not None:
                h.mul_(weight)
            dx = ctx.link.to_logits(h, p, x)
        return first_derivative(dx, x), *(None,) * 8


class _Statistics(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gold: Tensor | None,
        y: Tensor,
        dropped: Tensor,
        easy: Tensor | None,
        link: Link,
        formula: Formula,
    ) -> tuple[Tensor, Tensor]:
        p = link.probabilities(x).masked_fill_(dropped, 0.0)
        q = link.decayed(p, x)
        if q is not p:
            q.masked_fill_(dropped, 0.0)
        if easy is not None:
            q = q.masked_fill(easy, 0.0)
        ctx.save_for_backward(x, p, q, gold, y)
        ctx.link, ctx.formula = link, formula
        if gold is None:
            return formula.overlap(q, y).sum(0), formula.total(q, y).sum(0)
        picked = q.gather(1, gold)
        # Column sums of a dense buffer: index_add would not be deterministic on the GPU.
        buffer = _negative_totals(formula, q).scatter_(1, gold, formula.total(picked, y))
        total = buffer.sum(0)
        return buffer.zero_().scatter_(1, gold, formula.overlap(picked, y)).sum(0), total

    @staticmethod
    def backward(ctx: Any, of_overlap: Tensor, of_total: Tensor) -> Gradients:
        x, p, q, gold, y = ctx.saved_tensors
        formula = ctx.formula
        with torch.no_grad():
            if gold is None:
                h = (
                    formula.total_growth(q, y) * of_total
                    + formula.overlap_growth(q, y) * of_overlap
                )
            else:
                picked = q.gather(1, gold)
                h = _negative_totals(formula, q, formula.power * of_total)
                at_gold = formula.total_growth(picked, y) * of_total[gold]
                h.scatter_(1, gold, at_gold + formula.overlap_growth(picked, y) * of_overlap[gold])
            dx = ctx.link.to_logits(h, p, x)
        return first_derivative(dx, x), *(None,) * 6


def _negative_totals(formula: Formula, q: Tensor, factor: Tensor | float = 1.0) -> Tensor:
    """Returns factor · false_positives · q^power as a new tensor."""
    totals = q * (formula.false_positives * factor)
    return totals.mul_(q) if formula.power == 2 else totals


def _denominator(total: Tensor, smooth: float) -> Tensor:
    """Returns total + smooth, kept off 0: there the numerator is 0 too, and so the loss."""
    below = total + smooth
    return below if smooth > 0.0 else below.clamp_min_(torch.finfo(total.dtype).tiny)


def _term_losses(formula: Formula, q: Tensor, y: Tensor, smooth: float) -> Tensor:
    total = formula.total(q, y)
    return (total - formula.overlap(q, y)).div_(_denominator(total, smooth))


def _term_growths(formula: Formula, q: Tensor, y: Tensor, smooth: float) -> Tensor:
    """Returns q · dl/dq of every term's loss l."""
    # One division after the other: the square of a small denominator would underflow.
    below = _denominator(formula.total(q, y), smooth)
    share = (formula.overlap(q, y) + smooth).div_(below)
    return share.mul_(formula.total_growth(q, y)).sub_(formula.overlap_growth(q, y)).div_(below)


class _FirstDerivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dx: Tensor, x: Tensor) -> Tensor:  # noqa: ARG004
        return dx.view_as(dx)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Gradients:  # noqa: ARG004
        raise RuntimeError(
            "the dice family has hand-written first derivatives only; a second derivative (a "
            "gradient penalty, a Hessian) is not available"
        )


def first_derivative(dx: Tensor, x: Tensor) -> Tensor:
    """Returns dx, which raises if a derivative of it is asked for, instead of giving a silent 0."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return dx
    result: Tensor = _FirstDerivative.apply(dx, x)  # type: ignore[no-untyped-call]
    return result
