"""A grid folder: the runs of one recipe, each with some values changed.

A run is done when its folder has a `result.json` that names the same recipe, files and versions;
that file is written last. No other state is needed: after any interruption the same command
continues. Data files are hashed once, when a command starts: a run that read changed files counts
as failed, so that no mean mixes runs of different data.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from softf1.errors import InputError
from softf1.files import (
    NO_LINKS,
    check_folder,
    finite,
    is_unfinished,
    lock_file,
    make_folder,
    read_json,
    remove_folder,
    write_json,
)
from softf1.recipe import Recipe, describe_recipe, with_values
from softf1.tasks.registry import FILE as TASK_FILE
from softf1.training.progress import format_seconds
from softf1.training.run_folder import (
    WAYS,
    finished_on,
    hash_encoder_files,
    hash_path,
    identify,
    list_changes,
    say_changes,
)

if TYPE_CHECKING:
    from softf1.experiments.meter import Meter

LONGEST = 200
"""The most bytes that a variant takes in the name of a run; file systems allow 255 for a name."""

TRAIN = "softf1.training.run:CachingTrainer"
"""The function that a worker calls for a run."""

RUNS, TRIALS = "cells", "tuning"
"""Folders of the runs that count, and of the trials that chose settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run of a grid.

    Attributes:
        id: Its name, also the name of its folder.
        label: Its variant, a row of the table: a loss, or values of a sweep.
        loss: Its loss.
        seed: Its seed; None if nothing is random.
        values: Changes to the recipe, by key.
        trial: Whether it only helps to choose settings.
        cost: Its length, in units of a full run.
    """

    id: str
    label: str
    loss: str
    seed: int | None
    values: dict[str, Any] = field(default_factory=dict)
    trial: bool = False
    cost: float = 1.0

    @property
    def folder(self) -> str:
        """The run folder, relative to the grid's."""
        return f"{TRIALS if self.trial else RUNS}/{self.id}"


class Job(NamedTuple):
    """A job for a worker; all fields can be written as JSON."""

    id: str
    recipe: dict[str, Any]
    folder: str


class Done(NamedTuple):
    """A finished job: a result, or the error message; `refused` if its input was wrong."""

    id: str
    result: dict[str, Any] | None
    error: str | None = None
    seconds: float = 0.0
    refused: bool = False


Execute = Callable[[Sequence[Job]], Iterator[Done]]
"""Runs jobs, in any order and in parallel; yields each one once when it is done."""


def name_run(variant: str, rest: str) -> str:
    """Makes a name for a run that is valid on every file system.

    A long variant is cut short and ends in a hash of the whole.

    >>> name_run("dsc[decay=paper]", "s0")
    'dsc_decay=paper_-s0'
    """
    safe = "".join(c if c.isalnum() or c in "=.+-" else "_" for c in variant)
    if len(safe.encode()) > LONGEST:
        digest = hashlib.blake2b(variant.encode(), digest_size=6).hexdigest()
        safe = f"{safe.encode()[: LONGEST - 13].decode(errors='ignore')}-{digest}"
    return f"{safe}-{rest}"


def make_run(
    variant: str,
    values: Mapping[str, Any],
    seed: int,
    *,
    loss: str,
    tail: str = "",
    cost: float = 1.0,
) -> RunSpec:
    """Makes a full run of a variant; `tail` becomes part of its name.

    >>> make_run("dice", {"loss.name": "dice"}, 3, loss="dice").folder
    'cells/dice-s3'
    """
    name = name_run(variant, f"{tail}s{seed}")
    return RunSpec(
        id=name,
        label=variant,
        loss=loss,
        seed=seed,
        values={**values, "train.seed": seed},
        cost=cost,
    )


def drop_weights(folder: Path) -> None:
    """Removes a run's weights but keeps its task, which per-example counts need."""
    model = folder / "model"
    for path in model.iterdir() if model.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != TASK_FILE:
            path.unlink()


SCHEMA = 1
FILE, LOCK = "grid.json", ".lock"
MARK = b"softf1\n"
"""The content of the lock file, which marks a folder as ours."""


