"""How well scores put right items above wrong ones, whatever the threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from softf1.metrics.counts import Floats, Ints, Mask, check_numbers, divide

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def average_precision(scores: ArrayLike, gold: ArrayLike, *, missed: int = 0) -> float:
    """Returns the mean precision over the right items, at the threshold at which each is found.

    Items with equal scores are found together. Without a right item it is 0.

    Args:
        scores: `(items,)`, higher is more likely right.
        gold: Whether each item is right, `(items,)`.
        missed: Right items that have no score, such as gold spans that were never found.

    >>> average_precision([0.9, 0.8, 0.1], [True, False, True])
    0.833...
    """
    values, right = check_scores(np.ravel(scores), np.ravel(gold), axes=1)
    wanted = int(right.sum()) + missed
    if not wanted or not right.any():
        return 0.0
    _, _, taken, hits = rank_steps(values, right)
    return float(np.sum(np.diff(hits, prepend=0) * hits / taken) / wanted)


def macro_average_precision(scores: ArrayLike, gold: ArrayLike) -> float:
    """Returns the mean average precision of the labels that some item has; 0 without labels.

    Args:
        scores: (items, labels).
        gold: (items, labels).

    >>> macro_average_precision([[0.9, 0.2], [0.4, 0.6]], [[True, True], [False, False]])
    0.75
    """
    given, right = check_scores(scores, gold)
    columns = np.flatnonzero(right.any(axis=0))
    values = [average_precision(given[:, c], right[:, c]) for c in columns]
    return float(np.mean(values)) if values else 0.0


def leave_one_out(scores: ArrayLike, gold: ArrayLike) -> Floats:
    """Returns `macro_average_precision` of all items but one, for every item, `(items,)`.

    Without item i, its own and all later steps have one item less, and one hit less if i is right:
    one sort, and sums over the steps before and after each item, give all values.

    Args:
        scores: (items, labels).
        gold: (items, labels).

    >>> leave_one_out([[0.9], [0.8], [0.1]], [[True], [False], [True]])
    array([0.5, 1. , 1. ])
    """
    given, right = check_scores(scores, gold)
    total, labels = np.zeros(len(given)), np.zeros(len(given))
    for column in np.flatnonzero(right.any(axis=0)):
        own = right[:, column]
        total += _leave_one_out(given[:, column], own)
        labels += own.sum() - own > 0  # a label that no item has is not counted
    return divide(total, labels)


def _leave_one_out(values: Floats, right: Mask) -> Floats:
    """Returns average precision of one label without each item; 0 without the only right one."""
    step, _, taken, hits = rank_steps(values, right)
    new = np.diff(hits, prepend=0)
    fewer = np.maximum(taken - 1, 1)  # where taken is 1, the terms are 0 whatever the divisor
    before = np.cumsum(new * hits / taken) - new * hits / taken
    wrong_out = np.cumsum((new * hits / fewer)[::-1])[::-1]
    later = new * (hits - 1) / fewer
    right_out = np.cumsum(later[::-1])[::-1] - later + (new - 1) * (hits - 1) / fewer
    rest = before[step] + np.where(right, right_out[step], wrong_out[step])
    return divide(rest, right.sum() - right)


def rank_steps(values: Floats, right: Mask) -> tuple[Ints, Floats, Ints, Ints]:
    """Ranks items by score, the highest first; equal scores are one step.

    Returns:
        The step of each item; for each step its score, and how many items, and right items, are
        at or above it.
    """
    order = np.argsort(-values, kind="stable")
    last = np.append(values[order][1:] != values[order][:-1], True)[: len(values)]
    step = np.empty(len(values), np.int64)
    step[order] = np.cumsum(last) - last
    hits = np.cumsum(right[order])[last]
    return step, values[order][last], np.flatnonzero(last) + 1, hits


def check_scores(scores: ArrayLike, gold: ArrayLike, *, axes: int = 2) -> tuple[Floats, Mask]:
    """Returns scores, and which are right, as arrays; raises if they are not `axes`-dimensional."""
    values, right = np.asarray(scores, np.float64), np.asarray(gold, bool)
    if values.ndim != axes or values.shape != right.shape:
        wanted = "(items,)" if axes == 1 else "(items, labels)"
        raise ValueError(f"wanted scores and gold {wanted}, got {values.shape} and {right.shape}")
    check_numbers(values, "scores")
    return values, right
