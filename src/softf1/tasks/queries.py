"""Windows of BERT-MRC: gold spans, targets, candidate pairs, and decoding to spans."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from softf1.tasks.base import DIGITS, IGNORE, Features
from softf1.tasks.rows import Ints, take
from softf1.tasks.spans import Scored, keep_flat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from softf1.data.examples import MrcExample

    Pair = tuple[int, int]
    Golds = tuple[list[Pair], tuple[list[int], list[int]]]
    Floats = NDArray[np.floating[Any]]
    ScoredSpan = tuple[int, int, float]


SIDES = ("start", "end")


def window_golds(features: Features, item: int) -> Golds:
    """Returns the gold (first word, last word) of a window, and starts and ends of cut spans.

    Words are counted from the start of the window. A span that is only partly in the window is not
    a negative there: the start or end that is inside is left out of the loss.
    """
    gold, _ = take(features, "gold", features["source"][[item]])
    spans = (gold - features["first"][item]).tolist()
    words = int(features["end"][item] - features["first"][item])
    inside = [(start, end - 1) for start, end in spans if start >= 0 and end <= words]
    starts = [start for start, end in spans if 0 <= start < words < end]
    ends = [end - 1 for start, end in spans if start < 0 < end <= words]
    return inside, (starts, ends)


def side_targets(
    windows: Sequence[Golds], columns: Sequence[NDArray[Any]], context: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Makes start and end targets (B, L, 1): −100 wherever no word of the context begins."""
    targets = {}
    for side, key in enumerate(SIDES):
        target = np.where(context == 1, 0, IGNORE).astype(np.float32)
        for row, ((golds, cut), column) in enumerate(zip(windows, columns, strict=True)):
            target[row, column[cut[side]]] = IGNORE
            target[row, column[[pair[side] for pair in golds]]] = 1
        targets[key] = target[..., None]
    return targets


def answer_targets(windows: Sequence[Golds]) -> NDArray[np.float32]:
    """Returns whether each window has a span (B, 1); −100 if it has only a part of one.

    >>> answer_targets([([(0, 1)], ([], [])), ([], ([], [])), ([], ([3], []))]).tolist()
    [[1.0], [0.0], [-100.0]]
    """
    values = [1 if golds else IGNORE if starts or ends else 0 for golds, (starts, ends) in windows]
    return np.array(values, np.float32).reshape(-1, 1)


Candidates = Literal["all", "gold", "gold_random"]


def choose_pairs(
    gold: Sequence[Pair],
    words: int,
    *,
    candidates: Candidates,
    max_span: int,
    seed: Sequence[int],
) -> list[Pair]:
    """Chooses candidate pairs (first word, last word) for one window, gold ones first.

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
    """Returns pairs as columns (B, K, 2) and their targets (B, K, 1), −100 for padding.

    K is a power of 2, so that training compiles for few shapes.
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


def pair_nearest(start: Floats, end: Floats, *, nested: bool) -> Iterator[ScoredSpan]:
    """Pairs each likely start with the nearest likely end, without a head for pairs.

    A start without an end gives no span. Unless `nested`, spans end before the next start.

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


def judge_pairs(start: Floats, end: Floats, match: Floats, pairs: Ints) -> Iterator[ScoredSpan]:
    """Yields the proposed pairs whose start, end and match are all likely (logits above 0).

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
    """Yields the spans of all rows: (row, first word, end, score, confidence), end exclusive.

    The confidence is the product of the probabilities that the heads give.

    Args:
        logits: `start` and `end` (B, L); if the model has such heads, `answerable` (B,), and
            `match` (B, K) for the pairs `proposed` (B, K, 2).
        word: (B, L), the number of the word that begins at each column, −1 for none.
        nested: Whether spans may overlap; matters only without `match`, see `pair_nearest`.
    """
    for row, places in enumerate(word):
        if "answerable" in logits and logits["answerable"][row] <= 0:
            continue
        columns = np.flatnonzero(places >= 0)
        outside = places < 0
        start = np.where(outside, -np.inf, logits["start"][row])
        end = np.where(outside, -np.inf, logits["end"][row])
        if "proposed" in logits:
            pairs = judge_pairs(start, end, logits["match"][row], logits["proposed"][row])
        else:
            near = pair_nearest(start[columns], end[columns], nested=nested)
            pairs = ((int(columns[a]), int(columns[b]), score) for a, b, score in near)
        for a, b, score in pairs:
            said = [float(start[a]), float(end[b])]
            said += [score - said[0] - said[1]] if "proposed" in logits else []
            said += [float(logits["answerable"][row])] if "answerable" in logits else []
            confidence = math.prod(1 / (1 + math.exp(-logit)) for logit in said)  # all above 0
            yield row, int(places[a]), int(places[b]) + 1, score, confidence


def merge_windows(
    spans: Iterable[Scored], examples: Sequence[MrcExample], *, nested: bool
) -> list[list[tuple[list[int], float]]]:
    """Merges the spans of windows to those of each example, each with its confidence.

    Unless `nested`, the spans of all queries about a sentence do not overlap.
    """
    best: list[dict[tuple[int, int], Scored]] = [{} for _ in examples]
    for span in spans:
        _, example, start, end, _ = span
        own = best[example]
        own[start, end] = max(span, own.get((start, end), span))
    kept: list[list[tuple[list[int], float]]] = [[] for _ in examples]
    for group in group_queries((example.words, example.label) for example in examples):
        mine = [span for i in group for span in best[i].values()]
        for _, i, start, end, confidence in mine if nested else keep_flat(mine):
            kept[i].append(([start, end], round(confidence, DIGITS)))
    return kept


def group_queries(asked: Iterable[tuple[Sequence[str], str]]) -> list[list[int]]:
    """Groups queries about one sentence: they follow each other and ask for different labels.

    Args:
        asked: The words of the sentence and the label, for each query.

    Returns:
        The indices of the queries of each group.

    >>> ann, bob = ["Ann"], ["Bob"]
    >>> group_queries([(ann, "PER"), (ann, "LOC"), (bob, "PER"), (bob, "PER")])
    [[0, 1], [2], [3]]
    """
    groups: list[list[int]] = []
    sentence: Sequence[str] = ()
    labels: set[str] = set()
    for number, (words, label) in enumerate(asked):
        if not groups or words != sentence or label in labels:
            groups.append([])
            sentence, labels = words, set()
        groups[-1].append(number)
        labels.add(label)
    return groups
