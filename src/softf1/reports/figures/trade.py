"""Precision against recall of every loss, with the curves of equal F1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from softf1.reports.embed import plain
from softf1.reports.figures import NAMED, Figure, axis, named
from softf1.reports.groups import mean
from softf1.reports.tables import Column, Table

if TYPE_CHECKING:
    from softf1.reports.figures import Trace
    from softf1.reports.groups import Group
    from softf1.reports.study import Study

NAMES = ("recall", "precision")


def draw_trade(study: Study, groups: list[Group]) -> Figure | None:
    """Every loss's mean as a large point, its seeds as small ones."""
    traces: list[Trace] = []
    rows = []
    for group in groups:
        seeds = [[run.score(study.split, name) for name in NAMES] for run in group.runs]
        points = [[r, p] for r, p in seeds if r is not None and p is not None]
        middle = [mean(point[i] for point in points) for i in (0, 1)]
        if not points:
            continue
        traces += _traces(group, points, [value or 0.0 for value in middle])
        rows.append([group.label, middle[1], middle[0], len(points)])
    if not traces or all(precision == recall for _, precision, recall, _ in rows):
        return None
    low, high = _limits(traces)
    base = rows[0]
    summary = "; ".join(
        f"{label}: precision {100 * (precision or 0):.1f}, recall {100 * (recall or 0):.1f}"
        for label, precision, recall, _ in rows[:12]
    )
    return Figure(
        id="plot-trade",
        title=f"What {base[0]} and the others trade",
        summary=summary + ".",
        traces=_equal_f1(low, high) + traces,
        layout={
            "xaxis": axis("recall (×100)", range=[low[0], high[0]]),
            "yaxis": axis("precision (×100)", range=[low[1], high[1]]),
        },
        height=460,
        wide=True,
        table=Table(
            id="trade",
            caption=f"Precision and recall on {study.split}, means over seeds",
            columns=(
                Column("loss", "Loss"),
                Column("precision", "Precision", "score"),
                Column("recall", "Recall", "score"),
                Column("runs", "Runs", "int"),
            ),
            rows=rows,
        ),
    )


def _traces(group: Group, points: list[list[float]], middle: list[float]) -> list[Trace]:
    look = {"color": group.color, "symbol": group.symbol}
    hover = "recall %{x:.2f}, precision %{y:.2f}"
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [100 * point[0] for point in points],
            "y": [100 * point[1] for point in points],
            "name": plain(group.label),
            "legendgroup": group.key,
            "customdata": [run.seed for run in group.runs],
            "marker": {**look, "size": 6, "opacity": 0.4},
            "hovertemplate": f"seed %{{customdata}}<br>{hover}{NAMED}",
        },
        {
            "type": "scatter",
            "mode": "markers",
            **named(group),
            "x": [100 * middle[0]],
            "y": [100 * middle[1]],
            "marker": {**look, "size": 14, "line": {"width": 1.5, "color": "var(--paper)"}},
            "hovertemplate": f"mean<br>{hover}{NAMED}",
        },
    ]


def _limits(traces: list[Trace]) -> tuple[list[float], list[float]]:
    low, high = [], []
    for key in ("x", "y"):
        values = np.concatenate([np.array(trace[key]) for trace in traces])
        room = max(0.12 * float(np.ptp(values)), 0.5)
        low.append(max(float(values.min()) - room, 0.0))
        high.append(min(float(values.max()) + room, 100.5))
    return low, high


def _equal_f1(low: list[float], high: list[float]) -> list[Trace]:
    """Curves p = f·r / (2r − f) through the window, with their F1 at the end."""
    top, bottom = (2 * a * b / (a + b) if a + b else 0.0 for a, b in (high, low))
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50) if (top - bottom) / s <= 8)
    traces: list[Trace] = []
    for f in np.arange(np.ceil(bottom / step) * step, top, step):
        recall = np.linspace(max(low[0], f / 2 + 0.01), high[0], 60)
        precision = f * recall / (2 * recall - f)
        inside = (precision >= low[1]) & (precision <= high[1])
        if f <= 0 or inside.sum() < 2:
            continue
        recall, precision = recall[inside], precision[inside]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+text",
                "x": recall.tolist(),
                "y": precision.tolist(),
                "text": [f"F1 {f:g}"] + [""] * (len(recall) - 1),
                "textposition": "top right",
                "cliponaxis": False,
                "textfont": {"color": "var(--ink-3)", "size": 10},
                "line": {"color": "var(--ink-3)", "width": 0.8, "dash": "dot"},
                "hoverinfo": "skip",
            }
        )
    return traces
