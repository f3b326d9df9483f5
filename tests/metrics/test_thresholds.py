from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from softf1.metrics.classification import count_label_matrix
from softf1.metrics.counts import ratios_of
from softf1.metrics.thresholds import choose_micro, tune_thresholds


def scores_of(gold, rng, shift, noise=0.15):
    """Probabilities that separate the labels at 0.5 + shift of each label, with some noise."""
    return 0.5 + shift + np.where(gold, 0.15, -0.15) + rng.normal(0, noise, gold.shape)


def f_of(scores, gold, thresholds, average="micro", beta=1.0):
    labels = [str(c) for c in range(gold.shape[1])]
    counts = count_label_matrix(gold, scores >= np.array(thresholds), labels=labels)
    return counts.average(average, beta=beta).f


def test_one_threshold_is_found_where_all_labels_share_it():
    rng = np.random.default_rng(0)
    gold = rng.random((2_000, 6)) < 0.1
    scores = scores_of(gold, rng, shift=-0.3)
    tuned = tune_thresholds(scores, gold, average="micro")
    assert tuned.rule == "global"
    assert len(set(tuned.thresholds)) == 1
    new_gold = rng.random((2_000, 6)) < 0.1
    new_scores = scores_of(new_gold, rng, shift=-0.3)
    gain = f_of(new_scores, new_gold, tuned.thresholds) - f_of(new_scores, new_gold, [0.5] * 6)
    assert gain > 0.2
    # The honest score is what new data gives.
    assert tuned.honest["global"] == pytest.approx(
        f_of(new_scores, new_gold, tuned.thresholds), abs=0.04
    )


@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
def test_each_label_gets_its_own_where_they_differ(average):
    rng = np.random.default_rng(1)
    gold = rng.random((3_000, 4)) < 0.2
    shift = np.array([-0.4, -0.2, 0.1, 0.3])
    tuned = tune_thresholds(scores_of(gold, rng, shift), gold, average=average)
    assert tuned.rule == "per label"
    assert np.argsort(tuned.thresholds).tolist() == [0, 1, 2, 3]


def test_few_items_do_not_overfit():
    """60 items of 30 rare labels: each label's own threshold promises much and keeps little."""
    rng = np.random.default_rng(2)
    gold = rng.random((60, 30)) < 0.1
    scores = scores_of(gold, rng, shift=0.0, noise=0.1)
    tuned = tune_thresholds(scores, gold, average="micro")
    assert tuned.rule == "global"
    new_gold = rng.random((5_000, 30)) < 0.1
    new_scores = scores_of(new_gold, rng, shift=0.0, noise=0.1)
    chosen = f_of(new_scores, new_gold, tuned.thresholds)
    assert tuned.honest["global"] == pytest.approx(chosen, abs=0.06)
    assert chosen > f_of(new_scores, new_gold, [0.5] * 30)


def test_beta_asks_for_recall_or_precision():
    rng = np.random.default_rng(3)
    gold = rng.random((4_000, 1)) < 0.2
    scores = scores_of(gold, rng, shift=0.0, noise=0.3)
    low, middle, high = (
        tune_thresholds(scores, gold, average="micro", beta=beta).thresholds[0]
        for beta in (3.0, 1.0, 0.3)
    )
    assert low < middle < high


def test_the_same_input_gives_the_same_result():
    rng = np.random.default_rng(4)
    gold = rng.random((300, 3)) < 0.3
    scores = scores_of(gold, rng, shift=0.1)
    first, second = (tune_thresholds(scores, gold, average="macro") for _ in range(2))
    assert first == second


def test_micro_choice_is_the_best_of_all_combinations():
    rng = np.random.default_rng(5)
    for _ in range(50):
        table = rng.integers(0, 12, (4, 3, 3))
        gold = rng.integers(1, 12, 3)
        table[..., 0] = np.minimum(table[..., 0], gold)
        table[..., 2] = gold - table[..., 0]
        for beta in (0.0, 0.5, 1.0, 2.0):
            chosen = choose_micro(table, beta)
            every = (
                ratios_of(table[list(k), range(3)].sum(axis=0), beta=beta)[2]
                for k in product(range(4), repeat=3)
            )
            reached = ratios_of(table[chosen, range(3)].sum(axis=0), beta=beta)[2]
            assert reached == pytest.approx(max(every))


def test_precision_alone_does_not_choose_to_predict_nothing():
    # Candidates of one label: nothing predicted (0/0), and 1 right of 2, which is better.
    table = np.array([[[0, 0, 1]], [[1, 1, 0]]])
    assert choose_micro(table, beta=0.0).tolist() == [1]


def test_labels_without_positives_and_no_items_keep_the_default():
    rng = np.random.default_rng(6)
    gold = np.zeros((50, 2), dtype=bool)
    tuned = tune_thresholds(rng.random((50, 2)), gold, average="macro", default=0.7)
    assert (tuned.rule, tuned.thresholds) == ("default", (0.7, 0.7))
    empty = tune_thresholds(np.zeros((0, 2)), np.zeros((0, 2)), average="micro")
    assert empty.thresholds == (0.5, 0.5)


def test_many_scores_are_thinned_out():
    rng = np.random.default_rng(7)
    gold = rng.random((5_000, 1)) < 0.5
    scores = scores_of(gold, rng, shift=-0.3)
    few, many = (
        tune_thresholds(scores, gold, average="micro", candidates=n).honest["global"]
        for n in (50, 5_000)
    )
    assert few == pytest.approx(many, abs=0.01)


def test_wrong_shapes_and_no_default_average():
    with pytest.raises(ValueError, match=r"\(items, labels\), got \(2,\) and \(2,\)"):
        tune_thresholds([0.1, 0.2], [0, 1], average="micro")
    with pytest.raises(TypeError, match="average"):
        tune_thresholds([[0.1]], [[1]])
    with pytest.raises(ValueError, match="wanted numbers as scores, got 1 NaN"):
        tune_thresholds([[np.nan], [0.2]], [[1], [0]], average="micro")
    with pytest.raises(ValueError, match="wanted a finite beta"):
        tune_thresholds([[0.1]], [[1]], average="micro", beta=np.inf)
