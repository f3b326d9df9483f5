"""Curves in few points: learning over time, and precision against recall."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from softf1.reports.files import number, read_lines, section

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

POINTS = 120
RECALLS = np.linspace(0.0, 1.0, 101)


class Curve(NamedTuple):
    """Points in order of x."""

    x: Floats
    y: Floats


def read_learning(path: Path, headline: str) -> tuple[Curve, Curve]:
    """(epoch, score on dev) and (step, training loss) of a run's metrics.jsonl."""
    scores: list[tuple[float, float]] = []
    losses: list[tuple[float, float]] = []
    for line in read_lines(path, unfinished=True):
        if line.get("event") == "eval" and line.get("split", "dev") == "dev":
            _add(scores, line.get("epoch"), section(line, "scores").get(headline))
        elif line.get("event") == "step":
            _add(losses, line.get("step"), line.get("loss"))
    return thin(_curve(scores)), thin(_curve(losses))


def _add(points: list[tuple[float, float]], x: object, y: object) -> None:
    place, value = number(x), number(y)
    if place is not None and value is not None:
        points.append((place, value))


def _curve(points: list[tuple[float, float]]) -> Curve:
    """The points by x; of two at the same x (a resumed run) the later counts."""
    table = np.array(sorted(dict(points).items()), dtype=np.float64).reshape(-1, 2)
    return Curve(table[:, 0], table[:, 1])


def thin(curve: Curve, *, points: int = POINTS) -> Curve:
    """The curve in at most so many points, each the mean of its neighbours.

    >>> thin(Curve(np.arange(4.0), np.array([0.0, 2.0, 4.0, 6.0])), points=2)
    Curve(x=array([0.5, 2.5]), y=array([1., 5.]))
    """
    if len(curve.x) <= points:
        return curve
    parts = np.linspace(0, len(curve.x), points + 1).astype(int)[:-1]
    sizes = np.diff(np.append(parts, len(curve.x)))
    return Curve(*(np.add.reduceat(axis, parts) / sizes for axis in curve))


def average(curves: Sequence[Curve]) -> Curve:
    """The mean of several curves, over the part of x that all of them have.

    >>> average([Curve(np.array([0.0, 2.0]), np.array([0.0, 2.0])),
    ...          Curve(np.array([0.0, 1.0]), np.array([2.0, 2.0]))])
    Curve(x=array([0., 1.]), y=array([1. , 1.5]))
    """
    known = [curve for curve in curves if len(curve.x)]
    if not known:
        return Curve(np.zeros(0), np.zeros(0))
    start, end = max(c.x[0] for c in known), min(c.x[-1] for c in known)
    grid = np.unique(np.concatenate([c.x for c in known]))
    grid = grid[(grid >= start) & (grid <= end)]
    rows = [np.interp(grid, *curve) for curve in known]
    return thin(Curve(grid, np.mean(rows, axis=0) if len(grid) else grid))


def precision_recall(scores: Floats, right: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Precision at each of `RECALLS` (the best at that recall or above), and average precision.

    >>> at, ap = precision_recall(np.array([0.9, 0.8, 0.1]), np.array([True, False, True]))
    >>> at[[0, 50, 51, 100]].round(3), round(ap, 3)
    (array([1.   , 1.   , 0.667, 0.667]), 0.833)
    """
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(right[order])
    last = np.append(np.diff(scores[order]) != 0, True)  # equal scores are decided together
    hits, found = hits[last], (np.arange(len(scores)) + 1)[last]
    precision, recall = hits / found, hits / hits[-1]
    area = float(np.sum(np.diff(recall, prepend=0.0) * precision))
    best_after = np.maximum.accumulate(precision[::-1])[::-1]
    place = np.searchsorted(recall, RECALLS - 1e-9)
    return best_after[np.minimum(place, len(best_after) - 1)], area
