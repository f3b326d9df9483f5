"""Average precision, by hand and against scikit-learn."""

import numpy as np
import pytest

from softf1.metrics.ranking import average_precision, leave_one_out, macro_average_precision


def test_by_hand():
    # From the top + − − +: precision 1/1 at the first positive, 2/4 at the second.
    assert average_precision([4, 3, 2, 1], [1, 0, 0, 1]) == pytest.approx((1 + 2 / 4) / 2)
    assert average_precision([4, 3, 2, 1], [1, 1, 0, 0]) == 1
    # All in one place: the share of the positives.
    assert average_precision([1, 1, 1, 1], [1, 0, 0, 0]) == 0.25
    assert average_precision([], []) == average_precision([1.0], [0]) == 0


def by_hand(scores, gold, missed=0):
    """Precision at the threshold of each right item, one by one."""
    found = [
        np.mean([right for other, right in zip(scores, gold, strict=True) if other >= score])
        for score, right in zip(scores, gold, strict=True)
        if right
    ]
    return sum(found) / (len(found) + missed) if len(found) + missed else 0.0


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_mean_precision_over_right_items(seed):
    random = np.random.default_rng(seed)
    size = int(random.integers(0, 30))
    scores, gold = random.integers(0, 8, size) / 8, random.random(size) < 0.3
    missed = int(random.integers(0, 4))
    assert average_precision(scores, gold, missed=missed) == pytest.approx(
        by_hand(scores, gold, missed)
    )


def test_a_perfect_order_is_1_and_the_worst_is_low():
    gold = [True] * 2 + [False] * 8
    assert average_precision(np.arange(10, 0, -1), gold) == 1
    assert average_precision(np.arange(10), gold) == pytest.approx((1 / 9 + 2 / 10) / 2)


def test_it_is_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    for _ in range(200):
        size = int(random.integers(2, 40))
        scores = random.integers(0, 12, (size, 3)) / 12  # with ties
        gold = random.random((size, 3)) < 0.3
        gold[0] = True
        expected = [metrics.average_precision_score(gold[:, c], scores[:, c]) for c in range(3)]
        assert average_precision(scores[:, 0], gold[:, 0]) == pytest.approx(expected[0])
        assert macro_average_precision(scores, gold) == pytest.approx(np.mean(expected))


def test_labels_that_no_item_has_are_left_out():
    scores = [[0.9, 0.9], [0.1, 0.8]]
    assert macro_average_precision(scores, [[1, 0], [0, 0]]) == 1
    assert macro_average_precision(scores, [[0, 0], [0, 0]]) == 0


def test_leaving_out_one_item_is_exact():
    random = np.random.default_rng(0)
    for _ in range(300):  # with ties, labels that nobody has, and labels that one item has
        shape = int(random.integers(1, 12)), int(random.integers(1, 4))
        scores, gold = random.integers(0, 6, shape), random.random(shape) < random.random()
        wanted = [
            macro_average_precision(np.delete(scores, i, 0), np.delete(gold, i, 0))
            for i in range(len(scores))
        ]
        assert leave_one_out(scores, gold) == pytest.approx(np.array(wanted), abs=1e-12)


def test_the_jackknife_knows_how_far_average_precision_spreads():
    random = np.random.default_rng(1)
    found, errors = [], []
    for _ in range(400):
        gold = random.random((200, 1)) < 0.3
        scores = random.normal(size=(200, 1)) + 1.2 * gold
        without = leave_one_out(scores, gold)
        found.append(macro_average_precision(scores, gold))
        errors.append(np.sqrt(199 * without.var()))
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.15)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"got \(2,\) and \(1,\)"):
        average_precision([1, 2], [1])
    with pytest.raises(ValueError, match="NaN"):
        average_precision([float("nan")], [1])
    with pytest.raises(ValueError, match=r"\(items, labels\), got \(2,\)"):
        macro_average_precision([1, 2], [1, 0])
    with pytest.raises(ValueError, match="NaN"):
        leave_one_out([[float("nan")]], [[1]])
