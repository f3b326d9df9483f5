"""Student's t: its distribution function and its quantiles, for any degrees of freedom.

Written out because two functions are no reason to need SciPy; the tests compare with it.
"""

from __future__ import annotations

import math

TINY = 1e-300
"""Stands in for 0 in Lentz's continued fraction."""

NORMAL = 1e7
"""Degrees of freedom from which Student's t is the normal distribution to 6 digits."""


def beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b).

    By its continued fraction, which converges fast below x = (a + 1) / (a + b + 2); above it,
    I_x(a, b) = 1 − I_(1−x)(b, a).

    >>> f"{beta_share(0.25, 2.0, 1.0):.6f}"  # x²
    '0.062500'
    """
    if not 0.0 < x < 1.0:
        return float(x >= 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_share(1.0 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log(x) + b * math.log1p(-x))
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, _away_from_zero(1.0 - (a + b) * x / (a + 1))
    d = 1.0 / d
    value = d
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY


def t_cdf(t: float, df: float) -> float:
    """The probability that Student's t with `df` degrees of freedom is below `t`.

    >>> f"{t_cdf(1.0, 1.0):.6f}"
    '0.750000'
    """
    if not df > 0:
        raise ValueError(f"wanted degrees of freedom above 0, got {df}")
    if math.isinf(t):
        return float(t > 0)
    tail = t_tail(abs(t), df)
    return 1.0 - tail if t > 0 else tail


def t_tail(t: float, df: float) -> float:
    """The probability of more than `t`, for t from 0 up; exact where it is tiny, too.

    >>> f"{t_tail(2.776445, 4):.6f}"
    '0.025000'
    """
    if df > NORMAL:
        return 0.5 * math.erfc(t / math.sqrt(2))
    return 0.5 * beta_share(df / (df + t * t), df / 2, 0.5)


def t_quantile(probability: float, df: float) -> float:
    """The t below which a share of `probability` lies.

    >>> f"{t_quantile(0.975, 4):.4f} {t_quantile(0.975, math.inf):.4f}"
    '2.7764 1.9600'
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"wanted a probability between 0 and 1, got {probability}")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, df)
    # The function is concave from 0 up, so that Newton's steps from there never go too far.
    t, step = 0.0, math.inf
    while step > 1e-14 * max(t, 1.0):
        step = (probability - t_cdf(t, df)) / t_density(t, df)
        t += step
    return t


def t_density(t: float, df: float) -> float:
    """The density of Student's t.

    >>> f"{t_density(0.0, 1.0) * math.pi:.6f}"
    '1.000000'
    """
    if df > NORMAL:
        return math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    log_front = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    return math.exp(log_front - (df + 1) / 2 * math.log1p(t * t / df))
