from __future__ import annotations

import numpy as np
import pytest

from softf1.metrics.biases import tune_biases
from softf1.metrics.classification import count_classes_ids
from softf1.metrics.spans import count_lenient_ids

NAMES = ["O", "x", "y"]


def count(gold, predicted, _lengths):
    return count_classes_ids(gold, predicted, labels=NAMES).without(["O"])


def data(rng, size, shift, noise=1.0):
    """Mostly O; logits that are right but for noise and a shift of each class."""
    gold = rng.choice(3, size, p=[0.9, 0.06, 0.04])
    logits = 3 * np.eye(3)[gold] + rng.normal(0, noise, (size, 3)) + np.array(shift)
    return logits, gold


def f_of(logits, gold, biases):
    return count(gold, np.argmax(logits + np.array(biases), axis=1), None).micro().f


def test_a_background_that_wins_too_often_is_held_back():
    rng = np.random.default_rng(0)
    logits, gold = data(rng, 3_000, shift=[2.5, 0, 0])
    tuned = tune_biases(logits, gold, background=0, count=count, average="micro")
    assert tuned.rule == "background"
    assert tuned.biases[0] < -1
    assert tuned.biases[1:] == (0, 0)
    new = data(rng, 3_000, shift=[2.5, 0, 0])
    assert f_of(*new, tuned.biases) > f_of(*new, [0, 0, 0]) + 0.1
    assert tuned.honest["background"] == pytest.approx(f_of(*new, tuned.biases), abs=0.05)


def test_each_class_gets_its_own_where_asked_and_needed():
    logits, gold = data(np.random.default_rng(1), 3_000, shift=[0, 2.5, -2])
    tuned = tune_biases(
        logits, gold, background=0, count=count, average="macro", per_class=True, candidates=15
    )
    assert tuned.rule == "per class"
    assert tuned.honest["per class"] > tuned.honest["background"] > tuned.honest["none"]
    assert tuned.biases[2] - tuned.biases[1] > 2


def test_nothing_is_changed_where_nothing_is_wrong():
    logits, gold = data(np.random.default_rng(2), 500, shift=[0, 0, 0], noise=0.1)
    tuned = tune_biases(logits, gold, background=0, count=count, average="micro")
    assert (tuned.rule, tuned.biases) == ("none", (0, 0, 0))


def test_small_dev_sets_do_not_overfit():
    """On 80 tokens without a shift the dev score of tuned biases rises, that of new data does not.

    Over 20 draws, what cross-fitting lets through may cost at most a little on new data.
    """
    costs = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        logits, gold = data(rng, 80, shift=[0, 0, 0], noise=1.5)
        options = {"background": 0, "count": count, "average": "micro", "candidates": 10}
        tuned = tune_biases(logits, gold, per_class=True, **options)
        new = data(rng, 5_000, shift=[0, 0, 0], noise=1.5)
        costs.append(f_of(*new, [0, 0, 0]) - f_of(*new, tuned.biases))
    assert np.mean(costs) < 0.03


def test_span_scores_of_whole_sentences():
    rng = np.random.default_rng(3)
    tags = ["O", "B-X", "I-X"]
    lengths = rng.integers(1, 9, 300)
    logits, gold = data(rng, lengths.sum(), shift=[2.5, 0, 0])
    seen = []

    def count_spans(right, predicted, sizes):
        seen.append(sizes)
        return count_lenient_ids(right, predicted, lengths=sizes, tags=tags)

    options = {"background": 0, "lengths": lengths, "average": "micro", "count": count_spans}
    tuned = tune_biases(logits, gold, **options)
    assert tuned.rule == "background"
    assert tuned == tune_biases(logits, gold, **options)
    # Every fold has whole sentences, 300 in 5 folds, and together they are all of them.
    assert {len(sizes) for sizes in seen} == {60}
    folds = {tuple(sizes) for sizes in seen}
    assert sorted(size for sizes in folds for size in sizes) == sorted(lengths)


def test_wrong_sizes_and_values():
    options = {"count": count, "average": "micro"}
    with pytest.raises(ValueError, match="wanted a background from 0 to 2, got 3"):
        tune_biases(np.zeros((2, 3)), [0, 1], background=3, **options)
    with pytest.raises(ValueError, match="wanted numbers as logits, got 6 NaN"):
        tune_biases(np.full((2, 3), np.nan), [0, 1], background=0, **options)
    with pytest.raises(ValueError, match=r"got \(2, 3\), \(2,\) and lengths of 3 tokens"):
        tune_biases(
            np.zeros((2, 3)), [0, 1], background=0, count=count, average="micro", lengths=[3]
        )
