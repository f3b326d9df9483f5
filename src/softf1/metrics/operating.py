"""Operating points: where to put a threshold for a target such as `precision>=0.95`.

A target with "≥" is a promise about texts to come, so it is tested: a threshold counts only where
the binomial test rejects "the precision is below the target" at the level 1 − confidence, which is
to say that the one-sided Clopper-Pearson bound reaches the target. Trying many thresholds would
spoil that. So they are tried in a fixed order, the strictest first, each at the full level, and the
first one that fails ends the walk (fixed-sequence testing, the procedure of "learn then test"): for
a wrong threshold to be chosen, the first wrong one in the order must pass, which happens with a
probability of at most 1 − confidence. Which thresholds are tried depends on the scores alone, never
on what is right. For recall the order is the other way round, the most permissive first.

How good a point is on other items is said by cross-fitting: it is chosen on all folds but one and
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
)
from softf1.metrics.counts import Counts, ratios_of
from softf1.metrics.crossfit import assign_folds, crossfit, pick_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

NEVER = 2.0
"""A threshold that no probability reaches: nothing is given."""
STEPS = 100
"""How many thresholds the walk has at most."""
POINTS = 60
"""Of a curve that is kept."""
KINDS = 'wanted "f1", "f2", "precision>=0.95", "recall>=0.9" or "cost:fp=1,fn=10"'

_F = re.compile(r"f(\d+(?:\.\d+)?)")
_LEAST = re.compile(r"(precision|recall)\s*>=\s*(\S+)")
_COST = re.compile(r"cost:\s*fp\s*=\s*([^,\s]+)\s*,\s*fn\s*=\s*(\S+)")


@dataclass(frozen=True, slots=True)
class Target:
    """What an operating point is chosen for.

    Attributes:
        kind: The best F-beta, the lowest cost, or a least precision or recall.
        text: As it was written.
        beta: Of the F.
        least: The precision or recall that is wanted.
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
        """The target that a text names.

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
        """Whether it is a least precision or recall, which is tested."""
        return self.kind in ("precision", "recall")

    def values(self, table: NDArray[np.int64]) -> Floats:
        """What is maximised, of counts `(..., 3)`: F-beta, or the cost below 0."""
        if self.kind == "cost":
            cost: Floats = self.fp * table[..., 1] + self.fn * table[..., 2]
            return -cost
        return ratios_of(table, beta=self.beta)[..., 2]

    def value(self, counts: Counts) -> float:
        """The same over all labels."""
        return float(self.values(counts.table.sum(axis=0)))


F1 = Target("f", "f1")


def read_targets(value: str | Mapping[str, str]) -> Target | dict[str, Target]:
    """The target of all labels, or of each that is named."""
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
    """What may be given: labels of texts, spans, answers.

    Attributes:
        score: The probability of each.
        right: Whether each is right.
        item: The text or sentence that each belongs to.
        gold: How many of each item should be given, those that are not in the pool too.
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
        """A pool; by default each is an item of its own, and all that is right is in the pool."""
        scores, correct = np.asarray(score, np.float64), np.asarray(right, bool)
        owner = np.arange(len(scores)) if item is None else np.asarray(item, np.int64)
        wanted = correct.astype(np.int64) if gold is None else np.asarray(gold, np.int64)
        if not scores.shape == correct.shape == owner.shape or scores.ndim != 1:
            shapes = f"{scores.shape}, {correct.shape} and {owner.shape}"
            raise ValueError(f"wanted scores, right and items of one length, got {shapes}")
        if np.isnan(scores).any():
            raise ValueError(f"wanted numbers as scores, got {np.isnan(scores).sum()} NaN")
        return cls(scores, correct, owner, wanted)

    def only(self, items: Mask) -> Pool:
        """The part of some items; the others are empty."""
        kept = items[self.item]
        gold = np.where(items, self.gold, 0)
        return Pool(self.score[kept], self.right[kept], self.item[kept], gold)

    def count(self, threshold: float) -> tuple[int, int, int]:
        """How many reach the threshold, how many of them are right, how many there should be."""
        given = self.score >= threshold
        return int(given.sum()), int((given & self.right).sum()), int(self.gold.sum())


