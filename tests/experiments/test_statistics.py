import math

import numpy as np
import pytest
from scipy import stats

from softf1.experiments.statistics import (
    correct_holm,
    estimate_difference,
    examples_needed,
    jackknife,
    seeds_needed,
)
from tests.experiments.synthetic import REGIMES, draw, f1, true_f1

every_regime = pytest.mark.parametrize("regime", REGIMES)


def difference_of(tables):
    """The estimate for the second loss of a grid (losses, seeds, examples, 3) over the first."""
    scores = f1(tables.sum(axis=2))
    pseudo = np.array([[jackknife(run, f1) for run in loss] for loss in tables])
    return estimate_difference(scores[1] - scores[0], pseudo[1] - pseudo[0])


def simulate(regime, *, grids, qualities, seed=0, **size):
    """Shares of grids whose interval has the truth, and whose p-value is below 5%."""
    rng = np.random.default_rng(seed)
    noise = REGIMES[regime]
    share = size.get("share", 0.2)
    truth = true_f1(noise, qualities[1], share) - true_f1(noise, qualities[0], share)
    found = [difference_of(draw(rng, noise, qualities, **size)) for _ in range(grids)]
    covered = np.mean([one.low <= truth <= one.high for one in found])
    return float(covered), float(np.mean([one.p < 0.05 for one in found]))


@every_regime
def test_no_more_false_alarms_than_promised_over_2000_grids(regime):
    covered, alarms = simulate(regime, grids=2000, qualities=(1.0, 1.0))
    assert covered >= 0.93
    assert alarms <= 0.06


@every_regime
@pytest.mark.parametrize(("seeds", "least"), [(2, 0.95), (3, 0.91), (4, 0.93)])
def test_few_seeds_raise_few_false_alarms(regime, seeds, least):
    covered, alarms = simulate(regime, grids=500, qualities=(1.0, 1.0), seed=3, seeds=seeds)
    assert covered >= least
    assert alarms <= 1 - least + 0.01


@every_regime
def test_interval_has_a_true_gain(regime):
    covered, found = simulate(regime, grids=400, qualities=(0.8, 1.2), seed=1)
    assert covered >= 0.93
    if regime != "seeds":  # whose noise is as large as the gain
        assert found > 0.6  # the test can also find something


@pytest.mark.slow
@every_regime
@pytest.mark.parametrize(("examples", "share"), [(100, 0.3), (1500, 0.05), (300, 0.2)])
@pytest.mark.parametrize("qualities", [(1.0, 1.0), (0.8, 1.1)])
def test_coverage_in_the_long_form(regime, examples, share, qualities):
    size = {"examples": examples, "share": share}
    covered, alarms = simulate(regime, grids=2000, qualities=qualities, seed=2, **size)
    assert covered >= 0.93
    assert qualities[0] != qualities[1] or alarms <= 0.06


def test_a_percentile_bootstrap_of_5_seeds_covers_too_little():
    rng = np.random.default_rng(0)
    runs = rng.normal(size=(2000, 5))
    drawn = rng.integers(0, 5, size=(400, 5))
    means = runs[:, drawn].mean(axis=-1)  # (2000, 400)
    low, high = np.quantile(means, [0.025, 0.975], axis=1)
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(0.84, abs=0.025)
    ours = [estimate_difference(run) for run in runs]
    assert np.mean([one.low <= 0 <= one.high for one in ours]) >= 0.93


@pytest.mark.parametrize("regime", ["examples", "mixed"])
def test_seeds_alone_would_cover_too_little(regime):
    """The mistake this is made against: a test set's luck is the same for every seed."""
    rng = np.random.default_rng(3)
    covered = []
    for _ in range(400):
        scores = f1(draw(rng, REGIMES[regime], (1.0, 1.0)).sum(axis=2))
        one = estimate_difference(scores[1] - scores[0])
        covered.append(one.low <= 0 <= one.high)
    assert np.mean(covered) < 0.90


