"""Reads the files of runs, and the comparison of a grid, for a report."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


SCHEMA = 1


def read_object(path: Path) -> dict[str, Any]:
    """Reads a JSON object of a known schema version."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"wanted JSON, got: {error}", path=path) from None
    if not isinstance(value, dict):
        raise InputError(f"wanted an object, got {type(value).__name__}", path=path)
    if value.get("schema") != SCHEMA:
        raise InputError(f'wanted "schema": {SCHEMA}, got {value.get("schema")!r}', path=path)
    return value


def read_lines(path: Path, *, unfinished: bool = False) -> Iterator[dict[str, Any]]:
    """Reads a file with one JSON object per line; nothing if there is no file.

    Args:
        path: The file.
        unfinished: Whether the last line may be incomplete, as in the log of a killed run.
    """
    if not path.is_file():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                if unfinished and not line.endswith(b"\n"):
                    return
                raise InputError(f"wanted JSON, got: {error}", path=path, line=number) from None
            if not isinstance(value, dict):
                got = type(value).__name__
                raise InputError(f"wanted an object, got {got}", path=path, line=number)
            yield value


def need(value: Mapping[str, Any], key: str, kind: type, path: Path) -> Any:
    """The value under a key, which must be there and of that kind."""
    content = value.get(key)
    if not isinstance(content, kind) or isinstance(content, bool):
        got = "nothing" if content is None else type(content).__name__
        raise InputError(f'wanted "{key}" of type {kind.__name__}, got {got}', path=path)
    return content


def number(value: Any) -> float | None:
    """A finite number, or None for anything else.

    >>> number(1), number("1"), number(float("nan"))
    (1.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def section(value: Any, *keys: str) -> dict[str, Any]:
    """The nested object under these keys; empty if there is none.

    >>> section({"scores": {"dev": {"f1": 0.5}}}, "scores", "dev")
    {'f1': 0.5}
    >>> section({"scores": None}, "scores", "test")
    {}
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items_of(value: Any) -> list[Any]:
    """The items of a list; empty for anything else.

    >>> items_of([1, 2]), items_of(5)
    ([1, 2], [])
    """
    return value if isinstance(value, list) else []


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted keys.

    >>> flatten({"train": {"lr": 0.1, "betas": [0.9, 0.99]}})
    {'train.lr': 0.1, 'train.betas': [0.9, 0.99]}
    """
    out: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            out |= flatten(item, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = item
    return out


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
        run = _read_cell(folder, cell, path)
        if run is None:
            unfinished.append((str(cell.get("id")), str(cell.get("state", "missing"))))
        else:
            runs.append(run)
    if not runs:
        raise InputError("wanted at least one finished run, got none", path=path)
    file = folder / "comparison.json"
    comparison = _check_comparison(read_object(file), file) if file.is_file() else {}
    metric = comparison.get("headline") or grid.get("headline") or runs[0].result.get("headline")
    baseline = str(grid.get("baseline") or BASELINE)
    labels = [run.label for run in runs]
    return Study(
        kind=str(grid.get("kind", "compare")),
        runs=(*runs, *_tuned(runs, only=_rows_of(grid, comparison))),
        unfinished=tuple(unfinished),
        baseline=baseline if baseline in labels else labels[0],
        metric=str(metric),
        split=str(comparison.get("split") or _common_split(runs)),
        axis=tuple(map(str, items_of(grid.get("axis")))),
        comparison=comparison,
        grid=grid,
    )


def _check_comparison(comparison: dict[str, Any], path: Path) -> dict[str, Any]:
    """The comparison, after checking that its rows and labels are lists of objects."""
    for key in ("rows", "labels"):
        for one in items_of(comparison.get(key)):
            if not isinstance(one, dict):
                got = type(one).__name__
                raise InputError(f'wanted objects in "{key}", got {got}', path=path)
    return comparison


def _read_cell(folder: Path, cell: dict[str, Any], path: Path) -> Run | None:
    """Reads one run of a grid (a cell of grid.json); None if it is not finished."""
    place = folder / need(cell, "folder", str, path)
    if not place.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"wanted cells inside the grid, got {cell['folder']!r}", path=path)
    if not (place / "result.json").is_file():
        return None
    result = _read_result(place / "result.json")
    return Run(
        id=str(cell.get("id") or place.name),
        label=str(cell.get("label") or cell.get("loss") or result.get("loss")),
        seed=int(number(cell.get("seed")) or 0),
        folder=place,
        result=result,
        values=section(cell, "values"),
        reference="seed" in cell and cell["seed"] is None,
    )


def _rows_of(grid: dict[str, Any], comparison: dict[str, Any]) -> set[str]:
    """The rows of a grid: those requested, and those in its comparison."""
    rows = {str(row.get("loss")) for row in items_of(comparison.get("rows"))}
    return rows | {str(loss) for loss in items_of(grid.get("losses"))}


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


def _read_runs(paths: Iterable[Path]) -> Study:
    runs = name_runs([_read_run(path) for path in dict.fromkeys(paths)])
    labels = [run.label for run in runs]
    return Study(
        kind="runs",
        runs=(*runs, *_tuned(runs)),
        baseline=BASELINE if BASELINE in labels else labels[0],
        metric=str(runs[0].result.get("headline") or "f1"),
        split=_common_split(runs),
    )


def _read_run(folder: Path) -> Run:
    path = folder / "result.json"
    if not path.is_file():
        raise InputError("wanted a finished run with a result.json, got none", path=folder)
    result = _read_result(path)
    return Run(
        id=folder.resolve().name,
        label=str(result.get("loss") or "?"),
        seed=int(number(result.get("seed")) or 0),
        folder=folder,
        result=result,
    )


def _read_result(path: Path) -> dict[str, Any]:
    result = read_object(path)
    need(result, "scores", dict, path)
    return result


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
        tail = ", ".join(f"{key.rpartition('.')[2]}={own[key]}" for key in told)
        out.append(replace(run, label=f"{run.label} {tail}".rstrip()))
    names = Counter(run.id for run in out)
    return [
        replace(run, id=f"{run.folder.resolve().parent.name}/{run.id}")
        if names[run.id] > 1
        else run
        for run in out
    ]


def _differs(key: str, settings: Iterable[dict[str, Any]]) -> bool:
    return len({json.dumps(own.get(key), sort_keys=True, default=str) for own in settings}) > 1


def _common_split(runs: Sequence[Run]) -> str:
    """Test if every run has test scores, else dev."""
    tested = all(section(run.result, "scores", "test") for run in runs)
    return "test" if tested else "dev"
