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
    values, right = np.asarray(scores, float), np.asarray(gold, bool)
    if values.ndim != 1 or values.shape != right.shape:
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
