"""Plots of scores: by seed, as differences, precision against recall, over a sweep."""

from __future__ import annotations

from typing import Any

import numpy as np

from softf1.files import flatten
from softf1.metrics.counts import name_score
from softf1.reports.figures import (
    Column,
    Figure,
    Table,
    Trace,
    axis,
    columns,
    percent,
    plain,
    rows_of,
    scatter,
    show,
)
from softf1.reports.reading import number, section
from softf1.reports.study import Group, Run, Study, deviation, in_order, mean_of

SURE = 0.05
"""Points are filled below this corrected p-value."""


def draw_scores(study: Study, groups: list[Group]) -> Figure:
    """Draws every run as a point, and the mean of every loss as a line."""
    shown, score = _ordered(study, groups), name_score(study.metric)
    traces, rows = [], []
    for place, group in enumerate(shown):
        seeds = [(run.seed, run.score(study.split, study.metric)) for run in group.runs]
        known = [(seed, score) for seed, score in seeds if score is not None]
        name = plain(group.label)
        traces += [
            scatter(
                "markers",
                percent(score for _, score in known),
                [place] * len(known),
                customdata=[[name, seed] for seed, _ in known],
                marker={"color": group.color, "size": 8, "opacity": 0.45},
                hover="%{customdata[0]}<br>seed %{customdata[1]}: %{x:.2f}",
            ),
            scatter(
                "markers",
                percent([mean_of(score for _, score in known)]),
                [place],
                customdata=[name],
                marker={
                    "symbol": "line-ns",
                    "size": 20,
                    "line": {"width": 3, "color": group.color},
                    "color": group.color,
                },
                hover="%{customdata}<br>mean %{x:.2f}",
            ),
        ]
        rows += [[group.label, seed, score] for seed, score in known]
    top = max(groups, key=lambda group: mean_of(group.scores(study.split, study.metric)) or 0.0)
    best = show(mean_of(top.scores(study.split, study.metric)), "score")
    return Figure(
        id="plot-scores",
        title=f"{score} on {study.split}, every seed",
        summary=f"One point per run, {len(groups)} rows. The highest mean is {top.label}, {best}.",
        traces=traces,
        x=axis(f"{score} on {study.split} (×100)", zeroline=False),
        y=rows_of([group.label for group in shown]),
        height=_height(shown),
        table=Table(
            id="scores-by-seed",
            caption=f"{score} on {study.split} of every run",
            columns=columns("loss", "seed:int", Column(study.metric, score, "score")),
            rows=rows,
        ),
    )


def draw_differences(study: Study, groups: list[Group]) -> Figure | None:
    """Draws a forest plot: differences to the baseline with 95% intervals."""
    shown = _ordered(study, groups)  # with the baseline, to line up with the plot of seeds
    known = [(place, group, *own) for place, group in enumerate(shown) if (own := _interval(group))]
    if not known:
        return None
    zero = {
        "type": "line", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"color": "var(--ink-2)", "width": 1, "dash": "dot"},
    }  # fmt: skip
    above = ", ".join(group.label for _, group, _, low, _ in known if low > 0)
    below = ", ".join(group.label for _, group, _, _, high in known if high < 0)
    return Figure(
        id="plot-differences",
        title=f"Difference to {study.baseline}",
        summary=f"Intervals wholly above zero: {above or 'none'}; wholly below: {below or 'none'}.",
        traces=[_interval_trace(*one) for one in known],
        x=axis("difference in points, 95% interval", zeroline=False),
        y=rows_of([group.label for group in shown]),
        more={"shapes": [zero]},
        height=_height(shown),
        table=Table(
            id="differences",
            caption=f"Difference to {study.baseline} with its 95% interval",
            columns=columns("loss", "difference:points", "low:points", "high:points"),
            rows=[[group.label, *interval] for _, group, *interval in reversed(known)],
        ),
    )


