"""A grid folder: cells that are run once each, whatever happens in between.

A cell is done when its folder has a `result.json` with the hash of its recipe; that file is written
last. So nothing else needs to be remembered: after an interruption, of any kind, the same command
goes on where it was.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.experiments.cells import drop_weights, make_job, plain, read_done, read_json
from softf1.experiments.meter import format_seconds
from softf1.training.files import new_file
from softf1.training.recipe import describe_recipe, hash_recipe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from softf1.experiments.cells import Cell, Done, Execute
    from softf1.experiments.meter import Meter
    from softf1.training.recipe import Recipe

SCHEMA = 1
FILE = "grid.json"
CELLS, TRIALS = "cells", "tuning"
"""Folders of the runs that count, and of those that only chose settings."""


class Grid:
    """The folder of an experiment over one recipe.

    Args:
        folder: Where it is.
        recipe: What all cells have in common.
        execute: Runs jobs.
        keep_models: Keep the models of the cells; those of trials are never kept.
    """

    def __init__(
        self, folder: Path, recipe: Recipe, execute: Execute, *, keep_models: bool = True
    ) -> None:
        self.folder, self.recipe, self.execute = folder, recipe, execute
        self.keep_models = keep_models
        self.content: dict[str, Any] = {}
        self.cells: dict[str, Cell] = {}
        self.results: dict[str, dict[str, Any]] = {}
        self.errors: dict[str, str] = {}

    def open(self, **content: Any) -> None:
        """Begin, or go on with, the experiment that `grid.json` names."""
        path = self.folder / FILE
        known = {"schema": SCHEMA, "hash": hash_recipe(self.recipe)}
        if path.is_file():
            found = read_json(path)
            for key, value in {**known, "kind": content["kind"]}.items():
                if found.get(key) != value:
                    what = "recipe" if key == "hash" else key
                    raise InputError(
                        f"holds a grid of another {what}; give another --out", path=path
                    )
        recipe = describe_recipe(self.recipe)
        self.content = {**known, "recipe": recipe, **content, "headline": None, "tuning": []}

    def write(self) -> None:
        """Write `grid.json`, as a whole or not at all."""
        cells = [cell.describe(self._state(cell), self.errors.get(cell.id)) for cell in self._own()]
        headline = min((result["headline"] for result in self.results.values()), default=None)
        self.content |= {"cells": cells, "headline": headline}
        with new_file(self.folder / FILE) as file:
            text = json.dumps(plain(self.content), ensure_ascii=False, indent=1)
            file.write(text.encode() + b"\n")

    def run(
        self, cells: Sequence[Cell], meter: Meter, *, trials: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Run what is not done yet; give the results of the cells by their id.

        A cell that fails is noted in `errors` and has no result.
        """
        self.cells |= {cell.id: cell for cell in cells}
        jobs = []
        for cell in cells:
            found = read_done(cell, self.recipe, self.folder)
            if found is None:
                jobs.append(make_job(cell, self.recipe, self.folder))
            else:
                self.results[cell.id] = found
                meter.skip(cell.cost)
        self.write()
        for done in self.execute(jobs) if jobs else ():
            self._take(self.cells[done.id], done, meter, trials=trials)
            self.write()
        return {cell.id: self.results[cell.id] for cell in cells if cell.id in self.results}

    def _take(self, cell: Cell, done: Done, meter: Meter, *, trials: bool) -> None:
        took = format_seconds(done.seconds)
        if done.result is None:
            self.errors[cell.id] = done.error or "no result"
            meter.advance(cell.cost, f"{cell.id} failed after {took}: {self.errors[cell.id]}")
            return
        self.results[cell.id] = done.result
        if trials or not self.keep_models:
            drop_weights(self.folder / cell.folder)
        split = "dev" if trials else split_of(done.result)
        headline = done.result["headline"]
        score = done.result["scores"][split][headline]
        meter.advance(cell.cost, f"{cell.id} {split} {headline} {100 * score:.2f} ({took})")

    def _own(self) -> list[Cell]:
        """The cells that make up the grid; trials are listed elsewhere."""
        return [cell for cell in self.cells.values() if cell.folder.startswith(f"{CELLS}/")]

    def _state(self, cell: Cell) -> str:
        if cell.id in self.results:
            return "done"
        return "failed" if cell.id in self.errors else "missing"


def split_of(result: dict[str, Any]) -> str:
    """The part of the data by which a run is judged: test, or dev where there is no test."""
    return "test" if "test" in result["scores"] else "dev"


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keep a second command out of the folder; a killed one leaves no lock behind."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w", encoding="utf-8") as file:
        if not _take_lock(file):
            raise InputError("another softf1 is at work in this folder", path=folder)
        yield


def _take_lock(file: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:  # not on this system
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
