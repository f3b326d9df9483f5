"""How well probabilities rank: precision at every recall, over all labels and for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from softf1.reports.curves import precision_recall

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from softf1.reports.items import Item

ALL = "all labels"
SHOWN = 12


class Ranking(NamedTuple):
    """Precision at `curves.RECALLS`, and average precision."""

    precision: NDArray[np.float64]
    area: float


Ranked = dict[str, Ranking]


def rank(items: list[Item]) -> Ranked:
    """The ranking of one run: all labels pooled, then the most frequent ones by themselves.

    Of two labels of which each text has one, only the rarer is ranked: the other says the same.
    """
    scored = [item for item in items if item.scores]
    if not scored:
        return {}
    labels = list(scored[0].scores)
    scores = np.array([[item.scores.get(label, 0.0) for label in labels] for item in scored])
    right = np.array([[label in item.gold for label in labels] for item in scored])
    counts = right.sum(0)
    order = [i for i in np.argsort(-counts, kind="stable").tolist() if counts[i]]
    if len(labels) == 2 and (right.sum(1) == 1).all():
        return _rankings(scores, right, {labels[order[-1]]: [order[-1]]})
    named = {ALL: order} | {labels[i]: [i] for i in order[:SHOWN]}
    return _rankings(scores, right, named)


def _rankings(
    scores: NDArray[np.float64], right: NDArray[np.bool_], named: dict[str, list[int]]
) -> Ranked:
    return {
        name: Ranking(*precision_recall(scores[:, columns].ravel(), right[:, columns].ravel()))
        for name, columns in named.items()
        if right[:, columns].any()
    }
