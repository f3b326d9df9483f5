"""A model from scratch: its output bias, the length of an adversarial step, and a CRF.

    PYTHONPATH=src python benchmarks/scratch.py run runs/scratch [--seeds 8] [--jobs 1]
    PYTHONPATH=src python benchmarks/scratch.py table     # into the documentation

The data and the model of `softf1 demo`: HKCanCor, a small BiLSTM. Every comparison has the
intervals of `softf1 compare` (seeds and test examples); nothing is tuned. Finished runs stay in the
folder and are not run again; 128 runs take an hour of one core. `run` writes results/scratch.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from corpora import read_csv
from corpora_table import DOCS, fill, points

from losses import machine
from softf1.experiments.demo import OF_THE_SET, demo_recipe
from softf1.experiments.sweep import run_variants
from softf1.experiments.workers import Pool

RESULTS = Path(__file__).parent / "results" / "scratch.csv"
DEMO: dict[str, Any] = {}
"""As the demo trains: cross entropy, 4 epochs of batches of 64, a learning rate of 1e-2."""
LONGER = {"train.epochs": 6.0, "train.batch_size": 32}
SLOWER = {"train.epochs": 5.0, "train.batch_size": 32, "train.lr": 1e-3}
DICE = {"loss.name": "dice", **OF_THE_SET}
BIASES = {bias: {"train.head_bias": bias} for bias in ("zero", "prior")}
STEP = "adversarial step"
STEPS: dict[str, dict[str, Any]] = {
    "ce": {},
    "adversarial 0.5": {"train.adversarial": 0.5},
    "adversarial 5": {"train.adversarial": 5.0},
    "adversarial_relative 0.5": {"train.adversarial_relative": 0.5},
    "noise, relative 0.5": {
        "train.adversarial_relative": 0.5,
        "train.adversarial_direction": "random",
    },
}
DECODER = "decoder"
DECODERS: dict[str, dict[str, Any]] = {
    "ce": {},
    "crf": {"task.decoder": "crf"},
    "crf-marginals": {"task.decoder": "crf-marginals"},
}
COMPARISONS: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {
    "ce, demo": (DEMO, BIASES),
    "ce, 6 epochs, batches of 32": (LONGER, BIASES),
    "ce, lr 1e-3, 5 epochs, batches of 32": (SLOWER, BIASES),
    "dice, demo": (DICE, BIASES),
    STEP: (DEMO, STEPS),
    DECODER: (DEMO, DECODERS),
}
"""What each comparison changes in the demo's recipe, and its rows, the baseline first."""
TITLES = {
    "ce, demo": "`ce`, 4 epochs of batches of 64, rate 1e-2 (`make demo`)",
    "ce, 6 epochs, batches of 32": "`ce`, 6 epochs of batches of 32, rate 1e-2",
    "ce, lr 1e-3, 5 epochs, batches of 32": "`ce`, 5 epochs of batches of 32, rate 1e-3",
    "dice, demo": "`dice` over the batch, squared, without O, otherwise as `make demo`",
}
STEP_TITLES = {
    "ce": "`ce`",
    "adversarial 0.5": "`adversarial = 0.5`",
    "adversarial 5": "`adversarial = 5`",
    "adversarial_relative 0.5": "`adversarial_relative = 0.5`",
    "noise, relative 0.5": "the same in a random direction",
}
NUMBERS = ("mean", "sd", "difference", "low", "high", "p", "precision", "recall")


def train(folder: Path, *, seeds: int, jobs: int) -> list[dict[str, Any]]:
    """Trains what is missing of every comparison; returns the lines of the file."""
    lines = []
    with closing(Pool(jobs, logs=folder / "logs")) as pool:
        for name, (values, rows) in COMPARISONS.items():
            own = folder / name.replace(" ", "-").replace(",", "")
            comparison = run_variants(
                demo_recipe(folder),
                own,
                variants={row: {**values, **more} for row, more in rows.items()},
                seeds=range(seeds),
                execute=pool,
                about={"kind": "compare", "axis": ["row"], "tune": "none"},
                keep_models=False,
                quiet=True,
            )
            if comparison["failed"]:
                raise SystemExit(f"{name}: {comparison['failed']}")
            lines += (found := describe(name, own))
            print(*found, sep="\n", flush=True)
    return lines


def describe(name: str, folder: Path) -> list[dict[str, Any]]:
    """The lines of a comparison: F1 of each row, and its gain over the first."""
    about = {
        "machine": f"{machine('cpu')}, CPU",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    rows = json.loads((folder / "comparison.json").read_text("utf-8"))["rows"]
    return [
        {"comparison": name, "row": row["loss"], "seeds": row["n"]}
        | {"at_zero": sum(score == 0 for score in row["scores"].values())}
        | {key: "" if row[key] is None else f"{row[key]:.5f}" for key in NUMBERS}
        | about
        for row in rows
    ]


def run(options: argparse.Namespace) -> None:
    """Train, and write the file."""
    lines = train(options.folder, seeds=options.seeds, jobs=options.jobs)
    with options.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def read_rows(name: str, path: Path = RESULTS) -> dict[str, dict[str, str]]:
    """The lines of a comparison by row."""
    return {line["row"]: line for line in read_csv(path) if line["comparison"] == name}


def make_biases(path: Path = RESULTS) -> str:
    """F1 from a zero bias and from the prior, and the gain with its interval."""
    lines = ["| loss, training | zero bias | class prior | gain, 95% |", "|---|---:|---:|---|"]
    for name, title in TITLES.items():
        rows = read_rows(name, path)
        means = [show_mean(rows[bias]) for bias in BIASES]
        lines.append(f"| {title} | {' | '.join(means)} | {show_gain(rows['prior'])} |")
    return "\n".join(lines)


def make_steps(path: Path = RESULTS) -> str:
    """F1 with adversarial steps of several lengths, and the gain over none."""
    lines = ["| training | F1 | gain, 95% |", "|---|---:|---|"]
    for name, row in read_rows(STEP, path).items():
        gain = show_gain(row) if row["difference"] else ""
        lines.append(f"| {STEP_TITLES[name]} | {show_mean(row)} | {gain} |")
    return "\n".join(lines)


def show_mean(row: dict[str, str]) -> str:
    """The mean F1, and how many runs found nothing."""
    lost = f" ({row['at_zero']} of {row['seeds']} runs at 0)" if int(row["at_zero"]) else ""
    return f"{100 * float(row['mean']):.1f}{lost}"


def show_gain(row: dict[str, str]) -> str:
    """The gain over the first row with its interval, bold where that does not include 0."""
    gain, low, high = (100 * float(row[key]) for key in ("difference", "low", "high"))
    sure = f"**{points(gain)}**" if low > 0 or high < 0 else points(gain)
    return f"{sure} [{low:.1f}, {high:.1f}]".replace("-", "−")


TABLES = {
    "weights.md": ("head bias", make_biases),
    "howto/beat-cross-entropy.md": ("steps", make_steps),
}
"""The table of each page, with its mark."""


def write_tables(_: argparse.Namespace) -> None:
    """Put the tables into their pages."""
    for page, (mark, make) in TABLES.items():
        fill(DOCS / page, mark, make())


def main() -> None:
    """Run, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("run")
    verb.set_defaults(function=run)
    verb.add_argument("folder", type=Path)
    verb.add_argument("--seeds", type=int, default=8)
    verb.add_argument("--jobs", type=int, default=1)
    verb.add_argument("--out", type=Path, default=RESULTS)
    verbs.add_parser("table").set_defaults(function=write_tables)
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    main()
