"""Average precision: how good a ranking is, wherever the bar is set.

>>> average_precision([0.9, 0.8, 0.7, 0.6], [True, False, True, False])  # (1/1 + 2/3) / 2
0.833...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def average_precision(scores: ArrayLike, gold: ArrayLike) -> float:
    """The mean over the positives of the precision at their place, as scikit-learn's.

    Items of one score have one place, the last of theirs.

    Args:
        scores: (items,), higher for what is rather positive.
        gold: (items,), whether each is positive.

    Returns:
        From 0 to 1; 0 where nothing is positive. A random order has the share of the positives.
    """
    given, right = np.asarray(scores, np.float64).ravel(), np.asarray(gold, bool).ravel()
    if given.size != right.size:
        raise ValueError(f"wanted a score for each of {right.size} items, got {given.size}")
    if np.isnan(given).any():
        raise ValueError("wanted scores that are numbers, got NaN")
    if not right.any():
        return 0.0
    order = np.argsort(-given, kind="stable")
    last = np.append(np.diff(given[order]) != 0, True)  # of each score
    found = np.cumsum(right[order])[last]
    precision = found / (np.flatnonzero(last) + 1)
    return float(np.diff(found, prepend=0) @ precision / found[-1])


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
