"""Does a loss help? Paired differences over seeds and over test examples, with honest intervals.

Score two losses on the same test set with the same S seeds. The difference of seed s is

    d_s = δ + (what seed s does) + (what this test set does) + (both together)

because all seeds are tested on the same N examples: averaging over seeds never removes the effect
of which examples are in the test set. So the variance of the mean difference has two parts,

    var(mean d) = sd_seeds² / S  +  sd_examples²

- `sd_seeds²` is the variance of d_s over the seeds, as measured on this one test set.
- `sd_examples²` is the part common to all seeds: from the jackknife of the mean difference, which
  leaves out one example at a time (which also works for F1, a ratio of sums), minus what the first
  part already counts.

In the words of the analysis of variance for S × N crossed effects, with the mean squares of seeds
A, examples B and the rest E of the jackknife's pseudo-values:

    sd_seeds² = max(A, E) / N          sd_examples² = max(B − E, 0) / (S·N)

The interval is `mean ± t · se` with Student's t and Satterthwaite's degrees of freedom. With 5
seeds and no variance from examples these are 4; where the examples dominate, they are about N. With
2 seeds it is always 1: one difference between two seeds says too little about their variance.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtr, stdtrit

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

LEVEL = 0.95
POWER = 0.80
BLOCK = 1 << 22
"""The most numbers that the jackknife holds in memory at once; larger tables go in chunks."""

MOST_SEEDS = 1000
"""The largest number of seeds to consider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A mean difference to the baseline, with its uncertainty.

    Attributes:
        mean: The mean over seeds, above 0 where the loss is better.
        low: Lower end of the 95% interval; NaN with a single seed.
        high: Upper end.
        p: Two-sided p-value of "no difference".
        probability: Probability that the true difference is above 0.
        df: Satterthwaite's degrees of freedom.
        sd_seeds: Standard deviation of a seed's difference on this test set.
        sd_examples: Standard deviation that the choice of test examples adds to every mean.
        seeds: Number of paired seeds.
        examples: Number of test examples in the jackknife; with 0 only seeds count.
    """

    mean: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    probability: float = math.nan
    df: float = math.nan
    sd_seeds: float = math.nan
    sd_examples: float = math.nan
    seeds: int
    examples: int = 0


def jackknife(counts: NDArray[Any], score: Callable[[Floats], Floats]) -> Floats:
    """Pseudo-values (N,) of a score over examples: `N·f(all) − (N − 1)·f(all but this one)`.

    Their mean is the score with its bias removed; their variance divided by N estimates the
    variance of the score.

    Args:
        counts: Counts of each example, (N, …).
        score: Maps sums over examples to scores; must accept leading axes.

    >>> table = np.array([[1.0, 1.0], [0.0, 1.0], [5.0, 1.0]])
    >>> jackknife(table, lambda sums: sums[..., 0] / sums[..., 1])  # of a mean: the values
    array([1., 0., 5.])
    """
    total = counts.sum(axis=0, dtype=float)
    size = len(counts)
    rows = max(BLOCK // max(total.size, 1), 1)
    left = [score(total - counts[first : first + rows]) for first in range(0, size, rows)]
    pseudo: Floats = size * score(total) - (size - 1) * np.concatenate(left)
    return pseudo


def estimate_difference(differences: ArrayLike, pseudo: ArrayLike | None = None) -> Difference:
    """Estimates the mean difference with its interval.

    Args:
        differences: Score minus the baseline's score for each seed, (S,).
        pseudo: Jackknife pseudo-values of those differences, (S, N); without them the interval
            covers the choice of seeds only, not of test examples.

    >>> difference = estimate_difference([0.01, 0.02, 0.03])
    >>> f"{difference.mean:.3f} [{difference.low:.3f}, {difference.high:.3f}] p {difference.p:.3f}"
    '0.020 [-0.005, 0.045] p 0.074'
    """
    d = np.asarray(differences, float)
    values = None if pseudo is None else np.asarray(pseudo, float)
    if d.ndim != 1 or not d.size or (values is not None and values.shape[:1] != d.shape):
        got = f"{d.shape}" if values is None else f"{d.shape} and {values.shape}"
        raise ValueError(f"wanted (seeds,) differences and (seeds, examples) values, got {got}")
    mean, seeds = float(d.mean()), len(d)
    if values is not None and values.shape[1] < 2:
        values = None
    examples = 0 if values is None else values.shape[1]
    if seeds == 1:
        return Difference(mean=mean, seeds=1, examples=examples)
    over_seeds, over_examples, rest = _mean_squares(d, values)
    variance = max(over_seeds, rest) + max(over_examples - rest, 0.0)
    # If seeds differ no more than the residual, their few degrees of freedom do not count.
    parts = [(over_seeds if over_seeds > rest else 0.0, seeds - 1)]
    parts += [(over_examples, examples - 1), (rest, (seeds - 1) * (examples - 1))]
    spread = math.fsum(part**2 / df for part, df in parts if part)
    df = min(variance**2 / spread, 1e9) if spread and seeds > 2 else float(seeds - 1)
    size = seeds * max(examples, 1)
    se = math.sqrt(variance / size)
    half = t_quantile((1 + LEVEL) / 2, df) * se
    t = mean / se if se else math.copysign(math.inf, mean) if mean else 0.0
    return Difference(
        mean=mean,
        low=mean - half,
        high=mean + half,
        p=float(2 * stdtr(df, -abs(t))),
        probability=float(stdtr(df, t)),
        df=df,
        sd_seeds=math.sqrt(max(over_seeds, rest) / max(examples, 1)),
        sd_examples=math.sqrt(max(over_examples - rest, 0.0) / size),
        seeds=seeds,
        examples=examples,
    )


def _mean_squares(d: Floats, values: Floats | None) -> tuple[float, float, float]:
    """Mean squares of seeds, of examples and of the rest; without examples, of seeds alone."""
    if values is None:
        return float(d.var(ddof=1)), 0.0, 0.0
    seeds, examples = values.shape
    by_example = values.mean(axis=0)
    rest = values - values.mean(axis=1, keepdims=True) - by_example + values.mean()
    return (
        examples * float(d.var(ddof=1)),
        seeds * float(by_example.var(ddof=1)),
        float(np.square(rest).sum()) / ((seeds - 1) * (examples - 1)),
    )


def t_quantile(probability: float, df: float) -> float:
    """The quantile of Student's t with `df` degrees of freedom.

    >>> f"{t_quantile(0.975, 4):.4f} {t_quantile(0.975, math.inf):.4f}"
    '2.7764 1.9600'
    """
    return float(stdtrit(df, probability))


def correct_holm(p_values: Sequence[float]) -> list[float]:
    """Holm's corrected p-values, which control the chance of any false alarm among them.

    The smallest is multiplied by their number, the next by one less, and so on; none gets smaller
    than the one before it. NaN (no test was made) stays NaN and does not count.

    >>> correct_holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    tested = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(tested):
        largest = max(largest, min((len(tested) - rank) * p, 1.0))
        corrected[place] = largest
    return corrected


