"""`softf1 compare`: every loss tuned alike on dev, then the same seeds for all, judged on test."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from softf1.experiments.cells import Cell, name_cell
from softf1.experiments.comparison import summarize, write_comparison
from softf1.experiments.grid import CELLS, TRIALS, Grid, lock
from softf1.experiments.halving import count_cost, halve_together
from softf1.experiments.meter import Meter
from softf1.experiments.search import (
    BASELINE,
    KEEP,
    SHARES,
    TUNED,
    Level,
    Values,
    list_settings,
    same_start,
    shorten,
)
from softf1.experiments.trials import raise_equals, read_trial
from softf1.training.recipe import with_values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from softf1.experiments.cells import Execute
    from softf1.experiments.trials import Trial
    from softf1.training.recipe import Recipe

CHOICE = "first within a standard error of the best on dev"
"""How settings are chosen."""

TUNING_SEED = 9_999_999
"""Of the trials: no seed that a comparison is likely to use."""


def compare(
    recipe: Recipe,
    folder: Path,
    *,
    losses: Sequence[str],
    seeds: Sequence[int],
    execute: Execute,
    tune: Level = "small",
    gain: float = 0.005,
    keep_models: bool = True,
    force: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run what is missing of the grid and write `comparison.json`.

    Args:
        recipe: What is trained; its loss is replaced.
        folder: The grid folder.
        losses: What to compare with cross entropy: names, or `dsc[decay=paper]` with options that
            are fixed for this row; `ce+tuned` takes the runs of `ce`.
        seeds: The seeds of every loss.
        execute: Runs the cells.
        tune: How much is tuned on dev: nothing, 4 settings a loss for a third of the steps at most,
            or 9.
        gain: The gain that would matter, as a share.
        keep_models: Keep the model of each cell.
        force: Start afresh in a folder that holds another grid, or this one.
        quiet: Show no progress.

    Returns:
        The content of `comparison.json`, and `failed`: errors by cell.
    """
    trained = tuple(dict.fromkeys(loss.removesuffix(TUNED) for loss in losses))
    settings = {loss: list_settings(loss, recipe, tune) for loss in trained}
    grid = Grid(folder, recipe, execute, keep_models=keep_models)
    with lock(folder, force=force):
        grid.open(kind="compare", axis=["loss"], baseline=BASELINE, losses=list(losses))
        grid.content |= {"seeds": list(seeds), "tune": tune, "choice": CHOICE}
        with Meter(*_size(settings, seeds, tune), quiet=quiet) as meter:
            chosen = choose_settings(grid, settings, tune, meter)
            cells = [
                cell
                for loss, values in chosen.items()
                for cell in make_cells(loss, values, recipe, seeds, tuned=loss + TUNED in losses)
            ]
            grid.run(cells, meter)
        found = summarize(folder, gain=gain)
        write_comparison(folder, found)
    return {**found, "failed": grid.errors}


def _size(
    settings: dict[str, list[Values]], seeds: Sequence[int], tune: Level
) -> tuple[float, int]:
    """Cost and number of all runs."""
    cost, cells = 0.0, 0
    for own in settings.values():
        left = len(own)
        cost += count_cost(left, SHARES[tune], keep=KEEP[tune]) + len(seeds)
        cells += len(seeds)
        for _ in SHARES[tune]:
            cells += left if left > 1 else 0
            left = -(-left // KEEP[tune])
    return cost, cells


def choose_settings(
    grid: Grid, settings: dict[str, list[Values]], tune: Level, meter: Meter
) -> dict[str, Values]:
    """The best setting of every row on dev; all rows are tried side by side."""

    def measure(trials: list[tuple[str, int, float]]) -> list[float | None]:
        cells = [make_trial(loss, n, settings[loss][n], share, grid) for loss, n, share in trials]
        results = grid.run(cells, meter, trials=True)
        found = [read_trial(grid.folder / cell.folder, results.get(cell.id)) for cell in cells]
        grid.content["tuning"] += [
            _describe_trial(cell, trial, results.get(cell.id), grid)
            for cell, trial in zip(cells, found, strict=True)
        ]
        if trials[0][-1] != SHARES[tune][-1]:  # who is as good as the best is asked at the end
            return [trial.score for trial in found]
        rows = groupby(zip(trials, found, strict=True), key=lambda one: one[0][0])
        return [score for _, own in rows for score in raise_equals([trial for _, trial in own])]

    numbers = {loss: range(len(own)) for loss, own in settings.items()}
    chosen = halve_together(numbers, SHARES[tune], measure, keep=KEEP[tune])
    return {loss: settings[loss][number] for loss, number in chosen.items()}


def make_trial(row: str, number: int, values: Values, share: float, grid: Grid) -> Cell:
    """A short run of one setting."""
    name = name_cell(row, f"{number}-{round(100 * share)}")
    short = shorten(with_values(grid.recipe, values), share)
    return Cell(
        id=name,
        label=row,
        loss=values["loss.name"],
        seed=TUNING_SEED,
        values={
            **values,
            **same_start(row, grid.recipe),
            **short,
            "task.test": None,
            "train.seed": TUNING_SEED,
            "eval.tune": False,
        },
        folder=f"{TRIALS}/{name}",
        cost=share,
    )


def _describe_trial(
    cell: Cell, trial: Trial, result: dict[str, Any] | None, grid: Grid
) -> dict[str, Any]:
    shown: dict[str, Any] = {"loss": cell.label, "values": cell.values, "score": trial.score}
    shown |= {"steps": result and result["steps"], "share": cell.cost, "folder": cell.folder}
    shown["counted"] = trial.pseudo is not None
    error = grid.errors.get(cell.id)
    return shown | ({"error": error} if error else {})


def make_cells(
    row: str, values: Values, recipe: Recipe, seeds: Sequence[int], *, tuned: bool
) -> list[Cell]:
    """The whole runs of a row, one a seed."""
    common = {**values, **same_start(row, recipe), "eval.tune": tuned}
    names = {seed: name_cell(row, f"s{seed}") for seed in seeds}
    return [
        Cell(
            id=name,
            label=row,
            loss=values["loss.name"],
            seed=seed,
            values={**common, "train.seed": seed},
            folder=f"{CELLS}/{name}",
        )
        for seed, name in names.items()
    ]
