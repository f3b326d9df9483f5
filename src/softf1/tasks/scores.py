"""Counts as the flat dict of scores that result files hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softf1.metrics.counts import Counts


DIGITS = 6
"""Of the confidence of a prediction."""


def describe(counts: Counts) -> dict[str, Any]:
    """Micro scores under plain names, macro F1, and the scores of each label.

    >>> from softf1.metrics.counts import Counts
    >>> scores = describe(Counts.from_dict({"PER": (3, 1, 1), "LOC": (0, 0, 1)}))
    >>> round(scores["f1"], 3), scores["macro_f1"], scores["labels"]["LOC"]["support"]
    (0.667, 0.375, 1)
    """
    micro = counts.micro()
    labels = {
        label: {"precision": s.precision, "recall": s.recall, "f1": s.f, "support": s.support}
        for label, s in counts.items()
    }
    return {
        "precision": micro.precision,
        "recall": micro.recall,
        "f1": micro.f,
        "macro_f1": counts.macro().f,
        "labels": labels,
    }
