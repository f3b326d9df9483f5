"""Reads the files of runs, and the comparison of a grid, and groups the runs by loss."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.files import flatten
from softf1.reports.figures import ENDS, plain
from softf1.reports.reading import items_of, need, number, read_object, section

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

BASELINE = "ce"
"""The row that others are compared with, if a grid names no other."""

TUNED = "+tuned"
"""Suffix of a row that uses the runs of a loss, with thresholds or biases tuned on dev."""

_UNTOLD = ("train.seed", "name", "train.checkpoint_seconds", "train.trackers")
"""Settings that do not distinguish rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One finished run.

    Attributes:
        id: Its name on the page.
        label: Its row: the loss, or the values of a sweep.
        seed: Its seed.
        folder: Where its files are.
        result: Its result.json.
        values: Recipe values that the grid set.
        tuned: Whether this repeats a run with thresholds tuned on dev.
        reference: Whether it is a reference without training: majority or a bag of words.
    """

    id: str
    label: str
    seed: int
    folder: Path
    result: dict[str, Any]
    values: dict[str, Any] = field(default_factory=dict)
    tuned: bool = False
    reference: bool = False

    def predictions(self, split: str) -> Path:
        """The file of its predictions."""
        return self.folder / f"predictions.{split}{'.tuned' if self.tuned else ''}.jsonl"

    def score(self, split: str, name: str) -> float | None:
        """One number of its scores."""
        return number(section(self.result, "scores", split).get(name))


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """The runs of one page.

    Attributes:
        kind: `compare`, `sweep`, or `runs` for folders without a grid.
        runs: The finished ones.
        unfinished: (run, state) of the others.
        baseline: The label of the baseline.
        metric: The primary metric.
        split: The split whose scores are shown.
        axis: Keys that a sweep varies.
        comparison: comparison.json of a grid; empty without.
        grid: grid.json; empty without.
    """

    kind: str
    runs: tuple[Run, ...]
    unfinished: tuple[tuple[str, str], ...] = ()
    baseline: str
    metric: str
    split: str
    axis: tuple[str, ...] = ()
    comparison: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, Any] = field(default_factory=dict)

    @property
    def trained(self) -> list[Run]:
        """The runs that were trained, each once."""
        return [run for run in self.runs if not run.tuned and not run.reference]


def read_study(paths: Sequence[Path]) -> Study:
    """Reads one grid folder, or one or more run folders."""
    if not paths:
        raise InputError("wanted a grid folder or run folders, got none")
    for path in paths:
        if not path.is_dir():
            raise InputError("wanted the folder of a run or of a grid, got none", path=path)
    grids = [path for path in paths if (path / "grid.json").is_file()]
    if grids and len(paths) > 1:
        raise InputError(f"wanted one grid, or runs, got {len(paths)} folders", path=grids[0])
    return _read_grid(grids[0]) if grids else _read_runs(paths)


def _read_grid(folder: Path) -> Study:
    path = folder / "grid.json"
    grid = read_object(path)
    runs, unfinished = [], []
    for cell in need(grid, "cells", list, path):
        if not isinstance(cell, dict):
            raise InputError(f"wanted objects in cells, got {type(cell).__name__}", path=path)
        place = folder / need(cell, "folder", str, path)
        if not place.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"wanted cells inside the grid, got {cell['folder']!r}", path=path)
        if (place / "result.json").is_file():
            runs.append(_read_run(place, cell))
        else:
            unfinished.append((str(cell.get("id")), str(cell.get("state", "missing"))))
    if not runs:
        raise InputError("wanted at least one finished run, got none", path=path)
    file = folder / "comparison.json"
    comparison = _check_comparison(read_object(file), file) if file.is_file() else {}
    metric = comparison.get("headline") or grid.get("headline") or runs[0].result.get("headline")
    baseline = str(grid.get("baseline") or BASELINE)
    labels = [run.label for run in runs]
    compared = {str(row.get("loss")) for row in items_of(comparison.get("rows"))}
    requested = set(map(str, items_of(grid.get("losses"))))
    return Study(
        kind=str(grid.get("kind", "compare")),
        runs=(*runs, *_tuned(runs, only=compared | requested)),
        unfinished=tuple(unfinished),
        baseline=baseline if baseline in labels else labels[0],
        metric=str(metric),
        split=str(comparison.get("split") or _common_split(runs)),
        axis=tuple(map(str, items_of(grid.get("axis")))),
        comparison=comparison,
        grid=grid,
    )


def _check_comparison(comparison: dict[str, Any], path: Path) -> dict[str, Any]:
    """Checks that the rows and labels of a comparison are objects; returns the comparison."""
    for key in ("rows", "labels"):
        for one in items_of(comparison.get(key)):
            if not isinstance(one, dict):
                got = type(one).__name__
                raise InputError(f'wanted objects in "{key}", got {got}', path=path)
    return comparison


def _read_run(folder: Path, cell: dict[str, Any] | None = None) -> Run:
    """Reads a finished run; `cell` is its entry in grid.json, if it belongs to a grid."""
    path = folder / "result.json"
    result = read_object(path)
    need(result, "scores", dict, path)
    own = cell or {"label": result.get("loss") or "?", "seed": result.get("seed")}
    return Run(
        id=str(own.get("id") or folder.resolve().name),
        label=str(own.get("label") or own.get("loss") or result.get("loss")),
        seed=int(number(own.get("seed")) or 0),
        folder=folder,
        result=result,
        values=section(own, "values"),
        reference=cell is not None and "seed" in cell and cell["seed"] is None,
    )


def _tuned(runs: Iterable[Run], *, only: set[str] | None = None) -> list[Run]:
    """Additional rows for the runs that also have scores with tuned thresholds or biases."""
    return [
        replace(
            run,
            id=f"{run.id}{TUNED}",
            label=f"{run.label}{TUNED}",
            result={**run.result, "scores": section(run.result, "tuned")},
            tuned=True,
        )
        for run in runs
        if section(run.result, "tuned") and (only is None or f"{run.label}{TUNED}" in only)
    ]


def _read_runs(paths: Sequence[Path]) -> Study:
    for path in paths:
        if not (path / "result.json").is_file():
            raise InputError("wanted a finished run with a result.json, got none", path=path)
    runs = name_runs([_read_run(path) for path in dict.fromkeys(paths)])
    labels = [run.label for run in runs]
    return Study(
        kind="runs",
        runs=(*runs, *_tuned(runs)),
        baseline=BASELINE if BASELINE in labels else labels[0],
        metric=str(runs[0].result.get("headline") or "f1"),
        split=_common_split(runs),
    )


def name_runs(runs: list[Run]) -> list[Run]:
    """Labels and names runs by the settings in which they differ."""
    settings = [flatten(section(run.result, "recipe")) for run in runs]
    crowded = Counter((run.label, run.seed) for run in runs)
    split = {label for (label, _), count in crowded.items() if count > 1}
    out = []
    for run, own in zip(runs, settings, strict=True):
        if run.label not in split:
            out.append(run)
            continue
        beside = [s for r, s in zip(runs, settings, strict=True) if r.label == run.label]
        told = [key for key in own if key not in _UNTOLD and _differs(key, beside)]
        tail = ", ".join(f"{_short(key)}={own[key]}" for key in told)
        out.append(replace(run, label=f"{run.label} {tail}".rstrip()))
    names = Counter(run.id for run in out)
    return [
        replace(run, id=f"{run.folder.resolve().parent.name}/{run.id}")
        if names[run.id] > 1
        else run
        for run in out
    ]


def _short(key: str) -> str:
    """The last part of a key; `encoder` for `encoder.name`, which alone says nothing."""
    return "encoder" if key == "encoder.name" else key.rpartition(".")[2]


def _differs(key: str, settings: Iterable[dict[str, Any]]) -> bool:
    return len({json.dumps(own.get(key), sort_keys=True, default=str) for own in settings}) > 1


def _common_split(runs: Sequence[Run]) -> str:
    """Test if every run has test scores, else dev."""
    tested = all(section(run.result, "scores", "test") for run in runs)
    return "test" if tested else "dev"


COLORS = 8
SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "pentagon",
    "star",
    "hexagon",
)
DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The runs of one row of the comparison, and their style in plots.

    Attributes:
        label: The loss, or the values of a sweep.
        runs: Its runs, by seed.
        rank: 0 for the baseline, then the position among the others.
        row: Its row of comparison.json; empty without.
    """

    label: str
    runs: tuple[Run, ...]
    rank: int
    row: dict[str, Any]

    @property
    def tuned(self) -> bool:
        """Whether this row repeats the runs of another, with thresholds tuned on dev."""
        return self.runs[0].tuned

    @property
    def reference(self) -> bool:
        """Whether it is a reference without training, shown in the table only."""
        return self.runs[0].reference

    @property
    def competes(self) -> bool:
        """Whether it competes with the baseline; controls and references do not."""
        return not self.reference and self.row.get("role", "loss") == "loss"

    @property
    def key(self) -> str:
        """A unique name for its traces."""
        return f"g{self.rank}"

    @property
    def legend(self) -> dict[str, Any]:
        """The settings of its entry in a legend."""
        name = plain(self.label, end=ENDS)
        return {"name": name, "legendgroup": self.key, "meta": self.label}

    @property
    def color(self) -> str:
        """Its CSS colour variable, defined for light and dark; ink for the baseline."""
        return "var(--ink-2)" if self.rank == 0 else f"var(--c{(self.rank - 1) % COLORS + 1})"

    @property
    def symbol(self) -> str:
        """The symbol of its points, so that groups differ not only in colour."""
        return "x" if self.rank == 0 else SYMBOLS[(self.rank - 1) % len(SYMBOLS)]

    @property
    def dash(self) -> str:
        """The line style of its curves."""
        return DASHES[(self.rank - 1) // COLORS % len(DASHES)] if self.rank else "solid"

    def scores(self, split: str, name: str) -> list[float]:
        """The scores of all runs that have this metric."""
        scores = (run.score(split, name) for run in self.runs)
        return [value for value in scores if value is not None]


def group_runs(study: Study) -> list[Group]:
    """Groups runs: baseline first, then in the order of the comparison or of appearance."""
    rows = {str(row.get("loss")): row for row in items_of(study.comparison.get("rows"))}
    labels = [study.baseline, *rows, *(run.label for run in study.runs)]
    members: dict[str, list[Run]] = {label: [] for label in labels}
    for run in study.runs:
        members[run.label].append(run)
    present = [(label, runs) for label, runs in members.items() if runs]
    return [
        Group(
            label=label,
            runs=tuple(sorted(runs, key=lambda run: (run.seed, run.id))),
            rank=rank,
            row=rows.get(label, {}),
        )
        for rank, (label, runs) in enumerate(present)
    ]


def in_order(study: Study, groups: list[Group]) -> list[Group]:
    """The groups in the order of the runs, including the baseline."""
    places = {run.label: place for place, run in reversed(list(enumerate(study.runs)))}
    return sorted(groups, key=lambda group: places[group.label])


def chosen_on(study: Study, groups: list[Group]) -> str:
    """The split that chooses the best loss: that of the verdict, else dev if runs have dev scores.

    Chosen on dev, the test score of the best loss is not biased upwards.
    """
    if study.comparison.get("best"):
        return study.split
    return "dev" if any(group.scores("dev", study.metric) for group in groups[1:]) else "test"


def pick_best(study: Study, groups: list[Group]) -> Group | None:
    """The group that the verdict names as the best; without a verdict, that with the best mean.

    By the mean, rows tuned on dev are left out: their dev score is too optimistic.
    """
    named = [group for group in groups if group.label == study.comparison.get("best")]
    if named:
        return named[0]
    split, metric = chosen_on(study, groups), study.metric
    known = [g for g in groups[1:] if g.scores(split, metric) and not g.tuned and g.competes]
    return max(known, key=lambda g: mean_of(g.scores(split, metric)) or 0.0, default=None)


def mean_of(values: Iterable[float | None]) -> float | None:
    """The mean of the known values; None if none is known.

    >>> mean_of([0.25, None, 0.75]), mean_of([])
    (0.5, None)
    """
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def deviation(values: Iterable[float | None]) -> float | None:
    """The standard deviation with n − 1; None for fewer than two known values.

    >>> deviation([1.0, None, 3.0]), deviation([1.0])
    (1.4142135623730951, None)
    """
    known = [value for value in values if value is not None]
    return stdev(known) if len(known) > 1 else None
