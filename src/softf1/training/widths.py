"""The few widths that rows are padded to: every shape costs a compilation or a CUDA graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MOST = 12
"""Widths at most."""

_GRAIN = 8
_CANDIDATES = 128


def make_ladder(lengths: Ints, *, most: int = MOST, max_width: int | None = None) -> Ints:
    """The widths, `most` of them at most, that pad these lengths the least in all.

    They are multiples of 8 (of more where rows are very long), but for the last, which never
    exceeds `max_width` (default: the longest row). With `most` = 0 every length is a width.

    >>> make_ladder(np.array([3, 5, 7, 20, 21, 60]), most=3)
    array([ 8, 24, 60])
    """
    longest = max(1, int(lengths.max()))
    limit = longest if max_width is None else max_width
    if longest > limit:
        raise ValueError(f"wanted rows of {limit} ids or fewer, got {longest}")
    if not most:
        return np.unique(np.maximum(lengths, 1))
    grain = _GRAIN
    while grain * _CANDIDATES < longest:
        grain *= 2
    rungs = np.arange(0, longest + grain, grain)
    rungs[-1] = min(rungs[-1], limit)
    chosen = rungs[_choose(rungs, lengths, most)]
    used = np.unique(np.searchsorted(chosen, lengths))
    out: Ints = chosen[used]
    return out


def _choose(rungs: Ints, lengths: Ints, most: int) -> list[int]:
    """Which rungs to keep, by dynamic programming over the number kept and the highest of them.

    Rows longer than rung i and not longer than rung j are padded to j: that costs (how many) · j.
    """
    upto = np.cumsum(np.bincount(np.searchsorted(rungs, lengths), minlength=len(rungs)))
    cost = (upto - upto[:, None]) * rungs.astype(np.float64)
    cost[np.tri(len(rungs), k=-1, dtype=bool)] = np.inf  # j below i; i itself is no new rung
    total = cost[0]
    below = []
    for _ in range(most - 1):
        through = total[:, None] + cost
        below.append(through.argmin(0))
        total = through.min(0)
    kept = [len(rungs) - 1]
    for step in reversed(below):
        kept.append(int(step[kept[-1]]))
    return sorted({rung for rung in kept if rung})
