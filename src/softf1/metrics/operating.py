"""Operating points: where to put a threshold for a target such as `precision>=0.95`.

A target with "≥" is a promise about texts to come, so it is tested: a threshold counts only if the
binomial test rejects "the precision is below the target" at the level 1 − confidence, which
means that the one-sided Clopper-Pearson bound reaches the target. Testing many thresholds would
weaken that. So they are tested in a fixed order, the strictest first, each at the full level, and
the first one that fails ends the walk (fixed-sequence testing, as in "learn then test"): for a
wrong threshold to be chosen, the first wrong one in the order must pass, which happens with a
probability of at most 1 − confidence. The choice of thresholds depends only on the scores, never on
which items are right. For recall the order is the other way round, the most permissive first.

Cross-fitting tells how good a point is on other items: it is chosen on all folds but one and
counted on that one.

    >>> pool = Pool.of(score=[0.9, 0.8, 0.7, 0.2] * 60, right=[1, 1, 1, 0] * 60)
    >>> point = choose_point(pool, Target.parse("precision>=0.95"))
    >>> point.threshold, point.reached, point.precision, round(point.bound, 4)
    (0.7, True, 1.0, 0.9835)
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from softf1.metrics.binomial import (
    CONFIDENCE,
    binomial_tail,
    fewest_all_right,
    fewest_right,
    first_size,
    lower_bound,
    wilson_bound,
)
from softf1.metrics.counts import Counts, Floats, Ints, Mask, check_numbers, ratios_of
from softf1.metrics.crossfit import assign_folds, crossfit, pick_rule
from softf1.metrics.ranking import rank_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike

NEVER = 2.0
"""A threshold that no probability reaches: nothing is predicted."""
STEPS = 100
"""The most thresholds that are tested."""
FOLDS = 5
"""The number of folds for cross-fitting."""
POINTS = 60
"""The number of points of a stored curve."""
KINDS = 'wanted "f1", "f2", "precision>=0.95", "recall>=0.9" or "cost:fp=1,fn=10"'

_F = re.compile(r"f(\d+(?:\.\d+)?)")
_LEAST = re.compile(r"(precision|recall)\s*>=\s*(\S+)")
_COST = re.compile(r"cost:\s*fp\s*=\s*([^,\s]+)\s*,\s*fn\s*=\s*(\S+)")


@dataclass(frozen=True, slots=True)
class Target:
    """The goal for which an operating point is chosen.

    Attributes:
        kind: The best F-beta, the lowest cost, or a minimum precision or recall.
        text: The target as written in the recipe.
        beta: The beta of F-beta.
        least: The minimum precision or recall.
        fp: Cost of a false positive.
        fn: Cost of a false negative.
    """

    kind: Literal["f", "precision", "recall", "cost"]
    text: str
    beta: float = 1.0
    least: float = 0.0
    fp: float = 1.0
    fn: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parses a target.

        >>> Target.parse("cost:fp=1,fn=10").fn
        10.0
        >>> Target.parse("recall")
        Traceback (most recent call last):
        ValueError: wanted "f1", ... got 'recall'
        """
        if (match := _F.fullmatch(text)) and float(match[1]) > 0:
            return cls("f", text, beta=float(match[1]))
        if match := _LEAST.fullmatch(text):
            least = _number(match[2])
            if not 0 < least < 1:
                raise ValueError(f"wanted a {match[1]} above 0 and below 1, got {text!r}")
            return cls("precision" if match[1] == "precision" else "recall", text, least=least)
        if match := _COST.fullmatch(text):
            fp, fn = map(_number, match.groups())
            if not (0 <= fp < math.inf and 0 <= fn < math.inf and fp + fn > 0):
                raise ValueError(f"wanted costs of 0 or more, one above 0, got {text!r}")
            return cls("cost", text, fp=fp, fn=fn)
        raise ValueError(f"{KINDS}, got {text!r}")

    @property
    def guarantees(self) -> bool:
        """Whether the target is a minimum precision or recall, which is tested."""
        return self.kind in ("precision", "recall")

    def values(self, table: Ints) -> Floats:
        """Returns the value to maximise for counts `(..., 3)`: F-beta, or the negative cost."""
        if self.kind == "cost":
            cost: Floats = self.fp * table[..., 1] + self.fn * table[..., 2]
            return -cost
        return ratios_of(table, beta=self.beta)[..., 2]

    def value(self, counts: Counts) -> float:
        """Returns the same for the sums over all labels."""
        return float(self.values(counts.table.sum(axis=0)))


