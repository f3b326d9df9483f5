"""Span scores: a span counts as found when its start, its end and its label are all right.

Two evaluators, two names. `count_strict` asks for the scheme and takes only spans that follow it
(seqeval with `mode="strict"`); `count_lenient` reads any tags by conlleval's rules (seqeval's
default). Both give `Counts` per label, so that batches and processes add up:

    >>> gold = [["B-PER", "I-PER", "O"], ["B-LOC"]]
    >>> predicted = [["B-PER", "I-PER", "O"], ["I-LOC"]]
    >>> count_strict(gold, predicted, scheme="BIO").micro().recall
    0.5
    >>> count_lenient(gold, predicted).micro().recall
    1.0

Joint segmentation and POS is the same thing over characters tagged `B-NOUN`, `I-NOUN`, …: every
character is in a span, and a word is found when its limits and its part of speech are right.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from softf1.metrics.counts import Counts, Ints, Mask, check_ids
from softf1.metrics.schemes import (
    CONTINUES,
    ENDS,
    LENIENT,
    OUTSIDE,
    STARTS,
    LabelledSpan,
    Scheme,
    get_scheme,
    split_tag,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

    Sentences = Sequence[Sequence[str]]


def count_strict(gold: Sentences, predicted: Sentences, *, scheme: str | Scheme) -> Counts:
    """Counts of the spans that follow the scheme to the letter; the others are no spans.

    Args:
        gold: The right tags of each sentence.
        predicted: The predicted tags of each sentence, as many as in `gold`.
        scheme: One of `softf1.metrics.schemes.SCHEMES`.
    """
    return _count_tags(gold, predicted, get_scheme(scheme))


def count_lenient(gold: Sentences, predicted: Sentences) -> Counts:
    """Counts of the spans by conlleval's rules, in which every tag but `O` is in a span."""
    return _count_tags(gold, predicted, LENIENT)


def count_strict_ids(
    gold: ArrayLike,
    predicted: ArrayLike,
    *,
    lengths: ArrayLike,
    tags: Sequence[str],
    scheme: str | Scheme,
) -> Counts:
    """`count_strict` from integers: an index into `tags` for every token, sentence after sentence.

    Args:
        gold: The right tag of each token, `(tokens,)`.
        predicted: The predicted tags, `(tokens,)`.
        lengths: The number of tokens of each sentence, `(sentences,)`.
        tags: The tag of each index.
        scheme: One of `softf1.metrics.schemes.SCHEMES`.

    >>> count_strict_ids([0, 1, 2, 0], [0, 1, 2, 2], lengths=[3, 1],
    ...                  tags=["B-X", "I-X", "O"], scheme="BIO")
    Counts.from_dict({'X': [1, 0, 1]})
    """
    return _count_streams(*_read_ids(gold, predicted, lengths, tags, get_scheme(scheme)))


