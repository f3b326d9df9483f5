"""The score of every loss, seed by seed, and its difference to the baseline with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.reports.embed import plain
from softf1.reports.figures import Figure, axis, rows_of
from softf1.reports.files import number
from softf1.reports.groups import in_order, mean, name_score
from softf1.reports.tables import Column, Table, show

if TYPE_CHECKING:
    from softf1.reports.figures import Trace
    from softf1.reports.groups import Group
    from softf1.reports.study import Study


SURE = 0.05
"""Corrected p-value below which a point is filled."""


def draw_scores(study: Study, groups: list[Group]) -> Figure:
    """Every run as a point, every loss's mean as a line across them."""
    shown, score = _ordered(study, groups), name_score(study.headline)
    traces, rows = [], []
    for place, group in enumerate(shown):
        scores = group.scores(study.split, study.headline)
        name, middle = plain(group.label), mean(scores)
        seeds = [
            run.seed for run in group.runs if run.score(study.split, study.headline) is not None
        ]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [100 * score for score in scores],
                "y": [place] * len(scores),
                "customdata": [[name, seed] for seed in seeds],
                "marker": {"color": group.color, "size": 8, "opacity": 0.45},
                "hovertemplate": "%{customdata[0]}<br>seed %{customdata[1]}: %{x:.2f}"
                "<extra></extra>",
            }
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [None if middle is None else 100 * middle],
                "y": [place],
                "customdata": [name],
                "marker": {
                    "symbol": "line-ns",
                    "size": 20,
                    "line": {"width": 3, "color": group.color},
                    "color": group.color,
                },
                "hovertemplate": "%{customdata}<br>mean %{x:.2f}<extra></extra>",
            }
        )
        rows += [[group.label, seed, score] for seed, score in zip(seeds, scores, strict=True)]
    top = max(groups, key=lambda group: mean(group.scores(study.split, study.headline)) or 0.0)
    best = show(mean(top.scores(study.split, study.headline)), "score")
    return Figure(
        id="plot-scores",
        title=f"{score} on {study.split}, every seed",
        summary=f"One point a run for {len(groups)} rows. The highest mean is {top.label}, {best}.",
        traces=traces,
        layout=_layout(shown, f"{score} on {study.split} (×100)"),
        height=_height(shown),
        table=Table(
            id="scores-by-seed",
            caption=f"{score} on {study.split} of every run",
            columns=(
                Column("loss", "Loss"),
                Column("seed", "Seed", "int"),
                Column(study.headline, score, "score"),
            ),
            rows=rows,
        ),
    )


def draw_differences(study: Study, groups: list[Group]) -> Figure | None:
    """The forest plot: differences to the baseline, points with 95% intervals around zero."""
    shown = _ordered(study, groups)  # with the baseline, so that rows stand beside those of seeds
    known = [group for group in shown if _interval(group) is not None]
    if not known:
        return None
    traces = [_interval_trace(group, place) for place, group in enumerate(shown) if group in known]
    zero = {
        "type": "line", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"color": "var(--ink-2)", "width": 1, "dash": "dot"},
    }  # fmt: skip
    layout = _layout(shown, "difference in points, 95% interval")
    clear = [g.label for g in known if (_interval(g) or (0, 0, 0))[1] > 0]
    worse = [g.label for g in known if (_interval(g) or (0, 0, 0))[2] < 0]
    return Figure(
        id="plot-differences",
        title=f"Difference to {study.baseline}",
        summary=f"Intervals wholly above zero: {', '.join(clear) or 'none'}; "
        f"wholly below: {', '.join(worse) or 'none'}.",
        traces=traces,
        layout={**layout, "shapes": [zero]},
        height=_height(shown),
        table=Table(
            id="differences",
            caption=f"Difference to {study.baseline} with its 95% interval",
            columns=(
                Column("loss", "Loss"),
                Column("difference", "Difference", "points"),
                Column("low", "Low", "points"),
                Column("high", "High", "points"),
            ),
            rows=[[group.label, *(_interval(group) or ())] for group in reversed(known)],
        ),
    )


def _interval(group: Group) -> tuple[float, float, float] | None:
    found = [number(group.row.get(key)) for key in ("difference", "low", "high")]
    if group.rank == 0 or None in found:
        return None
    middle, low, high = (value for value in found if value is not None)
    return middle, low, high


def _interval_trace(group: Group, place: int) -> Trace:
    middle, low, high = _interval(group) or (0.0, 0.0, 0.0)
    p = number(group.row.get("p_holm"))
    sure = p < SURE if p is not None else low > 0 or high < 0
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [100 * middle],
        "y": [place],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [100 * (high - middle)],
            "arrayminus": [100 * (middle - low)],
            "color": group.color,
            "thickness": 2,
            "width": 5,
        },
        "customdata": [[plain(group.label), 100 * low, 100 * high]],
        "marker": {
            "size": 11,
            "symbol": "circle" if sure else "circle-open",
            "color": group.color,
            "line": {"width": 2, "color": group.color},
        },
        "hovertemplate": "%{customdata[0]}<br>%{x:+.2f} "
        "[%{customdata[1]:+.2f}, %{customdata[2]:+.2f}]<extra></extra>",
    }


def _ordered(study: Study, groups: list[Group]) -> list[Group]:
    """The lowest mean first, as Plotly draws categories from below; a sweep in its own order."""
    if study.kind == "sweep":
        return in_order(study, groups)[::-1]
    return sorted(groups, key=lambda g: mean(g.scores(study.split, study.headline)) or 0.0)


def _layout(groups: list[Group], title: str) -> dict[str, object]:
    return {
        "xaxis": axis(title, zeroline=False),
        "yaxis": rows_of([group.label for group in groups]),
    }


def _height(groups: list[Group]) -> int:
    return 110 + 34 * max(len(groups), 3)
