"""Precision-recall curves, where predictions hold the probability of every label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from softf1.reports.curves import RECALLS
from softf1.reports.figures import NAMED, Figure, axis, named
from softf1.reports.tables import Column, Table

if TYPE_CHECKING:
    from softf1.reports.figures import Trace
    from softf1.reports.groups import Group
    from softf1.reports.ranking import Ranked


def draw_recall(groups: list[Group], ranked: dict[str, list[Ranked]], split: str) -> Figure | None:
    """One view a label (all of them together first), one curve a loss, means over seeds."""
    known = [group for group in groups if ranked.get(group.label)]
    if not known:
        return None
    names = list(ranked[known[0].label][0])
    views = [
        (name, [_curve(group, ranked[group.label], name) for group in known]) for name in names
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
            columns=(
                Column("label", "Label"),
                Column("loss", "Loss"),
                Column("average_precision", "Average precision", "score"),
            ),
            rows=rows,
        ),
    )


def _curve(group: Group, runs: list[Ranked], name: str) -> Trace:
    precision = np.mean([run[name].precision for run in runs], axis=0)
    area = float(np.mean([run[name].area for run in runs]))
    return {
        "type": "scatter",
        "mode": "lines",
        **named(group),
        "meta": f"{group.label} · {100 * area:.1f}",
        "x": (100 * RECALLS).round(1).tolist(),
        "y": (100 * precision).round(2).tolist(),
        "line": {"color": group.color, "width": 2, "dash": group.dash},
        "hovertemplate": "recall %{x:.0f}: precision %{y:.1f}" + NAMED,
    }
