"""What makes a comparison doubtful though nothing failed: idle trials, dead or constant runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from softf1.experiments.comparison import Run

ENOUGH = 100
"""Test examples on which no two trained models agree by chance."""


def say_doubts(
    runs: Mapping[str, Mapping[int, Run]], trials: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """A sentence for each kind of doubt, with the rows it is about.

    Args:
        runs: By row and seed.
        trials: The short runs that chose settings, as a grid has them.
    """
    if undecided := find_undecided(trials):
        yield (
            f"short runs say little about {', '.join(undecided)}: "
            "most settings have one and the same dev score"
        )
    if collapsed := count_collapsed(runs):
        yield (
            f"collapsed, that is found nothing or one class alone on dev: {', '.join(collapsed)}; "
            "a mean over such seeds is no mean of trained models"
        )
    if constant := find_constant(runs):
        yield (
            f"every test example scores the same with every seed of {', '.join(constant)}, "
            "as if one answer were given to all"
        )


def count_collapsed(runs: Mapping[str, Mapping[int, Run]]) -> list[str]:
    """Rows with seeds that collapsed, and how many did."""
    dead = {row: sum(run.collapsed for run in own.values()) for row, own in runs.items()}
    return [f"{row} ({count} of {len(runs[row])} seeds)" for row, count in dead.items() if count]


def find_undecided(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows most of whose settings had one score in the last round that had several.

    >>> find_undecided([{"loss": "dice", "share": 0.3, "score": score} for score in (0.5, 0.5)])
    ['dice']
    """
    rounds: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        if trial["score"] is not None:
            rounds[trial["loss"]][trial["share"]].append(trial["score"])
    several = {
        row: [scores for _, scores in sorted(own.items()) if len(scores) > 1]
        for row, own in rounds.items()
    }
    return [row for row, own in several.items() if own and _mostly_one(own[-1])]


def _mostly_one(scores: Sequence[float]) -> bool:
    ((_, count),) = Counter(scores).most_common(1)
    return 2 * count > len(scores)


def find_constant(runs: Mapping[str, Mapping[int, Run]]) -> list[str]:
    """Rows whose seeds differ in no test example, though they are not perfect."""
    return [
        row
        for row, own in runs.items()
        if len(own) > 1
        and all(run.score < 1 for run in own.values())
        and _are_equal([run.pseudo for run in own.values()])
    ]


def _are_equal(values: Sequence[Any]) -> bool:
    first, *others = values
    if first is None or len(first) < ENOUGH:
        return False
    return all(np.array_equal(first, other) for other in others)
