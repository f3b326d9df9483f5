"""How losses trade precision and recall, and how fast they learn, on names in spoken Cantonese.

    PYTHONPATH=src python benchmarks/names.py run [--seeds 3] [--only ROW …]    # softf1[demo]
    PYTHONPATH=src python benchmarks/names.py table     # tables into the documentation
    PYTHONPATH=src python docs/plots.py                 # draws the trade and the curves

The data and the model of `softf1 demo`: HKCanCor, a small BiLSTM from scratch, four epochs. Every
row starts at the class prior and has the demo's learning rate; nothing is tuned. The dice family
sums over the batch, micro, without O. Writes a line for every evaluation on dev, twice an epoch,
and one for the kept model on test; a run that the file has is not run again. 54 runs take 20
minutes of one core.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from corpora import read_csv
from corpora_table import DOCS, fill

from softf1.experiments.demo import BASELINE, OF_THE_SET, demo_recipe
from softf1.recipe import with_values
from softf1.training.run import CachingTrainer

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS = Path(__file__).parent / "results" / "names.csv"
GAMMAS = (0.5, 1.0, 2.0, 5.0)
ALPHAS = (0.9, 0.7, 0.5, 0.3, 0.1)
DSC = {"loss.name": "dsc", "loss.alpha": 1.0, "loss.decay": "paper", **OF_THE_SET}
ROWS: dict[str, dict[str, Any]] = {
    BASELINE: {"loss.name": "ce"},
    "dice": {"loss.name": "dice", **OF_THE_SET},
    "ce+dice": {
        "loss.name": "ce+dice",
        **{key.replace("loss.", "loss.dice."): value for key, value in OF_THE_SET.items()},
    },
    "dice, linear": {"loss.name": "dice", **OF_THE_SET, "loss.squared": False},
    "dsc, linear": {**DSC, "loss.squared": False},
    "dsc, linear, detached": {**DSC, "loss.squared": False, "loss.decay": "detached"},
    "dsc, squared": DSC,
    "dsc, squared, detached": {**DSC, "loss.decay": "detached"},
    "dsc, authors": {**DSC, "loss.alpha": 0.01},
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


def run(options: argparse.Namespace) -> None:
    """Train what the file does not have yet."""
    done = set()
    if options.out.is_file():
        done = {(line["row"], int(line["seed"])) for line in read_csv(options.out)}
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


def collect(split: str, key: str, path: Path = RESULTS) -> dict[str, dict[str, list[float]]]:
    """A score in points by row and epoch, a value for each seed; on test all epochs are one."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in read_csv(path):
        if line["split"] == split:
            epoch = line["epoch"] if split == "dev" else ""
            found[line["row"]][epoch].append(100 * float(line[key]))
    return found


CLAIMS = {
    "ce": ("cross entropy", "easy examples overwhelm the training"),
    "ce+dice": ("CE + dice", ""),
    "dice": ("dice, squared (Eq. 7, footnote 4)", "close to F1, but not enough alone"),
    "dice, linear": ("dice, linear (Eq. 6)", "the square only converges faster"),
    "dsc, authors": ("DSC, alpha 0.01, squared (the authors' scripts)", "ahead of all others"),
    "dsc, squared": ("DSC, alpha 1, squared", "attends less to what is right"),
    "dsc, squared, detached": ("the same, detached (our repair)", ""),
    "dsc, linear": ("DSC, alpha 1, linear (Eq. 11)", "attends less to what is right"),
    "dsc, linear, detached": ("the same, detached (our repair)", ""),
}
"""Rows of the table of curves: their names, and what the paper says of each."""
TRADED = (BASELINE, "dice", "focal ", "tversky ")
"""Rows of the table of precision and recall."""
CURVE_EPOCHS = ("1.0", "2.0", "4.0")


def make_curves() -> str:
    """F1 on dev by epoch and on test, beside what the paper says."""
    dev, test = collect("dev", "f1"), collect("test", "f1")
    heads = ["loss", "the paper says", *(f"dev, epoch {float(e):g}" for e in CURVE_EPOCHS), "test"]
    lines = [heads, ["---", "---", *["---:"] * 4]]
    for row, names in CLAIMS.items():
        means = [f"{fmean(dev[row][epoch]):.1f}" for epoch in CURVE_EPOCHS]
        lines.append([*names, *means, spread(test[row][""])])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def make_trade() -> str:
    """Precision, recall and F1 on test of the losses that trade them."""
    scores = {key: collect("test", key) for key in ("precision", "recall", "f1")}
    lines = [["loss", *scores], ["---", *["---:"] * 3]]
    rows = [row for start in TRADED for row in ROWS if is_of(start, row)]
    lines += [[f"`{row}`", *(spread(own[row][""]) for own in scores.values())] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def is_of(start: str, row: str) -> bool:
    """Whether a row is this one, or of this kind if the start ends with a space."""
    return row == start or (start.endswith(" ") and row.startswith(start))


def spread(values: list[float]) -> str:
    """Mean and deviation over seeds."""
    return f"{fmean(values):.1f}\u00a0±\u00a0{stdev(values):.1f}"


TABLES = {
    "paper.md": {"curves": make_curves},
    "howto/precision-and-recall.md": {"trade": make_trade},
}
"""The tables of each page, by the marks that they stand between."""


def write_tables(_: argparse.Namespace) -> None:
    """Put the tables into their pages."""
    for page, tables in TABLES.items():
        for mark, make in tables.items():
            fill(DOCS / page, mark, make().strip())


def main() -> None:
    """Run, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("run")
    verb.set_defaults(function=run)
    verb.add_argument("--seeds", type=int, default=3)
    verb.add_argument("--only", nargs="*", default=list(ROWS), choices=list(ROWS))
    verb.add_argument("--out", type=Path, default=RESULTS)
    verbs.add_parser("table").set_defaults(function=write_tables)
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    main()
