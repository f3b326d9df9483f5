import numpy as np
import pytest

from softf1.experiments.comparison import Run
from softf1.experiments.doubts import find_constant, find_undecided, say_doubts


def run_of(score, pseudo=None, **more):
    return Run(score=score, pseudo=pseudo, scores={}, dev={}, labels={}, **more)


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


ONE = np.repeat([0.0, 1.0], 100)
OTHER = np.repeat([1.0, 0.0], 100)


@pytest.mark.parametrize(
    ("runs", "wanted"),
    [
        ([run_of(0.5, ONE), run_of(0.5, ONE)], ["ce"]),
        ([run_of(0.5, ONE), run_of(0.5, OTHER)], []),
        ([run_of(0.5, ONE), run_of(0.5, None)], []),
        ([run_of(0.5, ONE)], []),
        ([run_of(1.0, ONE), run_of(1.0, ONE)], []),  # all is right
        ([run_of(0.5, ONE[:5]), run_of(0.5, ONE[:5])], []),  # few examples: by chance
        ([run_of(0.5), run_of(0.5)], []),
    ],
)
def test_one_answer_to_all(runs, wanted):
    assert find_constant({"ce": dict(enumerate(runs))}) == wanted


def test_rows_are_named_together():
    constant = {0: run_of(0.3, ONE), 1: run_of(0.3, ONE)}
    trials = trials_of("dice", [0.0] * 4) + trials_of("dsc", [0.0] * 4)
    first, second = say_doubts({"dice": constant, "dsc": constant}, trials)
    assert first.startswith("short runs say little about dice, dsc: ")
    assert second.startswith("every test example scores the same with every seed of dice, dsc, ")


def test_a_dead_seed_of_five_is_said_as_such():
    dead = {seed: run_of(0.92) for seed in range(4)} | {4: run_of(0.0, collapsed=True)}
    (said,) = say_doubts({"ce": dead, "dice": {0: run_of(0.9)}}, [])
    assert said.startswith("collapsed, that is found nothing or one class alone on dev: ce (1 of 5")
    assert "dice" not in said