class Grid:
    """The folder of an experiment over one recipe.

    Args:
        folder: The folder of the grid.
        recipe: The recipe that all runs change.
        execute: Runs jobs.
        keep_models: Keep the models of the runs; those of trials are never kept.
    """

    def __init__(
        self, folder: Path, recipe: Recipe, execute: Execute, *, keep_models: bool = True
    ) -> None:
        self.folder, self.recipe, self.execute = folder, recipe, execute
        self.keep_models = keep_models
        self.content: dict[str, Any] = {}
        self.hash_data = cache(hash_path)
        self.hash_encoder = cache(hash_encoder_files)
        self.earlier: dict[str, Any] = {}
        self.runs: dict[str, RunSpec] = {}
        self.results: dict[str, dict[str, Any]] = {}
        self.errors: dict[str, str] = {}

    def open(self, **content: Any) -> None:
        """Starts the experiment of `grid.json`, or continues it."""
        path, identity = self.folder / FILE, self.identify()
        if path.is_file():
            earlier = self.earlier = read_json(path)
            for key, value in {"schema": SCHEMA, "kind": content["kind"]}.items():
                if earlier.get(key) != value:
                    raise InputError(f"holds a grid of another {key}: {WAYS}", path=path)
            changes = list_changes(earlier, identity)
            if changes:
                raise InputError(f"holds a grid, but {say_changes(changes)}", path=path)
        self.content = {"schema": SCHEMA, **identity, **content, "headline": None, "tuning": []}

    def identify(self, run: RunSpec | None = None) -> dict[str, Any]:
        """Returns everything that decides the results of all runs, or of one."""
        recipe = with_values(self.recipe, run.values) if run else self.recipe
        return identify(recipe, hash_data=self.hash_data, hash_encoder=self.hash_encoder)

    def write(self) -> None:
        """Writes `grid.json`, completely or not at all."""
        runs = [self._describe(run) for run in self.runs.values() if not run.trial]
        metric = min((result["headline"] for result in self.results.values()), default=None)
        self.content |= {"cells": runs, "headline": metric}
        write_json(self.folder / FILE, finite(self.content))

    def _describe(self, run: RunSpec) -> dict[str, Any]:
        keys = ("id", "loss", "label", "seed", "values", "folder")
        shown = {key: getattr(run, key) for key in keys}
        if run.id in self.results:
            return shown | {"state": "done"}
        if run.id in self.errors:
            return shown | {"state": "failed", "error": self.errors[run.id]}
        return shown | {"state": "missing"}

    def read_done(self, run: RunSpec) -> dict[str, Any] | None:
        """Reads the result of a finished run; raises if its recipe or files differ."""
        path = self.folder / run.folder / "result.json"
        if not path.is_file():
            return None
        result = read_json(path)
        if changes := list_changes(result, self.identify(run)):
            # The recipe of the grid is the same, so it is the command or our code that changed.
            who = "an earlier command or another version of softf1 trained this run otherwise"
            raise InputError(f"{who}: {say_changes(changes)}", path=path.parent)
        return result

    def run(self, runs: Sequence[RunSpec], meter: Meter) -> dict[str, dict[str, Any]]:
        """Runs what is not done yet; returns the results by run id.

        A failed run is in `errors` and has no result.

        Raises:
            InputError: The input of the first run was wrong, and no other has a result.
        """
        self.runs |= {run.id: run for run in runs}
        jobs = []
        for run in runs:
            result = self.read_done(run)
            if result is None:
                recipe = describe_recipe(with_values(self.recipe, run.values))
                jobs.append(Job(run.id, recipe, str(self.folder / run.folder)))
            else:
                self.results[run.id] = result
                meter.skip(run.cost)
        self.write()
        if runs and not jobs and not runs[0].trial:
            last = max(finished_on(self.folder / c.folder, self.results[c.id]) for c in runs)
            meter.say(f"all {len(runs)} runs were finished before, the last on {last}")
        for done in self.execute(jobs) if jobs else ():
            self._take(self.runs[done.id], done, meter)
            self.write()
        return {run.id: self.results[run.id] for run in runs if run.id in self.results}

    def _take(self, run: RunSpec, done: Done, meter: Meter) -> None:
        first = next(iter(self.runs))  # not the first to arrive, which may be any run of a pool
        if done.refused and run.id == first and not self.results:
            raise InputError(f"{done.error} (row {run.label})")
        took = format_seconds(done.seconds)
        changes = list_changes(done.result, self.identify(run)) if done.result else []
        if done.result is None or changes:
            why = f"{changes[0]} since this command began" if changes else done.error
            self.errors[run.id] = why or "no result"
            meter.advance(run.cost, f"{run.id} failed after {took}: {self.errors[run.id]}")
            return
        self.results[run.id] = done.result
        if run.trial or not self.keep_models:
            drop_weights(self.folder / run.folder)
        split = "dev" if run.trial else split_of(done.result)
        metric = done.result["headline"]
        score = done.result["scores"][split][metric]
        meter.advance(run.cost, f"{run.id} {split} {metric} {100 * score:.2f} ({took})")


def split_of(result: dict[str, Any]) -> str:
    """The split that a run is judged by: test, or dev if there is no test."""
    return "test" if "test" in result["scores"] else "dev"


@contextmanager
def lock_grid(folder: Path, *, force: bool = False) -> Iterator[None]:
    """Locks the folder against a second command; a killed process releases its lock.

    Args:
        folder: The folder of a grid, or of several.
        force: Remove what an earlier command left in it.

    Raises:
        InputError: Another command is using the folder, or it has files that are not ours.
    """
    refuse_others(folder)
    make_folder(folder)
    number = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | NO_LINKS, 0o666)
    try:
        if lock_file(number) is False:
            raise InputError("another softf1 process is using this folder", path=folder)
        refuse_others(folder)  # check again: another command may have changed it
        os.pwrite(number, MARK, 0)
        if force:
            _empty(folder)
        yield
    finally:
        os.close(number)


def refuse_others(folder: Path) -> None:
    """Raises if the folder has files and was not made by softf1."""
    check_folder(folder)
    mark, grid = folder / LOCK, folder / FILE
    if mark.is_file() and mark.read_bytes() == MARK:
        return
    if grid.is_file() and {"schema", "hash", "cells"} <= read_json(grid).keys():
        return
    for path in folder.iterdir() if folder.is_dir() else ():
        empty = path.name == LOCK and not path.stat().st_size  # killed before it wrote the mark
        if not empty and not is_unfinished(path):
            raise InputError(
                f"wanted an empty folder or a grid of softf1, found {path.name}; use another --out",
                path=folder,
            )


def _empty(folder: Path) -> None:
    """Removes the files of an earlier command, `grid.json` first; other files stay."""
    for name in (FILE, "comparison.json", "comparison.csv"):
        (folder / name).unlink(missing_ok=True)
    for name in (RUNS, TRIALS):
        remove_folder(folder / name)
