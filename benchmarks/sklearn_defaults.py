"""`SoftF1Classifier` against tf-idf with logistic regression, on a sample of any labelled file.

    python benchmarks/sklearn_defaults.py TRAIN TEST [--train 2000] [--test 1000] [--seeds 2]

Both learn from the same texts and are scored by macro F1 on the same others. Rows are settings of
`SoftF1Classifier`: its defaults, and other encoders, rates and epochs.
"""

from __future__ import annotations

import argparse
import time
from random import Random
from statistics import mean
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline

from softf1.data import TextExample, read
from softf1.integrations.sklearn import SoftF1Classifier

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "textcnn, 10 epochs": {"encoder": "textcnn", "epochs": 10},
    "textcnn, 30 epochs": {"encoder": "textcnn", "epochs": 30},
    "textcnn, lr 3e-3, 20 epochs": {"encoder": "textcnn", "lr": 3e-3, "epochs": 20},
    "minilm, lr 2e-5, 10 epochs": {"encoder": "minilm", "lr": 2e-5, "epochs": 10},
    "minilm, lr 2e-5, 3 epochs": {"encoder": "minilm", "lr": 2e-5, "epochs": 3},
    "minilm, lr 1e-4, 3 epochs": {"encoder": "minilm", "lr": 1e-4, "epochs": 3},
    "minilm, lr 3e-4, 3 epochs": {"encoder": "minilm", "lr": 3e-4, "epochs": 3},
}


def sample(path: str, size: int) -> tuple[list[str], list[str]]:
    """Returns texts and labels of `size` examples, the same ones each time."""
    examples = read(path).of(TextExample)
    chosen = Random(0).sample(examples, min(size, len(examples)))
    return [one.text for one in chosen], [one.labels[0] for one in chosen]


def main() -> None:
    """Prints a row for each setting: macro F1 over the seeds, and seconds of training."""
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs=2)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", help="settings whose name contains this")
    options = parser.parse_args()
    texts, labels = sample(options.files[0], options.train)
    others, gold = sample(options.files[1], options.test)
    baseline = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=10.0)
    )
    found = 100 * f1_score(gold, baseline.fit(texts, labels).predict(others), average="macro")
    print(f"tf-idf and logistic regression: {found:.1f}", flush=True)
    for name, settings in SETTINGS.items():
        if options.only and options.only not in name:
            continue
        start, scores = time.perf_counter(), []
        for seed in range(options.seeds):
            model = SoftF1Classifier(**settings, random_state=seed).fit(texts, labels)
            scores.append(100 * f1_score(gold, model.predict(others), average="macro"))
        seconds = (time.perf_counter() - start) / options.seeds
        shown = ", ".join(f"{score:.1f}" for score in scores)
        print(f"{name}: {mean(scores):.1f} ({shown}), {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
