"""Choosing on some folds and judging on the others: the core of thresholds and biases.

What was chosen on all folds but one is judged on that one. Counts add up, and the sum over the
folds is an honest count: no item was used for the choice that it judges.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, TypeVar, get_args

import numpy as np

from softf1.metrics.counts import Average, Counts, Floats, Ints, divide, ratios_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Choice = TypeVar("Choice")


def assign_folds(items: int, *, folds: int, seed: int) -> Ints:
    """Returns the fold of each item, random but fixed by the seed; sizes differ by one at most.

    >>> np.bincount(assign_folds(11, folds=3, seed=0)).tolist()
    [4, 4, 3]
    """
    if folds < 2:
        raise ValueError(f"wanted 2 folds or more, got {folds}")
    return np.random.default_rng(seed).permutation(np.arange(items) % folds)


def thin_out(values: Floats, most: int) -> Floats:
    """Returns the distinct values in order: all of them, or `most` quantiles if there are more."""
    unique = np.unique(values)
    if len(unique) <= most:
        return unique
    return np.unique(np.quantile(unique, np.linspace(0, 1, most), method="nearest"))


def average_f(table: Ints, *, average: Average, beta: float = 1.0) -> Floats:
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
) -> list[Counts]:
    """Returns the counts of each fold, with the choice made on the other folds.

    Args:
        fit: Makes a choice from the folds that it may use.
        count: Returns the counts of a fold for a choice.
        folds: The number of folds.
    """
    every = range(folds)
    return [count(fit([other for other in every if other != fold]), fold) for fold in every]


def pick_rule(
    parts: Mapping[str, list[Counts]], *, score: Callable[[Counts], float]
) -> tuple[str, dict[str, float]]:
    """Returns the rule to use, and the honest score of each.

    Rules come in order of simplicity. One replaces a simpler one if it is better by more than a
    standard error of the difference: the best of several rules is often the best by chance only.

    Args:
        parts: For each rule the counts of the folds, from `crossfit`.
        score: The score of counts, the higher the better.
    """

    def judge(counts: list[Counts]) -> float:
        return score(reduce(add, counts))

    def is_better(rule: str, simpler: str) -> bool:
        mine, other = parts[rule], parts[simpler]
        gain = judge(mine) - judge(other)
        folds = range(len(mine))
        without = [
            judge(mine[:k] + mine[k + 1 :]) - judge(other[:k] + other[k + 1 :]) for k in folds
        ]
        # The jackknife's standard error, over folds.
        return gain > math.sqrt((len(without) - 1) * float(np.var(without)))

    chosen, *others = parts
    for rule in others:
        chosen = rule if is_better(rule, chosen) else chosen
    return chosen, {rule: judge(counts) for rule, counts in parts.items()}