def seeds_needed(sd_seeds: float, sd_examples: float, gain: float) -> int | None:
    """Seeds needed to detect a difference of `gain` with 80% power; None if no number is enough.

    >>> seeds_needed(0.004, 0.0, 0.003)
    16
    >>> seeds_needed(0.004, 0.002, 0.003) is None  # 2.8 · 0.002 is above the gain
    True
    """
    if not gain > 0:
        raise ValueError(f"wanted a gain above 0, got {gain}")

    def shows(seeds: int) -> bool:
        se, df = _error(sd_seeds, sd_examples, seeds)
        return (t_quantile((1 + LEVEL) / 2, df) + t_quantile(POWER, df)) * se <= gain

    return _fewest(shows)


def plan_seeds(difference: Difference, *, width: float | None = None) -> int:
    """Plans the number of seeds from the spread of the first ones.

    More seeds are not worth it once the test examples make up most of the interval, or once its
    half-width is `width`. At least two, since a single seed shows no spread.

    >>> plan_seeds(Difference(mean=0.0, seeds=5, sd_seeds=0.008, sd_examples=0.002))  # (8/2)²
    16
    >>> plan_seeds(Difference(mean=0.0, seeds=5, sd_seeds=0.008, sd_examples=0.002), width=0.006)
    14
    """
    if math.isnan(difference.sd_seeds):
        return 2

    def enough(seeds: int) -> bool:
        se, df = _error(difference.sd_seeds, difference.sd_examples, seeds)
        narrow = width is not None and t_quantile((1 + LEVEL) / 2, df) * se <= width
        return narrow or difference.sd_seeds**2 / seeds <= difference.sd_examples**2 * (1 + 1e-9)

    return _fewest(enough) or MOST_SEEDS


def narrowest(difference: Difference) -> float:
    """The half-width of the interval with infinitely many seeds, from the test set alone."""
    return t_quantile((1 + LEVEL) / 2, math.inf) * difference.sd_examples


def _error(sd_seeds: float, sd_examples: float, seeds: int) -> tuple[float, float]:
    """Standard error and degrees of freedom of a mean difference over this many seeds."""
    of_seeds = sd_seeds**2 / seeds
    se = math.sqrt(of_seeds + sd_examples**2)
    return se, (se**2 / of_seeds) ** 2 * (seeds - 1) if of_seeds else math.inf


def _fewest(enough: Callable[[int], bool]) -> int | None:
    """The fewest seeds that are enough; None if even the largest number is not."""
    counts = range(2, MOST_SEEDS + 1)  # one seed has no variance
    place = bisect_left(counts, True, key=enough)  # noqa: FBT003 - what is looked for
    return counts[place] if place < len(counts) else None


def examples_needed(sd_examples: float, examples: int, gain: float) -> int:
    """Test examples needed to detect `gain` with 80% power and infinitely many seeds.

    >>> examples_needed(0.01, 300, 0.01)  # (1.96 + 0.84)² = 7.85 times as many
    2355
    """
    wanted = t_quantile((1 + LEVEL) / 2, math.inf) + t_quantile(POWER, math.inf)
    return math.ceil(examples * (wanted * sd_examples / gain) ** 2)
