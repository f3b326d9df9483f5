"""Learning curves, precision-recall curves and operating points, in few points.

Learning curves: the score on dev by epoch, the training loss by step. Precision-recall curves: over
all labels and for each, if predictions have probabilities. Operating points: the curve on dev along
which a threshold was chosen for a target, and the chosen point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from softf1.metrics.counts import name_score
from softf1.reports.figures import NAMED, Column, Figure, Table, axis, columns, name_trace
from softf1.reports.reading import items_of, number, read_lines, section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from softf1.reports.figures import Trace
    from softf1.reports.reading import Item
    from softf1.reports.study import Group

    Floats = NDArray[np.float64]

POINTS = 120
RECALLS = np.linspace(0.0, 1.0, 101)


class Curve(NamedTuple):
    """Points in order of x."""

    x: Floats
    y: Floats


def read_learning(path: Path, metric: str) -> tuple[Curve, Curve]:
    """Reads (epoch, score on dev) and (step, training loss) from a run's metrics.jsonl."""
    scores: list[tuple[float, float]] = []
    losses: list[tuple[float, float]] = []
    for line in read_lines(path, unfinished=True):
        if line.get("event") == "eval" and line.get("split", "dev") == "dev":
            _add(scores, line.get("epoch"), section(line, "scores").get(metric))
        elif line.get("event") == "step":
            _add(losses, line.get("step"), line.get("loss"))
    return thin(_curve(scores)), thin(_curve(losses))


def _add(points: list[tuple[float, float]], x: object, y: object) -> None:
    place, value = number(x), number(y)
    if place is not None and value is not None:
        points.append((place, value))


def _curve(points: list[tuple[float, float]]) -> Curve:
    """Sorts points by x; of two at the same x (after a resume) the later counts."""
    table = np.array(sorted(dict(points).items()), dtype=np.float64).reshape(-1, 2)
    return Curve(table[:, 0], table[:, 1])


def thin(curve: Curve, *, points: int = POINTS) -> Curve:
    """Reduces the curve to at most this many points, each the mean of its neighbours.

    >>> thin(Curve(np.arange(4.0), np.array([0.0, 2.0, 4.0, 6.0])), points=2)
    Curve(x=array([0.5, 2.5]), y=array([1., 5.]))
    """
    if len(curve.x) <= points:
        return curve
    parts = np.linspace(0, len(curve.x), points + 1).astype(int)[:-1]
    sizes = np.diff(np.append(parts, len(curve.x)))
    return Curve(*(np.add.reduceat(axis, parts) / sizes for axis in curve))


