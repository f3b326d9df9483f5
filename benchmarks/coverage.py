"""How often an operating point keeps its promise: coverage of "≥" targets on simulated dev sets.

    python benchmarks/coverage.py --out benchmarks/results/coverage.csv

Each dev set is drawn anew: a text has the label with probability `share`, its score is normal with
mean 0, or `distance` where it has the label, so that precision and recall of any threshold are
known exactly. `clustered` draws the errors of 5 neighbours together, as spans of one sentence may
err together; the promise assumes that they do not. `naive` takes the lowest threshold whose
precision on dev (or the highest whose recall) reaches the target, without a bound.
"""

from __future__ import annotations

import argparse
import csv
import math
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from softf1.metrics.operating import CONFIDENCE, Pool, Target, walk

CASES = [
    {"texts": texts, "share": share, "distance": distance}
    for texts in (300, 1000, 4000)
    for share in (0.1, 0.4)
    for distance in (2.0, 3.0)
]
TARGETS = ("precision>=0.8", "precision>=0.9", "precision>=0.95", "recall>=0.8", "recall>=0.95")
TOGETHER = 5


def above(threshold: float) -> float:
    """The share of a normal distribution above a threshold."""
    return math.erfc(threshold / math.sqrt(2)) / 2


def truth(threshold: float, share: float, distance: float) -> tuple[float, float]:
    """Precision and recall of a threshold."""
    right, wrong = share * above(threshold - distance), (1 - share) * above(threshold)
    return right / max(right + wrong, 1e-300), above(threshold - distance)


def draw(
    random: np.random.Generator, texts: int, share: float, distance: float, *, clustered: bool
) -> tuple[Any, Any]:
    """Scores and whether each text has the label."""
    repeat = TOGETHER if clustered else 1
    right = np.repeat(random.random(-(-texts // repeat)) < share, repeat)[:texts]
    noise = np.repeat(random.normal(size=-(-texts // repeat)), repeat)[:texts]
    own = random.normal(size=texts)
    mixed = math.sqrt(0.5) * (noise + own) if clustered else own
    return mixed + distance * right, right


def simulate(
    target: str,
    *,
    texts: int,
    share: float,
    distance: float,
    runs: int,
    seed: int = 0,
    clustered: bool = False,
    naive: bool = False,
) -> dict[str, float]:
    """How many of the points that say they reach the target do not, and what they find.

    Returns:
        `broken`, a number of runs; `reached`, the share of dev sets with a point; `kept`, the share
        of dev sets without a broken promise; `recall` and `precision`, true means of reached ones.
    """
    random, wanted = np.random.default_rng(seed), Target.parse(target)
    found = []
    for _ in range(runs):
        score, right = draw(random, texts, share, distance, clustered=clustered)
        if naive:
            threshold, reached = guess(score, right, wanted)
        else:
            threshold, reached = walk(Pool.of(score, right), wanted, CONFIDENCE)
        precision, recall = truth(threshold, share, distance)
        true = precision if wanted.kind == "precision" else recall
        found.append((reached, reached and true < wanted.least, precision, recall))
    table = np.array(found, dtype=float)
    mine = table[table[:, 0] == 1]
    means = mine[:, 2:].mean(axis=0) if len(mine) else np.zeros(2)
    return {
        "broken": int(table[:, 1].sum()),
        "kept": 1 - float(table[:, 1].mean()),
        "reached": float(table[:, 0].mean()),
        "precision": float(means[0]),
        "recall": float(means[1]),
    }


def guess(score: Any, right: Any, target: Target) -> tuple[float, bool]:
    """The threshold that looks right on dev: the lowest for a precision, the highest for recall."""
    order = np.argsort(-score)
    hits = np.cumsum(right[order])
    precise = hits / np.arange(1, len(score) + 1)
    if target.kind == "precision":
        good = np.flatnonzero(precise >= target.least)
        return (float(score[order[good[-1]]]), True) if len(good) else (0.0, False)
    good = np.flatnonzero(hits >= target.least * hits[-1])
    return float(score[order[good[0]]]), True


def main() -> None:
    """Writes a row for every target, case and way."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/coverage.csv"))
    options = parser.parse_args()
    made = {
        "machine": f"{platform.machine()} cpu",
        "numpy": np.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    rows = []
    for target in TARGETS:
        for case in CASES:
            for way in ({}, {"clustered": True}, {"naive": True}):
                found = simulate(target, **case, **way, runs=options.runs)
                shown = {name: round(value, 4) for name, value in found.items()}
                named = {"target": target, "way": next(iter(way), "bound"), **case}
                rows.append(named | {"runs": options.runs, "seed": 0} | shown | made)
        print(f"{target}: {len(rows)} rows", flush=True)
    with options.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
