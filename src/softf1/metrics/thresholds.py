"""Decision thresholds for F-beta, chosen by cross-fitting.

A threshold that is tuned and judged on the same items looks better than it is, and per-label ones
overfit rare labels. So each rule is judged on items it was not tuned on (`crossfit`), and a rule
replaces a simpler one only if that honest score is clearly better. The rule that wins is then
tuned on all items. The same input gives the same result.

    >>> scores = [[0.4], [0.3], [0.35], [0.1], [0.2], [0.1]] * 10
    >>> gold = [[1], [1], [1], [0], [0], [0]] * 10
    >>> tuned = tune_thresholds(scores, gold, average="micro")
    >>> tuned.rule, tuned.thresholds, tuned.honest["default"], tuned.honest["global"]
    ('global', (0.3,), 0.0, 1.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from softf1.metrics.counts import Average, Counts, Floats, Ints, Mask, ratios_of
from softf1.metrics.crossfit import assign_folds, average_f, crossfit, pick_rule, thin_out
from softf1.metrics.ranking import check_scores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True)
class TunedThresholds:
    """A threshold for each label, and how every rule did on items it was not tuned on.

    Attributes:
        rule: The chosen rule: `default`, `global` or `per label`.
        thresholds: One per label; the label is predicted if its score is at least this.
        honest: The cross-fitted F-beta of each rule.
        counts: The cross-fitted counts of the chosen rule, one row per label.
    """

    rule: str
    thresholds: tuple[float, ...]
    honest: Mapping[str, float]
    counts: Counts


def tune_thresholds(
    scores: ArrayLike,
    gold: ArrayLike,
    *,
    average: Average,
    beta: float = 1.0,
    default: float = 0.5,
    folds: int = 5,
    seed: int = 0,
    candidates: int = 200,
) -> TunedThresholds:
    """Tunes thresholds for binary (one column) or multi-label scores.

    There are three rules: the default, one threshold for all labels, one for each label.

    Args:
        scores: `(items, labels)`, probabilities or logits.
        gold: True where an item has a label, `(items, labels)`.
        average: The average of F-beta to tune for: `micro`, `macro` or `weighted`.
        beta: Above 1 recall weighs more, below 1 precision.
        default: The threshold without tuning, 0.5 for probabilities, 0 for logits.
        folds: The number of folds for cross-fitting.
        seed: The seed of the split into folds.
        candidates: The most thresholds that are tried for a label.
    """
    values, right = check_scores(scores, gold)
    if not 0 <= beta < np.inf:
        raise ValueError(f"wanted a finite beta >= 0, got {beta}")
    fold = assign_folds(len(values), folds=folds, seed=seed)
    labels = values.shape[1]
    shared = _candidates(values[right], default, candidates)
    own = [_candidates(values[right[:, c], c], default, candidates) for c in range(labels)]
    rules = {
        "default": ([np.array([default])] * labels, False),
        "global": ([shared] * labels, False),
        "per label": (own, True),
    }
    parts, thresholds = {}, {}
    for rule, (tried, each) in rules.items():
        table = _count(values, right, fold, folds, tried)
        fit = partial(_choose, table, each=each, average=average, beta=beta)
        parts[rule] = crossfit(fit, partial(_count_fold, table), folds=folds)
        thresholds[rule] = [tried[c][k] for c, k in enumerate(fit(list(range(folds))))]
    rule, honest = pick_rule(parts, score=lambda counts: counts.average(average, beta=beta).f)
    counts = reduce(add, parts[rule])
    return TunedThresholds(rule, tuple(map(float, thresholds[rule])), honest, counts)


def _candidates(positives: Floats, default: float, most: int) -> Floats:
    """Returns the thresholds to try: the default first, so that it wins ties, then positives.

    No score between those of two positives can be better: it only adds false positives.
    """
    return np.concatenate([[default], thin_out(positives, most)])


def _count(values: Floats, right: Mask, fold: Ints, folds: int, tried: list[Floats]) -> Ints:
    """Returns tp, fp, fn `(candidates, folds, labels, 3)`; short lists repeat their first one."""
    table = np.zeros((max(map(len, tried), default=1), folds, len(tried), 3), dtype=np.int64)
    for label, part in np.ndindex(len(tried), folds):
        rows = fold == part
        scores, positive = values[rows, label], right[rows, label]
        # How many of all and of the right items reach each threshold.
        predicted, tp = (
            len(x) - np.searchsorted(np.sort(x), tried[label]) for x in (scores, scores[positive])
        )
        cell = np.stack([tp, predicted - tp, positive.sum() - tp], axis=-1)
        table[:, part, label] = cell[0]
        table[: len(cell), part, label] = cell
    return table


def _count_fold(table: Ints, choice: Ints, fold: int) -> Counts:
    columns = range(table.shape[2])
    return Counts(map(str, columns), table[choice, fold, columns])


def _choose(table: Ints, folds: list[int], *, each: bool, average: Average, beta: float) -> Ints:
    """Returns each label's candidate with the best F on some folds; the same unless `each`."""
    counts = table[:, folds].sum(axis=1)
    if not each:
        best = np.argmax(average_f(counts, average=average, beta=beta))
        return np.full(counts.shape[1], best)
    if average == "micro":
        return choose_micro(counts, beta)
    alone: Ints = np.argmax(ratios_of(counts, beta=beta)[..., 2], axis=0)
    return alone


def choose_micro(table: Ints, beta: float) -> Ints:
    """Returns the candidates with the best micro F-beta, exactly, by Dinkelbach's method.

    F = (1 + b²)·Σtp / (Σpredicted + b²·Σgold) is a ratio of sums over labels. For a guess x of its
    best value, each label takes the candidate with the largest (1 + b²)·tp − x·predicted; the F
    that this gives is the next guess, and it rises until it is the best.
    """
    columns = np.arange(table.shape[1])
    right, predicted = table[..., 0], table[..., 0] + table[..., 1]
    choice = np.zeros_like(columns)
    guess = float(average_f(table[choice, columns], average="micro", beta=beta))
    while True:
        better = np.argmax((1 + beta**2) * right - guess * predicted, axis=0)
        reached = float(average_f(table[better, columns], average="micro", beta=beta))
        if reached <= guess:
            return choice
        guess, choice = reached, better
