"""Which settings short runs choose."""

import numpy as np

from softf1.experiments.trials import Trial, raise_equals, read_trial


def trial(right):
    """An accuracy: the pseudo-values of a mean are its terms."""
    values = np.array(right, float)
    return Trial(float(values.mean()), values)


def test_the_usual_setting_stays_where_another_is_ahead_by_luck():
    usual = [1, 0, 1, 1, 0, 1, 1, 0, 1, 1] * 10
    lucky = list(usual)
    lucky[1], lucky[2], lucky[4] = 1, 0, 1  # two gained, one lost: +0.01, standard error 0.017
    assert raise_equals([trial(usual), trial(lucky)]) == [0.71, 0.71]


def test_a_setting_that_is_surely_better_is_taken():
    usual = [1, 0, 1, 1, 0, 1, 1, 0, 1, 1] * 10
    better = [1, 1, 1, 1, 0, 1, 1, 0, 1, 1] * 10  # ten gained, none lost: +0.1, error 0.03
    assert raise_equals([trial(usual), trial(better)]) == [0.7, 0.8]


def test_trials_that_failed_or_cannot_be_counted_keep_their_scores():
    other = Trial(0.5, np.ones(3))
    assert raise_equals([Trial(None), Trial(0.69), trial([1, 1, 0]), other]) == [
        None,
        0.69,
        2 / 3,
        0.5,
    ]
    assert raise_equals([Trial(None), Trial(None)]) == [None, None]


def test_files_that_are_gone_leave_the_score(tmp_path):
    result = {"headline": "f1", "scores": {"dev": {"f1": 0.25}}}
    assert read_trial(tmp_path, result) == Trial(0.25)
    assert read_trial(tmp_path, None) == Trial(None)
