"""The figures of `make demo` as results/demo.csv.

    softf1 demo --out FOLDER
    python benchmarks/demo.py FOLDER

docs/results.md shows them; a test compares page and file.
"""

from __future__ import annotations

import csv
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch

from losses import machine

RESULTS = Path(__file__).parent / "results" / "demo.csv"
NUMBERS = {
    "f1": "mean", "sd": "sd", "difference": "difference", "low": "low", "high": "high",
    "p_holm": "p_holm", "probability": "probability", "precision": "precision", "recall": "recall",
}  # fmt: skip


def main(folder: Path) -> None:
    """Rounds the rows of a comparison and says where they were made."""
    about = {
        "score": "span F1, strict, test of HKCanCor names",
        "machine": f"{machine('cpu')}, CPU",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    with (folder / "comparison.csv").open(encoding="utf-8", newline="") as file:
        rows = [describe(row) | about for row in csv.DictReader(file)]
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def describe(row: dict[str, str]) -> dict[str, str]:
    """A row of the file from a row of comparison.csv."""
    numbers = {name: row[key] and f"{float(row[key]):.4f}" for name, key in NUMBERS.items()}
    return {"loss": row["loss"], "seeds": row["n"], **numbers}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("wanted the folder of softf1 demo --out")
    main(Path(sys.argv[1]))
