"""Calibration: whether a confidence of 0.8 is right 8 times in 10, and a temperature that helps.

>>> bins = bin_confidence([0.9, 0.9, 0.9, 0.6], [True, True, False, True], bins=10)
>>> round(bins.error, 4)  # 3/4 · |0.9 − 2/3| + 1/4 · |0.6 − 1|
0.275
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from softf1.metrics.counts import Floats, divide

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationBins:
    """One row per bin of confidence: number of items, sum of confidences, number of right items.

    Bin k of n holds the confidences in (k/n, (k+1)/n]; 0 is in the first. Bins of batches add up.
    """

    table: Floats

    def __add__(self, other: CalibrationBins) -> CalibrationBins:
        """The bins over both sets of items."""
        if len(self.table) != len(other.table):
            raise ValueError(f"wanted {len(self.table)} bins, got {len(other.table)}")
        return CalibrationBins(self.table + other.table)

    @property
    def gaps(self) -> Floats:
        """Mean confidence minus share of right items, for each bin; 0 for an empty bin."""
        count, confidence, right = self.table.T
        return divide(confidence - right, count)

    @property
    def error(self) -> float:
        """The expected calibration error: the mean of |gap| over items."""
        count = self.table[:, 0]
        return float(divide(count @ np.abs(self.gaps), count.sum()))

    @property
    def largest_error(self) -> float:
        """The largest |gap| of a bin."""
        return float(np.abs(self.gaps).max())


def bin_confidence(confidence: ArrayLike, right: ArrayLike, *, bins: int = 15) -> CalibrationBins:
    """Sorts predictions into bins by their confidence in [0, 1].

    Args:
        confidence: The confidence of each prediction: the largest probability (single-label), or
            the probability of a label (multi-label, where each item and label is a prediction).
        right: Whether the prediction was right (or whether the item has the label).
        bins: The number of bins; 15 is usual.
    """
    values = np.asarray(confidence, dtype=np.float64).ravel()
    correct = np.asarray(right, dtype=bool).ravel()
    if values.shape != correct.shape:
        raise ValueError(f"wanted {values.size} right or wrong, got {correct.size}")
    if not np.all((values >= 0) & (values <= 1)):
        raise ValueError("wanted confidences from 0 to 1, got others (or not a number)")
    row = np.clip(np.ceil(values * bins).astype(np.int64) - 1, 0, bins - 1)
    columns = [np.bincount(row, weights, minlength=bins) for weights in (None, values, correct)]
    return CalibrationBins(np.stack(columns, axis=1).astype(np.float64))


def fit_temperature(
    logits: ArrayLike, gold: ArrayLike, *, lowest: float = 0.05, highest: float = 20.0
) -> float:
    """Returns the T for which softmax(logits / T) has the largest likelihood; 1 for no items.

    The likelihood is concave in b = 1/T; its slope, the sum of z[gold] − E[z] with z = logits, has
    one zero, found by Newton steps inside a bracket. Predictions do not change. For one logit per
    label, pass the two columns 0 and z.

    Args:
        logits: `(items, classes)`.
        gold: The right class of each item, `(items,)`.
        lowest: The smallest T, reached if all items are right.
        highest: The largest T, reached if guessing would be better.

    >>> fit_temperature([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 4.0]], [0, 0, 1, 0])
    3.64...
    """
    scores = np.asarray(logits, dtype=np.float64)
    right = np.asarray(gold, dtype=np.int64)
    if scores.ndim != 2 or right.shape != scores.shape[:1]:
        raise ValueError(f"wanted (items, classes) and (items,), got {scores.shape}, {right.shape}")
    low, high = 1 / highest, 1 / lowest
    wanted = float(scores[np.arange(len(right)), right].sum())
    inverse = 1.0
    for _ in range(100):
        expected, variance = _moments(scores, inverse)
        slope = wanted - expected
        low, high = (inverse, high) if slope > 0 else (low, inverse)
        step = inverse + slope / variance if variance > 0 else inverse
        if abs(step - inverse) <= 1e-9 * inverse:
            break
        # Bisection in log space if the Newton step would leave the bracket.
        inverse = step if low < step < high else float(np.sqrt(low * high))
    return 1 / inverse


def _moments(scores: Floats, inverse: float) -> tuple[float, float]:
    """Returns Σ over items of the mean and variance of logits under softmax(inverse · logits)."""
    shifted = scores * inverse
    shifted -= shifted.max(axis=1, keepdims=True, initial=-np.inf)
    weights = np.exp(shifted)
    weights /= weights.sum(axis=1, keepdims=True)
    mean = (weights * scores).sum(axis=1)
    variance = (weights * (scores - mean[:, None]) ** 2).sum(axis=1)
    return float(mean.sum()), float(variance.sum())
