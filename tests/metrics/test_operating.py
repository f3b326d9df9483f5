import csv
import runpy

import numpy as np
import pytest

from softf1.metrics.binomial import binomial_tail, fewest_all_right, first_size, lower_bound
from softf1.metrics.crossfit import assign_folds
from softf1.metrics.operating import (
    NEVER,
    Pool,
    Target,
    Units,
    best_threshold,
    choose_bars,
    choose_point,
    read_targets,
    walk,
)
from tests.pages import ROOT

stats = pytest.importorskip("scipy.stats")


@pytest.fixture(scope="module")
def simulate():
    """Of the benchmark, by its path: there is a package named coverage."""
    return runpy.run_path(str(ROOT / "benchmarks/coverage.py"))["simulate"]


def draw(random, size=400):
    """Texts with their probability; the higher, the likelier right. Every tenth gold is missing."""
    score = random.random(size).round(2)  # with ties
    right = random.random(size) < score
    return Pool.of(score, right, gold=right + (np.arange(size) % 10 == 0))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("precision>=1.5", "a precision above 0 and below 1"),
        ("precision>=95%", "a precision above 0 and below 1"),
        ("recall>=0", "a recall above 0 and below 1"),
        ("recall", '"f1", "f2", "precision>=0.95"'),
        ("precision>0.9", '"f1", "f2", "precision>=0.95"'),
        ("cost:fp=-1,fn=2", "costs of 0 or more"),
        ("cost:fp=-1", '"cost:fp=1,fn=10"'),
        ("cost:fp=0,fn=0", "costs of 0 or more"),
        ("cost:fp=one,fn=1", "costs of 0 or more"),
        ("f0", '"f1", "f2"'),
        ("F1", '"f1", "f2"'),
    ],
)
def test_bad_targets_say_what_is_wanted(text, wanted):
    with pytest.raises(ValueError, match="wanted") as error:
        Target.parse(text)
    assert wanted in str(error.value)
    assert repr(text) in str(error.value)


def test_targets_are_read():
    assert Target.parse("f2").beta == 2
    assert Target.parse("precision >= 0.9").least == 0.9
    assert Target.parse("cost:fp=1,fn=10").fn == 10
    assert read_targets({"PER": "recall>=0.9"})["PER"].kind == "recall"
    with pytest.raises(ValueError, match="empty table"):
        read_targets({})


def test_the_tail_and_the_bound_are_those_of_scipy():
    random = np.random.default_rng(0)
    for _ in range(100):
        trials = int(random.integers(1, 2000))
        right, share = int(random.integers(0, trials + 1)), random.random()
        wanted = stats.binom.sf(right - 1, trials, share)
        assert binomial_tail(right, trials, share) == pytest.approx(wanted, rel=1e-7, abs=1e-200)
        bound = stats.beta.ppf(0.05, right, trials - right + 1) if right else 0.0
        assert lower_bound(right, trials) == pytest.approx(bound, abs=1e-9)
    assert lower_bound(0, 0) == 0.0
    assert binomial_tail(3, 2, 0.5) == 0.0


@pytest.mark.parametrize("level", [0.05, 0.2])
@pytest.mark.parametrize("least", [0.1, 0.5, 0.73, 0.8, 0.9, 0.97, 0.999])
def test_a_walk_starts_at_the_size_that_counting_up_finds(least, level):
    size = fewest_all_right(least, level)
    while binomial_tail(size - int(size * (1 - least) / 2), size, least) > level:
        size += 1
    assert first_size(least, level) == size


def test_a_walk_starts_at_once_for_a_share_near_1():
    # To count up to 8e10 would take days; with 3 errors, half of what is allowed, it passes.
    size = first_size(1 - 1e-10, 0.05)
    assert int(size * 1e-10 / 2) == 3
    assert binomial_tail(size - 3, size, 1 - 1e-10) <= 0.05


