"""Successive halving: many settings for a short while, the better half of them for longer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Mapping, Sequence

Setting = TypeVar("Setting")
Key = TypeVar("Key", bound="Hashable")

if TYPE_CHECKING:
    Trial = tuple[Any, float]
    """A setting, and the share of a whole run that it gets."""


def halve(
    settings: Sequence[Setting], shares: Sequence[float], *, keep: int = 2
) -> Generator[list[tuple[Setting, float]], Sequence[float | None], Setting]:
    """The best setting, found with few whole runs.

    A generator: it gives the trials of a round and is sent their scores, None for one that failed.
    Of equals the earlier one wins, so that the usual setting should stand first.

    Args:
        settings: What to choose from.
        shares: The share of a whole run that each round gives to a setting.
        keep: Of that many settings, one gets into the next round.

    >>> rounds = halve(["a", "b", "c", "d"], [0.1, 0.3])
    >>> next(rounds)
    [('a', 0.1), ('b', 0.1), ('c', 0.1), ('d', 0.1)]
    >>> rounds.send([0.5, 0.7, None, 0.6])
    [('b', 0.3), ('d', 0.3)]
    """
    if not settings:
        raise ValueError("wanted settings to choose from, got none")
    left = list(settings)
    for number, share in enumerate(shares):
        if len(left) == 1:
            break
        scores = yield [(setting, share) for setting in left]
        ranked = sorted(range(len(left)), key=lambda i: (-_rank(scores[i]), i))
        last = number == len(shares) - 1
        kept = ranked[: 1 if last else math.ceil(len(left) / keep)]
        left = [left[i] for i in sorted(kept)]  # in their order, which decides between equals
    return left[0]


def _rank(score: float | None) -> float:
    return -math.inf if score is None or math.isnan(score) else score


def halve_together(
    settings: Mapping[Key, Sequence[Setting]],
    shares: Sequence[float],
    measure: Callable[[list[tuple[Key, Setting, float]]], Sequence[float | None]],
    *,
    keep: int = 2,
) -> dict[Key, Setting]:
    """The best setting of each of several things, whose rounds are measured together.

    Args:
        settings: What to choose from, for each.
        shares: As in `halve`.
        measure: Scores of trials `(key, setting, share)`, which it may run side by side.
        keep: As in `halve`.
    """
    searches = {key: halve(own, shares, keep=keep) for key, own in settings.items()}
    chosen: dict[Key, Setting] = {}
    asked: dict[Key, list[tuple[Setting, float]]] = {}

    def ask(key: Key, scores: Sequence[float | None] | None) -> None:
        try:
            asked[key] = next(searches[key]) if scores is None else searches[key].send(scores)
        except StopIteration as found:
            chosen[key] = found.value

    for key in searches:
        ask(key, None)
    while asked:
        now, asked = asked, {}
        trials = [(key, *trial) for key, own in now.items() for trial in own]
        scores = iter(measure(trials))
        for key, own in now.items():
            ask(key, [next(scores) for _ in own])
    return chosen


def count_cost(settings: int, shares: Sequence[float], *, keep: int = 2) -> float:
    """What a search costs, in whole runs.

    >>> round(count_cost(4, [1 / 9, 1 / 3]), 3)  # 4/9 + 2/3
    1.111
    """
    cost, left = 0.0, settings
    for share in shares:
        if left > 1:
            cost += left * share
        left = math.ceil(left / keep)
    return cost
