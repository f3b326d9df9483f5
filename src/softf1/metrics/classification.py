"""Scores of classification, single-label and multi-label, as counts per class.

>>> counts = count_classes(["a", "b", "b", "c"], ["a", "b", "c", "c"])
>>> counts.macro().f
0.777...
>>> accuracy(counts)
0.75
>>> groups = group_by_frequency({"a": 1000, "b": 50, "c": 5}, head=100, tail=20)
>>> {name: counts.only(labels).macro().recall for name, labels in groups.items()}
{'head': 1.0, 'mid': 0.5, 'tail': 1.0}
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from softf1.metrics.counts import Counts, Mean, check_ids

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike


def count_classes(
    gold: Sequence[str], predicted: Sequence[str], *, labels: Iterable[str] | None = None
) -> Counts:
    """Counts of single-label data.

    Args:
        gold: The right class of each item.
        predicted: The predicted class of each item.
        labels: The classes to count, in this order; one that occurs nowhere scores 0 and counts in
            a macro mean. If not given, the classes that occur in either list, sorted.
    """
    _check_lengths(len(gold), len(predicted))
    right = Counter(a for a, b in zip(gold, predicted, strict=True) if a == b)
    wanted, got = Counter(gold), Counter(predicted)
    return _from_counters(right, wanted, got, labels)


def count_classes_ids(gold: ArrayLike, predicted: ArrayLike, *, labels: Sequence[str]) -> Counts:
    """`count_classes` from integers: indices into `labels`, all of which are counted.

    >>> count_classes_ids([0, 1, 1], [0, 0, 1], labels=["no", "yes"])
    Counts.from_dict({'no': [1, 1, 0], 'yes': [1, 0, 1]})
    """
    right, chosen = (np.asarray(ids, dtype=np.int64).ravel() for ids in (gold, predicted))
    check_ids(right, len(labels))
    check_ids(chosen, len(labels))
    _check_lengths(right.size, chosen.size)
    hits = right[right == chosen]
    tp, wanted, got = (np.bincount(ids, minlength=len(labels)) for ids in (hits, right, chosen))
    return Counts(labels, np.stack([tp, got - tp, wanted - tp], axis=1))


def count_label_sets(
    gold: Sequence[Collection[str]],
    predicted: Sequence[Collection[str]],
    *,
    labels: Iterable[str] | None = None,
) -> Counts:
    """Counts of multi-label data: a collection of labels for each item.

    >>> count_label_sets([{"a", "b"}, set()], [{"a"}, {"b"}])
    Counts.from_dict({'a': [1, 0, 0], 'b': [0, 1, 1]})
    """
    _check_lengths(len(gold), len(predicted))
    pairs = [(set(a), set(b)) for a, b in zip(gold, predicted, strict=True)]
    right = Counter(label for a, b in pairs for label in a & b)
    wanted = Counter(label for a, _ in pairs for label in a)
    got = Counter(label for _, b in pairs for label in b)
    return _from_counters(right, wanted, got, labels)


def count_label_matrix(gold: ArrayLike, predicted: ArrayLike, *, labels: Sequence[str]) -> Counts:
    """`count_label_sets` from two boolean matrices `(items, labels)`."""
    right, chosen = np.asarray(gold, dtype=bool), np.asarray(predicted, dtype=bool)
    if right.shape != chosen.shape or right.shape[1:] != (len(labels),):
        wanted = f"two matrices (items, {len(labels)})"
        raise ValueError(f"wanted {wanted}, got {right.shape} and {chosen.shape}")
    table = [right & chosen, ~right & chosen, right & ~chosen]
    return Counts(labels, np.stack([part.sum(axis=0) for part in table], axis=1))


def accuracy(counts: Counts) -> float:
    """The share of items that are right, from single-label counts of *all* classes."""
    return counts.micro().recall


def subset_accuracy(gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]]) -> Mean:
    """The share of multi-label items whose set of labels is right as a whole."""
    _check_lengths(len(gold), len(predicted))
    right = sum(set(a) == set(b) for a, b in zip(gold, predicted, strict=True))
    return Mean(float(right), len(gold))


def group_by_frequency(
    train_counts: Mapping[str, int], *, head: int, tail: int
) -> dict[str, tuple[str, ...]]:
    """The labels with at least `head` training items, those with at most `tail`, and the rest.

    Score a group with `counts.only(groups["tail"]).macro()`.
    """
    if not tail < head:
        raise ValueError(f"wanted tail < head, got tail {tail} and head {head}")
    groups: dict[str, list[str]] = {"head": [], "mid": [], "tail": []}
    for label, n in train_counts.items():
        groups["head" if n >= head else "tail" if n <= tail else "mid"].append(label)
    return {name: tuple(labels) for name, labels in groups.items()}


def _from_counters(
    right: Counter[str],
    wanted: Counter[str],
    got: Counter[str],
    labels: Iterable[str] | None,
) -> Counts:
    kept = sorted(wanted | got) if labels is None else list(labels)
    rows = [(right[x], got[x] - right[x], wanted[x] - right[x]) for x in kept]
    return Counts(kept, np.array(rows, dtype=np.int64))


def _check_lengths(gold: int, predicted: int) -> None:
    if gold != predicted:
        raise ValueError(f"wanted as many predicted as gold items, {gold}, got {predicted}")
