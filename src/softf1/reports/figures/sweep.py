"""Precision, recall and F1 against a setting, such as Tversky's alpha."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.reports.embed import plain
from softf1.reports.figures import NAMED, Figure, axis
from softf1.reports.files import flatten, number, section
from softf1.reports.groups import deviation, mean, name_score
from softf1.reports.tables import Column, Table

if TYPE_CHECKING:
    from softf1.reports.figures import Trace
    from softf1.reports.study import Run, Study

FEWEST = 3
"""Values that make a sweep worth a line."""

_LOOKS = (
    ("precision", "var(--c1)", "circle", "dot"),
    ("recall", "var(--c2)", "square", "dash"),
    ("headline", "var(--ink)", "diamond", "solid"),
)


def draw_sweep(study: Study) -> Figure | None:
    """The first setting that takes several numbers; alpha of Tversky runs without a sweep."""
    for key in study.axis:
        points = _points(study.runs, key)
        if len(points) >= FEWEST:
            return _draw(study, key, points)
    tversky = [run for run in study.runs if run.result.get("loss") == "tversky"]
    points = _points(tversky, "loss.alpha")
    return _draw(study, "loss.alpha", points) if len(points) >= FEWEST else None


def _points(runs: list[Run] | tuple[Run, ...], key: str) -> dict[float, list[Run]]:
    """Value → runs with it, in order of the value."""
    found: dict[float, list[Run]] = {}
    for run in runs:
        value = setting(run, key)
        if value is not None:
            found.setdefault(value, []).append(run)
    return dict(sorted(found.items()))


def setting(run: Run, key: str) -> float | None:
    """A numeric setting of a run: as the grid gave it, of its loss, or of its recipe."""
    tail = key.rpartition(".")[2]
    recipe = flatten(section(run.result, "recipe"))
    places = (run.values.get(key), recipe.get(key), section(run.result, "loss_options").get(tail))
    return next((found for found in map(number, places) if found is not None), None)


def _draw(study: Study, key: str, points: dict[float, list[Run]]) -> Figure:
    traces: list[Trace] = []
    means: dict[str, list[float | None]] = {}
    for role, color, symbol, dash in _LOOKS:
        name = study.headline if role == "headline" else role
        columns = [[run.score(study.split, name) for run in runs] for runs in points.values()]
        known = [[value for value in column if value is not None] for column in columns]
        if not any(known):
            continue
        means[name] = [mean(values) for values in known]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": plain(name_score(name)),
                "legendgroup": role,
                "meta": name_score(name),
                "x": list(points),
                "y": [None if value is None else 100 * value for value in means[name]],
                "error_y": {
                    "type": "data",
                    "array": [100 * (deviation(values) or 0.0) for values in known],
                    "color": color,
                    "thickness": 1,
                    "width": 3,
                },
                "line": {"color": color, "width": 2, "dash": dash},
                "marker": {"color": color, "symbol": symbol, "size": 8},
                "hovertemplate": "%{x}: %{y:.2f}" + NAMED,
            }
        )
    return Figure(
        id="plot-sweep",
        title=f"Scores against {key}",
        summary=_summary(study, key, list(points), means),
        traces=traces,
        layout={
            "xaxis": axis(plain(key), zeroline=False),
            "yaxis": axis(f"{study.split} (×100), mean ± sd over seeds"),
        },
        height=420,
        wide=True,
        table=Table(
            id="sweep",
            caption=f"Scores on {study.split} against {key}, means over seeds",
            columns=(
                Column(key, key, "number"),
                Column("runs", "Runs", "int"),
                *(Column(name, name_score(name), "score") for name in means),
            ),
            rows=[
                [value, len(runs), *(column[place] for column in means.values())]
                for place, (value, runs) in enumerate(points.items())
            ],
        ),
    )


def _summary(
    study: Study, key: str, values: list[float], means: dict[str, list[float | None]]
) -> str:
    column = means.get(study.headline) or []
    known = [
        (score, value) for score, value in zip(column, values, strict=False) if score is not None
    ]
    if not known:
        return f"Scores at {len(values)} values of {key}."
    score, value = max(known)
    return f"{name_score(study.headline)} is highest, {100 * score:.2f}, at {key} = {value:g}."