F1 = Target("f", "f1")


def read_targets(value: str | Mapping[str, str]) -> Target | dict[str, Target]:
    """Parses the target for all labels, or one for each label of a table."""
    if isinstance(value, str):
        return Target.parse(value)
    if not value:
        raise ValueError("wanted a label with its target, got an empty table")
    return {label: Target.parse(text) for label, text in value.items()}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The candidate predictions: labels of texts, spans or answers.

    Attributes:
        score: The probability of each candidate.
        right: Whether each candidate is right.
        item: The text or sentence that each candidate belongs to.
        gold: The number of gold labels, spans or answers of each item, found or not.
    """

    score: Floats
    right: Mask
    item: Ints
    gold: Ints

    @classmethod
    def of(
        cls,
        score: ArrayLike,
        right: ArrayLike,
        item: ArrayLike | None = None,
        gold: ArrayLike | None = None,
    ) -> Pool:
        """Makes a pool; by default, candidates are separate items and include all gold ones."""
        scores, correct = np.asarray(score, np.float64), np.asarray(right, bool)
        owner = np.arange(len(scores)) if item is None else np.asarray(item, np.int64)
        wanted = correct.astype(np.int64) if gold is None else np.asarray(gold, np.int64)
        if not scores.shape == correct.shape == owner.shape or scores.ndim != 1:
            shapes = f"{scores.shape}, {correct.shape} and {owner.shape}"
            raise ValueError(f"wanted scores, right and items of one length, got {shapes}")
        check_numbers(scores, "scores")
        return cls(scores, correct, owner, wanted)

    def only(self, items: Mask) -> Pool:
        """Returns the candidates of some items; the other items are empty."""
        kept = items[self.item]
        gold = np.where(items, self.gold, 0)
        return Pool(self.score[kept], self.right[kept], self.item[kept], gold)

    def count(self, threshold: float) -> tuple[int, int, int]:
        """Counts candidates that reach the threshold, those that are right, and all gold ones."""
        given = self.score >= threshold
        return int(given.sum()), int((given & self.right).sum()), int(self.gold.sum())


class Point(NamedTuple):
    """A threshold, with its scores on the items it was chosen on.

    Attributes:
        target: The target as written in the recipe.
        threshold: The lowest score that is predicted; with `NEVER`, nothing is.
        reached: Whether the target is reached with confidence; None if it is not a "≥" target.
        bound: The one-sided confidence bound of the precision or recall.
        given: The number of candidates that reach the threshold.
        right: The number of these that are right.
        gold: The number of gold labels, spans or answers.
        cross_fitted: Precision and recall on items that were not used to choose the threshold.
        curve: Rows of threshold, precision and recall.
        label: The label; empty for all labels together.
        what: What was chosen: a threshold, or a bias that is added to a logit instead.
    """

    target: str
    threshold: float
    reached: bool | None
    bound: float | None
    given: int
    right: int
    gold: int
    cross_fitted: tuple[float, float]
    curve: list[tuple[float, float, float]]
    label: str = ""
    what: str = "threshold"

    @property
    def precision(self) -> float:
        """The share of predictions that are right; 0 without predictions."""
        return self.right / self.given if self.given else 0.0

    @property
    def recall(self) -> float:
        """The share of gold labels, spans or answers that are predicted."""
        return self.right / self.gold if self.gold else 0.0

    def describe(self) -> dict[str, Any]:
        """Returns the point as plain data for JSON."""
        ratios = {"precision": self.precision, "recall": self.recall}
        fitted = dict(zip(ratios, self.cross_fitted, strict=True))
        tested = {} if self.reached is None else {"confidence": CONFIDENCE}
        return self._asdict() | ratios | {"cross_fitted": fitted} | tested

    def complain(self) -> str | None:
        """Returns a warning if the target is not reached, else None."""
        if self.reached is not False:
            return None
        name = "precision" if self.target.startswith("precision") else "recall"
        what = f"{self.label}: " if self.label else ""
        if not self.given:
            return f"{what}{self.target} is not reached on dev, where nothing is predicted"
        if name == "recall" and not self.gold:
            return f"{what}{self.target} is not reached on dev, where there is nothing to find"
        got = f"{self.right:,} of {self.given if name == 'precision' else self.gold:,}"
        bound = self.bound or 0.0
        late = bound >= Target.parse(self.target).least  # it would pass, but one before it failed
        why = ": the strictest thresholds, which are tested first, fail"
        by = why if late else " by any threshold"
        alone = " if it were the only one tested" if late else ""
        hint = "" if late else "; a larger dev set or a lower target may help"
        return (
            f"{what}{self.target} is not reached with {CONFIDENCE:.0%} confidence{by} on dev; the "
            f"closest, {self.threshold:.6g}, is used: {name} {got}, at least {bound:.3f}{alone}"
            f"{hint}"
        )


def choose_point(pool: Pool, target: Target, *, default: float = 0.5) -> Point:
    """Chooses the threshold for a target.

    For F-beta and cost this is the best threshold, if it is clearly better than `default` on items
    that were not used to choose it. For "≥" targets it is the most permissive (precision) or the
    strictest (recall) threshold that passes the tests.

    Args:
        pool: The candidate predictions.
        target: The goal.
        default: The threshold without tuning.
    """
    fold = assign_folds(len(pool.gold), folds=FOLDS, seed=0)

    def fit(parts: list[int], rule: Callable[[Pool], float]) -> float:
        return rule(pool.only(np.isin(fold, parts)))

    def count(threshold: float, part: int) -> Counts:
        given, right, gold = pool.only(fold == part).count(threshold)
        return Counts(("all",), np.array([[right, given - right, gold - right]]))

    rules: dict[str, Callable[[Pool], float]]
    if target.guarantees:
        rules = {"walk": lambda part: walk(part, target)[0]}
    else:
        rules = {"default": lambda _: default, "best": partial(best_threshold, target=target)}
    judged = {
        name: crossfit(partial(fit, rule=rule), count, folds=FOLDS) for name, rule in rules.items()
    }
    chosen, _ = pick_rule(judged, score=target.value)
    threshold, reached = rules[chosen](pool), None
    if target.guarantees:
        threshold, reached = walk(pool, target)
    return make_point(pool, target, threshold, reduce(add, judged[chosen]), reached=reached)


def make_point(
    pool: Pool, target: Target, threshold: float, honest: Counts, *, reached: bool | None = None
) -> Point:
    """Describes a threshold that was chosen.

    Args:
        pool: The candidates it was chosen on.
        target: The goal.
        threshold: The lowest score that is predicted.
        honest: Counts of items that were not used to choose it.
        reached: Whether the target is reached with confidence.
    """
    given, right, gold = pool.count(threshold)
    trials = {"precision": given, "recall": gold}.get(target.kind)
    fitted = honest.micro()
    return Point(
        target=target.text,
        threshold=threshold,
        reached=reached,
        bound=None if trials is None else lower_bound(right, trials),
        given=given,
        right=right,
        gold=gold,
        cross_fitted=(fitted.precision, fitted.recall),
        curve=_curve(pool),
    )


class Units(NamedTuple):
    """The predictions for some items, with their labels.

    Attributes:
        item: The text or sentence of each prediction.
        label: The label of each prediction.
        score: The confidence of each prediction.
        right: Whether each prediction is right.
        gold: The gold labels of each item, with repetitions.
    """

    item: list[int]
    label: list[str]
    score: list[float]
    right: list[bool]
    gold: list[list[str]]

    def add(self, item: int, label: str, score: float, *, right: bool) -> None:
        """Adds one prediction."""
        for column, value in zip(self, (item, label, score, right), strict=False):
            column.append(value)  # type: ignore[attr-defined]

    def pool(self, label: str | None = None) -> Pool:
        """Returns the candidates of all labels, or of one."""
        kept = np.array([label is None or one == label for one in self.label], bool)
        gold = [len(own) if label is None else own.count(label) for own in self.gold]
        score, right, item = (np.array(x)[kept] for x in (self.score, self.right, self.item))
        return Pool.of(score, right, item, gold)


def choose_bars(
    units: Units, target: Target | Mapping[str, Target], labels: Sequence[str]
) -> tuple[dict[str, float], list[Point]]:
    """Chooses the minimum confidence (the bar) with which each label is predicted.

    Args:
        units: The predictions of a model without bars.
        target: One target for all labels, or one for each named label.
        labels: All labels, if there is one target.
    """
    if isinstance(target, Target):
        point = choose_point(units.pool(), target, default=0.0)
        return dict.fromkeys(labels, point.threshold), [point]
    points = [
        choose_point(units.pool(label), own, default=0.0)._replace(label=label)
        for label, own in target.items()
    ]
    return {point.label: point.threshold for point in points}, points


def best_threshold(pool: Pool, *, target: Target) -> float:
    """Finds the threshold with the best F-beta or the lowest cost; ties go to the strictest."""
    _, score, given, right = rank_steps(pool.score, pool.right)
    gold = int(pool.gold.sum())
    table = np.stack([right, given - right, gold - right], axis=1)
    place = int(np.argmax(target.values(np.concatenate([[[0, 0, gold]], table]))))
    return float(score[place - 1]) if place else NEVER


def walk(pool: Pool, target: Target, confidence: float = CONFIDENCE) -> tuple[float, bool]:
    """Returns the last threshold that passes and True, or the one with the best bound and False."""
    _, score, given, right = rank_steps(pool.score, pool.right)
    if not len(score):
        return 0.0, False
    level, least = 1 - confidence, target.least
    if target.kind == "recall":
        # A lower threshold finds more: all pass from the first on that does.
        wanted = fewest_right(int(pool.gold.sum()), least, level)
        place = int(np.searchsorted(right, wanted))
        return float(score[min(place, len(score) - 1)]), place < len(score)
    most, first = int(given[-1]), first_size(least, level)
    start = first if most >= first else min(most, fewest_all_right(least, level))
    sizes = np.minimum(np.geomspace(start, most, STEPS).round().astype(np.int64), most)
    places = np.unique(np.searchsorted(given, sizes)).tolist()
    p_values = [binomial_tail(int(right[one]), int(given[one]), least) for one in places]
    passed = int(np.argmax(np.append(p_values, math.inf) > level))  # until the first that fails
    if passed:
        return float(score[places[passed - 1]]), True
    return float(score[find_best_bound(right, given)]), False


def find_best_bound(right: Ints, given: Ints) -> int:
    """Returns the place with the highest `lower_bound`; of equal ones, the last.

    The Wilson bound takes no time and is never below `lower_bound`. So the places are tried by
    their Wilson bound, the highest first, until it is below the best bound that was found. Among
    very many places with nearly the same bound, the first `STEPS` are enough.

    >>> find_best_bound(np.array([1, 1, 2, 9, 9]), np.array([1, 2, 3, 21, 60]))  # 9 of 21
    3
    """
    best, place = -1.0, 0
    wilson = wilson_bound(right, given)
    for one in np.lexsort((-given, -wilson))[:STEPS].tolist():
        if wilson[one] <= best:
            break
        counts = int(right[one]), int(given[one])
        # The tail tells whether the bound is higher; the bound itself takes 50 of them.
        if best < 0 or binomial_tail(*counts, best) < 1 - CONFIDENCE:
            best, place = lower_bound(*counts), one
    return place


def _curve(pool: Pool) -> list[tuple[float, float, float]]:
    """Returns points of the curve: half of them spread over the right ones, half over all.

    If few are right, recall changes only near the highest scores, which would get few points.
    """
    _, score, given, right = rank_steps(pool.score, pool.right)
    if not len(score):
        return []
    halves = [
        np.searchsorted(counts, np.linspace(min(1, counts[-1]), counts[-1], POINTS // 2).round())
        for counts in (right, given)
    ]
    place = np.unique(np.concatenate(halves))
    rows = np.stack([score, right / given, right / max(1, int(pool.gold.sum()))], axis=1)
    return [(float(t), float(p), float(r)) for t, p, r in rows[place].round(6)]
