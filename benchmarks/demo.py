"""The figures of `make demo` as results/demo.csv, and its report as docs/examples/report-demo.html.

    softf1 demo --out demo               # a relative path: the report shows it
    python benchmarks/demo.py demo

docs/results.md shows the figures; a test compares page, report and file.
"""

from __future__ import annotations

import csv
import platform
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch

from losses import machine

RESULTS = Path(__file__).parent / "results" / "demo.csv"
EXAMPLE = Path(__file__).parents[1] / "docs/examples/report-demo.html"
NUMBERS = {
    "f1": "mean", "sd": "sd", "difference": "difference", "low": "low", "high": "high",
    "p_holm": "p_holm", "probability": "probability", "precision": "precision", "recall": "recall",
}  # fmt: skip


def main(folder: Path) -> None:
    """Rounds the rows of a comparison, says where they were made, and keeps the report."""
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
    shutil.copyfile(folder / "report.html", EXAMPLE)


def describe(row: dict[str, str]) -> dict[str, str]:
    """A row of the file from a row of comparison.csv."""
    numbers = {name: row[key] and f"{float(row[key]):.4f}" for name, key in NUMBERS.items()}
    return {"loss": row["loss"], "seeds": row["n"], **numbers}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("wanted the folder of softf1 demo --out")
    main(Path(sys.argv[1]))
