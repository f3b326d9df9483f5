import numpy as np
import pytest

from softf1.metrics.ranking import average_precision


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


@pytest.mark.parametrize(
    ("scores", "gold", "message"),
    [([0.1], [True, False], r"\(1,\) and \(2,\)"), ([float("nan")], [True], "1 NaN")],
)
def test_bad_input_is_refused(scores, gold, message):
    with pytest.raises(ValueError, match=message):
        average_precision(scores, gold)
