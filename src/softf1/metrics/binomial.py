"""The one-sided binomial test of "the share is at least `least`": p-value, bound, sample sizes.

A sample passes if its p-value is at most `level`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import count
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from softf1.metrics.counts import Floats, Ints

CONFIDENCE = 0.95


def binomial_tail(right: int, trials: int, share: float) -> float:
    """Returns the probability of `right` or more of `trials`, each with probability `share`.

    >>> binomial_tail(2, 2, 0.5), binomial_tail(0, 3, 0.1)
    (0.25, 1.0)
    """
    if right <= 0:
        return 1.0
    if right > trials or share <= 0:
        return 0.0
    if share >= 1:
        return 1.0
    # The logarithm of each term comes from the one before it, so that one factorial is enough.
    k = np.arange(right, trials)
    steps = np.log(trials - k) - np.log(k + 1) + math.log(share) - math.log1p(-share)
    first = (
        math.lgamma(trials + 1)
        - math.lgamma(right + 1)
        - math.lgamma(trials - right + 1)
        + right * math.log(share)
        + (trials - right) * math.log1p(-share)
    )
    terms = first + np.concatenate([[0.0], np.cumsum(steps)])
    top = float(terms.max())
    return min(1.0, math.exp(top) * float(np.exp(terms - top).sum()))


def lower_bound(right: int, trials: int) -> float:
    """Returns the one-sided Clopper-Pearson bound: the true share is above it, 95% confidence.

    >>> round(lower_bound(59, 59), 4)  # 0.05 ** (1 / 59)
    0.9505
    """
    low, high = 0.0, right / trials if trials else 0.0
    for _ in range(50):
        middle = (low + high) / 2
        if binomial_tail(right, trials, middle) <= 1 - CONFIDENCE:
            low = middle
        else:
            high = middle
    return low


def wilson_bound(right: Ints, trials: Ints) -> Floats:
    """Returns the Wilson bound of each share: a quick approximation, never below `lower_bound`.

    >>> wilson_bound(np.array([59]), np.array([59])).round(4)
    array([0.9562])
    """
    z = NormalDist().inv_cdf(CONFIDENCE)
    spread = z * np.sqrt(right * (trials - right) / trials + z**2 / 4)
    bound: Floats = (right + z**2 / 2 - spread) / (trials + z**2)
    return bound


def fewest_all_right(least: float, level: float) -> int:
    """Returns the smallest sample that passes if all are right; its p-value is `least`^size."""
    return math.ceil(math.log(level) / math.log(least))


def first_size(least: float, level: float) -> int:
    """Returns how many predictions the first test of a precision takes: it can bear some errors.

    It is the smallest sample that passes with half of the errors that the target allows. The
    smallest one that passes at all must be free of errors, and often fails the first test.

    >>> first_size(0.95, 0.05)  # with 3 errors
    153
    """
    rate, size = (1 - least) / 2, fewest_all_right(least, level)
    for errors in count():
        most = math.ceil((errors + 1) / rate) + 1
        size = fewest_with(errors, range(size, most), least, level)
        if size < most and int(size * rate) <= errors:
            break
    return size


def fewest_with(errors: int, sizes: range, least: float, level: float) -> int:
    """Returns the smallest of `sizes` that passes with this many errors; their end if none does."""

    def passes(size: int) -> bool:
        return binomial_tail(size - errors, size, least) <= level

    return sizes.start + bisect_left(sizes, x=True, key=passes)


def fewest_right(trials: int, least: float, level: float) -> int:
    """Returns how many of `trials` must be right to pass; trials + 1 if all are too few."""

    def passes(right: int) -> bool:
        return binomial_tail(right, trials, least) <= level

    return bisect_left(range(trials + 1), x=True, key=passes)