def _interval(group: Group) -> tuple[float, float, float] | None:
    """The difference to the baseline and both ends of its interval, if all are known."""
    middle, low, high = (number(group.row.get(key)) for key in ("difference", "low", "high"))
    if group.rank == 0 or middle is None or low is None or high is None:
        return None
    return middle, low, high


def _interval_trace(place: int, group: Group, middle: float, low: float, high: float) -> Trace:
    p = number(group.row.get("p_holm"))
    sure = p < SURE if p is not None else low > 0 or high < 0
    return scatter(
        "markers",
        [100 * middle],
        [place],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [100 * (high - middle)],
            "arrayminus": [100 * (middle - low)],
            "color": group.color,
            "thickness": 2,
            "width": 5,
        },
        customdata=[[plain(group.label), 100 * low, 100 * high]],
        marker={
            "size": 11,
            "symbol": "circle" if sure else "circle-open",
            "color": group.color,
            "line": {"width": 2, "color": group.color},
        },
        hover="%{customdata[0]}<br>%{x:+.2f} [%{customdata[1]:+.2f}, %{customdata[2]:+.2f}]",
    )


def _ordered(study: Study, groups: list[Group]) -> list[Group]:
    """The lowest mean first, since Plotly draws from below; a sweep keeps its order."""
    if study.kind == "sweep":
        return in_order(study, groups)[::-1]
    return sorted(groups, key=lambda g: mean_of(g.scores(study.split, study.metric)) or 0.0)


def _height(groups: list[Group]) -> int:
    return 110 + 34 * max(len(groups), 3)


NAMES = ("recall", "precision")


def draw_trade(study: Study, groups: list[Group]) -> Figure | None:
    """Draws precision against recall: means as large points, seeds as small ones."""
    traces: list[Trace] = []
    rows: list[list[Any]] = []
    for group in groups:
        runs = [[run.seed, *(run.score(study.split, name) for name in NAMES)] for run in group.runs]
        points = [point for point in runs if None not in point[1:]]
        if points:
            seeds, recall, precision = map(list, zip(*points, strict=True))
            traces += _traces(group, seeds, recall, precision)
            rows.append([group.label, mean_of(precision), mean_of(recall), len(points)])
    if all(precision == recall for _, precision, recall, _ in rows):
        return None
    low, high = _limits(traces)
    summary = "; ".join(
        f"{label}: precision {100 * precision:.1f}, recall {100 * recall:.1f}"
        for label, precision, recall, _ in rows[:12]
    )
    return Figure(
        id="plot-trade",
        title=f"Precision and recall of {rows[0][0]} and the others",
        summary=summary + ".",
        traces=_equal_f1(low, high) + traces,
        x=axis("recall (×100)", range=[low[0], high[0]]),
        y=axis("precision (×100)", range=[low[1], high[1]]),
        height=460,
        wide=True,
        table=Table(
            id="trade",
            caption=f"Precision and recall on {study.split}, means over seeds",
            columns=columns("loss", "precision:score", "recall:score", "runs:int"),
            rows=rows,
        ),
    )


def _traces(
    group: Group, seeds: list[Any], recall: list[float | None], precision: list[float | None]
) -> list[Trace]:
    look = {"color": group.color, "symbol": group.symbol}
    hover = "recall %{x:.2f}, precision %{y:.2f}"
    return [
        scatter(
            "markers",
            percent(recall),
            percent(precision),
            name=plain(group.label),
            legendgroup=group.key,
            customdata=seeds,
            marker={**look, "size": 6, "opacity": 0.4},
            hover=f"seed %{{customdata}}<br>{hover}",
        ),
        scatter(
            "markers",
            percent([mean_of(recall)]),
            percent([mean_of(precision)]),
            group.legend,
            marker={**look, "size": 14, "line": {"width": 1.5, "color": "var(--paper)"}},
            hover=f"mean<br>{hover}",
        ),
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
    """Draws curves of equal F1, p = f·r / (2r − f), with the F1 at their end."""
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
            scatter(
                "lines+text",
                recall.tolist(),
                precision.tolist(),
                text=[f"F1 {f:g}"] + [""] * (len(recall) - 1),
                textposition="top right",
                cliponaxis=False,
                textfont={"color": "var(--ink-3)", "size": 10},
                line={"color": "var(--ink-3)", "width": 0.8, "dash": "dot"},
            )
        )
    return traces


