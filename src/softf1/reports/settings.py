"""How the runs were made: settings, versions, data, time; and what they warned of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from softf1.reports.embed import shorten
from softf1.reports.files import flatten, items_of, number, section
from softf1.reports.groups import name_score
from softf1.reports.tables import Column, Table

if TYPE_CHECKING:
    from softf1.reports.study import Study

_SECONDS = ("total", "train", "evaluate")


def make_settings(study: Study) -> Table:
    """Every setting: its value, or how many values it has over the runs."""
    recipes = [flatten(section(run.result, "recipe")) for run in study.trained]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    return Table(
        id="settings",
        caption="Settings of the recipe; where runs differ, every value",
        columns=(Column("setting", "Setting"), Column("value", "Value")),
        rows=[[key, _values(recipe.get(key) for recipe in recipes)] for key in keys],
    )


def make_origins(study: Study) -> Table:
    """Versions, devices and data files."""
    results = [run.result for run in study.trained]
    names = dict.fromkeys(key for result in results for key in section(result, "versions"))
    found = {name: [section(r, "versions").get(name) for r in results] for name in names}
    found |= {name: [r.get(name) for r in results] for name in ("device", "world", "precision")}
    for part in dict.fromkeys(key for result in results for key in section(result, "data")):
        for key in ("path", "examples", "sha256"):
            found[f"{part} {key}"] = [section(r, "data", part).get(key) for r in results]
    rows = [
        [name, _values(values)]
        for name, values in found.items()
        if any(value is not None for value in values)
    ]
    return Table(
        id="origins",
        caption="Versions, machine and data",
        columns=(Column("what", "What"), Column("value", "Value")),
        rows=rows,
    )


def make_runs(study: Study) -> Table:
    """One row a run."""
    score = study.headline
    splits = [
        s for s in ("dev", study.split) if any(r.score(s, score) is not None for r in study.trained)
    ]
    return Table(
        id="runs",
        caption="Every run",
        columns=(
            Column("run", "Run"),
            Column("loss", "Loss"),
            Column("seed", "Seed", "int"),
            *(
                Column(f"{split}_{score}", f"{name_score(score)} {split}", "score")
                for split in dict.fromkeys(splits)
            ),
            Column("best_epoch", "Best epoch", "number"),
            Column("steps", "Steps", "int"),
            *(Column(f"seconds_{name}", f"s {name}", "seconds") for name in _SECONDS),
            Column("tokens_per_second", "Tokens/s", "int"),
            Column("peak_memory_mib", "Peak MiB", "int"),
        ),
        rows=[
            [
                run.id,
                run.label,
                run.seed,
                *(run.score(split, score) for split in dict.fromkeys(splits)),
                number(section(run.result, "best").get("epoch")),
                number(run.result.get("steps")),
                *(number(section(run.result, "seconds").get(name)) for name in _SECONDS),
                number(run.result.get("tokens_per_second")),
                _mib(run.result.get("peak_memory")),
            ]
            for run in study.trained
        ],
    )


def make_tuning(study: Study) -> Table | None:
    """The trials in which settings were chosen on dev."""
    trials = [trial for trial in items_of(study.grid.get("tuning")) if isinstance(trial, dict)]
    if not trials:
        return None
    keys = dict.fromkeys(key for trial in trials for key in section(trial, "values"))
    told = [key for key in keys if len({_write(section(t, "values").get(key)) for t in trials}) > 1]
    told = [key for key in told if key != "loss.name"]
    return Table(
        id="tuning",
        caption="Runs that chose settings on dev, as many for each loss",
        columns=(
            Column("loss", "Loss"),
            Column("score", f"{name_score(study.headline)} dev", "score"),
            Column("share", "Share of a run, %", "share"),
            Column("steps", "Steps", "int"),
            *(Column(key, key) for key in told),
        ),
        rows=[
            [
                str(trial.get("loss")),
                number(trial.get("score")),
                number(trial.get("share")),
                number(trial.get("steps")),
                *(_given(section(trial, "values"), key) for key in told),
            ]
            for trial in trials
        ],
    )


def list_warnings(study: Study) -> list[tuple[str, int]]:
    """(warning, runs that gave it), in order of appearance."""
    found: dict[str, int] = {}
    for run in study.trained:
        for text in dict.fromkeys(map(str, items_of(run.result.get("warnings")))):
            found[text] = found.get(text, 0) + 1
    return list(found.items())


def find_mismatches(study: Study) -> list[str]:
    """Data files of which runs had different versions: their scores do not compare."""
    out = []
    for part in ("train", "dev", "test"):
        hashes = {_write(section(run.result, "data", part).get("sha256")) for run in study.trained}
        if len(hashes) > 1:
            out.append(part)
    return out


def _mib(size: Any) -> float | None:
    known = number(size)
    return None if known is None else known / 2**20


def _values(values: Any) -> str:
    """One value, or the different ones."""
    written = dict.fromkeys(map(_write, values))
    return shorten(" · ".join(written), 400)


def _given(values: dict[str, Any], key: str) -> str:
    return _write(values[key]) if key in values else ""


def _write(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
