"""What a sceptic asks first: would cross entropy have got there with as much computing?

Where a row of a comparison trains longer than cross entropy, cross entropy is trained once more,
with its epochs multiplied so that it takes as long as the dearest row. Which of the two the others
have to beat is chosen on dev. (The other control, noise in place of an adversarial step, is a row
like any other: `search.add_noise`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from softf1.experiments.cells import Cell, name_cell
from softf1.experiments.grid import CELLS
from softf1.experiments.search import BASELINE, same_start, stretch
from softf1.recipe import with_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from softf1.experiments.grid import Grid
    from softf1.experiments.search import Values

MATCHED = "ce, matched compute"
DEAR = 1.5
"""A row that takes so many times the seconds of cross entropy calls for the control."""

ALIKE = 0.1
"""A ratio of seconds that moved by less is the one that was measured before."""


def measure_ratio(grid: Grid, rows: Iterable[str]) -> tuple[str, float] | None:
    """The dearest row, and how many times the training seconds of cross entropy it takes.

    The fastest run of each row counts: the others may have shared the machine. None where cross
    entropy or the seconds are missing.
    """
    fastest = {row: _fastest(grid, row) for row in rows}
    known = {row: seconds for row, seconds in fastest.items() if seconds}
    if BASELINE not in known:
        return None
    dearest = max(known, key=lambda row: known[row])
    return dearest, known[dearest] / known[BASELINE]


def _fastest(grid: Grid, row: str) -> float | None:
    found = [
        grid.results[cell.id].get("seconds", {})
        for cell in grid.cells.values()
        if cell.label == row and cell.folder.startswith(f"{CELLS}/") and cell.id in grid.results
    ]
    spent = [own["train"] - own.get("warmup", 0.0) for own in found if "train" in own]
    return min(spent, default=None)


def match_compute(grid: Grid, rows: Iterable[str]) -> dict[str, Any] | None:
    """What `grid.json` says of the control: the dearest row and the ratio; None where none is due.

    A ratio that was measured before stands, unless the dearest row has clearly become another: its
    runs are there.
    """
    measured, earlier = measure_ratio(grid, rows), grid.content.get("matched")
    if measured is None or measured[1] < DEAR:
        return None
    row, ratio = measured
    if earlier and abs(ratio / earlier["ratio"] - 1) <= ALIKE:
        return dict(earlier)
    return {"row": row, "ratio": float(f"{ratio:.2g}")}


def make_matched(values: Values, ratio: float, grid: Grid, seeds: Sequence[int]) -> list[Cell]:
    """Runs of cross entropy with its epochs multiplied."""
    values = {**same_start(BASELINE, grid.recipe), **values, "eval.tune": False}
    values |= stretch(with_values(grid.recipe, values), ratio)
    # The epochs are part of the name: another ratio gives other runs, and refuses none.
    names = {seed: name_cell(MATCHED, f"e{values['train.epochs']:g}-s{seed}") for seed in seeds}
    return [
        Cell(
            id=name,
            label=MATCHED,
            loss=values["loss.name"],
            seed=seed,
            values={**values, "train.seed": seed},
            folder=f"{CELLS}/{name}",
            cost=ratio,
        )
        for seed, name in names.items()
    ]


def choose_baseline(grid: Grid, cells: Mapping[str, Sequence[Cell]]) -> str:
    """Cross entropy, or the one with matched compute where its mean on dev is higher.

    Args:
        grid: Has the results.
        cells: Their runs with the seeds that all rows have.
    """
    means = {}
    for row, own in cells.items():
        found = [grid.results[cell.id] for cell in own if cell.id in grid.results]
        scores = [one["scores"]["dev"][one["headline"]] for one in found]
        if scores:
            means[row] = sum(scores) / len(scores)
    return max(means, key=lambda row: (means[row], row == BASELINE), default=BASELINE)
