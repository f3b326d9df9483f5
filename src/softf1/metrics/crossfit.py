"""Choosing on some folds and judging on the others: the core of thresholds and biases.

Counts add up, so that what was chosen on all folds but one can be judged on that one, and the sum
over the folds is one honest count.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, TypeVar, get_args

import numpy as np

from softf1.metrics.counts import Average, divide, ratios_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from softf1.metrics.counts import Counts

Choice = TypeVar("Choice")


def assign_folds(items: int, *, folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each item: sizes differ by one at most, the same for the same seed.

    >>> np.bincount(assign_folds(11, folds=3, seed=0)).tolist()
    [4, 4, 3]
    """
    if folds < 2:
        raise ValueError(f"wanted 2 folds or more, got {folds}")
    return np.random.default_rng(seed).permutation(np.arange(items) % folds)


def average_f(
    table: NDArray[np.int64], *, average: Average, beta: float = 1.0
) -> NDArray[np.float64]:
    """F-beta `(…)` of counts `(…, labels, 3)`."""
    if average not in get_args(Average):
        raise ValueError(f"wanted an average of {', '.join(get_args(Average))}, got {average!r}")
    if average == "micro":
        return ratios_of(table.sum(axis=-2), beta=beta)[..., 2]
    support = table[..., 0] + table[..., 2]
    weights = np.ones_like(support) if average == "macro" else support
    return divide(
        (weights * ratios_of(table, beta=beta)[..., 2]).sum(axis=-1), weights.sum(axis=-1)
    )


def crossfit(
    fit: Callable[[list[int]], Choice], count: Callable[[Choice, int], Counts], *, folds: int
) -> Counts:
    """Counts over all folds, each with the choice that the other folds make.

    Args:
        fit: Takes the folds that may be used and gives a choice.
        count: Takes a choice and a fold and gives the counts of that fold.
        folds: Their number.
    """
    parts = []
    for fold in range(folds):
        choice = fit([other for other in range(folds) if other != fold])
        parts.append(count(choice, fold))
    return reduce(add, parts)


def pick_rule(honest: Mapping[str, float]) -> str:
    """The first rule with the best honest score; rules come in order of simplicity."""
    return max(honest, key=lambda rule: honest[rule])