@pytest.mark.parametrize("text", ["f1", "f2", "f0.5", "cost:fp=1,fn=10", "cost:fp=7,fn=1"])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_threshold_is_that_of_brute_force(text, seed):
    pool, target = draw(np.random.default_rng(seed)), Target.parse(text)
    threshold = best_threshold(pool, target=target)

    def value(threshold):
        given = pool.score >= threshold
        tp, fp = int((given & pool.right).sum()), int((given & ~pool.right).sum())
        fn, beta = int(pool.gold.sum()) - tp, target.beta**2
        if target.kind == "cost":
            return -(target.fp * fp + target.fn * fn)
        return (1 + beta) * tp / ((1 + beta) * tp + fp + beta * fn) if given.any() else 0.0

    best = max(map(value, [*pool.score.tolist(), NEVER]))
    assert value(threshold) == pytest.approx(best)


def test_a_default_that_is_as_good_on_other_items_stays():
    random = np.random.default_rng(0)
    score = random.random(3000)
    pool = Pool.of(score, random.random(3000) < score)  # probabilities that are what they say
    target = Target.parse("cost:fp=1,fn=1")
    assert best_threshold(pool, target=target) != 0.5
    assert choose_point(pool, target, default=0.5).threshold == 0.5
    far = choose_point(pool, target, default=NEVER)
    assert (far.given, far.right, far.gold) == pool.count(best_threshold(pool, target=target))


@pytest.mark.parametrize("seed", range(3))
def test_a_precision_is_the_end_of_a_walk_of_binomial_tests(seed):
    """Brute force over the same sizes: each passes until the first that does not."""
    random = np.random.default_rng(seed)
    score = random.random(3000)
    pool = Pool.of(score, random.random(3000) < np.sqrt(score))
    point = choose_point(pool, Target.parse("precision>=0.8"))
    order = np.argsort(-score)
    last = None
    # With 30 of which 3 (half of 20%) are wrong the test passes for the first time.
    for size in np.unique(np.geomspace(30, 3000, 100).round().astype(int)):
        right = int(pool.right[order[:size]].sum())
        if stats.binomtest(right, int(size), 0.8, alternative="greater").pvalue > 0.05:
            break
        last = size
    assert (point.reached, point.given) == (True, last)
    assert point.bound >= 0.8
    assert point.right == pool.right[order[:last]].sum()


@pytest.mark.parametrize("seed", range(2))
def test_a_recall_is_the_strictest_threshold_that_passes(seed):
    pool = draw(np.random.default_rng(seed))
    point = choose_point(pool, Target.parse("recall>=0.6"))
    gold = int(pool.gold.sum())
    passing = [
        threshold
        for threshold in np.unique(pool.score).tolist()
        if lower_bound(pool.count(threshold)[1], gold) >= 0.6
    ]
    assert point.reached
    assert point.threshold == max(passing)


def test_what_cannot_be_reached_is_said_and_the_closest_taken():
    random = np.random.default_rng(0)
    score = random.random(400)
    pool = Pool.of(score, random.random(400) < 0.3 + 0.4 * score)
    point = choose_point(pool, Target.parse("precision>=0.95"))
    assert point.reached is False
    assert point.bound < 0.95
    assert "precision>=0.95 is not reached with 95% confidence" in point.complain()
    assert f"{point.right} of {point.given}" in point.complain()
    assert "the closest, 0.99998, is used" in point._replace(threshold=0.99998).complain()
    # Of 60 the few at the top are closer to it than all of them, of which half are right.
    small = choose_point(Pool.of(score[:60], score[:60] > 0.5), Target.parse("precision>=0.99"))
    assert small.reached is False
    assert small.precision == 1.0
    # Ten right ones in a row are no evidence either.
    few = choose_point(Pool.of([0.9] * 10, [True] * 10), Target.parse("precision>=0.9"))
    assert (few.reached, few.given) == (False, 10)
    # Half of what should be found is never given: everything there is, is.
    half = choose_point(
        Pool.of(score, score > 0.5, gold=np.full(400, 1)), Target.parse("recall>=0.9")
    )
    assert (half.reached, half.given) == (False, 400)
    assert "recall" in half.complain()
    empty = choose_point(Pool.of([], [], gold=[1] * 9), Target.parse("precision>=0.9"))
    assert (empty.reached, empty.given, empty.curve) == (False, 0, [])
    assert choose_point(pool, Target.parse("f2")).complain() is None


