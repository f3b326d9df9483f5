"""The output bias at the class prior against a zero bias, on names in spoken Cantonese.

    PYTHONPATH=src python benchmarks/head_bias.py run runs/head-bias [--seeds 8] [--jobs 1]
    PYTHONPATH=src python benchmarks/head_bias.py table     # into docs/weights.md

The data and the model of `softf1 demo`: HKCanCor, a small BiLSTM from scratch. Every setting is a
comparison of its own, with the intervals of `softf1 compare` (seeds and test examples). Finished
runs stay in the folder and are not run again; 64 runs take half an hour of one core. `run` writes
results/head-bias.csv.
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

RESULTS = Path(__file__).parent / "results" / "head-bias.csv"
SETTINGS: dict[str, dict[str, Any]] = {
    "ce, demo": {},
    "ce, 6 epochs, batches of 32": {"train.epochs": 6.0, "train.batch_size": 32},
    "ce, lr 1e-3, 5 epochs, batches of 32": {
        "train.lr": 1e-3,
        "train.epochs": 5.0,
        "train.batch_size": 32,
    },
    "dice, demo": {"loss.name": "dice", **OF_THE_SET},
}
"""What each comparison changes in the demo's recipe: cross entropy, 4 epochs of batches of 64, a
learning rate of 1e-2."""
TITLES = {
    "ce, demo": "`ce`, 4 epochs of batches of 64, rate 1e-2 (`make demo`)",
    "ce, 6 epochs, batches of 32": "`ce`, 6 epochs of batches of 32, rate 1e-2",
    "ce, lr 1e-3, 5 epochs, batches of 32": "`ce`, 5 epochs of batches of 32, rate 1e-3",
    "dice, demo": "`dice` over the batch, squared, without O, otherwise as `make demo`",
}
NUMBERS = ("mean", "sd", "difference", "low", "high", "p", "precision", "recall")


def train(folder: Path, *, seeds: int, jobs: int) -> list[dict[str, Any]]:
    """Trains what is missing of every setting; returns the lines of the file."""
    lines = []
    with closing(Pool(jobs, logs=folder / "logs")) as pool:
        for setting, values in SETTINGS.items():
            own = folder / setting.replace(" ", "-").replace(",", "")
            comparison = run_variants(
                demo_recipe(folder),
                own,
                variants={bias: {**values, "train.head_bias": bias} for bias in ("zero", "prior")},
                seeds=range(seeds),
                execute=pool,
                about={"kind": "compare", "axis": ["bias"], "tune": "none"},
                keep_models=False,
                quiet=True,
            )
            if comparison["failed"]:
                raise SystemExit(f"{setting}: {comparison['failed']}")
            lines += list(describe(setting, own))
            print(*lines[-2:], sep="\n", flush=True)
    return lines


def describe(setting: str, folder: Path) -> list[dict[str, Any]]:
    """The lines of a setting: where the bias starts, F1, and the gain over a zero bias."""
    about = {
        "machine": f"{machine('cpu')}, CPU",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    rows = json.loads((folder / "comparison.json").read_text("utf-8"))["rows"]
    return [
        {"setting": setting, "bias": row["loss"], "seeds": row["n"]}
        | {"at_zero": sum(score == 0 for score in row["scores"].values())}
        | {name: "" if row[name] is None else f"{row[name]:.4f}" for name in NUMBERS}
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


def make_table(path: Path = RESULTS) -> str:
    """F1 from a zero bias and from the prior, and the gain with its interval."""
    rows = read_csv(path)
    lines = ["| loss, training | zero bias | class prior | gain, 95% |", "|---|---:|---:|---|"]
    for setting in SETTINGS:
        own = {row["bias"]: row for row in rows if row["setting"] == setting}
        means = [show_mean(own[bias]) for bias in ("zero", "prior")]
        gain, low, high = (100 * float(own["prior"][key]) for key in ("difference", "low", "high"))
        sure = f"**{points(gain)}**" if low > 0 or high < 0 else points(gain)
        cells = [TITLES[setting], *means, f"{sure} [{low:.1f}, {high:.1f}]".replace("-", "−")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def show_mean(row: dict[str, str]) -> str:
    """The mean F1, and how many runs found nothing."""
    lost = f" ({row['at_zero']} of {row['seeds']} runs at 0)" if int(row["at_zero"]) else ""
    return f"{100 * float(row['mean']):.1f}{lost}"


def write_table(_: argparse.Namespace) -> None:
    """Put the table into its page."""
    fill(DOCS / "weights.md", "head bias", make_table())


def main() -> None:
    """Run, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("run")
    verb.set_defaults(function=run)
    verb.add_argument("folder", type=Path)
    verb.add_argument("--seeds", type=int, default=8)
    verb.add_argument("--jobs", type=int, default=1)
    verb.add_argument("--out", type=Path, default=RESULTS)
    verbs.add_parser("table").set_defaults(function=write_table)
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    main()