def count_each_strict_ids(
    gold: ArrayLike,
    predicted: ArrayLike,
    *,
    lengths: ArrayLike,
    tags: Sequence[str],
    scheme: str | Scheme,
) -> Ints:
    """`count_strict_ids` sentence by sentence: (tp, fp, fn) of all labels, `(sentences, 3)`.

    >>> count_each_strict_ids([0, 1, 2, 0], [0, 1, 2, 2], lengths=[3, 1],
    ...                       tags=["B-X", "I-X", "O"], scheme="BIO").tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    streams, sizes, tag_set = _read_ids(gold, predicted, lengths, tags, get_scheme(scheme))
    predictions, wanted, right = _find_both(streams, sizes, tag_set)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    starts = predictions.start[right], predictions.start, wanted.start
    tp, got, gold_spans = (np.bincount(owner[x], minlength=len(sizes)) for x in starts)
    return np.stack([tp, got - tp, gold_spans - tp], axis=1)


def count_lenient_ids(
    gold: ArrayLike, predicted: ArrayLike, *, lengths: ArrayLike, tags: Sequence[str]
) -> Counts:
    """`count_lenient` from integers, with the arguments of `count_strict_ids`."""
    return _count_streams(*_read_ids(gold, predicted, lengths, tags, LENIENT))


def count_span_sets(
    gold: Sequence[Collection[LabelledSpan]], predicted: Sequence[Collection[LabelledSpan]]
) -> Counts:
    """Counts of sets of spans `(start, end, label)`, one set an example; they may nest or overlap.

    >>> count_span_sets([{(0, 3, "ORG"), (1, 2, "LOC")}], [{(0, 3, "ORG"), (0, 2, "LOC")}])
    Counts.from_dict({'LOC': [0, 1, 1], 'ORG': [1, 0, 0]})
    """
    _check_equal(len(gold), len(predicted), "examples")
    table: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for wanted, got in zip(map(set, gold), map(set, predicted), strict=True):
        for column, spans in enumerate((wanted & got, got - wanted, wanted - got)):
            for _, _, label in spans:
                table[label][column] += 1
    return Counts.from_dict({label: table[label] for label in sorted(table)})


@dataclass(frozen=True, slots=True)
class _TagSet:
    """A tag set by number: the label of each tag, the bits of any two neighbours, which is O."""

    labels: tuple[str, ...]
    label_of: Ints
    neighbours: NDArray[np.uint8]
    outside: int


class SpanArrays(NamedTuple):
    """Spans of a stream of tokens: first token, the one after the last, and index of the label."""

    start: Ints
    end: Ints
    label: Ints


class SpanReader:
    """Reads the spans of streams of numbered tags, strictly.

    >>> read = SpanReader(["O", "B-X", "I-X"], "BIO")
    >>> spans = read.find([1, 2, 0, 1, 1], lengths=[4, 1])
    >>> spans.start.tolist(), spans.end.tolist()
    ([0, 3, 4], [2, 4, 5])
    >>> read.cut([1, 2, 1, 1], lengths=[4]).tolist()
    [2, 1, 1]
    """

    def __init__(self, tags: Sequence[str], scheme: str | Scheme):
        """Takes the tags in the order of their numbers, and their scheme."""
        self._tags = _read_tags(tags, get_scheme(scheme))

    def find(self, ids: ArrayLike, *, lengths: ArrayLike) -> SpanArrays:
        """The spans of tags `(tokens,)`, sentence after sentence."""
        return _find_spans(np.asarray(ids, np.int64), np.asarray(lengths, np.int64), self._tags)

    def cut(self, ids: ArrayLike, *, lengths: ArrayLike) -> Ints:
        """Returns the lengths of pieces of sentences whose spans do not depend on each other.

        The cuts are where an O in between, or in place of any token, would change no other span.
        """
        given, table, outside = np.asarray(ids, np.int64), self._tags.neighbours, self._tags.outside
        bits = STARTS | ENDS | CONTINUES
        limit = (table[outside] & STARTS) | (table[:, [outside]] & ENDS)
        free = ((table & bits) == limit)[given[:-1], given[1:]]
        own = np.concatenate([np.flatnonzero(free) + 1, np.cumsum(np.append(0, lengths))])
        return np.diff(np.unique(own))


def _read_tags(tags: Iterable[str], scheme: Scheme) -> _TagSet:
    parts = [split_tag(tag) for tag in (*tags, OUTSIDE)]  # the last one in case there is no O
    labels = sorted({label for prefix, label in parts if prefix != OUTSIDE})
    index = {label: number for number, label in enumerate(labels)}
    label_of = np.array([-1 if prefix == OUTSIDE else index[label] for prefix, label in parts])
    letters = np.array([scheme.prefixes.index(prefix) for prefix, _ in parts])
    different, equal = (table[letters[:, None], letters] for table in _letter_table(scheme))
    neighbours = np.where(label_of[:, None] == label_of, equal, different)
    return _TagSet(tuple(labels), label_of, neighbours, outside=len(parts) - 1)


def _letter_table(scheme: Scheme) -> NDArray[np.uint8]:
    """Returns the bits `(2, letters, letters)` for (labels are equal, letter, next letter)."""
    letters = scheme.prefixes
    table = np.zeros((2, len(letters), len(letters)), dtype=np.uint8)
    for same, before, after in np.ndindex(*table.shape):
        table[same, before, after] = scheme.relate(letters[before], letters[after], same=bool(same))
    return table


def _count_tags(gold: Sentences, predicted: Sentences, scheme: Scheme) -> Counts:
    _check_equal(len(gold), len(predicted), "sentences")
    sizes, got = list(map(len, gold)), list(map(len, predicted))
    if sizes != got:
        index = next(i for i, size in enumerate(sizes) if size != got[i])
        _check_equal(sizes[index], got[index], f"tags in sentence {index}")
    # A tag gets the next number when it is first looked up.
    number: defaultdict[str, int] = defaultdict(count().__next__)
    streams = [
        np.fromiter(map(number.__getitem__, chain.from_iterable(sentences)), dtype=np.int64)
        for sentences in (gold, predicted)
    ]
    if not all(map(scheme.has, number)):
        raise ValueError(_name_unknown({"gold": gold, "predicted": predicted}, scheme))
    return _count_streams(streams, np.array(sizes, dtype=np.int64), _read_tags(number, scheme))


def _read_ids(
    gold: ArrayLike, predicted: ArrayLike, lengths: ArrayLike, tags: Sequence[str], scheme: Scheme
) -> tuple[list[Ints], Ints, _TagSet]:
    unknown = [tag for tag in tags if not scheme.has(tag)]
    if unknown:
        raise ValueError(f"wanted {scheme.describe()}, got {unknown[0]!r}")
    sizes = np.asarray(lengths, dtype=np.int64)
    streams = [np.asarray(ids, dtype=np.int64) for ids in (gold, predicted)]
    for ids in streams:
        if ids.shape != (sizes.sum(),):
            raise ValueError(f"wanted ({sizes.sum()},) ids, the sum of lengths, got {ids.shape}")
        check_ids(ids, len(tags))
    return streams, sizes, _read_tags(tags, scheme)


def _count_streams(streams: Sequence[Ints], lengths: Ints, tag_set: _TagSet) -> Counts:
    """Counts from the numbers of gold and predicted tags, sentence after sentence."""
    predicted, gold, equal = _find_both(streams, lengths, tag_set)
    labels = predicted.label[equal], predicted.label, gold.label
    tp, got, wanted = (np.bincount(x, minlength=len(tag_set.labels)) for x in labels)
    occurs = np.flatnonzero(got + wanted)
    table = np.stack([tp, got - tp, wanted - tp], axis=1)[occurs]
    return Counts([tag_set.labels[row] for row in occurs], table)


def _find_both(
    streams: Sequence[Ints], lengths: Ints, tag_set: _TagSet
) -> tuple[SpanArrays, SpanArrays, Mask]:
    """Predicted spans, gold spans, and which predicted ones are right."""
    gold, predicted = (_find_spans(ids, lengths, tag_set) for ids in streams)
    # Spans of one stream do not overlap, so each start has at most one end and one label.
    end_at, label_at = np.zeros((2, len(streams[0])), dtype=np.int64)
    end_at[gold.start], label_at[gold.start] = gold.end, gold.label
    equal = (end_at[predicted.start] == predicted.end) & (
        label_at[predicted.start] == predicted.label
    )
    return predicted, gold, equal


def _find_spans(ids: Ints, lengths: Ints, tag_set: _TagSet) -> SpanArrays:
    outside, table = tag_set.outside, tag_set.neighbours
    padded = np.concatenate([[outside], ids, [outside]])
    before, after = padded[:-1], padded[1:]  # step k leads from token k - 1 to token k
    bits = table.ravel().take(before * len(table) + after)
    # At the limits of sentences there is an O on either side.
    limits = np.concatenate([[0], np.cumsum(lengths)])
    bits[limits] = (table[outside, after[limits]] & STARTS) | (
        table[before[limits], outside] & ENDS
    )
    continues, starts = (bits & CONTINUES).astype(bool), (bits & STARTS).astype(bool)
    # A token that could both continue and start a span starts one only if the token before is in
    # no span, such as the I of `O B-X I-X` in IOB1, where the B is misplaced.
    starts[1:] &= ~(continues[1:] & starts[:-1])
    first = np.flatnonzero(starts)
    breaks = ~continues
    last = np.flatnonzero(breaks)[np.cumsum(breaks)[first]]  # the next break after the first token
    complete = (bits[last] & ENDS).astype(bool)
    first, last = first[complete], last[complete]
    return SpanArrays(first, last, tag_set.label_of[ids[first]])


def _check_equal(wanted: int, got: int, what: str) -> None:
    if wanted != got:
        raise ValueError(f"wanted as many predicted as gold {what}, {wanted}, got {got}")


def _name_unknown(sides: dict[str, Sentences], scheme: Scheme) -> str:
    places = (
        f"{side} sentence {index}, tag {position}: wanted {scheme.describe()}, got {tag!r}"
        for side, sentences in sides.items()
        for index, sentence in enumerate(sentences)
        for position, tag in enumerate(sentence)
        if not scheme.has(tag)
    )
    return next(places)
