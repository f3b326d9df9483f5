import math
from dataclasses import replace

import numpy as np
import pytest

from softf1.experiments.per_example import RunScores
from softf1.experiments.statistics import Difference
from softf1.experiments.verdicts import (
    find_best,
    find_constant,
    find_undecided,
    find_verdict,
    judge_control,
    list_caveats,
    name_gain,
    name_needs,
    say_which_help,
)

SURE = Difference(mean=0.008, low=0.003, high=0.013, p=0.002, seeds=5, examples=900)
WORSE = Difference(mean=-0.02, low=-0.03, high=-0.01, p=0.001, seeds=5)
OPEN = Difference(
    mean=0.001, low=-0.002, high=0.004, p=0.4, seeds=5, sd_seeds=0.004, sd_examples=0.0
)
SMALL = Difference(
    mean=0.001, low=-0.04, high=0.04, p=0.9, seeds=5, sd_seeds=0.01, sd_examples=0.02, examples=292
)
ONE = Difference(mean=-0.004, seeds=1)


def test_gain_is_in_points():
    assert name_gain(SURE, "f1") == "+0.8 F1 [0.3, 1.3]"
    assert name_gain(WORSE, "accuracy") == "−2.0 accuracy [−3.0, −1.0]"
    assert name_gain(ONE, "macro_f1") == "−0.4 macro F1"


def test_verdicts_of_one_loss():
    assert find_verdict(SURE, 0.01, losses=5, gain=0.005) == "helps"
    assert find_verdict(WORSE, 0.01, losses=5, gain=0.005) == "hurts"
    assert find_verdict(SURE, 0.08, losses=5, gain=0.005).startswith("may help; among 5 losses")
    assert find_verdict(ONE, math.nan, losses=5, gain=0.005) == "one seed is not enough"
    said = find_verdict(OPEN, 1.0, losses=5, gain=0.003)
    assert said == "no difference that 5 seeds can show; a gain of 0.3 would need 16 seeds"


def test_a_small_test_set_is_named_as_the_limit():
    # (1.96 + 0.84)² · (0.02 / 0.005)² · 292 = 36,672
    assert find_verdict(SMALL, 1.0, losses=5, gain=0.005) == (
        "no difference that 5 seeds can show; a gain of 0.5 would need about 37,000 test examples "
        "in place of 292"
    )


def test_seeds_are_named_where_they_are_most_of_the_noise():
    noisy = replace(SMALL, sd_seeds=0.05)  # 0.05² / 5 is above 0.02²
    said = "a gain of 0.5 would need more seeds and about 37,000 test examples in place of 292"
    assert name_needs(noisy, gain=0.005) == said


def test_enough_seeds_are_said_to_be_enough():
    said = find_verdict(OPEN, 1.0, losses=5, gain=0.02)
    assert said.endswith("a true gain of 2 would have been seen 4 times out of 5")


def test_runs_that_all_score_the_same_say_nothing_of_a_true_difference():
    """Six runs at 0 beside six at 0 said that a true gain would have been seen."""
    dead = Difference(
        mean=0.0, low=0.0, high=0.0, p=1.0, probability=0.5, seeds=6, sd_seeds=0.0, sd_examples=0.0
    )
    assert find_verdict(dead, 1.0, losses=5, gain=0.005) == "no difference in any run"


def test_97_percent_and_no_difference_do_not_stand_side_by_side():
    leans = replace(OPEN, p=0.06, probability=0.97)
    assert find_verdict(leans, 0.5, losses=9, gain=0.003).startswith(
        "perhaps better, not sure; a gain"
    )
    other = replace(OPEN, mean=-0.001, p=0.06, probability=0.03)
    assert find_verdict(other, 0.5, losses=9, gain=0.003).startswith("perhaps worse, not sure; ")


def test_controls_are_placed_not_praised():
    assert judge_control(SURE) == "significantly above"
    assert judge_control(WORSE) == "significantly below"
    assert judge_control(OPEN) == "no significant difference"
    assert judge_control(ONE) == "one seed is not enough"


def test_conclusion_names_what_is_sure():
    rows = {"dice": (SURE, 0.01), "focal": (OPEN, 1.0), "dsc": (WORSE, 0.01)}
    said = say_which_help(rows, baseline="ce", metric="f1")
    assert said == "dice +0.8 F1 [0.3, 1.3] over ce: helps. dsc hurts."


