"""Counts first, ratio last: counts add up over batches and processes, scores come from the sums.

>>> first = Counts.from_dict({"PER": (8, 2, 0), "LOC": (1, 0, 3)})
>>> second = Counts.from_dict({"LOC": (0, 1, 0)})
>>> both = first + second
>>> both.micro().f
0.75
>>> both["LOC"].recall
0.25
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Average = Literal["micro", "macro", "weighted"]

NAMES = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "exact": "exact match",
    "conlleval_f1": "conlleval F1",
}


def name_score(metric: str) -> str:
    """The name of a score in a sentence or a heading.

    >>> name_score("macro_f1"), name_score("subset_accuracy")
    ('macro F1', 'subset accuracy')
    """
    return NAMES.get(metric, metric.replace("_", " "))


class Scores(NamedTuple):
    """Precision, recall, F-beta and how many gold items they rest on; 0/0 is 0."""

    precision: float
    recall: float
    f: float
    support: int


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean that is not divided yet: add the means of batches, then take `value`.

    >>> (Mean(3.0, 4) + Mean(0.0, 2)).value
    0.5
    """

    total: float = 0.0
    count: int = 0

    def __add__(self, other: Mean) -> Mean:
        """The mean over both sets of items."""
        return Mean(self.total + other.total, self.count + other.count)

    @property
    def value(self) -> float:
        """The mean; 0 for no items."""
        return self.total / self.count if self.count else 0.0


class Counts(Mapping[str, Scores]):
    """True positives, false positives and false negatives of each label.

    A mapping from label to `Scores`. There is no default average: say `micro()` (one ratio of the
    sums), `macro()` (mean of the labels' scores) or `weighted()` (that mean weighted by support).
    """

    __slots__ = ("_index", "labels", "table")

    def __init__(self, labels: Iterable[str], table: Ints):
        """Holds a `(labels, 3)` table with the columns tp, fp, fn."""
        self.labels = tuple(labels)
        self.table = np.asarray(table, dtype=np.int64).reshape(-1, 3)
        self._index = {label: row for row, label in enumerate(self.labels)}
        if not len(self.labels) == len(self.table) == len(self._index):
            got = f"{self.labels}, {len(self.table)} rows"
            raise ValueError(f"wanted a row for each different label, got {got}")

    @classmethod
    def from_dict(cls, counts: Mapping[str, tuple[int, int, int] | list[int]]) -> Counts:
        """Counts from label → (tp, fp, fn), as `to_dict` gives them."""
        return cls(counts, np.array(list(counts.values()), dtype=np.int64))

    def to_dict(self) -> dict[str, list[int]]:
        """Plain label → [tp, fp, fn], ready for JSON."""
        return dict(zip(self.labels, self.table.tolist(), strict=True))

    def __getitem__(self, label: str) -> Scores:
        """The scores (F1) of one label."""
        return self.label(label)

    def __iter__(self) -> Iterator[str]:
        """The labels."""
        return iter(self.labels)

    def __len__(self) -> int:
        """How many labels there are."""
        return len(self.labels)

    def __eq__(self, other: object) -> bool:
        """Equal when each label has the same counts, whatever the order of labels."""
        return isinstance(other, Counts) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # equality ignores order, nobody needs a hash

    def __repr__(self) -> str:
        """The counts, as they could be typed."""
        return f"Counts.from_dict({self.to_dict()})"

    def __add__(self, other: Counts) -> Counts:
        """The counts over both sets of items; a label that is missing in one counts 0 there."""
        labels = tuple(dict.fromkeys(self.labels + other.labels))
        index = {label: row for row, label in enumerate(labels)}
        table = np.zeros((len(labels), 3), dtype=np.int64)
        for part in (self, other):
            table[[index[label] for label in part.labels]] += part.table
        return Counts(labels, table)

    def __radd__(self, other: int) -> Counts:
        """So that `sum(counts)` works, which starts from 0."""
        if other != 0:
            return NotImplemented
        return self

    @property
    def support(self) -> Ints:
        """The number of gold items of each label."""
        support: Ints = self.table[:, 0] + self.table[:, 2]
        return support

    def only(self, labels: Iterable[str]) -> Counts:
        """The counts of these labels; one without counts gets zeros, and so a score of 0."""
        kept = tuple(labels)
        rows = [self.table[self._index[x]] if x in self._index else (0, 0, 0) for x in kept]
        return Counts(kept, np.array(rows, dtype=np.int64))

    def without(self, labels: Iterable[str]) -> Counts:
        """The counts of all other labels, such as all but the background class."""
        left_out = set(labels)
        return self.only(label for label in self.labels if label not in left_out)

    def label(self, label: str, *, beta: float = 1.0) -> Scores:
        """The scores of one label."""
        if label not in self._index:
            raise KeyError(f"wanted one of {', '.join(self.labels)}, got {label!r}")
        return _scores(self.table[self._index[label]], beta)

    def micro(self, *, beta: float = 1.0) -> Scores:
        """One ratio of the sums over labels: frequent labels decide."""
        return _scores(self.table.sum(axis=0), beta)

    def macro(self, *, beta: float = 1.0) -> Scores:
        """The mean of the labels' scores: every label weighs the same (F is the mean of F)."""
        return self._mean(beta, np.ones_like(self.support))

    def weighted(self, *, beta: float = 1.0) -> Scores:
        """The mean of the labels' scores, each weighted by its number of gold items."""
        return self._mean(beta, self.support)

    def average(self, name: Average, *, beta: float = 1.0) -> Scores:
        """`micro`, `macro` or `weighted` by name."""
        if name not in get_args(Average):
            raise ValueError(f"wanted an average of {', '.join(get_args(Average))}, got {name!r}")
        chosen: Scores = getattr(self, name)(beta=beta)
        return chosen

    def _mean(self, beta: float, weights: Ints) -> Scores:
        precision, recall, f = divide(weights @ ratios_of(self.table, beta=beta), weights.sum())
        return Scores(float(precision), float(recall), float(f), int(self.support.sum()))


