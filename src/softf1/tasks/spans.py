"""From logits of starts, ends and pairs to spans of words, nested or flat."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from softf1.data.examples import MrcExample

    Floats = NDArray[np.floating[Any]]
    Ints = NDArray[np.int64]
    Found = tuple[int, int, float]

Scored = tuple[float, int, int, int, float]
"""(score, example, start, end, confidence)."""


def pair_nearest(start: Floats, end: Floats, *, nested: bool) -> Iterator[Found]:
    """Spans of likely starts and ends alone: each start goes to the nearest end.

    Nothing is made of a start without an end. Flat spans end before the next start.

    >>> list(pair_nearest(np.array([2., 1., -1.]), np.array([-1., -1., 3.]), nested=False))
    [(1, 2, 4.0)]
    >>> list(pair_nearest(np.array([2., 1., -1.]), np.array([-1., -1., 3.]), nested=True))
    [(0, 2, 5.0), (1, 2, 4.0)]
    """
    starts, ends = np.flatnonzero(start > 0), np.flatnonzero(end > 0)
    for place, first in enumerate(starts.tolist()):
        after = ends[np.searchsorted(ends, first) :]
        stop = starts[place + 1] if place + 1 < len(starts) and not nested else len(start)
        if len(after) and after[0] < stop:
            yield first, int(after[0]), float(start[first] + end[after[0]])


def judge_pairs(start: Floats, end: Floats, match: Floats, pairs: Ints) -> Iterator[Found]:
    """The proposed pairs whose start, end and match are all likely.

    >>> likely = np.array([1., -1., 2.])
    >>> list(judge_pairs(likely, likely, np.array([3., 3.]), np.array([[0, 2], [2, 0]])))
    [(0, 2, 6.0)]
    """
    first, last = pairs.T
    likely = (first <= last) & (start[first] > 0) & (end[last] > 0) & (match > 0)
    for i in np.flatnonzero(likely).tolist():
        a, b = int(first[i]), int(last[i])
        yield a, b, float(start[a] + end[b] + match[i])


def find_spans_of_rows(
    logits: Mapping[str, NDArray[Any]], word: Ints, *, nested: bool
) -> Iterator[tuple[int, int, int, float, float]]:
    """The spans of each row: (row, start, end, score, confidence) by word, end exclusive.

    The confidence is the product of the probabilities that the heads give.

    Args:
        logits: `start`, `end` (B, L), and where they are there, `answerable` (B,), `match` (B, K)
            of `proposed` (B, K, 2).
        word: (B, L), the word that begins at each column, −1 for none.
        nested: Flat spans of starts and ends alone end before the next start.
    """
    for row, places in enumerate(word):
        if "answerable" in logits and logits["answerable"][row] <= 0:
            continue
        columns = np.flatnonzero(places >= 0)
        outside = places < 0
        start = np.where(outside, -np.inf, logits["start"][row])
        end = np.where(outside, -np.inf, logits["end"][row])
        if "proposed" in logits:
            found = judge_pairs(start, end, logits["match"][row], logits["proposed"][row])
        else:
            near = pair_nearest(start[columns], end[columns], nested=nested)
            found = ((int(columns[a]), int(columns[b]), score) for a, b, score in near)
        for a, b, score in found:
            said = [float(start[a]), float(end[b])]
            said += [score - said[0] - said[1]] if "proposed" in logits else []
            said += [float(logits["answerable"][row])] if "answerable" in logits else []
            confidence = math.prod(1 / (1 + math.exp(-logit)) for logit in said)  # all above 0
            yield row, int(places[a]), int(places[b]) + 1, score, confidence


def merge_windows(
    spans: Iterable[Scored], examples: Sequence[MrcExample], *, nested: bool
) -> list[list[tuple[list[int], float]]]:
    """The spans of each example over its windows, each with its confidence.

    Flat ones do not overlap in their sentence.
    """
    best: list[dict[tuple[int, int], Scored]] = [{} for _ in examples]
    for span in spans:
        _, example, start, end, _ = span
        own = best[example]
        own[start, end] = max(span, own.get((start, end), span))
    kept: list[list[tuple[list[int], float]]] = [[] for _ in examples]
    for group in group_sentences(examples):
        mine = [span for i in group for span in best[i].values()]
        for _, i, start, end, confidence in mine if nested else keep_flat(mine):
            kept[i].append(([start, end], confidence))
    return [sorted(own) for own in kept]


def keep_flat(spans: Iterable[Scored]) -> list[Scored]:
    """The best spans that do not overlap a better one.

    >>> keep_flat([(1.0, 0, 0, 2, 0.6), (3.0, 1, 1, 4, 0.9), (0.5, 0, 4, 5, 0.5)])
    [(3.0, 1, 1, 4, 0.9), (0.5, 0, 4, 5, 0.5)]
    """
    kept: list[Scored] = []
    for span in sorted(spans, key=lambda s: (-s[0], s[2], s[3], s[1])):
        if all(span[3] <= other[2] or span[2] >= other[3] for other in kept):
            kept.append(span)
    return kept


def group_sentences(examples: Sequence[MrcExample]) -> Iterator[list[int]]:
    """Examples that ask different labels of one sentence, which stand one after another."""
    group: list[int] = []
    for i, example in enumerate(examples):
        asked = {examples[j].label for j in group}
        if group and (examples[group[0]].words != example.words or example.label in asked):
            yield group
            group = []
        group.append(i)
    if group:
        yield group
