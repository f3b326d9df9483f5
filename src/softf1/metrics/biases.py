"""Class biases for F-beta, added to logits before the argmax and chosen by cross-fitting.

One bias for the background class (such as O) trades precision for recall everywhere at once and
rarely overfits; a bias for each class does so easily on a small dev set. Both are judged on items
they were not tuned on, and each replaces the simpler rule only where it is clearly better there.
Any score that comes from counts can be tuned for, span scores of sentences included:

    >>> from softf1.metrics.spans import count_lenient_ids
    >>> tags = ["O", "B-X"]
    >>> logits = np.array([[1.0, 0.0], [1.0, 0.9], [1.0, -2.0]] * 20)  # O always wins by a little
    >>> gold = np.array([0, 1, 0] * 20)
    >>> tuned = tune_biases(logits, gold, background=0, lengths=[3] * 20, average="micro",
    ...     count=lambda g, p, n: count_lenient_ids(g, p, lengths=n, tags=tags))
    >>> tuned.rule, tuned.honest["none"], tuned.honest["background"]
    ('background', 0.0, 1.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from softf1.metrics.counts import Average, Counts, Floats, Ints, check_numbers
from softf1.metrics.crossfit import assign_folds, crossfit, pick_rule, thin_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike

    Count = Callable[[Ints, Ints, Ints], Counts]


@dataclass(frozen=True, slots=True)
class TunedBiases:
    """A bias for each class, and how every rule did on items it was not tuned on.

    Attributes:
        rule: The chosen rule: `none`, `background` or `per class`.
        biases: One per class, to be added to the logits.
        honest: The cross-fitted F-beta of each rule.
        counts: The cross-fitted counts of the chosen rule.
        curve: Biases of the background, from the one with the fewest predictions of other classes
            to the one with the most, with the counts of all items; empty unless asked for.
    """

    rule: str
    biases: tuple[float, ...]
    honest: Mapping[str, float]
    counts: Counts
    curve: tuple[tuple[float, Counts], ...] = ()


def tune_biases(
    logits: ArrayLike,
    gold: ArrayLike,
    *,
    background: int,
    count: Count,
    average: Average,
    lengths: ArrayLike | None = None,
    beta: float = 1.0,
    score: Callable[[Counts], float] | None = None,
    per_class: bool = False,
    curve: bool = False,
    folds: int = 5,
    seed: int = 0,
    candidates: int = 40,
) -> TunedBiases:
    """Returns the biases with the best F-beta: none, one for the background, or one per class.

    Args:
        logits: `(tokens, classes)`, sentence after sentence.
        gold: The right class of each token, `(tokens,)`.
        background: The class that gets the single bias, such as O.
        count: Returns counts from gold classes, predicted classes and lengths of some sentences.
        average: The average of F-beta to tune for: `micro`, `macro` or `weighted`.
        lengths: The number of tokens of each sentence; sentences stay whole. 1 each if not given.
        beta: Above 1 recall weighs more, below 1 precision.
        score: What to maximise instead of F-beta, such as a negative cost.
        per_class: Whether to try a bias for each class as well, which takes much longer.
        curve: Whether to return the counts for every background bias that was tried, too.
        folds: The number of folds for cross-fitting.
        seed: The seed of the split into folds.
        candidates: How many biases are tried for a class.
    """
    parts = _cut(logits, gold, lengths, folds=folds, seed=seed)
    classes = parts[0].logits.shape[1]
    if not 0 <= background < classes:
        raise ValueError(f"wanted a background from 0 to {classes - 1}, got {background}")
    tuner = _Tuner(
        parts, count, score or (lambda sums: sums.average(average, beta=beta).f), candidates
    )
    rules: dict[str, Sequence[int]] = {"none": (), "background": (background,)}
    if per_class:
        rules["per class"] = range(classes)
    judged, biases = {}, {}
    for rule, moved in rules.items():
        fit = partial(tuner.fit, moved)
        judged[rule] = crossfit(fit, tuner.count_fold, folds=folds)
        biases[rule] = fit(list(range(folds)))
    rule, honest = pick_rule(judged, score=tuner.value)
    traced = tuner.trace(background, biases[rule][background]) if curve else ()
    counts = reduce(add, judged[rule])
    return TunedBiases(rule, tuple(biases[rule].tolist()), honest, counts, tuple(traced))


@dataclass(frozen=True, slots=True)
class _Part:
    """The sentences of one fold."""

    logits: Floats
    gold: Ints
    lengths: Ints

    def error_margins(self, biases: Floats, index: int) -> Floats:
        """Returns how much the bias of a class must change to correct each error about it."""
        scores = self.logits + biases
        wrong = (np.argmax(scores, axis=1) == index) != (self.gold == index)
        others = np.delete(scores[wrong], index, axis=1).max(axis=1, initial=-np.inf)
        margins: Floats = others - scores[wrong, index]
        return margins


@dataclass(frozen=True, slots=True)
class _Tuner:
    """Finds biases on some folds and counts on others."""

    parts: Sequence[_Part]
    count: Count
    value: Callable[[Counts], float]
    candidates: int

    def count_fold(self, biases: Floats, fold: int) -> Counts:
        part = self.parts[fold]
        return self.count(part.gold, np.argmax(part.logits + biases, axis=1), part.lengths)

    def count_folds(self, biases: Floats, folds: Iterable[int]) -> Counts:
        return reduce(add, (self.count_fold(biases, fold) for fold in folds))

    def score(self, biases: Floats, folds: list[int]) -> float:
        return self.value(self.count_folds(biases, folds))

    def trace(self, index: int, chosen: float) -> Iterator[tuple[float, Counts]]:
        """Yields each bias that is tried for a class, the largest first, with its counts."""
        none = np.zeros(self.parts[0].logits.shape[1])
        margins = np.concatenate([part.error_margins(none, index) for part in self.parts])
        for bias in np.unique([0.0, chosen, *_steps(margins, self.candidates)])[::-1].tolist():
            changed = none.copy()
            changed[index] = bias
            yield bias, self.count_folds(changed, range(len(self.parts)))

    def fit(self, classes: Sequence[int], folds: list[int]) -> Floats:
        """Returns biases, improved class by class, in two rounds if there are several classes."""
        biases = np.zeros(self.parts[0].logits.shape[1])
        best = self.score(biases, folds)
        for index in [*classes, *classes] if len(classes) > 1 else classes:
            start = biases
            margins = [self.parts[fold].error_margins(start, index) for fold in folds]
            for step in _steps(np.concatenate(margins), self.candidates):
                changed = start.copy()
                changed[index] += step
                reached = self.score(changed, folds)
                if reached > best:
                    best, biases = reached, changed
        return biases


def _cut(
    logits: ArrayLike, gold: ArrayLike, lengths: ArrayLike | None, *, folds: int, seed: int
) -> list[_Part]:
    scores, right = np.asarray(logits, dtype=np.float64), np.asarray(gold, dtype=np.int64)
    sizes = np.ones(len(right), np.int64) if lengths is None else np.asarray(lengths, np.int64)
    if scores.ndim != 2 or not len(scores) == right.size == sizes.sum():
        got = f"{scores.shape}, {right.shape} and lengths of {sizes.sum()} tokens"
        raise ValueError(f"wanted logits (tokens, classes), gold (tokens,) and lengths, got {got}")
    check_numbers(scores, "logits")
    fold = assign_folds(len(sizes), folds=folds, seed=seed)
    owner = np.repeat(fold, sizes)
    return [_Part(scores[owner == k], right[owner == k], sizes[fold == k]) for k in range(folds)]


def _steps(margins: Floats, most: int) -> Floats:
    """Returns changes just large enough to correct an error; quantiles if there are many."""
    unique = thin_out(margins[np.isfinite(margins)], most)
    # Well above the rounding of float32: the biases may become part of a model.
    return unique + np.copysign(1e-4 * (1 + np.abs(unique)), unique)
