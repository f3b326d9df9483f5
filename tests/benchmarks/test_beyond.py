"""The table of what beats cross entropy is that of its file."""

import csv
import sys

import pytest

from tests.pages import ROOT


@pytest.fixture
def beyond(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import beyond

    yield beyond
    sys.modules.pop("beyond")


def test_the_table_is_that_of_the_file(beyond):
    first, last = beyond.MARKS
    page = beyond.PAGE.read_text("utf-8")
    assert page.partition(first)[2].partition(last)[0].strip() == beyond.make_table().strip()


def test_the_gains_of_auto_are_those_of_the_runs(beyond):
    gains = beyond.find_gains()
    with beyond.GAINS.open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == [
            {key: str(value) for key, value in row.items()} for row in gains
        ]
    first, last = beyond.GAINS_MARKS
    for page, table in (
        (beyond.README, beyond.make_gains_table(gains[:6])),
        (beyond.SUMMARY, beyond.make_summary(gains)),
    ):
        shown = page.read_text("utf-8").partition(first)[2].partition(last)[0]
        assert shown.strip() == table.strip()


def test_the_gain_of_the_paper_stands_beside_that_of_auto(beyond):
    gains = {row["grid"]: row for row in beyond.find_gains()}
    table = beyond.make_gains_table([gains["mrpc"], gains["qqp10"]], paper=True).splitlines()
    assert table[0].endswith("| gain in the paper |")
    assert table[2].endswith("| +0.9 |")  # MRPC there: 88.92 with DSC, 88.0 with cross entropy
    assert table[3].endswith("| – |")  # the paper has no QQP with 10% positives


def test_gains_are_paired_by_seed_and_bold_where_sure(beyond):
    # t(0.975, 2) = 4.303; the standard error of 1, 2, 3 is 1/√3: ± 2.5
    assert beyond.show_gain([1.0, 2.0, 3.0]) == "+2.0 ± 2.5"
    assert beyond.show_gain([2.0, 2.1, 2.2]) == "**+2.1** ± 0.2"
    assert beyond.show_gain([-1.0]) == "−1.0 (1 seed)"


def test_no_run_is_there_twice(beyond):
    rows = [(r["grid"], r["variant"], r["seed"]) for r in beyond.read_csv(beyond.RESULTS)]
    assert len(rows) == len(set(rows)) > 300
