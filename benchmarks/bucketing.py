"""What batches of equally long rows do to F1.

    python benchmarks/corpora_data.py ../shared work
    PYTHONPATH=src python benchmarks/bucketing.py work [--only GRID …] [--seeds 8] [--jobs 15]

Trains grids of corpora.toml with cross entropy in these ways, with the same seeds:

- `random`: batches of random rows (`train.group_by_length = false`)
- `targets`: by length, and a step weighs as much as it has targets (the default)
- `equal`: by length, and each step weighs the same

Values may follow a grid's name, as in `conll03-tagger:encoder.name=bilstm,train.lr=0.001`. Prints
the mean difference to `random` on dev, with a 95% interval over seeds. Writes a line a run into
results/batches.csv; runs that are there are not run again. Lines of results/bucketing.csv come from
an early form of this script, which knew other sizes of pools.

Many processes on one GPU want NVIDIA's MPS (`nvidia-cuda-mps-control -d`).
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpora import HERE, is_there, make_recipe, read_csv, read_grids
from same_seed import split
from scipy import stats

from softf1.recipe import with_values
from softf1.training.run import train_run

OUT = HERE / "results" / "batches.csv"
WAYS: dict[str, dict[str, Any]] = {
    "random": {"train.group_by_length": False},
    "targets": {},
    "equal": {"train.step_weights": "equal"},
}
COLUMNS = (
    "grid", "way", "seed", "headline", "dev", "steps", "seconds", "device", "torch", "date",
)  # fmt: skip


def main() -> None:
    """Train what is missing, and print the differences."""
    options = parse()
    known = {(row["grid"], row["way"], row["seed"]) for row in read_csv(options.output)}
    jobs = [
        (grid, way, seed)
        for grid in options.only
        for seed in range(options.first, options.first + options.seeds)
        for way in options.ways
        if (grid, way, str(seed)) not in known
    ]
    new = not options.output.is_file()
    with (
        options.output.open("a", newline="", encoding="utf-8") as file,
        ProcessPoolExecutor(options.jobs, get_context("spawn"), start) as pool,
    ):
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        runs = [pool.submit(train, options.work, options.values, *job) for job in jobs]
        for run in as_completed(runs):
            writer.writerow(row := run.result())
            file.flush()
            print(*row.values(), flush=True)
    for line in describe(read_csv(options.output)):
        print(line)


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("work", type=Path, help="data and encoders, made by corpora_data.py")
    parser.add_argument("--only", nargs="+", default=["conll03-tagger"], metavar="GRID")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--values", nargs="*", default=[], help="of all recipes, for tries")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output", type=Path, default=OUT)
    options = parser.parse_args()
    grids = read_grids()
    for name in options.only:
        if (grid := split(name)[0]) not in grids:
            parser.error(f"wanted grids of {', '.join(grids)}, got {grid}")
        if not is_there(grids[grid], options.work):
            parser.error(f"{grid}: its files are not in {options.work}; see corpora_data.py")
    return options


def start() -> None:
    """One thread a process."""
    torch.set_num_threads(1)


def train(work: Path, values: list[str], name: str, way: str, seed: int) -> dict[str, Any]:
    """One run; its line."""
    grid, own = split(name)
    known = read_grids()[grid]
    recipe = make_recipe({**known, "seed": seed, "values": [*known["values"], *values]}, work)
    recipe = with_values(recipe, own | WAYS[way])
    with tempfile.TemporaryDirectory() as folder:
        result = train_run(recipe, Path(folder) / "run", quiet=True)
    found = {
        "grid": name,
        "way": way,
        "seed": seed,
        "headline": result["headline"],
        "dev": result["scores"]["dev"][result["headline"]],
        "steps": result["steps"],
        "seconds": result["seconds"]["train"],
        "device": result["device"],
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in found.items()}


def describe(rows: list[dict[str, Any]]) -> list[str]:
    """A line for each grid and way: the mean score, and the difference to random batches."""
    scores = {(row["grid"], row["way"], row["seed"]): 100 * float(row["dev"]) for row in rows}
    lines = []
    for grid, way in dict.fromkeys((grid, way) for grid, way, _ in scores):
        seeds = [seed for one, other, seed in scores if (one, other) == (grid, way)]
        own = np.array([scores[grid, way, seed] for seed in seeds])
        gaps = np.array(
            [
                scores[grid, way, seed] - scores[grid, "random", seed]
                for seed in seeds
                if (grid, "random", seed) in scores
            ]
        )
        text = f"{grid} {way}: {own.mean():.2f}, {len(own)} seeds"
        if way != "random" and len(gaps) > 1:
            half = stats.sem(gaps) * stats.t.ppf(0.975, len(gaps) - 1)
            text += f"; {gaps.mean():+.2f} ± {half:.2f} against random, {len(gaps)} seeds"
        lines.append(text)
    return lines


if __name__ == "__main__":
    main()
