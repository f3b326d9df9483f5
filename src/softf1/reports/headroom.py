"""Headroom of runs as a waterfall and a table, from their `headroom.json`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from softf1.metrics.counts import name_score
from softf1.metrics.headroom import NOTHING, say_gains
from softf1.reports.figures import Column, Figure, Table, Trace, axis, columns, plain, rows_of
from softf1.reports.reading import number, objects_of, read_object
from softf1.reports.study import Group, Study, mean_of

FILE = "headroom.json"

Content = dict[str, Any]
"""The content of one run's file."""


def read_run_headroom(study: Study, groups: list[Group]) -> dict[str, list[Content]]:
    """Reads the headroom of all runs on the split of the page, by loss."""
    headroom: dict[str, list[Content]] = {}
    for group in groups:
        files = [] if group.tuned else [run.folder / FILE for run in group.runs]
        read = [read_object(path) for path in files if path.is_file()]
        own = [one for one in read if one.get("split") == study.split and _steps(one)]
        if own:
            headroom[group.label] = own
    return headroom


def _steps(content: Content) -> list[tuple[str, float]]:
    steps = objects_of(content.get("steps"))
    pairs = [(str(step.get("title")), number(step.get("score"))) for step in steps]
    return [(title, score) for title, score in pairs if score is not None]


def _parts(content: Content) -> list[Content]:
    return objects_of(content.get("parts"))


def say_summary(headroom: dict[str, list[Content]]) -> str:
    """Summarises the first loss in a sentence, from means over its runs."""
    label, runs = next(iter(headroom.items()))
    wins = dict.fromkeys(str(part["wins"]) for part in _parts(runs[0]) if part.get("wins"))
    gains = [(name, _mean(runs, "wins", name, "gain")) for name in wins]
    known = [(name, gain) for name, gain in gains if gain is not None]
    if not known:
        return f"With {label}, {NOTHING}." if runs[0].get("summary") == NOTHING else ""
    unknown = runs[0].get("unknown")
    said = say_gains(known, unknown if isinstance(unknown, str) else "")
    metric, primary = runs[0].get("metric"), runs[0].get("primary_metric")
    other = isinstance(primary, str) and primary != metric
    of = f" of {name_score(str(metric))}, not of {name_score(str(primary))}," if other else ""
    return f"With {label}, in points of a hundred{of or ','} {said}."


def _mean(runs: list[Content], key: str, name: str, column: str) -> float | None:
    return mean_of(
        number(part.get(column)) for run in runs for part in _parts(run) if part.get(key) == name
    )


def draw_headroom(study: Study, headroom: dict[str, list[Content]]) -> Figure | None:
    """Draws the steps from the current score to 100, one view per loss."""
    if not headroom:
        return None
    titles = list(
        dict.fromkeys(
            title for runs in headroom.values() for run in runs for title, _ in _steps(run)
        )
    )
    views = [(label, [_bars(runs, titles)]) for label, runs in headroom.items()]
    label, runs = next(iter(headroom.items()))
    reached = "; ".join(
        f"{title} {100 * score:.1f}" for title, score in _mean_steps(runs, titles).items()
    )
    score = name_score(str(runs[0].get("metric") or study.metric))
    return Figure(
        id="plot-headroom",
        title="From the score as decided to 100, with",
        summary=f"{score} of {label} step by step: {reached}.",
        x=axis(f"{score} (×100)", range=[0, 108]),
        y={**rows_of(titles, limit=44), "range": [len(titles) - 0.4, -0.6]},
        more={"showlegend": False},
        views=views,
        chooser="Loss",
        height=140 + 44 * len(titles),
        wide=True,
        table=Table(
            id="headroom",
            caption=f"What each part alone would give on {study.split}, means over seeds",
            columns=columns("loss", "part", Column("score", score, "score"), "gain:points"),
            rows=[
                [label, title, *(_mean(runs, "title", title, key) for key in ("score", "gain"))]
                for label, runs in headroom.items()
                for title in dict.fromkeys(str(p.get("title")) for run in runs for p in _parts(run))
            ],
        ),
    )


def _mean_steps(runs: list[Content], titles: list[str]) -> dict[str, float]:
    means = {
        title: mean_of(score for run in runs for name, score in _steps(run) if name == title)
        for title in titles
    }
    return {title: value for title, value in means.items() if value is not None}


def _bars(runs: list[Content], titles: list[str]) -> Trace:
    reached = _mean_steps(runs, titles)
    known = [title for title in titles if title in reached]
    ends = [100 * reached[title] for title in known]
    starts = [0.0, *ends[:-1]]
    colors = ["var(--ink-2)", *(f"var(--c{1 + i % 8})" for i in range(len(known) - 1))]
    gains = [f"{ends[0]:.1f}", *(f"+{b - a:.1f}" for a, b in pairwise(ends))]
    return {
        "type": "bar",
        "orientation": "h",
        "y": [titles.index(title) for title in known],
        "x": [round(b - a, 4) for a, b in zip(starts, ends, strict=True)],
        "base": [round(a, 4) for a in starts],
        "marker": {"color": colors},
        "text": gains,
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": [[plain(t, limit=60), f"{e:.2f}"] for t, e in zip(known, ends, strict=True)],
        "hovertemplate": "%{customdata[0]}: %{text}, reaches %{customdata[1]}<extra></extra>",
    }


def make_examples(headroom: dict[str, list[Content]]) -> Table | None:
    """A table with some examples of each part, from the first run of the first loss."""
    label, runs = next(iter(headroom.items()))
    rows = [
        [
            str(part.get("title")),
            *(str(one.get(key, "")) for key in ("id", "found", "gold", "text")),
        ]
        for part in _parts(runs[0])
        for one in objects_of(part.get("examples"))
    ]
    if not rows:
        return None
    return Table(
        id="headroom-examples",
        caption=f"Examples behind the parts, of one run with {label}",
        columns=columns("part", Column("id", "Example"), "found", "gold", "text"),
        rows=rows,
    )
