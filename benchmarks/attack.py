"""How often softf1 was killed, damaged, fed with mutated files and injected, and what came of it.

    python benchmarks/attack.py [PYTEST OPTIONS]     # such as -n auto, or some files of tests
    python benchmarks/attack.py table                # into docs/reliability.md, with the Trainer's

Runs the tests that are marked `attack` (they are part of `make test-slow`), which report what they
tried, and writes the sums into results/attack.csv; rows of attacks that were not run stay. A test
that finds a traceback, a lost file or another result fails, and `failed` counts it.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS, TRAINER = (HERE / "results" / name for name in ("attack.csv", "trainer-attack.csv"))
READING = HERE / "results" / "reading.csv"
PAGE = ROOT / "docs" / "reliability.md"
COUNTS = ("tests", "tried", "used", "refused", "failed", "skipped")


def count(report: Path) -> dict[str, dict[str, int]]:
    """Adds up a JUnit report of pytest, attack by attack."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for case in ET.parse(report).iter("testcase"):
        told = {one.get("name"): one.get("value") for one in case.iter("property")}
        row = found[told.get("attack") or str(case.get("name")).partition("[")[0]]
        row["tests"] += 1
        for name in ("tried", "used", "refused"):
            row[name] += int(told.get(name) or 0)
        row["failed"] += case.find("failure") is not None or case.find("error") is not None
        row["skipped"] += case.find("skipped") is not None
    return found


def run(words: list[str]) -> int:
    """Runs the attacks and writes what they counted."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", "-m", "attack", f"--junitxml={report}", "-o", "junit_family=xunit1"]
        code = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *(words or ["tests"])],
            cwd=ROOT,
            check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        ).returncode
        found = count(report)
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    rows = {row["attack"]: row for row in (read(RESULTS) if RESULTS.exists() else ())}
    rows |= {attack: {"attack": attack, **row, "date": date} for attack, row in found.items()}
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ("attack", *COUNTS, "date"), lineterminator="\n")
        table.writeheader()
        table.writerows(rows.values())
    return code


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of results."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def make_attacks() -> str:
    """The table of what was tried on softf1 alone."""
    lines = ["| attack | tried | went on or gave data | one line | anything else |"]
    lines.append("|---|---:|---:|---:|---:|")
    for row in read(RESULTS):
        counts = (f"{int(row[name]):,}" for name in ("tried", "used", "refused", "failed"))
        lines.append(f"| {row['attack']} | {' | '.join(counts)} |")
    return "\n".join(lines) + "\n"


def make_sides() -> str:
    """The table of the same attacks on both sides."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in read(TRAINER):
        found[row["attack"]][row["side"]].append(f"{row['outcome']} ({row['count']})")
    lines = ["| attack | Trainer | softf1 |", "|---|---|---|"]
    for attack, sides in found.items():
        cells = (", ".join(sides[side]) for side in ("Trainer", "softf1"))
        lines.append(f"| {attack} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def make_reading() -> str:
    """The table of large files."""
    lines = [
        "| file | command | MB read | on disk | MB/s | peak, MiB |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in read(READING):
        names = ("megabytes", "on_disk", "mb_per_second", "peak_mib")
        cells = " | ".join(row[name] for name in names)
        lines.append(f"| `{row['file']}` | `{row['command']}` | {cells} |")
    return "\n".join(lines) + "\n"


TABLES = {"attacks": make_attacks, "sides": make_sides, "reading": make_reading}


def split_page(text: str, name: str) -> tuple[str, str, str]:
    """The page before, in and after the table of a name."""
    before, first, rest = text.partition(f"<!-- {name} -->\n")
    inside, last, after = rest.partition(f"<!-- end of {name} -->\n")
    if not first or not last:
        raise SystemExit(f"{PAGE} has no place for {name}")
    return before + first, inside, last + after


def write_tables() -> None:
    """Writes all tables into the page."""
    text = PAGE.read_text("utf-8")
    for name, make in TABLES.items():
        before, _, after = split_page(text, name)
        text = f"{before}\n{make()}\n{after}"
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["table"]:
        write_tables()
    else:
        sys.exit(run(sys.argv[1:]))