def divide(above: ArrayLike, below: ArrayLike) -> Floats:
    """The ratio, 0 where the denominator is 0."""
    numerator, denominator = np.broadcast_arrays(np.asarray(above, float), np.asarray(below, float))
    ratio = np.zeros(numerator.shape)
    np.divide(numerator, denominator, out=ratio, where=denominator != 0)
    return ratio


def check_numbers(values: Floats, name: str) -> None:
    """Raises if one of the values is not a number."""
    if np.isnan(values).any():
        raise ValueError(f"wanted numbers as {name}, got {np.isnan(values).sum()} NaN")


def check_ids(ids: Ints, size: int) -> None:
    """Raises if one of the ids is not an index into a list of this size."""
    if ids.size and not (ids.min() >= 0 and ids.max() < size):
        raise ValueError(f"wanted ids from 0 to {size - 1}, got {ids.min()} to {ids.max()}")


def ratios_of(table: Ints, *, beta: float = 1.0) -> Floats:
    """Precision, recall and F-beta `(..., 3)` of counts `(..., 3)`; 0/0 is 0.

    F-beta is `(1 + b²)·tp / ((1 + b²)·tp + fp + b²·fn)`: precision at b = 0, recall at b = ∞.
    """
    if not beta >= 0:
        raise ValueError(f"wanted beta >= 0, got {beta}")
    tp, fp, fn = np.moveaxis(table, -1, 0)
    precision, recall = divide(tp, tp + fp), divide(tp, tp + fn)
    if math.isinf(beta):
        f = recall
    else:
        f = divide((1 + beta**2) * tp, (1 + beta**2) * tp + fp + beta**2 * fn)
    return np.stack([precision, recall, f], axis=-1)


def _scores(row: Ints, beta: float) -> Scores:
    precision, recall, f = ratios_of(row, beta=beta).tolist()
    return Scores(precision, recall, f, int(row[0] + row[2]))
