from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from softf1.metrics.classification import (
    accuracy,
    count_classes,
    count_classes_ids,
    count_label_matrix,
    count_label_sets,
    group_by_frequency,
    subset_accuracy,
)
from softf1.metrics.counts import Counts

AVERAGES = ("micro", "macro", "weighted")


def skewed(rng, classes, size):
    """Classes with very different frequencies, some of them absent."""
    weights = rng.dirichlet(np.full(classes, 0.3))
    return rng.choice(classes, size, p=weights)


def assert_same(counts, gold, predicted, *, labels, beta):
    options = {"beta": beta, "labels": labels, "zero_division": 0}
    for name in AVERAGES:
        theirs = sklearn_metrics.precision_recall_fscore_support(
            gold, predicted, average=name, **options
        )
        np.testing.assert_allclose(counts.average(name, beta=beta)[:3], theirs[:3], atol=1e-12)
    theirs = sklearn_metrics.precision_recall_fscore_support(
        gold, predicted, average=None, **options
    )
    each = [counts.label(label, beta=beta) for label in counts]
    np.testing.assert_allclose(np.transpose(each), theirs, atol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_single_label_is_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    classes, size = int(rng.integers(2, 12)), int(rng.integers(1, 60))
    beta = float(rng.choice([0.5, 1.0, 2.0]))
    gold, predicted = skewed(rng, classes, size), skewed(rng, classes, size)
    names = [f"c{index:02}" for index in range(classes)]
    gold_names, predicted_names = ([names[i] for i in side] for side in (gold, predicted))
    # All classes, also those that occur nowhere; and only those that occur.
    every = count_classes(gold_names, predicted_names, labels=names)
    assert every == count_classes_ids(gold, predicted, labels=names)
    assert_same(every, gold_names, predicted_names, labels=names, beta=beta)
    occurring = count_classes(gold_names, predicted_names)
    assert_same(occurring, gold_names, predicted_names, labels=None, beta=beta)
    assert accuracy(every) == pytest.approx(sklearn_metrics.accuracy_score(gold, predicted))


@pytest.mark.parametrize("seed", range(20))
def test_multi_label_is_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    size, classes = int(rng.integers(1, 40)), int(rng.integers(2, 8))
    share = rng.random(classes) * rng.choice([0, 1], classes)
    gold, predicted = rng.random((2, size, classes)) < share
    names = [f"c{index}" for index in range(classes)]
    counts = count_label_matrix(gold, predicted, labels=names)
    sets = [[{names[i] for i in np.flatnonzero(row)} for row in side] for side in (gold, predicted)]
    assert count_label_sets(*sets, labels=names) == counts
    for name in AVERAGES:
        theirs = sklearn_metrics.precision_recall_fscore_support(
            gold, predicted, average=name, zero_division=0
        )
        np.testing.assert_allclose(counts.average(name)[:3], theirs[:3], atol=1e-12)
    assert subset_accuracy(*sets).value == sklearn_metrics.accuracy_score(gold, predicted)


def test_micro_and_macro_are_not_swapped():
    # 8 of 8 "no", 0 of 2 "yes": micro 8/10; macro is the mean of 16/18 and 0.
    counts = count_classes(["no"] * 8 + ["yes"] * 2, ["no"] * 10)
    assert counts.micro().f == pytest.approx(0.8)
    assert counts.macro().f == pytest.approx((16 / 18) / 2)


def test_batches_add_up_over_different_labels():
    first, second = count_classes(["a"], ["b"]), count_classes(["c", "a"], ["c", "a"])
    assert first + second == count_classes(["a", "c", "a"], ["b", "c", "a"])


def test_groups_by_frequency():
    groups = group_by_frequency({"a": 100, "b": 99, "c": 21, "d": 20, "e": 0}, head=100, tail=20)
    assert groups == {"head": ("a",), "mid": ("b", "c"), "tail": ("d", "e")}
    counts = Counts.from_dict({"a": (1, 0, 0), "d": (1, 0, 1)})
    # d has recall 1/2, e was never met and has 0.
    assert counts.only(groups["tail"]).macro().recall == 0.25
    with pytest.raises(ValueError, match="wanted tail < head, got tail 5 and head 5"):
        group_by_frequency({}, head=5, tail=5)


def test_nothing_and_wrong_sizes():
    assert count_classes([], []).micro() == (0, 0, 0, 0)
    assert accuracy(count_classes_ids([], [], labels=["a"])) == 0
    assert subset_accuracy([], []).value == 0
    with pytest.raises(ValueError, match="wanted as many predicted as gold items, 1, got 2"):
        count_classes(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="wanted as many predicted as gold items, 1, got 2"):
        count_classes_ids([0], [0, 0], labels=["a"])
    with pytest.raises(ValueError, match="wanted ids from 0 to 0, got 0 to 1"):
        count_classes_ids([0, 1], [0, 0], labels=["a"])
    with pytest.raises(ValueError, match=r"\(items, 2\), got \(1, 2\) and \(1, 1\)"):
        count_label_matrix([[1, 0]], [[1]], labels=["a", "b"])
