"""The table of what beats cross entropy is that of its file."""

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


def test_gains_are_paired_by_seed_and_bold_where_sure(beyond):
    # t(0.975, 2) = 4.303; the standard error of 1, 2, 3 is 1/√3: ± 2.5
    assert beyond.show_gain([1.0, 2.0, 3.0]) == "+2.0 ± 2.5"
    assert beyond.show_gain([2.0, 2.1, 2.2]) == "**+2.1** ± 0.2"
    assert beyond.show_gain([-1.0]) == "−1.0 (1 seed)"


def test_no_run_is_there_twice(beyond):
    rows = [(r["grid"], r["variant"], r["seed"]) for r in beyond.read_csv(beyond.RESULTS)]
    assert len(rows) == len(set(rows)) > 300
