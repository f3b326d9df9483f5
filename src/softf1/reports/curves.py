"""Learning curves, precision-recall curves and operating points, each reduced to few points.

Learning curves: the score on dev by epoch, the training loss by step. Precision-recall curves: over
all labels and for each, if predictions have probabilities. Operating points: the curve on dev along
which a threshold was chosen for a target, and the chosen point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from softf1.metrics.counts import name_score
from softf1.reports.figures import Column, Figure, Table, Trace, axis, columns, percent, scatter
from softf1.reports.reading import Item, items_of, number, objects_of, read_lines, section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from softf1.reports.study import Group

    Floats = NDArray[np.float64]

POINTS = 120
"""The most points that a learning curve keeps."""
RECALLS = np.linspace(0.0, 1.0, 101)


class Curve(NamedTuple):
    """Points in order of x."""

    x: Floats
    y: Floats


def read_learning(path: Path, metric: str) -> tuple[Curve, Curve]:
    """Reads (epoch, score on dev) and (step, training loss) from a run's metrics.jsonl."""
    scores: dict[float, float] = {}
    losses: dict[float, float] = {}
    for line in read_lines(path, unfinished=True):
        if line.get("event") == "eval" and line.get("split", "dev") == "dev":
            _add(scores, line.get("epoch"), section(line, "scores").get(metric))
        elif line.get("event") == "step":
            _add(losses, line.get("step"), line.get("loss"))
    return _curve(scores), _curve(losses)


def _add(points: dict[float, float], x: object, y: object) -> None:
    """Adds a point; of two at the same x (after a resume) the later counts."""
    place, value = number(x), number(y)
    if place is not None and value is not None:
        points[place] = value


def _curve(points: dict[float, float]) -> Curve:
    table = np.array(sorted(points.items()), dtype=np.float64).reshape(-1, 2)
    return thin(Curve(*table.T))


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
    """Averages several curves over the range of x that all share.

    >>> average([Curve(np.array([0.0, 2.0]), np.array([0.0, 2.0])),
    ...          Curve(np.array([0.0, 1.0]), np.array([2.0, 2.0]))])
    Curve(x=array([0., 1.]), y=array([1. , 1.5]))
    """
    if not curves:
        return Curve(np.zeros(0), np.zeros(0))
    start, end = max(c.x[0] for c in curves), min(c.x[-1] for c in curves)
    grid = np.unique(np.concatenate([c.x for c in curves]))
    grid = grid[(grid >= start) & (grid <= end)]
    return thin(Curve(grid, np.mean([np.interp(grid, *curve) for curve in curves], axis=0)))


class Ranking(NamedTuple):
    """Precision at `RECALLS`, and average precision."""

    precision: Floats
    area: float


Ranked = dict[str, Ranking]


