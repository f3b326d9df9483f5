"""What makes a comparison doubtful though nothing failed: idle trials, constant answers."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from softf1.experiments.comparison import Run


def list_doubts(
    runs: Mapping[str, Mapping[int, Run]], trials: Sequence[Mapping[str, Any]], baseline: str
) -> Iterator[str]:
    """A sentence for each kind of doubt, with the rows it is about.

    Args:
        runs: By row and seed.
        trials: The short runs that chose settings, as a grid has them.
        baseline: The row to compare with.
    """
    if silent := find_silent(trials):
        yield (
            f"all settings of {', '.join(silent)} have the same dev score after the short runs, "
            "which is no choice: the usual ones stand"
        )
    if constant := find_constant(runs, baseline):
        yield (
            f"every test example scores the same with every seed of {', '.join(constant)}, "
            "as if one answer were given to all"
        )


def find_silent(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows all of whose settings had one score in a round.

    >>> find_silent([{"loss": "dice", "share": 0.3, "score": score} for score in (0.5, 0.5)])
    ['dice']
    """
    rounds = defaultdict(list)
    for trial in trials:
        if trial["score"] is not None:
            rounds[trial["loss"], trial["share"]].append(trial["score"])
    found = [row for (row, _), own in rounds.items() if len(own) > 1 and len(set(own)) == 1]
    return list(dict.fromkeys(found))


def find_constant(runs: Mapping[str, Mapping[int, Run]], baseline: str) -> list[str]:
    """Rows behind the baseline whose seeds differ in no example."""
    if baseline not in runs:
        return []
    bar = fmean(run.score for run in runs[baseline].values())
    return [
        row
        for row, own in runs.items()
        if len(own) > 1
        and fmean(run.score for run in own.values()) < bar
        and _are_equal([run.pseudo for run in own.values()])
    ]


def _are_equal(values: Sequence[Any]) -> bool:
    return values[0] is not None and all(np.array_equal(values[0], other) for other in values[1:])
