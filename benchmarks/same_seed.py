"""Whether a run with the same settings and seed comes out the same: two versions of one table.

    git show e09e73a:benchmarks/results/corpora.csv > old.csv
    python benchmarks/corpora_data.py ../shared work
    PYTHONPATH=src python benchmarks/same_seed.py old.csv work

For each grid of corpora.py: the whole runs that both tables have, how many of them have the same
score on test, by how many points the others differ, and the largest step: examples times the ids
of the longest row. Writes results/same-seed.csv.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from corpora import RUNS, make_recipe, read_csv, read_grids, write_csv

from softf1.training.datasets import load_datasets

RESULTS = Path(__file__).parent / "results" / "same-seed.csv"
COLUMNS = ("grid", "runs", "same", "mean_gap", "largest_gap", "batch_size", "longest_row", "ids")
EQUAL = 1e-5
"""The older table has five digits."""


def main() -> None:
    """Compare, count and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("work", type=Path, help="the folder of corpora_data.py")
    options = parser.parse_args()
    lines: list[dict[str, Any]] = []
    grids = {name: grid for name, grid in read_grids().items() if grid.get("kind") != "sweep"}
    for name, gaps in list_gaps(read_scores(options.old), read_scores(RUNS)).items():
        if "recipe" not in grids.get(name, {}):  # not run again, or data of several recipes
            continue
        line = {"grid": name, "runs": len(gaps), "same": sum(gap <= EQUAL for gap in gaps)}
        line |= {"mean_gap": f"{100 * fmean(gaps):.2f}", "largest_gap": f"{100 * max(gaps):.2f}"}
        lines.append(line | measure_step(grids[name], options.work))
        print(*lines[-1].values(), sep="\t", flush=True)
    write_csv(RESULTS, COLUMNS, lines)


def read_scores(path: Path) -> dict[tuple[str, ...], float]:
    """The test score of each whole run by grid, row, seed and settings."""
    rows = (row for row in read_csv(path) if row["kind"] == "run" and row["hash"][-1] != "+")
    return {
        (row["grid"], row["loss"], row["seed"], row["values"]): float(row["test"]) for row in rows
    }


def list_gaps(
    old: dict[tuple[str, ...], float], new: dict[tuple[str, ...], float]
) -> dict[str, list[float]]:
    """The differences by grid, of the runs that both have."""
    found = defaultdict(list)
    for key, score in new.items():
        if key in old:
            found[key[0]].append(abs(score - old[key]))
    return found


def measure_step(grid: dict[str, Any], work: Path) -> dict[str, int]:
    """The padded ids of the largest step of a grid."""
    recipe = make_recipe(grid, work)
    longest = int(load_datasets(recipe).features["train"]["length"].max())
    size = recipe.train.batch_size
    return {"batch_size": size, "longest_row": longest, "ids": size * longest}


if __name__ == "__main__":
    main()