def precision_recall(scores: Floats, right: NDArray[np.bool_]) -> Ranking:
    """Computes precision at each of `RECALLS` (the best at that recall or above), and the AP.

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
    return Ranking(best_after[np.minimum(place, len(best_after) - 1)], area)


ALL = "all labels"
SHOWN = 12
"""The most labels that get a curve of their own."""


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
    named = {ALL: order} | {labels[i]: [i] for i in order[:SHOWN]}
    if len(labels) == 2 and (right.sum(1) == 1).all():
        named = {labels[order[-1]]: order[-1:]}
    return {
        name: precision_recall(scores[:, columns].ravel(), right[:, columns].ravel())
        for name, columns in named.items()
        if right[:, columns].any()
    }


def draw_learning(groups: list[Group], metric: str) -> list[Figure | None]:
    """Draws the scores on dev by epoch, and the training loss by step.

    Thick lines are means over seeds. Only the plot of scores also has the runs, as thin lines.
    """
    read = [
        (group, [read_learning(run.folder / "metrics.jsonl", metric) for run in group.runs])
        for group in groups
        if not group.tuned
    ]
    scores, losses = (
        [(group, [pair[i] for pair in pairs if len(pair[i].x)]) for group, pairs in read]
        for i in (0, 1)
    )
    score = name_score(metric)
    y = Column(metric, score, "score"), f"{score} on dev (×100)"
    loss = Column("loss", "loss", "number"), "training loss"
    return [
        _draw("plot-progress", f"{score} on dev by epoch", scores, "epoch", *y),
        _draw("plot-loss", "Training loss by step", losses, "step", *loss),
    ]


def _draw(
    name: str, title: str, curves: list[tuple[Group, list[Curve]]], x: str, y: Column, y_title: str
) -> Figure | None:
    scale = 100.0 if y.kind == "score" else 1.0
    traces: list[Trace] = []
    rows: list[list[object]] = []
    for group, runs in curves:
        middle = average(runs)
        if not len(middle.x):
            continue
        if y.kind == "score" and len(runs) > 1:
            traces += [_seed(curve, group, scale) for curve in runs]
        traces.append(
            scatter(
                "lines+markers" if len(middle.x) < 15 else "lines",
                middle.x.tolist(),
                (scale * middle.y).tolist(),
                group.legend,
                line={"color": group.color, "width": 2, "dash": group.dash},
                marker={"color": group.color, "symbol": group.symbol, "size": 7},
                hover=f"{x} %{{x:.4~g}}: %{{y:.4~g}}",
            )
        )
        rows += [[group.label, *point] for point in np.transpose(middle).tolist()]
    if not traces:
        return None
    return Figure(
        id=name,
        title=title,
        summary=f"{title} for {len({row[0] for row in rows})} rows, means over seeds.",
        traces=traces,
        x=axis(x, rangemode="tozero"),
        y=axis(y_title),
        height=400,
        table=Table(
            id=name.replace("plot", "curve"),
            caption=f"{title}, means over seeds",
            columns=columns("loss", f"{x}:number", y),
            rows=rows,
        ),
    )


def _seed(curve: Curve, group: Group, scale: float) -> Trace:
    return scatter(
        "lines",
        curve.x.tolist(),
        (scale * curve.y).tolist(),
        {"legendgroup": group.key},
        line={"color": group.color, "width": 1},
        opacity=0.25,
    )


def draw_recall(groups: list[Group], ranked: dict[str, list[Ranked]], split: str) -> Figure | None:
    """Draws a view per label (all together first) with a curve per loss, averaged over seeds."""
    known = [group for group in groups if ranked.get(group.label)]
    every = [run for group in known for run in ranked[group.label]]
    names = [name for name in every[0] if all(name in run for run in every)] if every else []
    if not names:
        return None
    views: dict[str, list[Trace]] = {}
    rows: list[list[Any]] = []
    for name in names:
        for group in known:
            runs = [run[name] for run in ranked[group.label]]
            area = float(np.mean([run.area for run in runs]))
            precision = np.mean([run.precision for run in runs], axis=0)
            trace = scatter(
                "lines",
                (100 * RECALLS).round(1).tolist(),
                (100 * precision).round(2).tolist(),
                group.legend | {"meta": f"{group.label} · {100 * area:.1f}"},
                line={"color": group.color, "width": 2, "dash": group.dash},
                hover="recall %{x:.0f}: precision %{y:.1f}",
            )
            views.setdefault(name, []).append(trace)
            rows.append([name, group.label, area])
    top = max(rows[: len(known)], key=lambda row: row[2])
    return Figure(
        id="plot-recall",
        title="Precision at every recall, for",
        summary=f"Average precision is highest for {top[1]}, {100 * top[2]:.2f}.",
        views=list(views.items()),
        x=axis("recall (×100)", range=[0, 101]),
        y=axis("precision (×100)", range=[0, 101]),
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
            for point in objects_of(run.result.get("operating_points")):
                name = str(point.get("label") or ALL)
                views.setdefault(name, []).extend(_point_traces(group, point))
                rows.append([name, group.label, *_point_row(point)])
    if not rows:
        return None
    kept = sum(row[-1] != "not reached" for row in rows)
    return Figure(
        id="plot-operating",
        title="Precision and recall on dev, and the operating point, for",
        summary=f"{kept} of {len(rows)} operating points reach what was asked for.",
        views=list(views.items()),
        x=axis("recall on dev (×100)", range=[0, 101]),
        y=axis("precision on dev (×100)", range=[0, 101]),
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
                "precision:score",
                "recall:score",
                "bound:score",
                "reached",
            ),
            rows=rows,
        ),
    )


def _point_row(point: Mapping[str, Any]) -> list[Any]:
    values = [number(point.get(key)) for key in ("threshold", "precision", "recall", "bound")]
    tested = point.get("reached")
    reached = "best" if tested is None else "with confidence" if tested else "not reached"
    what = point.get("what", "threshold")
    moved = "" if what == "threshold" else f" ({what})"
    return [f"{point.get('target', '')}{moved}", *values, reached]


def _point_traces(group: Group, point: Mapping[str, Any]) -> list[Trace]:
    curve = [[number(x) for x in items_of(row)] for row in items_of(point.get("curve"))]
    curve = [row for row in curve if len(row) == 3 and None not in row]
    recall, precision = ([number(point.get(key)) or 0.0] for key in ("recall", "precision"))
    said = str(point.get("target", "")).replace("<", "")
    return [
        scatter(
            "lines",
            percent(row[2] for row in curve),
            percent(row[1] for row in curve),
            group.legend,
            line={"color": group.color, "width": 2, "dash": group.dash},
            hover="recall %{x:.1f}: precision %{y:.1f}",
        ),
        scatter(
            "markers",
            percent(recall),
            percent(precision),
            {"showlegend": False, "legendgroup": group.key},
            marker={"color": group.color, "symbol": "star", "size": 14},
            hover=f"{said}: recall %{{x:.1f}}, precision %{{y:.1f}}",
        ),
    ]
