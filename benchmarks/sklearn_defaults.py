"""`SoftF1Classifier` against tf-idf with logistic regression, on a sample of any labelled file.

    python benchmarks/sklearn_defaults.py NAME TRAIN TEST [--train 1000] [--test 1000] [--seeds 2]

Both learn from the same texts and are scored by macro F1 on the same others. Rows are settings of
`SoftF1Classifier`: its defaults, `textcnn`, and other rates and epochs. Each row is added to
results/sklearn-defaults.csv, in place of an older one of the same name and setting.
"""

from __future__ import annotations

import argparse
import csv
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline

from softf1.data import read
from softf1.integrations.sklearn import SoftF1Classifier

BASELINE = "tf-idf and logistic regression"
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "textcnn": {"encoder": "textcnn"},
    "textcnn, 10 epochs": {"encoder": "textcnn", "epochs": 10},
    "textcnn, lr 3e-3, 20 epochs": {"encoder": "textcnn", "lr": 3e-3, "epochs": 20},
    "minilm, lr 2e-5, 3 epochs": {"encoder": "minilm", "lr": 2e-5, "epochs": 3},
    "minilm, lr 3e-4, 3 epochs": {"encoder": "minilm", "lr": 3e-4, "epochs": 3},
}
FILE = Path(__file__).parent / "results" / "sklearn-defaults.csv"
KEY = ("data", "setting")


def sample(path: str, size: int) -> tuple[list[str], list[str]]:
    """Returns texts and labels of `size` examples, the same ones each time."""
    examples = read(path).examples
    chosen = Random(0).sample(examples, min(size, len(examples)))
    return [one.text for one in chosen], [one.labels[0] for one in chosen]


def main() -> None:
    """Measures each setting: macro F1 over the seeds, and CPU seconds of training."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", help="of the data")
    parser.add_argument("files", nargs=2)
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--output", type=Path, default=FILE)
    options = parser.parse_args()
    texts, labels = sample(options.files[0], options.train)
    others, gold = sample(options.files[1], options.test)
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    models: dict[str, list[Any]] = {
        BASELINE: [make_pipeline(words, LogisticRegression(C=10.0))],
        **{
            name: [SoftF1Classifier(**SETTINGS[name], random_state=n) for n in range(options.seeds)]
            for name in options.only
        },
    }
    about = {"data": options.name, "train": len(texts), "test": len(others)}
    for name, several in models.items():
        scores, spent = [], 0.0
        for model in several:
            start = time.process_time()
            model.fit(texts, labels)
            spent += time.process_time() - start
            scores.append(100 * f1_score(gold, model.predict(others), average="macro"))
        row = about | {
            "setting": name,
            "encoder": getattr(several[0], "encoder_", ""),
            "macro_f1": f"{mean(scores):.1f}",
            "each": " ".join(f"{score:.1f}" for score in scores),
            "cpu_seconds": f"{spent / len(several):.0f}",
            "torch": version("torch"),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
        }
        print(row, flush=True)
        add(row, options.output)


def add(row: dict[str, Any], path: Path) -> None:
    """Writes a row into the file, in place of one with the same key."""
    rows = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    rows = [old for old in rows if any(old[key] != row[key] for key in KEY)] + [row]
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(row), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
