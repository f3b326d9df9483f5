import math

import pytest
from scipy import special, stats

from softf1.experiments.student import beta_share, t_cdf, t_density, t_quantile, t_tail

FREEDOM = [0.7, 1.0, 2.0, 3.3, 4.0, 17.5, 99.0, 1e3, 1e5, 1e6, 3e7]


@pytest.mark.parametrize("df", FREEDOM)
@pytest.mark.parametrize("t", [-30.0, -2.1, -1e-3, 0.0, 0.4, 1.96, 5.0, 40.0])
def test_distribution_is_scipys(t, df):
    assert t_cdf(t, df) == pytest.approx(stats.t.cdf(t, df), rel=1e-6, abs=1e-15)
    assert t_tail(abs(t), df) == pytest.approx(stats.t.sf(abs(t), df), rel=1e-5)
    assert t_density(t, df) == pytest.approx(stats.t.pdf(t, df), rel=1e-5)


@pytest.mark.parametrize("df", FREEDOM)
@pytest.mark.parametrize("probability", [1e-4, 0.025, 0.2, 0.5, 0.8, 0.975, 0.9999])
def test_quantile_is_scipys(probability, df):
    wanted = stats.t.ppf(probability, df)
    assert t_quantile(probability, df) == pytest.approx(wanted, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("x", [0.0, 1e-9, 0.2, 0.5, 0.9, 1.0])
def test_beta_is_scipys(x):
    for a, b in [(0.5, 0.5), (2.0, 0.5), (500.0, 0.5), (3.0, 7.0)]:
        assert beta_share(x, a, b) == pytest.approx(special.betainc(a, b, x), rel=1e-10)


def test_limits():
    assert (t_cdf(math.inf, 3.0), t_cdf(-math.inf, 3.0)) == (1.0, 0.0)
    assert t_quantile(0.975, math.inf) == pytest.approx(1.959964, abs=1e-6)
    with pytest.raises(ValueError, match="degrees of freedom above 0, got 0"):
        t_cdf(1.0, 0)
    with pytest.raises(ValueError, match="between 0 and 1, got 1"):
        t_quantile(1.0, 3.0)
