"""Contexts with a query each as features, and what is to be found in every window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from softf1.tasks.base import IGNORE, Features
from softf1.tasks.ragged import offsets
from softf1.tasks.rows import room
from softf1.tasks.sentences import SentenceEncoder
from softf1.tasks.texts import encode_texts, keep
from softf1.tasks.words import Numbering

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from softf1.data.examples import MrcExample
    from softf1.models.codec import Codec

    Pair = tuple[int, int]
    Golds = tuple[list[Pair], tuple[list[int], list[int]]]

SIDES = ("start", "end")


def encode_queries(
    examples: Sequence[MrcExample],
    codec: Codec,
    *,
    max_length: int | None,
    max_query: int,
    overlap: int | None,
) -> Features:
    """The arrays of `SentenceEncoder`, with each distinct query and the gold spans by word."""
    number, label = Numbering(), Numbering()
    query_of = number.numbers([example.query for example in examples])
    flat, counts = encode_texts(list(number), codec)
    flat, counts = keep((flat, counts), np.minimum(counts, max_query))
    layout = codec.layout(pair=True)
    # Room for the longest query, so that a sentence is cut in the same places for all labels.
    capacity = room(codec, layout, max_length) - int(counts.max(initial=0))
    encoder = SentenceEncoder(codec, capacity=capacity, overlap=overlap)
    encoder.add([example.words for example in examples])
    arrays = encoder.arrays(specials=layout.specials)
    arrays["length"] += counts[query_of][arrays["source"]].astype(np.int32)
    spans = [span for example in examples for span in example.spans]
    arrays |= {
        "query": flat,
        "query_at": offsets(counts),
        "query_of": query_of,
        "label": label.numbers([example.label for example in examples]),
        "gold": np.array(spans, np.int64).reshape(-1, 2),
        "gold_at": offsets([len(example.spans) for example in examples]),
    }
    return Features(arrays, {"labels": tuple(label)})


def window_golds(features: Features, item: int) -> Golds:
    """Gold (first word, last word) of a window, and the starts and ends of spans that it cuts.

    Both count words from the first of the window. A span that is only partly in the window is
    no negative there: its start or end is left out of the loss.
    """
    source = features["source"][item]
    first = features["first"][item] - features["sentence"][source]
    words = int(features["end"][item] - features["first"][item])
    at = features["gold_at"]
    spans = (features["gold"][at[source] : at[source + 1]] - first).tolist()
    inside = [(start, end - 1) for start, end in spans if start >= 0 and end <= words]
    starts = [start for start, end in spans if 0 <= start < words < end]
    ends = [end - 1 for start, end in spans if start < 0 < end <= words]
    return inside, (starts, ends)


def side_targets(
    found: Sequence[Golds], columns: Sequence[NDArray[Any]], context: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Start and end targets (B, L, 1): −100 wherever no word of the context begins."""
    targets = {}
    for side, key in enumerate(SIDES):
        target = np.where(context == 1, 0, IGNORE).astype(np.float32)
        for row, ((golds, cut), column) in enumerate(zip(found, columns, strict=True)):
            target[row, column[cut[side]]] = IGNORE
            target[row, column[[pair[side] for pair in golds]]] = 1
        targets[key] = target[..., None]
    return targets


def answer_targets(found: Sequence[Golds]) -> NDArray[np.float32]:
    """Whether each window has a span (B, 1); −100 where there is only a part of one.

    >>> answer_targets([([(0, 1)], ([], [])), ([], ([], [])), ([], ([3], []))]).tolist()
    [[1.0], [0.0], [-100.0]]
    """
    values = [1 if golds else IGNORE if starts or ends else 0 for golds, (starts, ends) in found]
    return np.array(values, np.float32).reshape(-1, 1)


def count_sides(found: Sequence[Golds], words: int) -> dict[str, NDArray[np.int64]]:
    """(negative, positive) starts and ends."""
    counts = {}
    for side, key in enumerate(SIDES):
        positive = [{pair[side] for pair in golds} for golds, _ in found]
        left_out = [set(cut[side]) - own for (_, cut), own in zip(found, positive, strict=True)]
        total = sum(map(len, positive))
        counts[key] = np.array([[words - total - sum(map(len, left_out)), total]])
    return counts
