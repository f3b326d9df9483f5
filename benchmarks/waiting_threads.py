"""Seconds of 100 steps of a small model, by how long a waiting thread loops before it sleeps.

    PYTHONPATH=src python benchmarks/waiting_threads.py [--load 6] [--runs 3]

GNU's OpenMP, which torch uses on Linux, lets a thread that waits for the others loop 300,000 times
before it sleeps. On a busy machine that delays the thread it waits for. Trains the BiLSTM of
startup.py with several settings of OpenMP in turn, on the machine as it is and beside processes
that only compute. Writes results/waiting-threads.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import torch
from startup import RECIPE, make_sentences

from losses import machine

OUTPUT = Path(__file__).parent / "results" / "waiting-threads.csv"
COLUMNS = ("setting", "load", "runs", "seconds", "fastest", "slowest", "cores", "machine", "torch")
SETTINGS = {
    "two threads, as OpenMP does": {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "300000"},
    "two threads, GOMP_SPINCOUNT=1000": {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "1000"},
    "two threads, GOMP_SPINCOUNT=10000": {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "10000"},
    "two threads, OMP_WAIT_POLICY=PASSIVE": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}


def main() -> None:
    """Measure in turns, idle and busy, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--load", type=int, default=6, help="processes that compute beside it")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "recipe.toml").write_text(RECIPE, "utf-8")
        (folder / "train.conll").write_text(make_sentences(300), "utf-8")
        for load in (0, options.load):
            seconds: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
            with ExitStack() as stack:
                for _ in range(load):
                    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                    stack.callback(busy.wait)
                    stack.callback(busy.kill)
                for _ in range(options.runs):
                    for setting, environment in SETTINGS.items():
                        seconds[setting].append(measure(folder, environment, options.steps))
                        print(load, setting, f"{seconds[setting][-1]:.2f}", flush=True)
            lines += [make_line(setting, load, own) for setting, own in seconds.items()]
    with options.output.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, [*COLUMNS, "date"], lineterminator="\n")
        table.writeheader()
        table.writerows(lines)


def measure(folder: Path, environment: dict[str, str], steps: int) -> float:
    """The seconds of training in a process of its own."""
    usual = {key: value for key, value in os.environ.items() if not key.startswith(("OMP", "GOMP"))}
    command = [sys.executable, "-m", "softf1", "train", "recipe.toml", "--out", "run", "--force"]
    subprocess.run(
        [*command, "--quiet", f"train.max_steps={steps}", "train.epochs=1000", "train.lr=0.001"],
        cwd=folder,
        env=usual | environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    result = json.loads((folder / "run" / "result.json").read_text("utf-8"))
    return float(result["seconds"]["train"])


def make_line(setting: str, load: int, seconds: list[float]) -> dict[str, object]:
    """A line of the table."""
    figures = {"seconds": median(seconds), "fastest": min(seconds), "slowest": max(seconds)}
    return {
        "setting": setting,
        "load": load,
        "runs": len(seconds),
        **{name: f"{value:.2f}" for name, value in figures.items()},
        "cores": os.cpu_count(),
        "machine": machine("cpu"),
        "torch": torch.__version__,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


if __name__ == "__main__":
    main()
