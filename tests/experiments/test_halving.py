import pytest

from softf1.experiments.halving import count_cost, halve, halve_together


def search(settings, shares, score, **options):
    rounds = halve(settings, shares, **options)
    trials = next(rounds)
    asked = []
    while True:
        asked.append(trials)
        try:
            trials = rounds.send([score(setting) for setting, _ in trials])
        except StopIteration as found:
            return found.value, asked


def test_the_best_of_the_last_round_is_chosen():
    score = {"a": 0.1, "b": 0.4, "c": 0.3, "d": 0.2}.get
    best, asked = search(["a", "b", "c", "d"], [0.1, 0.3], score)
    assert best == "b"
    assert asked[1] == [("b", 0.3), ("c", 0.3)]


def test_of_equals_the_first_wins_and_failures_lose():
    assert search(["a", "b"], [1.0], lambda _: 0.5)[0] == "a"
    scores = {"a": None, "b": float("nan"), "c": -5.0}
    assert search(["a", "b", "c"], [1.0], scores.get)[0] == "c"
    assert search(["a", "b"], [1.0], lambda _: None)[0] == "a"


def test_one_setting_needs_no_trial():
    with pytest.raises(StopIteration) as found:
        next(halve(["only"], [0.1, 0.3]))
    assert found.value.value == "only"
    with pytest.raises(ValueError, match="settings to choose from"):
        next(halve([], [0.1]))


def test_several_searches_share_their_rounds():
    rounds = []

    def measure(trials):
        rounds.append([(key, setting) for key, setting, _ in trials])
        return [-abs(setting - {"x": 3, "y": 1}[key]) for key, setting, _ in trials]

    chosen = halve_together({"x": range(4), "y": range(4), "z": [7]}, [0.1, 0.3], measure)
    assert chosen == {"x": 3, "y": 1, "z": 7}
    assert [len(one) for one in rounds] == [8, 4]


def test_cost_is_that_of_the_trials():
    _, asked = search(list(range(9)), [1 / 3, 1.0], float, keep=3)
    assert sum(share for one in asked for _, share in one) == pytest.approx(6)
    assert count_cost(9, [1 / 3, 1.0], keep=3) == pytest.approx(6)
    assert count_cost(1, [1 / 3]) == 0


def test_the_order_of_settings_decides_between_equals_in_every_round():
    rounds = halve(["usual", "a", "b", "c"], [0.3, 1.0])
    next(rounds)
    assert rounds.send([0.80, 0.85, 0.1, 0.1]) == [("usual", 1.0), ("a", 1.0)]
    with pytest.raises(StopIteration) as found:
        rounds.send([0.9, 0.9])
    assert found.value.value == "usual"
