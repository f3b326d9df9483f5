"""How the best learning rate of a short run differs from that of a whole one.

    PYTHONPATH=src python benchmarks/short_runs.py [--data train.json] [--seeds 2]

A text CNN on 8,000 headlines of TNEWS, 2,000 for dev: six epochs, and a third of that, each with a
decay to zero of its own, over a range of learning rates and three losses. `softf1 compare` chooses
settings by short runs, which is fair only if rates mean the same in them. Appends a line a run.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import torch

from softf1.recipe import read_recipe, with_values
from softf1.training.run import CachingTrainer

TNEWS = Path(__file__).parents[2] / "shared" / "data" / "tnews" / "train.json"
RESULTS = Path(__file__).parent / "results" / "short-runs.csv"
TRAIN, DEV = 8000, 2000
LOSSES = {
    "ce": {"loss.name": "ce"},
    "dice": {"loss.name": "dice", "loss.over": "batch"},
    "dsc": {"loss.name": "dsc", "loss.alpha": 0.01, "loss.decay": "paper", "loss.squared": True}
    | {"loss.over": "batch"},
}
RATES = (0.5e-3, 1e-3, 2e-3, 4e-3, 8e-3)
EPOCHS = (2.0, 6.0)


def main() -> None:
    """Train every combination."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=TNEWS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    if not options.data.is_file():
        raise SystemExit(f"{options.data}: no such file; nothing is measured without the corpus")
    if not options.output.is_file():
        options.output.write_text("loss,lr,epochs,seed,dev_macro_f1,torch,date\n", "utf-8")
    trainer = CachingTrainer()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = options.data.read_text("utf-8").splitlines(keepends=True)
        (folder / "train.json").write_text("".join(lines[:TRAIN]), "utf-8")
        (folder / "dev.json").write_text("".join(lines[TRAIN : TRAIN + DEV]), "utf-8")
        files = {f"task.{part}": str(folder / f"{part}.json") for part in ("train", "dev")}
        common = {**files, "task.test": None, "train.patience": 0, "train.batch_size": 32}
        recipe = with_values(read_recipe("tnews-textcnn"), common)
        for seed, loss, rate, epochs in product(range(options.seeds), LOSSES, RATES, EPOCHS):
            own = {"train.lr": rate, "train.epochs": epochs, "train.eval_every": epochs}
            made = with_values(recipe, {**LOSSES[loss], **own, "train.seed": seed})
            run = folder / f"{loss}-{rate}-{epochs}-{seed}"
            score = trainer(made, run, quiet=True)["scores"]["dev"]["macro_f1"]
            row = [loss, rate, epochs, seed, round(score, 4), torch.__version__]
            with options.output.open("a", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerow(
                    [*row, datetime.now(UTC).date().isoformat()]
                )


if __name__ == "__main__":
    main()
