"""Seconds from `softf1 train` to the first step of a short run, beside an older version.

    git worktree add ../before v0.1.0
    PYTHONPATH=src python benchmarks/startup.py --before ../before/src [--runs 7]

300 made-up sentences with the bilstm. The versions take turns, so that a loaded machine is fair to
both; each process says when its first step is done. Writes results/startup.csv: the median of wall
and CPU seconds of each version, and the share of the older one's.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
COLUMNS = ("version", "runs", "wall_seconds", "cpu_seconds", "wall_share", "cpu_share")
RECIPE = """
[task]
kind = "tagging"
train = "train.conll"
dev = "train.conll"
[encoder]
name = "bilstm"
[loss]
name = "ce"
"""
PROGRAM = """
import os, sys, time
from softf1.training.step import Stepper

step = Stepper.step

def first(self, batches):
    step(self, batches)
    print(time.time(), sum(os.times()[:2]), flush=True)
    os._exit(0)

Stepper.step = first
from softf1.cli.main import main
main(sys.argv[1:])
"""


def main() -> None:
    """Measure in turns and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="the src folder to compare with")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "startup.csv")
    options = parser.parse_args()
    sources = {"before": options.before.resolve(), "now": HERE.parent / "src"}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in sources}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "recipe.toml").write_text(RECIPE, "utf-8")
        (folder / "train.conll").write_text(make_sentences(300), "utf-8")
        for number in range(options.runs + 1):
            for one, source in sources.items():
                took = measure(source, folder, f"run-{one}-{number}")
                if number:  # the first of each fills the cache of the disk
                    seconds[one].append(took)
                    print(one, *(f"{value:.2f}" for value in took), flush=True)
    write(seconds, options.output)


def make_sentences(count: int) -> str:
    """Sentences of 4 to 20 made-up words, about one in twelve of them a name."""
    draw, lines = random.Random(0), []
    for _ in range(count):
        for _ in range(draw.randint(4, 20)):
            name = draw.random() < 1 / 12
            word = f"Name{draw.randint(1, 30)}" if name else f"word{draw.randint(1, 400)}"
            lines.append(f"{word}\t{'B-PER' if name else 'O'}")
        lines.append("")
    return "\n".join(lines) + "\n"


def measure(source: Path, folder: Path, run: str) -> tuple[float, float]:
    """Wall and CPU seconds from the start of the process to the end of its first step."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, "train", "recipe.toml", "--out", run, "--quiet"]
    start = datetime.now(UTC).timestamp()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    end, used = map(float, done.stdout.split())
    return end - start, used


def write(seconds: dict[str, list[tuple[float, float]]], path: Path) -> None:
    """The medians, with the machine's versions as a last line."""
    medians = {
        name: [median(values) for values in zip(*seconds[name], strict=True)] for name in seconds
    }
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([*COLUMNS, "torch", "transformers", "date"])
        versions = [version("torch"), version("transformers"), datetime.now(UTC).date().isoformat()]
        for name, own in medians.items():
            shares = [own[i] / medians["before"][i] for i in range(2)]
            figures = [f"{value:.2f}" for value in (*own, *shares)]
            table.writerow([name, len(seconds[name]), *figures, *versions])
            print(name, *figures)


if __name__ == "__main__":
    main()