def average(curves: Sequence[Curve]) -> Curve:
    """The mean of several curves, over the range of x that all share.

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
    last = np.append(np.diff(scores[order]) != 0, True)  # equal scores share one threshold
    hits, taken = hits[last], (np.arange(len(scores)) + 1)[last]
    precision, recall = hits / taken, hits / hits[-1]
    area = float(np.sum(np.diff(recall, prepend=0.0) * precision))
    best_after = np.maximum.accumulate(precision[::-1])[::-1]
    place = np.searchsorted(recall, RECALLS - 1e-9)
    return best_after[np.minimum(place, len(best_after) - 1)], area


ALL = "all labels"
SHOWN = 12


class Ranking(NamedTuple):
    """Precision at `curves.RECALLS`, and average precision."""

    precision: NDArray[np.float64]
    area: float


Ranked = dict[str, Ranking]


def rank(items: list[Item]) -> Ranked:
    """Ranks the predictions of one run: all labels pooled, then the most frequent ones separately.

    With two exclusive labels only the rarer one is ranked: the other adds nothing.
    """
    scored = [item for item in items if item.scores]
    if not scored:
        return {}
    labels = list(scored[0].scores)
    scores = np.array([[item.scores.get(label, 0.0) for label in labels] for item in scored])
    right = np.array([[label in item.gold for label in labels] for item in scored])
    counts = right.sum(0)
    order = [i for i in np.argsort(-counts, kind="stable").tolist() if counts[i]]
    if len(labels) == 2 and (right.sum(1) == 1).all():
        return _rankings(scores, right, {labels[order[-1]]: [order[-1]]})
    named = {ALL: order} | {labels[i]: [i] for i in order[:SHOWN]}
    return _rankings(scores, right, named)


def _rankings(
    scores: NDArray[np.float64], right: NDArray[np.bool_], named: dict[str, list[int]]
) -> Ranked:
    return {
        name: Ranking(*precision_recall(scores[:, columns].ravel(), right[:, columns].ravel()))
        for name, columns in named.items()
        if right[:, columns].any()
    }


def draw_progress(
    groups: list[Group], curves: Mapping[str, Sequence[Curve]], metric: str
) -> Figure | None:
    """Draws dev scores: runs as thin lines, the mean of each loss as a thick line."""
    return _draw(
        groups,
        curves,
        id="plot-progress",
        title=f"{name_score(metric)} on dev by epoch",
        x=("epoch", "epoch"),
        y=(metric, f"{name_score(metric)} on dev (×100)"),
        scale=100.0,
        seeds=True,
    )


def draw_loss(groups: list[Group], curves: Mapping[str, Sequence[Curve]]) -> Figure | None:
    """Draws the mean training loss; values of different losses are not comparable."""
    return _draw(
        groups,
        curves,
        id="plot-loss",
        title="Training loss by step",
        x=("step", "step"),
        y=("loss", "training loss"),
        scale=1.0,
        seeds=False,
    )


def _draw(
    groups: list[Group],
    curves: Mapping[str, Sequence[Curve]],
    *,
    id: str,  # noqa: A002 - the figure's
    title: str,
    x: tuple[str, str],
    y: tuple[str, str],
    scale: float,
    seeds: bool,
) -> Figure | None:
    traces: list[Trace] = []
    rows: list[list[object]] = []
    for group in groups:
        middle = average(curves[group.label])
        if not len(middle.x):
            continue
        if seeds and len(curves[group.label]) > 1:
            traces += [_seed(curve, group, scale) for curve in curves[group.label]]
        mode = "lines+markers" if len(middle.x) < 15 else "lines"
        traces.append(
            {
                "type": "scatter",
                "mode": mode,
                **name_trace(group),
                "x": middle.x.tolist(),
                "y": (scale * middle.y).tolist(),
                "line": {"color": group.color, "width": 2, "dash": group.dash},
                "marker": {"color": group.color, "symbol": group.symbol, "size": 7},
                "hovertemplate": f"{x[1]} %{{x:.4~g}}: %{{y:.4~g}}" + NAMED,
            }
        )
        rows += [
            [group.label, a, b] for a, b in zip(middle.x.tolist(), middle.y.tolist(), strict=True)
        ]
    if not traces:
        return None
    return Figure(
        id=id,
        title=title,
        summary=f"{title} for {len({row[0] for row in rows})} rows, means over seeds.",
        traces=traces,
        layout={"xaxis": axis(x[1], rangemode="tozero"), "yaxis": axis(y[1])},
        height=400,
        table=Table(
            id=id.replace("plot", "curve"),
            caption=f"{title}, means over seeds",
            columns=columns(
                "loss",
                Column(x[0], x[0].capitalize(), "number"),
                Column(y[0], name_score(y[0]), "score" if seeds else "number"),
            ),
            rows=rows,
        ),
    )


def _seed(curve: Curve, group: Group, scale: float) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "legendgroup": group.key,
        "x": curve.x.tolist(),
        "y": (scale * curve.y).tolist(),
        "line": {"color": group.color, "width": 1},
        "opacity": 0.25,
        "hoverinfo": "skip",
    }


def draw_recall(groups: list[Group], ranked: dict[str, list[Ranked]], split: str) -> Figure | None:
    """Draws a view per label (all together first) with a curve per loss, averaged over seeds."""
    known = [group for group in groups if ranked.get(group.label)]
    if not known:
        return None
    names = list(ranked[known[0].label][0])
    views = [
        (name, [_recall_curve(group, ranked[group.label], name) for group in known])
        for name in names
    ]
    rows: list[list[Any]] = [
        [name, group.label, float(np.mean([run[name].area for run in ranked[group.label]]))]
        for name in names
        for group in known
    ]
    first = [row for row in rows if row[0] == names[0]]
    top = max(first, key=lambda row: row[2])
    return Figure(
        id="plot-recall",
        title="Precision at every recall, for",
        summary=f"Average precision is highest for {top[1]}, {100 * top[2]:.2f}.",
        traces=views[0][1],
        layout={
            "xaxis": axis("recall (×100)", range=[0, 101]),
            "yaxis": axis("precision (×100)", range=[0, 101]),
        },
        views=views,
        chooser="Label",
        height=440,
        wide=True,
        table=Table(
            id="average-precision",
            caption=f"Average precision on {split}, means over seeds",
            columns=columns("label", "loss", "average_precision:score"),
            rows=rows,
        ),
    )


def _recall_curve(group: Group, runs: list[Ranked], name: str) -> Trace:
    precision = np.mean([run[name].precision for run in runs], axis=0)
    area = float(np.mean([run[name].area for run in runs]))
    return {
        "type": "scatter",
        "mode": "lines",
        **name_trace(group),
        "meta": f"{group.label} · {100 * area:.1f}",
        "x": (100 * RECALLS).round(1).tolist(),
        "y": (100 * precision).round(2).tolist(),
        "line": {"color": group.color, "width": 2, "dash": group.dash},
        "hovertemplate": "recall %{x:.0f}: precision %{y:.1f}" + NAMED,
    }


def draw_operating(groups: list[Group]) -> Figure | None:
    """Draws a view per label: the curve of each run on dev, and the point chosen for a target.

    Tuned and untuned rows are the same runs; only the first of them is drawn.
    """
    views: dict[str, list[Trace]] = {}
    rows: list[list[Any]] = []
    seen = set()
    for group in groups:
        for run in group.runs:
            if run.folder in seen:
                continue
            seen.add(run.folder)
            for point in items_of(run.result.get("operating_points")):
                name = str(section({"point": point}, "point").get("label") or ALL)
                views.setdefault(name, []).extend(_point_traces(group, point))
                rows.append([name, group.label, *_point_row(point)])
    if not rows:
        return None
    kept = sum(row[-1] != "not reached" for row in rows)
    return Figure(
        id="plot-operating",
        title="Precision and recall on dev, and the operating point, for",
        summary=f"{kept} of {len(rows)} operating points reach what was asked for.",
        traces=next(iter(views.values())),
        layout={
            "xaxis": axis("recall on dev (×100)", range=[0, 101]),
            "yaxis": axis("precision on dev (×100)", range=[0, 101]),
        },
        views=list(views.items()),
        chooser="Label",
        height=440,
        wide=True,
        table=Table(
            id="operating-points",
            caption="Operating points, chosen on dev",
            columns=columns(
                "label",
                "loss",
                "target",
                "threshold:number",
                *(Column(x, x.capitalize(), "score") for x in ("precision", "recall", "bound")),
                "reached",
            ),
            rows=rows,
        ),
    )


def _point_row(point: Mapping[str, Any]) -> list[Any]:
    values = [number(point.get(key)) for key in ("threshold", "precision", "recall", "bound")]
    tested = point.get("reached")
    reached = "best" if tested is None else "with confidence" if tested else "not reached"
    return [str(point.get("target", "")), *values, reached]


def _point_traces(group: Group, point: Mapping[str, Any]) -> list[Trace]:
    curve = [[number(x) for x in items_of(row)] for row in items_of(point.get("curve"))]
    curve = [row for row in curve if len(row) == 3 and None not in row]
    place = [[100 * (number(point.get(key)) or 0.0)] for key in ("recall", "precision")]
    said = str(point.get("target", "")).replace("<", "")
    return [
        {
            "type": "scatter",
            "mode": "lines",
            **name_trace(group),
            "x": [100 * (row[2] or 0.0) for row in curve],
            "y": [100 * (row[1] or 0.0) for row in curve],
            "line": {"color": group.color, "width": 2, "dash": group.dash},
            "hovertemplate": "recall %{x:.1f}: precision %{y:.1f}" + NAMED,
        },
        {
            "type": "scatter",
            "mode": "markers",
            "showlegend": False,
            "legendgroup": group.key,
            "x": place[0],
            "y": place[1],
            "marker": {"color": group.color, "symbol": "star", "size": 14},
            "hovertemplate": f"{said}: recall %{{x:.1f}}, precision %{{y:.1f}}<extra></extra>",
        },
    ]
