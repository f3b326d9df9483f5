"""Biases of labels, tuned on dev by cross-fitting: what replaces the plain best label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from softf1.metrics.biases import tune_biases
from softf1.metrics.classification import count_classes_ids
from softf1.metrics.schemes import OUTSIDE
from softf1.metrics.spans import count_lenient_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MOST_LABELS = 32
"""Up to so many labels a bias for each is tried too; its time grows with their square."""


def tune_spans(
    logits: NDArray[Any], gold: NDArray[Any], *, lengths: NDArray[Any], labels: Sequence[str]
) -> tuple[float, ...]:
    """One bias for O with the best span F1; one for each tag overfits small dev sets.

    Args:
        logits: (words, C).
        gold: (words,), −100 for a tag that training never saw.
        lengths: Words of each sentence.
        labels: The tags.
    """
    if OUTSIDE not in labels:
        return ()
    outside = labels.index(OUTSIDE)
    # A tag that training never saw cannot be found at any bias.
    known = np.where(gold < 0, outside, gold)
    tuned = tune_biases(
        logits,
        known,
        background=outside,
        count=lambda g, p, n: count_lenient_ids(g, p, lengths=n, tags=labels),
        average="micro",
        lengths=lengths,
    )
    return tuned.biases if any(tuned.biases) else ()


def tune_classes(
    logits: NDArray[Any],
    gold: NDArray[Any],
    *,
    metric: str,
    lengths: NDArray[Any] | None = None,
) -> tuple[float, ...]:
    """A bias for the most frequent class, or for each, where it is clearly better than none.

    Args:
        logits: (items, C).
        gold: (items,), −100 for a label that training never saw.
        metric: "macro_f1" is tuned for; any other by the share of right items.
        lengths: Items of each text, where they come in texts that stay whole.

    >>> logits = np.log([[0.5, 0.2, 0.3], [0.8, 0.1, 0.1], [0.4, 0.5, 0.1]] * 20)
    >>> biases = tune_classes(logits, np.array([2, 0, 1] * 20), metric="macro_f1")
    >>> (logits[:3] + biases).argmax(-1)
    array([2, 0, 1])
    """
    classes = logits.shape[1]
    if classes < 2 or not (gold >= 0).any():
        return ()
    names = [str(number) for number in range(classes + 1)]  # the last is all that are unseen
    known = np.where(gold < 0, classes, gold)
    tuned = tune_biases(
        logits,
        known,
        background=int(np.bincount(gold[gold >= 0]).argmax()),
        count=lambda g, p, _: count_classes_ids(g, p, labels=names),
        average="macro" if metric == "macro_f1" else "micro",
        lengths=lengths,
        per_class=classes <= MOST_LABELS,
    )
    return tuned.biases if any(tuned.biases) else ()