def test_the_closest_is_the_threshold_with_the_highest_bound():
    right = np.zeros(200, bool)
    right[[0, 5, 7, 9, 11, 13, 15, 17, 20]] = True  # the surest one, and 9 of the first 21
    point = choose_point(Pool.of(np.linspace(1, 0.1, 200), right), Target.parse("precision>=0.8"))
    assert (point.reached, point.right, point.given) == (False, 9, 21)
    assert point.bound == pytest.approx(0.245, abs=5e-4)
    for seed in range(20):
        pool = draw(np.random.default_rng(seed), size=60)
        point = choose_point(pool, Target.parse("precision>=0.99"))
        bounds = [lower_bound(*pool.count(score)[1::-1]) for score in pool.score]
        assert point.bound == max(bounds)
    wrong = choose_point(Pool.of([0.9, 0.8, 0.7], [False] * 3), Target.parse("precision>=0.9"))
    assert wrong.given == 3


@pytest.mark.parametrize("text", ["precision>=0.9", "recall>=0.9"])
def test_without_predictions_no_threshold_is_called_the_closest(text):
    point = choose_point(Pool.of([], [], gold=[1] * 9), Target.parse(text))
    wanted = f"{text} is not reached on dev, where nothing is predicted"
    assert point.complain() == wanted
    assert point._replace(label="LOC").complain() == f"LOC: {wanted}"
    none = choose_point(Pool.of([0.9], [False]), Target.parse("recall>=0.9"))
    assert none.complain() == "recall>=0.9 is not reached on dev, where there is nothing to find"


def test_the_curve_has_points_where_recall_changes_and_over_all_examples():
    right = np.zeros(600, bool)
    right[[0, 1, 2, 4, 5, 7, 10, 14, 20, 30]] = True
    point = choose_point(Pool.of(np.linspace(1, 0.1, 600), right), Target.parse("f1"))
    recalls = [recall for _, _, recall in point.curve]
    assert len(recalls) <= 60
    assert set(recalls) == {one / 10 for one in range(1, 11)}
    assert point.curve[0] == (1.0, 1.0, 0.1)
    assert point.curve[-1] == (0.1, round(10 / 600, 6), 1.0)
    thresholds = [threshold for threshold, _, _ in point.curve]
    assert max(-np.diff(thresholds)) < 0.04  # 0.9 in 29 steps
    nothing = choose_point(Pool.of([0.9, 0.8], [False] * 2), Target.parse("f1")).curve
    assert nothing == [(0.9, 0.0, 0.0), (0.8, 0.0, 0.0)]


def test_a_target_that_only_a_later_threshold_reaches_is_not_promised_and_why():
    # 12 of the 40 surest are wrong and all others right: 388 of 400 alone would be enough
    right = np.ones(400, bool)
    right[:36:3] = False
    point = choose_point(Pool.of(np.linspace(1, 0.1, 400), right), Target.parse("precision>=0.9"))
    assert (point.reached, point.right, point.given) == (False, 388, 400)
    assert point.bound > 0.9
    assert point.complain() == (
        "precision>=0.9 is not reached with 95% confidence: the strictest thresholds, which are "
        "tested first, fail on dev; the closest, 0.1, is used: precision 388 of 400, at least "
        f"{point.bound:.3f} if it were the only one tested"
    )


def test_cross_fitting_does_not_leak():
    """What is right in a fold has no say in the threshold that the fold is counted with."""
    random = np.random.default_rng(0)
    score = random.random(1000)
    pool = Pool.of(score, random.random(1000) < score)
    target = Target.parse("precision>=0.7")
    folds = assign_folds(1000, folds=5, seed=0)
    given = right = 0
    for fold in range(5):
        own = folds == fold
        other = Pool.of(score, np.where(own, random.random(1000) < 0.5, pool.right))
        threshold, _ = walk(pool.only(~own), target, 0.95)
        assert walk(other.only(~own), target, 0.95)[0] == threshold
        given += (score[own] >= threshold).sum()
        right += pool.right[own][score[own] >= threshold].sum()
    point = choose_point(pool, target)
    assert point.cross_fitted[0] == right / given
    assert point.cross_fitted[1] == right / pool.right.sum()


