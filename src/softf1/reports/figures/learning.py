"""Learning curves: the score on dev by epoch, the training loss by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.reports.curves import average
from softf1.reports.figures import NAMED, Figure, axis, named
from softf1.reports.groups import name_score
from softf1.reports.tables import Column, Table

if TYPE_CHECKING:
    from softf1.reports.curves import Curve
    from softf1.reports.figures import Trace
    from softf1.reports.groups import Group

    Curves = dict[str, list[Curve]]


def draw_progress(groups: list[Group], curves: Curves, headline: str) -> Figure | None:
    """Dev scores: every run thin, every loss's mean thick."""
    return _draw(
        groups,
        curves,
        id="plot-progress",
        title=f"{name_score(headline)} on dev by epoch",
        x=("epoch", "epoch"),
        y=(headline, f"{name_score(headline)} on dev (×100)"),
        scale=100.0,
        seeds=True,
    )


def draw_loss(groups: list[Group], curves: Curves) -> Figure | None:
    """Training loss: means only; values of different losses do not compare."""
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
    curves: Curves,
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
                **named(group),
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
            columns=(
                Column("loss", "Loss"),
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
