"""The profile of a step runs in its short form and writes what it prints."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "profile_step.py"


def test_the_short_form_writes_a_line_for_each_kernel_shown(tmp_path):
    out = tmp_path / "profile.csv"
    command = [sys.executable, SCRIPT, "--short", "--device", "cpu", "--loss", "dice", "--out", out]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 15
    assert {"device", "torch", "transformers", "date"} < rows[0].keys()
    shares = [float(row["share"]) for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert 0.5 < sum(shares) <= 1
    assert 0 < float(rows[0]["loss_share"]) < 0.5
    assert 0 < int(rows[0]["loss_kernels"]) < int(rows[0]["kernels"])
    assert all(row["kernel"][:100] in printed for row in rows)


@pytest.mark.slow
def test_the_profile_of_the_warm_up_adds_up():
    command = [sys.executable, SCRIPT, "--short", "--device", "cpu", "--warm-up"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = printed.splitlines()
    total = next(number for number, line in enumerate(lines) if line.endswith("together"))
    parts = [float(line.split()[0]) for line in lines[:total]]
    names = [line.partition(" s  ")[2] for line in lines[:total]]
    assert names[:3] == ["imports", "start of the device", "reading, model, optimizer"]
    assert [name.split(" of")[0] for name in names[3:]] == ["round 1", "round 2", "round 3"]
    assert float(lines[total].split()[0]) == pytest.approx(sum(parts), abs=0.05)