def test_the_best_loss_is_the_one_that_the_conclusion_names():
    assert find_best({"focal": (SMALL, 1.0), "dice": (SURE, 0.01)}) == "dice"
    lucky = replace(SMALL, mean=0.03)  # ahead, but not for sure
    assert find_best({"focal": (lucky, 1.0), "dice": (SURE, 0.01)}) == "dice"
    assert find_best({"focal": (lucky, 1.0), "dsc": (WORSE, 0.01)}) == "focal"
    assert find_best({}) is None


def test_conclusion_where_nothing_is_sure():
    rows = {"focal": (OPEN, 1.0), "la": (SMALL, 1.0)}
    said = say_which_help(rows, baseline="ce", metric="f1")
    assert said.startswith("No loss is significantly better than ce; the best is focal +0.1 F1")
    swept = say_which_help(rows, baseline="lr=0.1", metric="f1", noun="setting")
    assert swept.startswith("No setting is significantly better than lr=0.1; the best is")
    behind = say_which_help({"dsc": (WORSE, 0.2)}, baseline="ce", metric="f1")
    assert "none is ahead of it, the closest is dsc −2.0 F1" in behind
    one = say_which_help({"dice": (ONE, math.nan)}, baseline="ce", metric="f1")
    assert one == "One seed is not enough: dice −0.4 F1 against ce."
    assert say_which_help({}, baseline="ce", metric="f1") == "Nothing to compare with ce."


def run_of(score, pseudo=None, **more):
    return RunScores(score=score, pseudo=pseudo, scores={}, dev={}, labels={}, **more)


def trials_of(loss, scores, share=1 / 3):
    return [{"loss": loss, "score": score, "share": share} for score in scores]


@pytest.mark.parametrize(
    ("scores", "wanted"),
    [
        ([0.5, 0.6, 0.7, 0.8], []),
        ([0.5, 0.5, 0.7, 0.8], []),  # two may be equal by chance
        ([0.5, 0.5, 0.5, 0.8], ["dice"]),
        ([0.0, 0.0, None, None], ["dice"]),
        ([0.5, None, None, None], []),
        ([None, None], []),
    ],
)
def test_short_runs_with_one_score_decide_nothing(scores, wanted):
    assert find_undecided(trials_of("dice", scores)) == wanted


def test_the_last_round_counts():
    trials = trials_of("dice", [0.5] * 9) + trials_of("dice", [0.1, 0.5, 0.3], share=1.0)
    assert find_undecided(trials) == []


VALUES = np.repeat([0.0, 1.0], 100)
OTHER = np.repeat([1.0, 0.0], 100)


@pytest.mark.parametrize(
    ("runs", "wanted"),
    [
        ([run_of(0.5, VALUES), run_of(0.5, VALUES)], ["ce"]),
        ([run_of(0.5, VALUES), run_of(0.5, OTHER)], []),
        ([run_of(0.5, VALUES), run_of(0.5, None)], []),
        ([run_of(0.5, VALUES)], []),
        ([run_of(1.0, VALUES), run_of(1.0, VALUES)], []),  # all is right
        ([run_of(0.5, VALUES[:5]), run_of(0.5, VALUES[:5])], []),  # few examples: by chance
        ([run_of(0.5), run_of(0.5)], []),
    ],
)
def test_one_answer_to_all(runs, wanted):
    assert find_constant({"ce": dict(enumerate(runs))}) == wanted


def test_rows_are_named_together():
    constant = {0: run_of(0.3, VALUES), 1: run_of(0.3, VALUES)}
    trials = trials_of("dice", [0.0] * 4) + trials_of("dsc", [0.0] * 4)
    first, second = list_caveats({"dice": constant, "dsc": constant}, trials)
    assert first.startswith("short runs say little about dice, dsc: ")
    assert second.startswith("every test example scores the same with every seed of dice, dsc: ")


def test_a_dead_seed_of_five_is_said_as_such():
    dead = {seed: run_of(0.92) for seed in range(4)} | {4: run_of(0.0, collapsed=True)}
    (said,) = list_caveats({"ce": dead, "dice": {0: run_of(0.9)}}, [])
    assert said.startswith("collapsed (nothing, or only one class, predicted on dev): ce (1 of 5")
    assert "dice" not in said
