"""Sentences of words as features: what tagging and BERT-MRC share."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from softf1.errors import InputError
from softf1.tasks.ragged import offsets, ranges, rows
from softf1.tasks.words import make_table, windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from softf1.models.codec import Codec
    from softf1.tasks.base import Features

    Ints = NDArray[np.int64]

T = TypeVar("T")

CHUNK = 8192


def chunks(items: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Lists of up to `size` items, so that a stream is never held as a whole.

    >>> list(chunks("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    stream = iter(items)
    while chunk := list(islice(stream, size)):
        yield chunk


class SentenceEncoder:
    """Grows the arrays of sentences chunk by chunk.

    The arrays: `tokens` holds the pieces of all words, `word` where each word's pieces start,
    `sentence` where each sentence's words start; for every window (item) `first`, `end`,
    `own_first` and `own_end` are positions in all words, `source` is its sentence, and `length`
    the ids of its row.
    """

    def __init__(self, codec: Codec, *, capacity: int, overlap: int | None = None):
        if capacity < 2:
            raise InputError(f"wanted room for 2 pieces or more in a row, got {capacity}")
        self.capacity = capacity
        self.overlap = capacity // 4 if overlap is None else min(overlap, capacity // 2)
        self.table = make_table(codec, limit=max(1, capacity // 2))
        self.tokens: list[NDArray[np.int32]] = []
        self.counts: list[NDArray[np.int16]] = []
        self.lengths: list[NDArray[np.int32]] = []

    def add(self, sentences: Sequence[Sequence[str]]) -> None:
        """Encode some more sentences."""
        tokens, counts = self.table.encode(list(chain.from_iterable(sentences)))
        self.tokens.append(tokens)
        self.counts.append(counts.astype(np.int16))
        self.lengths.append(np.fromiter(map(len, sentences), np.int32, len(sentences)))

    def arrays(self, *, specials: int) -> dict[str, NDArray[Any]]:
        """The arrays of all sentences; `specials` ids are added to each row."""
        counts = _concatenate(self.counts, np.int16).astype(np.int64)
        lengths = _concatenate(self.lengths, np.int32).astype(np.int64)
        spans, source = windows(counts, lengths, capacity=self.capacity, overlap=self.overlap)
        word = offsets(counts)
        first, end, own_first, own_end = spans.T
        return {
            "tokens": _concatenate(self.tokens, np.int32),
            "word": word,
            "sentence": offsets(lengths),
            "first": first,
            "end": end,
            "own_first": own_first,
            "own_end": own_end,
            "source": source,
            "length": (word[end] - word[first] + specials).astype(np.int32),
            **self.table.arrays(),
        }


def _concatenate(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def window_tokens(features: Features, items: Ints) -> tuple[NDArray[Any], Ints]:
    """The pieces of some windows, flat, and how many each has."""
    start = features["word"][features["first"][items]]
    length = features["word"][features["end"][items]] - start
    return features["tokens"][ranges(start, length)], length


def word_places(
    features: Features, items: Ints, column: Ints, *, owned: bool
) -> tuple[Ints, Ints, Ints]:
    """Where the words of some windows stand: (word, row, column of its first piece).

    Args:
        features: Features with the arrays of `SentenceEncoder`.
        items: The windows.
        column: Column where each row's words begin.
        owned: Only the words that the window owns, so that each word comes exactly once.
    """
    first = features["first"][items]
    start = features["own_first"][items] if owned else first
    count = (features["own_end"] if owned else features["end"])[items] - start
    word, row = ranges(start, count), rows(count)
    place = column[row] + features["word"][word] - features["word"][first][row]
    return word, row, place
