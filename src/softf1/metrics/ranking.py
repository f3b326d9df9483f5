"""How well scores put right items above wrong ones, whatever the threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def average_precision(scores: ArrayLike, gold: ArrayLike, *, missed: int = 0) -> float:
    """The mean precision over the right items, at the threshold at which each is found.

    Equal scores are decided together. Without a right item it is 0.

    Args:
        scores: `(items,)`, higher is more likely right.
        gold: Whether each item is right, `(items,)`.
        missed: Right items that have no score, such as gold spans that were never found.

    >>> average_precision([0.9, 0.8, 0.1], [True, False, True])
    0.833...
    """
    values, right = np.asarray(scores, float).ravel(), np.asarray(gold, bool).ravel()
    if values.shape != right.shape:
        raise ValueError(f"wanted scores and gold (items,), got {values.shape} and {right.shape}")
    if np.isnan(values).any():
        raise ValueError(f"wanted numbers as scores, got {np.isnan(values).sum()} NaN")
    wanted = int(right.sum()) + missed
    if not wanted or not right.any():
        return 0.0
    order = np.argsort(-values, kind="stable")
    last = np.append(values[order][1:] != values[order][:-1], True)
    hits, taken = np.cumsum(right[order])[last], np.flatnonzero(last) + 1
    return float(np.sum(np.diff(hits, prepend=0) * hits / taken) / wanted)


def macro_average_precision(scores: ArrayLike, gold: ArrayLike) -> float:
    """The mean over the labels that some item has; 0 where none has any.

    Args:
        scores: (items, labels).
        gold: (items, labels).

    >>> macro_average_precision([[0.9, 0.2], [0.4, 0.6]], [[True, True], [False, False]])
    0.75
    """
    given, right = np.asarray(scores, np.float64), np.asarray(gold, bool)
    if given.shape != right.shape or given.ndim != 2:
        wanted = "two matrices (items, labels)"
        raise ValueError(f"wanted {wanted}, got {given.shape} and {right.shape}")
    columns = np.flatnonzero(right.any(axis=0))
    found = [average_precision(given[:, c], right[:, c]) for c in columns]
    return float(np.mean(found)) if found else 0.0
