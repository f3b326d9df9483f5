from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softf1.metrics.counts import Counts, Mean, divide, ratios_of

ROWS = st.tuples(*[st.integers(0, 50)] * 3)
TABLES = st.dictionaries(st.sampled_from("abcdef"), ROWS)


@settings(deadline=None, derandomize=True)
@given(TABLES, TABLES, TABLES)
def test_addition_is_that_of_the_numbers_in_any_order(first, second, third):
    parts = [Counts.from_dict(table) for table in (first, second, third)]
    total = sum(parts)
    assert total == parts[2] + (parts[0] + parts[1])
    for label in {*first, *second, *third}:
        rows = [table.get(label, (0, 0, 0)) for table in (first, second, third)]
        assert total.to_dict()[label] == [sum(column) for column in zip(*rows, strict=True)]


@settings(deadline=None, derandomize=True)
@given(TABLES)
def test_plain_dicts_survive_json(table):
    counts = Counts.from_dict(table)
    assert Counts.from_dict(json.loads(json.dumps(counts.to_dict()))) == counts


@settings(deadline=None, derandomize=True)
@given(TABLES, st.sampled_from([0.0, 0.5, 1.0, 2.0, math.inf]))
def test_averages_are_their_definitions(table, beta):
    counts = Counts.from_dict(table)
    each = [counts.label(label, beta=beta) for label in counts]
    support = sum(scores.support for scores in each)
    for column in range(3):
        values = [scores[column] for scores in each]
        mean = sum(values) / len(values) if values else 0.0
        assert counts.macro(beta=beta)[column] == pytest.approx(mean)
        weighted = sum(v * s.support for v, s in zip(values, each, strict=True)) / (support or 1)
        assert counts.weighted(beta=beta)[column] == pytest.approx(weighted)
    tp, fp, fn = (sum(row[column] for row in table.values()) for column in range(3))
    micro = Counts.from_dict({"all": (tp, fp, fn)}).label("all", beta=beta)
    assert counts.micro(beta=beta) == pytest.approx(micro)


def test_beta_moves_from_precision_to_recall():
    counts = Counts.from_dict({"x": (6, 2, 6)})  # precision 6/8, recall 6/12
    assert counts.micro(beta=0).f == 0.75
    assert counts.micro(beta=math.inf).f == 0.5
    # F2 = 5 · 6 / (5 · 6 + 2 + 4 · 6) = 30/56; F1 = 12/20.
    assert counts.micro(beta=2).f == pytest.approx(30 / 56)
    assert counts.micro().f == pytest.approx(12 / 20)
    for beta in (-1.0, math.nan):
        with pytest.raises(ValueError, match="wanted beta >= 0"):
            counts.micro(beta=beta)


def test_no_default_average():
    counts = Counts.from_dict({"x": (1, 0, 0)})
    with pytest.raises(TypeError):
        counts.average()
    with pytest.raises(ValueError, match="wanted an average of micro, macro, weighted, got 'mean'"):
        counts.average("mean")


def test_selection():
    counts = Counts.from_dict({"O": (90, 1, 1), "x": (1, 0, 1)})
    assert counts.without(["O"]).to_dict() == {"x": [1, 0, 1]}
    # A label that never occurs scores 0 and halves the macro mean.
    assert counts.only(["x", "new"]).macro().precision == 0.5
    with pytest.raises(KeyError, match="wanted one of O, x, got 'y'"):
        counts["y"]


def test_rows_and_labels_must_fit():
    with pytest.raises(ValueError, match="wanted a row for each different label"):
        Counts(["a", "b"], np.zeros((1, 3), np.int64))
    with pytest.raises(ValueError, match="wanted a row for each different label"):
        Counts(["a", "a"], np.zeros((2, 3), np.int64))


def test_large_counts_are_exact():
    huge = 2**53 + 1
    assert (Counts.from_dict({"x": (huge, 0, 0)}) + Counts.from_dict({"x": (1, 0, 0)})).to_dict()[
        "x"
    ] == [huge + 1, 0, 0]


def test_means_of_batches():
    assert (Mean(1.0, 1) + Mean(0.0, 3)).value == 0.25  # not the mean of means, 0.5
    assert Mean().value == 0.0


def test_zero_over_zero_is_zero():
    assert divide([1, 0, 3], [2, 0, 0]).tolist() == [0.5, 0, 0]
    assert ratios_of(np.zeros((2, 3), np.int64)).tolist() == [[0, 0, 0], [0, 0, 0]]