def test_items_stay_whole_and_equal_input_gives_equal_output():
    pool = Pool.of([0.9, 0.8, 0.7], [1, 0, 1], item=[0, 0, 1], gold=[1, 1, 3])
    part = pool.only(np.array([True, False, True]))
    assert part.score.tolist() == [0.9, 0.8]
    assert part.count(0.85) == (1, 1, 4)
    random = np.random.default_rng(3)
    big = draw(random)
    assert choose_point(big, Target.parse("f1")) == choose_point(big, Target.parse("f1"))
    with pytest.raises(ValueError, match="one length"):
        Pool.of([0.1], [True, False])
    with pytest.raises(ValueError, match="1 NaN"):
        Pool.of([np.nan], [True])


def test_bars_of_labels_are_points_of_their_own():
    random = np.random.default_rng(0)
    size = 3000
    label = random.choice(["PER", "LOC"], size).tolist()
    score = random.random(size)
    right = random.random(size) < np.where(np.array(label) == "PER", 0.98, score)
    units = Units(list(range(size)), label, score.tolist(), right.tolist(), [[x] for x in label])
    per, loc = Target.parse("precision>=0.9"), Target.parse("precision>=0.8")
    bars, points = choose_bars(units, {"PER": per, "LOC": loc}, ["LOC", "PER"])
    assert bars["PER"] < 0.01  # nearly all are right
    assert 0.4 < bars["LOC"] < 0.8  # from t on (1 + t) / 2 are right
    assert [point.label for point in points] == ["PER", "LOC"]
    alone = units.pool("LOC")
    assert choose_point(alone, loc, default=0.0).threshold == bars["LOC"]
    both, (point,) = choose_bars(units, loc, ["LOC", "PER"])
    assert both == {"LOC": point.threshold, "PER": point.threshold}


@pytest.mark.parametrize("text", ["precision>=0.9", "recall>=0.9"])
def test_a_promise_is_kept_19_times_in_20(simulate, text):
    """150 dev sets; at 95% more than 15 broken promises have a probability of 0.2%."""
    found = simulate(text, texts=600, share=0.3, distance=2.5, runs=150, seed=0)
    assert found["broken"] <= 15
    assert found["reached"] >= 0.5  # not by promising nothing


def test_without_the_bound_the_promise_is_broken(simulate):
    """The best guess, the lowest threshold with that precision on dev, fails half of the time."""
    found = simulate("precision>=0.9", texts=400, share=0.3, distance=2.5, runs=60, naive=True)
    assert found["broken"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("text", ["precision>=0.8", "precision>=0.95", "recall>=0.8"])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_coverage_over_many_dev_sets(simulate, text, share):
    found = simulate(text, texts=1000, share=share, distance=2.5, runs=1000, seed=1)
    # Three standard deviations of a binomial of 1000 at 5%.
    assert found["broken"] <= 50 + 21


def test_the_page_has_the_promises_that_were_made_and_kept():
    with (ROOT / "benchmarks/results/coverage.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["way"] == "bound"]
    page = (ROOT / "docs/howto/operating-points.md").read_text("utf-8")
    for target in {row["target"] for row in rows}:
        own = [row for row in rows if row["target"] == target]
        runs = sum(int(row["runs"]) for row in own)
        made = [(round(float(row["reached"]) * int(row["runs"])), row) for row in own]
        kept = [(size, size - int(row["broken"])) for size, row in made if size]
        total, held = (sum(column) for column in zip(*kept, strict=True))
        size, few = min(kept, key=lambda one: one[1] / one[0])
        line = f"| `{target}` | {total / runs:.1%} | {held / total:.1%} | {few} of {size} |"
        assert line in page