class Point(NamedTuple):
    """A threshold, and how it does on the items that it was chosen on.

    Attributes:
        target: As it was written.
        threshold: What is given from this score on; `NEVER` gives nothing.
        reached: Whether the target is reached with confidence; None where it is no "≥" target.
        bound: The one-sided confidence bound of the precision or recall.
        given: How many reach the threshold.
        right: How many of them are right.
        gold: How many there should be.
        cross_fitted: Precision and recall on items that the threshold was not chosen on.
        curve: Threshold, precision and recall all along.
        label: Of which label; empty for all of them together.
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

    @property
    def precision(self) -> float:
        """Of what is given, the share that is right; 0 for nothing."""
        return self.right / self.given if self.given else 0.0

    @property
    def recall(self) -> float:
        """Of what should be given, the share that is."""
        return self.right / self.gold if self.gold else 0.0

    def describe(self) -> dict[str, Any]:
        """Ready for JSON."""
        ratios = {"precision": self.precision, "recall": self.recall}
        fitted = dict(zip(ratios, self.cross_fitted, strict=True))
        tested = {} if self.reached is None else {"confidence": CONFIDENCE}
        return self._asdict() | ratios | {"cross_fitted": fitted} | tested

    def complain(self) -> str | None:
        """One line where the target is not reached."""
        if self.reached is not False:
            return None
        name = "precision" if self.target.startswith("precision") else "recall"
        what = f"{self.label}: " if self.label else ""
        got = f"{self.right:,} of {self.given if name == 'precision' else self.gold:,}"
        bound = self.bound or 0.0
        late = bound >= Target.parse(self.target).least  # would pass, had none before it failed
        why = ": the strictest thresholds, which are tested first, fail"
        by = why if late else " by any threshold"
        alone = " if it were the only one tested" if late else ""
        return (
            f"{what}{self.target} is not reached with {CONFIDENCE:.0%} confidence{by} on dev; the "
            f"closest, {self.threshold:.4g}, is used: {name} {got}, at least {bound:.3f}{alone}"
        )


def choose_point(
    pool: Pool,
    target: Target,
    *,
    default: float = 0.5,
    confidence: float = CONFIDENCE,
    folds: int = 5,
    seed: int = 0,
) -> Point:
    """The threshold for a target.

    F-beta and cost take the best threshold where it beats `default` clearly on items that it was
    not chosen on; "≥" targets take the most permissive (precision) or the strictest (recall) one
    that the walk reaches.

    Args:
        pool: What may be given.
        target: What to choose for.
        default: The threshold without tuning.
        confidence: Of "≥" targets.
        folds: How many parts the items are cut into.
        seed: Of the cut.
    """
    fold = assign_folds(len(pool.gold), folds=folds, seed=seed)

    def fit(parts: list[int], rule: Callable[[Pool], float]) -> float:
        return rule(pool.only(np.isin(fold, parts)))

    def count(threshold: float, part: int) -> Counts:
        given, right, gold = pool.only(fold == part).count(threshold)
        return Counts(("all",), np.array([[right, given - right, gold - right]]))

    rules: dict[str, Callable[[Pool], float]]
    if target.guarantees:
        rules = {"walk": lambda part: walk(part, target, confidence)[0]}
    else:
        rules = {"default": lambda _: default, "best": partial(best_threshold, target=target)}
    judged = {
        name: crossfit(partial(fit, rule=rule), count, folds=folds) for name, rule in rules.items()
    }
    chosen, _ = pick_rule(judged, score=target.value)
    threshold, reached = rules[chosen](pool), None
    if target.guarantees:
        threshold, reached = walk(pool, target, confidence)
    given, right, gold = pool.count(threshold)
    trials = {"precision": given, "recall": gold}.get(target.kind)
    honest = reduce(add, judged[chosen]).micro()
    return Point(
        target=target.text,
        threshold=threshold,
        reached=reached,
        bound=None if trials is None else lower_bound(right, trials, confidence=confidence),
        given=given,
        right=right,
        gold=gold,
        cross_fitted=(honest.precision, honest.recall),
        curve=_curve(pool),
    )


class Units(NamedTuple):
    """What was given for some items, by label.

    Attributes:
        item: The text or sentence of each.
        label: Of each.
        score: The confidence of each.
        right: Whether each is right.
        gold: The labels that each item should have, as often as it should have them.
    """

    item: list[int]
    label: list[str]
    score: list[float]
    right: list[bool]
    gold: list[list[str]]

    def add(self, item: int, label: str, score: float, *, right: bool) -> None:
        """Adds one that was given."""
        for column, value in zip(self, (item, label, score, right), strict=False):
            column.append(value)  # type: ignore[attr-defined]

    def pool(self, label: str | None = None) -> Pool:
        """All of it, or that of one label."""
        kept = np.array([label is None or one == label for one in self.label], bool)
        gold = [len(own) if label is None else own.count(label) for own in self.gold]
        score, right, item = (np.array(x)[kept] for x in (self.score, self.right, self.item))
        return Pool.of(score, right, item, gold)


def choose_bars(
    units: Units, target: Target | Mapping[str, Target], labels: Sequence[str]
) -> tuple[dict[str, float], list[Point]]:
    """The least confidence with which each label is given.

    Args:
        units: What a model gives without bars.
        target: One bar for all labels, or one for each that is named.
        labels: All of them, for one bar.
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
    """The threshold with the best F-beta or the lowest cost; the strictest of equal ones."""
    score, given, right = _ends(pool)
    gold = int(pool.gold.sum())
    table = np.stack([right, given - right, gold - right], axis=1)
    place = int(np.argmax(target.values(np.concatenate([[[0, 0, gold]], table]))))
    return float(score[place - 1]) if place else NEVER


