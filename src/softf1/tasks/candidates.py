"""Which pairs of start and end the span head of BERT-MRC is trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from softf1.tasks.base import IGNORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Pair = tuple[int, int]

Candidates = Literal["all", "gold", "gold_random"]


def choose_pairs(
    gold: Sequence[Pair],
    words: int,
    *,
    candidates: Candidates,
    max_span: int,
    seed: Sequence[int],
) -> list[Pair]:
    """Pairs (first word, last word) for one window: gold ones first.

    "gold" has no negatives. "gold_random" adds the wrong pairings of gold starts and ends, and as
    many random pairs as there are gold ones (at least one). "all" adds every pair of at most
    `max_span` words.

    >>> choose_pairs([(0, 1), (3, 3)], 5, candidates="gold_random", max_span=9, seed=(0,))[:3]
    [(0, 1), (3, 3), (0, 3)]
    >>> choose_pairs([(1, 1)], 2, candidates="all", max_span=9, seed=(0,))
    [(1, 1), (0, 0), (0, 1)]
    """
    pairs = dict.fromkeys(gold)
    if candidates == "all":
        pairs |= dict.fromkeys(
            (i, j) for i in range(words) for j in range(i, min(words, i + max_span))
        )
    elif candidates == "gold_random" and words:
        pairs |= dict.fromkeys((i, j) for i, _ in gold for _, j in gold if i <= j)
        random = np.random.default_rng(seed)
        starts = random.integers(words, size=max(1, len(gold)))
        ends = np.minimum(starts + random.integers(max_span, size=len(starts)), words - 1)
        pairs |= dict.fromkeys(zip(starts.tolist(), ends.tolist(), strict=True))
    return list(pairs)


def pair_tensors(
    chosen: Sequence[Sequence[Pair]],
    golds: Sequence[Sequence[Pair]],
    columns: Sequence[NDArray[Any]],
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Pairs as columns (B, K, 2) and their targets (B, K, 1); missing ones are ignored.

    K is a power of 2: training compiles for few shapes.
    """
    most = 1 << (max(1, *map(len, chosen)) - 1).bit_length()
    pairs = np.zeros((len(chosen), most, 2), np.int64)
    target = np.full((len(chosen), most, 1), IGNORE, np.float32)
    for row, (own, gold, column) in enumerate(zip(chosen, golds, columns, strict=True)):
        if own:
            pairs[row, : len(own)] = column[np.array(own)]
            wanted = set(gold)
            target[row, : len(own), 0] = [pair in wanted for pair in own]
    return pairs, target
