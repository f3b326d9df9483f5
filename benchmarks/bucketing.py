"""What batches of equally long sentences do to F1.

    python benchmarks/bucketing.py CASE SEED [--data …] [--encoder …] [--output FILE.csv]

One run of a case: `random`, `equal-POOL` (bucketed in pools of so many steps, each step weighs the
same), `targets-POOL` (steps weigh as much as they have targets) or `tokens-POOL` (steps of 800
tokens). Appends a line. Many at once on a GPU:

    for s in 1 2 3 4 5 6; do for c in random equal-4 equal-16 equal-64 targets-64 tokens-64; do
      echo $c $s; done; done | OMP_NUM_THREADS=1 xargs -P 12 -n 2 python benchmarks/bucketing.py
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import torch

from softf1.recipe import build_recipe
from softf1.training import batching
from softf1.training.run import train_run

SHARED = Path(__file__).parents[2] / "shared"
SENTENCES = 6400


def main() -> None:
    """Train one case with one seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case")
    parser.add_argument("seed", type=int)
    parser.add_argument("--data", type=Path, default=SHARED / "data" / "conll2003_en")
    parser.add_argument("--encoder", default=str(SHARED / "encoders" / "en-minilm-l6"))
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results" / "bucketing.csv"
    )
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(f"{options.data}: no such folder; nothing is measured without the corpus")
    kind, _, pool = options.case.partition("-")
    batching.POOL = int(pool or 1)  # a pool of one step is random
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = (options.data / "eng.train").read_text("utf-8").split("\n\n")[:SENTENCES]
        (folder / "train.txt").write_text("\n\n".join(parts) + "\n", "utf-8")
        recipe = build_recipe(
            {
                "name": options.case,
                "task": {
                    "kind": "tagging",
                    "train": str(folder / "train.txt"),
                    "dev": str(options.data / "eng.testa"),
                },
                "encoder": {"name": options.encoder},
                "train": {
                    "lr": 1e-4,
                    "batch_size": 32,
                    "batch_tokens": 800 if kind == "tokens" else 0,
                    "step_weights": "targets" if kind == "targets" else "equal",
                    "epochs": 3.0,
                    "eval_every": 3.0,
                    "seed": options.seed,
                },
            }
        )
        result = train_run(recipe, folder / "run", quiet=True)
    row = [options.case, options.seed, round(result["scores"]["dev"]["f1"], 4), result["steps"]]
    row += [result["device"], torch.__version__, datetime.now(UTC).date().isoformat()]
    with options.output.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file).writerow(row)
    print(*row)


if __name__ == "__main__":
    main()