def walk(pool: Pool, target: Target, confidence: float) -> tuple[float, bool]:
    """The last threshold of the walk that passes; where none does, the one nearest to passing."""
    score, given, right = _ends(pool)
    if not len(score):
        return 0.0, False
    level, least = 1 - confidence, target.least
    if target.kind == "recall":
        # With every step down more is found, and so all passes from the first that does.
        wanted = fewest_right(int(pool.gold.sum()), least, level)
        place = int(np.searchsorted(right, wanted))
        return float(score[min(place, len(score) - 1)]), place < len(score)
    most, first = int(given[-1]), first_size(least, level)
    start = first if most >= first else min(most, fewest_all_right(least, level))

    def test(sizes: Floats) -> tuple[list[int], Floats]:
        """Thresholds that give so many, and the p-value of each."""
        wanted = np.minimum(sizes.round().astype(np.int64), most)
        places = np.unique(np.searchsorted(given, wanted)).tolist()
        tails = [binomial_tail(int(right[one]), int(given[one]), least) for one in places]
        return places, np.array(tails)

    places, p_values = test(np.geomspace(start, most, STEPS))
    passed = int(np.argmax(np.append(p_values, math.inf) > level))  # until the first that fails
    if passed:
        return float(score[places[passed - 1]]), True
    places, p_values = test(np.geomspace(1, most, STEPS))
    return float(score[places[int(np.argmin(p_values))]]), False


def _ends(pool: Pool) -> tuple[Floats, Ints, Ints]:
    """Distinct scores from the highest down: how many reach each, how many of them are right."""
    order = np.argsort(-pool.score, kind="stable")
    score, right = pool.score[order], np.cumsum(pool.right[order])
    last = np.append(np.diff(score) != 0, True)[: len(score)]  # equal scores go together
    return score[last], np.arange(1, len(score) + 1)[last], right[last]


def _curve(pool: Pool) -> list[tuple[float, float, float]]:
    score, given, right = _ends(pool)
    gold = max(1, int(pool.gold.sum()))
    place = np.unique(np.linspace(0, max(0, len(score) - 1), POINTS).round().astype(int))
    rows = np.stack([score, right / np.maximum(given, 1), right / gold], axis=1)
    return [(float(t), float(p), float(r)) for t, p, r in rows[place[: len(score)]].round(6)]
