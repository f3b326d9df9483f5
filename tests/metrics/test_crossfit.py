from __future__ import annotations

import numpy as np
import pytest

from softf1.metrics.counts import Counts
from softf1.metrics.crossfit import assign_folds, average_f, crossfit, pick_rule


def test_each_fold_is_judged_by_the_choice_of_the_others():
    asked = []

    def count(choice, fold):
        assert fold not in choice
        asked.append(fold)
        return Counts.from_dict({str(fold): (len(choice), 0, 0)})

    parts = crossfit(tuple, count, folds=4)
    assert asked == [0, 1, 2, 3]
    assert [part.to_dict() for part in parts] == [{str(fold): [3, 0, 0]} for fold in range(4)]


def test_folds_are_even_and_depend_on_the_seed_only():
    folds = assign_folds(103, folds=5, seed=1)
    assert sorted(np.bincount(folds)) == [20, 20, 21, 21, 21]
    assert np.array_equal(folds, assign_folds(103, folds=5, seed=1))
    assert not np.array_equal(folds, assign_folds(103, folds=5, seed=2))
    with pytest.raises(ValueError, match="wanted 2 folds or more, got 1"):
        assign_folds(10, folds=1, seed=0)


@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
def test_tables_average_as_counts_do(average):
    tables = np.random.default_rng(0).integers(0, 9, (6, 4, 3))
    for table, f in zip(tables, average_f(tables, average=average, beta=2.0), strict=True):
        assert f == pytest.approx(Counts("abcd", table).average(average, beta=2.0).f)
    with pytest.raises(ValueError, match="wanted an average of"):
        average_f(tables, average="samples")


def folds_of(*rows):
    return [Counts.from_dict({"x": row}) for row in rows]


def micro(counts):
    return counts.micro().f


def test_a_rule_has_to_be_clearly_better_than_a_simpler_one():
    simple = folds_of((5, 5, 5), (6, 4, 4), (5, 5, 5))
    same = folds_of((5, 5, 5), (6, 4, 4), (5, 5, 5))
    lucky = folds_of((9, 1, 1), (4, 6, 6), (4, 6, 6))  # one more found in all, in one fold
    better = folds_of((7, 3, 3), (8, 2, 2), (7, 3, 3))
    rules = {"simple": simple, "same": same, "lucky": lucky}
    rule, honest = pick_rule(rules, score=micro)
    assert rule == "simple"
    assert honest["lucky"] > honest["simple"] == honest["same"]
    assert pick_rule({**rules, "better": better}, score=micro)[0] == "better"
    assert pick_rule({"better": better, "simple": simple}, score=micro)[0] == "better"
