"""How losses trade precision and recall, and how fast they learn, on names in spoken Cantonese.

    PYTHONPATH=src python benchmarks/names.py [--seeds 3] [--only ROW …]     # needs softf1[demo]
    python docs/plots.py                                                     # draws what it found

The data and the model of `softf1 demo`: HKCanCor, a small BiLSTM from scratch, four epochs. Every
row starts at the class prior and has the demo's learning rate; nothing is tuned. The dice family
sums over the batch, micro, without O. Writes a line for every evaluation on dev, twice an epoch,
and one for the kept model on test; a run that the file has is not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.experiments.demo import BASELINE, OF_THE_SET, demo_recipe
from softf1.recipe import with_values
from softf1.training.run import CachingTrainer

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS = Path(__file__).parent / "results" / "names.csv"
GAMMAS = (0.5, 1.0, 2.0, 5.0)
ALPHAS = (0.9, 0.7, 0.5, 0.3, 0.1)
DSC = {"loss.name": "dsc", **OF_THE_SET}
ROWS: dict[str, dict[str, Any]] = {
    BASELINE: {"loss.name": "ce"},
    "dice": {"loss.name": "dice", **OF_THE_SET},
    "ce+dice": {
        "loss.name": "ce+dice",
        **{key.replace("loss.", "loss.dice."): value for key, value in OF_THE_SET.items()},
    },
    "dsc, as printed": {**DSC, "loss.alpha": 1.0, "loss.decay": "paper"},
    "dsc, detached": {**DSC, "loss.alpha": 1.0, "loss.decay": "detached"},
    "dsc, authors": {**DSC, "loss.alpha": 0.01, "loss.decay": "paper"},
    **{f"focal {gamma:g}": {"loss.name": "focal", "loss.gamma": gamma} for gamma in GAMMAS},
    **{
        f"tversky {alpha:g}/{1 - alpha:.1g}": {
            "loss.name": "tversky",
            "loss.alpha": alpha,
            "loss.beta": round(1 - alpha, 1),
            **OF_THE_SET,
        }
        for alpha in ALPHAS
    },
}
"""The losses. Focal with gamma 0 is `ce`."""
COLUMNS = (
    "row", "seed", "split", "epoch", "precision", "recall", "f1",
    "device", "torch", "softf1", "date",
)  # fmt: skip


def read_evaluations(folder: Path, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the scores of a run: on dev each time, on test once."""
    for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines():
        event = json.loads(line)
        if event["event"] == "eval":
            yield {"split": event["split"], "epoch": event["epoch"], **event["scores"]}
    yield {"split": "test", "epoch": result["best"]["epoch"], **result["scores"]["test"]}


def describe(row: str, seed: int, scores: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """The line of an evaluation."""
    numbers = {key: f"{scores[key]:.6f}" for key in ("precision", "recall", "f1")}
    versions = {key: result["versions"][key] for key in ("torch", "softf1")}
    return {
        "row": row, "seed": seed, "split": scores["split"], "epoch": round(scores["epoch"], 2),
        **numbers, "device": result["device"], **versions, "date": datetime.now(UTC).date(),
    }  # fmt: skip


def main() -> None:
    """Train what the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    done = set()
    if options.out.is_file():
        with options.out.open(encoding="utf-8", newline="") as file:
            done = {(line["row"], int(line["seed"])) for line in csv.DictReader(file)}
    else:
        options.out.write_text(",".join(COLUMNS) + "\n", "utf-8")
    trainer = CachingTrainer()
    with tempfile.TemporaryDirectory() as name:
        recipe = demo_recipe(Path(name), eval_every=0.5)
        for row in options.only:
            for seed in range(options.seeds):
                if (row, seed) in done:
                    continue
                own, folder = with_values(recipe, {**ROWS[row], "train.seed": seed}), Path(name)
                result = trainer(own, folder / f"{row}-{seed}", quiet=True)
                lines = list(read_evaluations(folder / f"{row}-{seed}", result))
                with options.out.open("a", encoding="utf-8", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                    writer.writerows(describe(row, seed, scores, result) for scores in lines)
                print(row, seed, f"test F1 {100 * lines[-1]['f1']:.1f}", flush=True)


if __name__ == "__main__":
    main()
