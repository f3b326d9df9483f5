"""Words as ids, and long sentences cut into windows."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from softf1.errors import InputError
from softf1.tasks.rows import Flat, Ints, keep, offsets, ranges, room, rows, take

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from softf1.models.bilstm import WordTokenizer
    from softf1.models.tokenizers import Tokenizer
    from softf1.tasks.base import Features


MOST_WORDS = 2**20
"""Distinct words that a table keeps at most; then it starts anew, so that memory is bounded."""


class Numbering(dict[str, int]):
    """Numbers strings in order of appearance.

    >>> number = Numbering()
    >>> [number[word] for word in "to be or not to be".split()]
    [0, 1, 2, 3, 0, 1]
    """

    def __init__(self) -> None:
        super().__init__()
        self.new: list[str] = []

    def __missing__(self, key: str) -> int:
        """Gives a new string the next number, and appends it to `new`."""
        self[key] = number = len(self)
        self.new.append(key)
        return number

    def numbers(self, keys: Sequence[str]) -> Ints:
        """The numbers of many strings."""
        return np.fromiter(map(self.__getitem__, keys), np.int64, len(keys))


class WordTable:
    """The pieces of every word seen so far.

    A word without pieces (a control character, say) becomes the unknown token: it stays a word
    that is labelled and scored. A word of more than `limit` pieces keeps its first ones.
    """

    def __init__(self, tokenizer: Tokenizer, *, limit: int):
        self.tokenizer, self.limit = tokenizer, limit
        self.clear()

    def clear(self) -> None:
        """Forgets all words."""
        self.number = Numbering()
        self.pieces = np.zeros(0, np.int32)
        self.counts = np.zeros(0, np.int64)
        self.starts = np.zeros(1, np.int64)

    def encode(self, words: Sequence[str]) -> Flat:
        """The pieces of all the words, flat, and how many each has."""
        if len(self.number) > MOST_WORDS:
            self.clear()
        index = self.number.numbers(words)
        self._learn()
        counts = self.counts[index]
        return self.pieces[ranges(self.starts[index], counts)], counts

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns no arrays: collating needs nothing beside the pieces."""
        return {}

    def _learn(self) -> None:
        words, self.number.new = self.number.new, []
        if not words:
            return
        pieces, counts = self.tokenizer.pieces(words)
        pieces, counts = keep((pieces, counts), np.minimum(counts, self.limit))
        bare = offsets(counts)[:-1][counts == 0]
        self.pieces = np.concatenate([self.pieces, np.insert(pieces, bare, self.tokenizer.unk_id)])
        self.counts = np.concatenate([self.counts, np.maximum(counts, 1)])
        self.starts = offsets(self.counts)