def test_seeds_alone_are_the_paired_t_test():
    ours, theirs = np.array([0.81, 0.83, 0.80, 0.86]), np.array([0.80, 0.80, 0.81, 0.82])
    found = estimate_difference(ours - theirs)
    wanted = stats.ttest_rel(ours, theirs)
    interval = wanted.confidence_interval()
    assert found.p == pytest.approx(wanted.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.df == 3


def test_equal_seeds_leave_the_paired_test_over_examples():
    """Seeds that do nothing: a mean over examples has the interval of the paired t-test."""
    values = np.random.default_rng(0).normal(0.1, 1.0, size=50)
    same = np.tile(values, (3, 1))
    found = estimate_difference(same.mean(axis=1), same)
    wanted = stats.ttest_1samp(values, 0)
    assert found.p == pytest.approx(wanted.pvalue)
    assert found.df == pytest.approx(49)
    assert found.sd_seeds == pytest.approx(0)


def test_parts_add_up_to_the_interval():
    tables = draw(np.random.default_rng(4), REGIMES["mixed"], (0.9, 1.0))
    found = difference_of(tables)
    se = math.sqrt(found.sd_seeds**2 / 5 + found.sd_examples**2)
    half = stats.t.ppf(0.975, found.df) * se
    assert (found.low, found.high) == pytest.approx((found.mean - half, found.mean + half))
    assert found.probability == pytest.approx(stats.t.cdf(found.mean / se, found.df))
    assert 4 <= found.df <= 300


def test_parts_are_those_the_grid_was_made_with():
    """Means over examples with known effects: sd 0.3 of seeds, 0.02 shared, 0.1 of the rest."""
    rng = np.random.default_rng(5)
    seeds, examples = 40, 400
    values = (
        0.3 * rng.normal(size=(seeds, 1))
        + 0.02 * math.sqrt(examples) * rng.normal(size=examples)
        + 0.1 * rng.normal(size=(seeds, examples))
    )
    found = estimate_difference(values.mean(axis=1), values)
    assert found.sd_seeds == pytest.approx(0.3, rel=0.25)
    assert found.sd_examples == pytest.approx(0.02, rel=0.1)


def test_jackknife_has_the_variance_of_the_paired_bootstrap():
    tables = draw(np.random.default_rng(6), REGIMES["mixed"], (0.9, 1.0), seeds=1, examples=400)
    ours, theirs = tables[:, 0]
    pseudo = jackknife(theirs, f1) - jackknife(ours, f1)
    rng = np.random.default_rng(7)
    times = rng.multinomial(400, np.full(400, 1 / 400), size=3000).astype(float)
    drawn = f1(times @ theirs) - f1(times @ ours)
    assert pseudo.std(ddof=1) / math.sqrt(400) == pytest.approx(drawn.std(ddof=1), rel=0.06)
    assert pseudo.mean() == pytest.approx(f1(theirs.sum(0)) - f1(ours.sum(0)), abs=0.003)


def test_one_seed_has_no_interval():
    found = estimate_difference([0.01], np.ones((1, 5)))
    assert found.mean == 0.01
    assert all(map(math.isnan, (found.low, found.high, found.p, found.probability)))


def test_no_variance_at_all():
    same = estimate_difference([0.0, 0.0])
    assert (same.p, same.probability, same.low, same.high) == (1.0, 0.5, 0.0, 0.0)
    shifted = estimate_difference([0.5, 0.5])
    assert (shifted.p, shifted.probability, shifted.low) == (0.0, 1.0, 0.5)


def test_sizes_must_fit():
    with pytest.raises(ValueError, match=r"got \(2,\) and \(3, 4\)"):
        estimate_difference([0.1, 0.2], np.zeros((3, 4)))


def test_holm():
    # 4 tests: .01·4, .02·3, .03·2 = .06 (not below the .06 before), .5
    assert correct_holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])
    assert correct_holm([0.9, 0.8]) == [1.0, 1.0]
    found = correct_holm([math.nan, 0.02, 0.04])
    assert math.isnan(found[0])
    assert found[1:] == [0.04, 0.04]
    assert correct_holm([]) == []


def test_seeds_needed_have_the_power_that_is_promised():
    rng = np.random.default_rng(8)
    needed = seeds_needed(0.01, 0.0, 0.01)
    runs = rng.normal(0.01, 0.01, size=(3000, needed))
    assert np.mean(stats.ttest_1samp(runs, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.04)
    fewer = runs[:, : needed - 2]
    assert np.mean(stats.ttest_1samp(fewer, 0, axis=1).pvalue < 0.05) < 0.76


def test_seeds_needed_grow_with_noise_and_end_at_the_test_set():
    assert seeds_needed(0.01, 0.0, 0.01) < seeds_needed(0.01, 0.003, 0.01)
    assert seeds_needed(0.01, 0.0036, 0.01) is None  # 2.8 · 0.0036 > 0.01
    assert seeds_needed(0.0, 0.001, 0.01) == 2
    with pytest.raises(ValueError, match="gain above 0"):
        seeds_needed(0.01, 0.0, 0.0)


def test_examples_needed_shrink_with_the_square_of_the_gain():
    assert examples_needed(0.01, 300, 0.02) == pytest.approx(2355 / 4, abs=1)
