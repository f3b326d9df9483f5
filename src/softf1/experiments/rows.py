"""A grid of rows, each some values of the recipe, with every seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from softf1.experiments.cells import Cell, name_cell
from softf1.experiments.comparison import summarize, write_comparison
from softf1.experiments.grid import CELLS, Grid, lock
from softf1.experiments.meter import Meter
from softf1.recipe import with_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from softf1.experiments.cells import Execute
    from softf1.recipe import Recipe


def run_rows(
    recipe: Recipe,
    folder: Path,
    *,
    rows: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    execute: Execute,
    about: Mapping[str, Any],
    gain: float = 0.005,
    keep_models: bool = True,
    force: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run what is missing and write `comparison.json`; the first row is the baseline.

    Args:
        recipe: What is trained.
        folder: The grid folder.
        rows: Values of the recipe for each row.
        seeds: The seeds of every row.
        execute: Runs the cells.
        about: What `grid.json` says of the experiment: its `kind` and `axis`.
        gain: The gain that would matter, as a share.
        keep_models: Keep the model of each cell.
        force: Start afresh in a folder that holds another grid, or this one.
        quiet: Show no progress.
    """
    cells = [make_cell(label, own, recipe, seed) for label, own in rows.items() for seed in seeds]
    grid = Grid(folder, recipe, execute, keep_models=keep_models)
    with lock(folder, force=force):
        grid.open(**about, baseline=next(iter(rows)), losses=list(rows), seeds=list(seeds))
        with Meter(len(cells), len(cells), quiet=quiet) as meter:
            grid.run(cells, meter)
        found = summarize(folder, gain=gain)
        found["axis"] = {label: dict(own) for label, own in rows.items()}
        write_comparison(folder, found)
    return {**found, "failed": grid.errors}


def make_cell(label: str, values: Mapping[str, Any], recipe: Recipe, seed: int) -> Cell:
    """One run of a row."""
    name = name_cell(label, f"s{seed}")
    own = {**values, "train.seed": seed}
    loss = with_values(recipe, own).loss.name
    return Cell(id=name, label=label, loss=loss, seed=seed, values=own, folder=f"{CELLS}/{name}")