class SpellingTable:
    """The words of a file, for an encoder that reads words by their characters.

    A word's only piece is its row in the file's own list of words (0 is padding). That list has the
    characters of every word, also of words that the vocabulary does not have.
    """

    def __init__(self, tokenizer: WordTokenizer):
        self.tokenizer = tokenizer
        self.number = Numbering()

    def encode(self, words: Sequence[str]) -> Flat:
        """Returns the row number of every word, and one piece for each."""
        index = self.number.numbers(words) + 1
        return index.astype(np.int32), np.ones(len(words), np.int64)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the list of words: id and characters of each distinct word."""
        ids, _ = self.tokenizer.pieces(self.number.new)
        spelt = self.tokenizer.spell(["", *self.number.new])
        return {"word_ids": np.insert(ids, 0, self.tokenizer.pad_id), "char_ids": spelt}


def cut_windows(counts: Ints, *, capacity: int, overlap: int) -> Ints:
    """Cuts a sentence into windows of whole words that hold at most `capacity` pieces.

    Neighbours share about `overlap` pieces. Every word is owned by exactly one window, which
    predicts it: shared words are divided in the middle, so that each has context on both sides.

    Returns:
        (windows, 4): first word, end, first owned word, end of the owned words.

    >>> cut_windows(np.ones(10, int), capacity=6, overlap=2)
    array([[ 0,  6,  0,  5],
           [ 4, 10,  5, 10]])
    """
    at = offsets(counts)
    spans = [(0, _fit(at, 0, capacity))]
    while spans[-1][1] < len(counts):
        start, end = spans[-1]
        back = int(np.searchsorted(at, at[end] - overlap))
        # Go back only as far as the next window still reaches a new word.
        reach = int(np.searchsorted(at, at[end + 1] - capacity))
        first = min(max(back, reach, start + 1), end)
        spans.append((first, _fit(at, first, capacity)))
    firsts, ends = np.array(spans).T
    inner = (firsts[1:] + ends[:-1] + 1) // 2
    return np.stack([firsts, ends, [0, *inner], [*inner, ends[-1]]], axis=1)


def _fit(at: Ints, first: int, capacity: int) -> int:
    """The end of the longest run of words from `first` that fits into `capacity` pieces."""
    return int(np.searchsorted(at, at[first] + capacity, side="right")) - 1


def windows(counts: Ints, lengths: Ints, *, capacity: int, overlap: int) -> tuple[Ints, Ints]:
    """Cuts many sentences into windows; returns them over all words, and each one's sentence.

    Args:
        counts: Pieces of every word, at most `capacity` each.
        lengths: Words of every sentence.
        capacity: Pieces that a window can hold.
        overlap: Pieces that neighbours share.
    """
    word = offsets(lengths)
    piece = offsets(counts)
    total = piece[word[1:]] - piece[word[:-1]]
    whole = np.stack([word[:-1], word[1:], word[:-1], word[1:]], axis=1)
    long = np.flatnonzero(total > capacity)
    if not len(long):
        return whole, np.arange(len(lengths))
    parts = [
        cut_windows(counts[word[i] : word[i + 1]], capacity=capacity, overlap=overlap) + word[i]
        for i in long
    ]
    short = np.flatnonzero(total <= capacity)
    sentence = np.concatenate([short, np.repeat(long, [len(part) for part in parts])])
    order = np.argsort(sentence, kind="stable")
    return np.concatenate([whole[short], *parts])[order], sentence[order]


T = TypeVar("T")

CHUNK = 8192


def chunks(items: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Yields lists of up to `size` items, so that a stream is never in memory as a whole.

    >>> list(chunks("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    stream = iter(items)
    while chunk := list(islice(stream, size)):
        yield chunk


class SentenceEncoder:
    """Encodes sentences as arrays, chunk by chunk.

    The arrays: `tokens` holds the pieces of all words, `word` where each word's pieces start,
    `sentence` where each sentence's words start; for every window (item) `first`, `end`,
    `own_first` and `own_end` are positions in all words, `source` is its sentence, and `length`
    the ids of its row.

    Args:
        tokenizer: Cuts words into pieces.
        max_length: The maximum ids per row, with special tokens; None is the encoder's default.
        overlap: Pieces that two windows of a long sentence share; None is a quarter.
        query: The maximum ids of a query in each row; None if rows have no query.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        max_length: int | None,
        overlap: int | None,
        query: int | None = None,
    ):
        layout = tokenizer.layout(pair=query is not None)
        self.specials = layout.specials
        self.capacity = capacity = room(tokenizer, layout, max_length) - (query or 0)
        if capacity < 2:
            raise InputError(f"wanted room for 2 pieces or more in a row, got {capacity}")
        self.overlap = capacity // 4 if overlap is None else min(overlap, capacity // 2)
        self.table: WordTable | SpellingTable = WordTable(tokenizer, limit=max(1, capacity // 2))
        if "char_ids" in tokenizer.names:
            self.table = SpellingTable(cast("WordTokenizer", tokenizer))
        self.tokens = [np.zeros(0, np.int32)]
        self.counts = [np.zeros(0, np.int16)]
        self.lengths = [np.zeros(0, np.int32)]

    def add(self, sentences: Sequence[Sequence[str]]) -> None:
        """Encodes some more sentences."""
        tokens, counts = self.table.encode(list(chain.from_iterable(sentences)))
        self.tokens.append(tokens)
        self.counts.append(counts.astype(np.int16))
        self.lengths.append(np.fromiter(map(len, sentences), np.int32, len(sentences)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the arrays of all sentences."""
        counts = np.concatenate(self.counts).astype(np.int64)
        lengths = np.concatenate(self.lengths).astype(np.int64)
        spans, source = windows(counts, lengths, capacity=self.capacity, overlap=self.overlap)
        word = offsets(counts)
        first, end, own_first, own_end = spans.T
        return {
            "tokens": np.concatenate(self.tokens),
            "word": word,
            "sentence": offsets(lengths),
            "first": first,
            "end": end,
            "own_first": own_first,
            "own_end": own_end,
            "source": source,
            "length": (word[end] - word[first] + self.specials).astype(np.int32),
            **self.table.arrays(),
        }


def window_tokens(features: Features, items: Ints) -> Flat:
    """The pieces of some windows, flat, and how many each has."""
    start = features["word"][features["first"][items]]
    length = features["word"][features["end"][items]] - start
    return features["tokens"][ranges(start, length)], length


def golds_inside(features: Features, items: Ints) -> tuple[Ints, ...]:
    """The gold spans that lie wholly in a window: row, start, end, and the label if they have one.

    Starts and ends count from the first word (or token) of the file, as those of windows do.
    """
    gold, count = take(features, "gold", features["source"][items])
    row = rows(count)
    inside = gold[:, 0] >= features["first"][items][row]
    inside &= gold[:, 1] <= features["end"][items][row]
    return (row[inside], *gold[inside].T)


def word_places(
    features: Features, items: Ints, column: Ints, *, owned: bool
) -> tuple[Ints, Ints, Ints]:
    """Where the words of some windows are: (word, row, column of its first piece).

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