FEWEST = 3
"""The least number of values for a line plot."""

_LOOKS = (
    ("precision", "var(--c1)", "circle", "dot"),
    ("recall", "var(--c2)", "square", "dash"),
    ("primary", "var(--ink)", "diamond", "solid"),
)


def draw_sweep(study: Study) -> Figure | None:
    """Draws scores over the first numeric setting; without a sweep, over an option of one loss."""
    of_loss: dict[str, list[Run]] = {}
    for run in study.runs:
        of_loss.setdefault(str(run.result.get("loss")), []).append(run)
    tried = [(study.runs, key) for key in study.axis]
    for own in of_loss.values():
        first = own[0].result
        options = section(first, "loss_options") | section(first, "recipe", "loss")
        tried += [(tuple(own), f"loss.{option}") for option in options]
    for runs, key in tried:
        by_value: dict[float, list[Run]] = {}
        for run in runs:
            value = setting(run, key)
            if value is not None:
                by_value.setdefault(value, []).append(run)
        if len(by_value) >= FEWEST:
            return _draw(study, key, dict(sorted(by_value.items())))
    return None


def setting(run: Run, key: str) -> float | None:
    """A numeric setting of a run: from the grid, its loss options, or its recipe."""
    tail = key.rpartition(".")[2]
    recipe = flatten(section(run.result, "recipe"))
    places = (run.values.get(key), recipe.get(key), section(run.result, "loss_options").get(tail))
    return next((known for known in map(number, places) if known is not None), None)


def _draw(study: Study, key: str, points: dict[float, list[Run]]) -> Figure:
    traces: list[Trace] = []
    means: dict[str, list[float | None]] = {}
    for role, color, symbol, dash in _LOOKS:
        name = study.metric if role == "primary" else role
        scores = [[run.score(study.split, name) for run in runs] for runs in points.values()]
        column = [mean_of(values) for values in scores]
        if not any(value is not None for value in column):
            continue
        means[name] = column
        traces.append(
            scatter(
                "lines+markers",
                list(points),
                percent(column),
                {"name": plain(name_score(name)), "legendgroup": role, "meta": name_score(name)},
                error_y={
                    "type": "data",
                    "array": [100 * (deviation(values) or 0.0) for values in scores],
                    "color": color,
                    "thickness": 1,
                    "width": 3,
                },
                line={"color": color, "width": 2, "dash": dash},
                marker={"color": color, "symbol": symbol, "size": 8},
                hover="%{x}: %{y:.2f}",
            )
        )
    return Figure(
        id="plot-sweep",
        title=f"Scores against {key}",
        summary=_summary(study, key, list(points), means.get(study.metric, [])),
        traces=traces,
        x=axis(plain(key), zeroline=False),
        y=axis(f"{study.split} (×100), mean ± sd over seeds"),
        height=420,
        wide=True,
        table=Table(
            id="sweep",
            caption=f"Scores on {study.split} against {key}, means over seeds",
            columns=columns(
                Column(key, key, "number"),
                "runs:int",
                *(Column(name, name_score(name), "score") for name in means),
            ),
            rows=[
                [value, len(runs), *(column[place] for column in means.values())]
                for place, (value, runs) in enumerate(points.items())
            ],
        ),
    )


def _summary(study: Study, key: str, values: list[float], scores: list[float | None]) -> str:
    pairs = zip(scores, values, strict=False)
    known = [(score, value) for score, value in pairs if score is not None]
    if not known:
        return f"Scores at {len(values)} values of {key}."
    score, value = max(known)
    return f"{name_score(study.metric)} is highest, {100 * score:.2f}, at {key} = {value:g}."
