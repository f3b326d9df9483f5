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
from itertools import chain, count, repeat
from typing import TYPE_CHECKING

import numpy as np

from softf1.metrics.counts import Counts
from softf1.metrics.schemes import LENIENT, OUTSIDE, Scheme, get_scheme, split_tag

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from softf1.metrics.schemes import LabelledSpan

    Sentences = Sequence[Sequence[str]]
    Ids = NDArray[np.int64]

# What holds between a tag and the next one, as bits of one table entry.
_CONTINUES, _STARTS, _ENDS = 1, 2, 4


def count_strict(gold: Sentences, predicted: Sentences, *, scheme: str | Scheme) -> Counts:
    """Counts of the spans that follow the scheme to the letter; the others are no spans.

    Args:
        gold: The right tags of each sentence.
        predicted: The tags to judge, the same number for each sentence.
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
        predicted: The tags to judge, `(tokens,)`.
        lengths: The number of tokens of each sentence, `(sentences,)`.
        tags: The tag of each index.
        scheme: One of `softf1.metrics.schemes.SCHEMES`.

    >>> count_strict_ids([0, 1, 2, 0], [0, 1, 2, 2], lengths=[3, 1],
    ...                  tags=["B-X", "I-X", "O"], scheme="BIO")
    Counts.from_dict({'X': [1, 0, 1]})
    """
    return _count_ids(gold, predicted, lengths, tags, get_scheme(scheme))


def count_lenient_ids(
    gold: ArrayLike, predicted: ArrayLike, *, lengths: ArrayLike, tags: Sequence[str]
) -> Counts:
    """`count_lenient` from integers, with the arguments of `count_strict_ids`."""
    return _count_ids(gold, predicted, lengths, tags, LENIENT)


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
    """What the tags of an array mean: the label of each, and what holds between any two."""

    labels: tuple[str, ...]
    label_of: Ids
    neighbours: NDArray[np.uint8]


def _read_tags(tags: Sequence[str], scheme: Scheme) -> _TagSet:
    parts = [split_tag(tag) for tag in tags]
    labels = sorted({label for prefix, label in parts if prefix != OUTSIDE})
    index = {label: number for number, label in enumerate(labels)}
    label_of = np.array([-1 if prefix == OUTSIDE else index[label] for prefix, label in parts])
    letters = np.array([scheme.prefixes.index(prefix) for prefix, _ in parts])
    same = (label_of[:, None] == label_of).astype(np.intp)
    neighbours = _letter_table(scheme)[same, letters[:, None], letters]
    return _TagSet(tuple(labels), label_of, neighbours)


def _letter_table(scheme: Scheme) -> NDArray[np.uint8]:
    """The bits for (labels are equal, letter, next letter)."""
    letters = scheme.prefixes
    table = np.zeros((2, len(letters), len(letters)), dtype=np.uint8)
    for same, before, after in np.ndindex(*table.shape):
        pair = letters[before], letters[after]
        table[same, before, after] = (
            _CONTINUES * scheme.continues(*pair, same=bool(same))
            + _STARTS * scheme.starts(*pair, same=bool(same))
            + _ENDS * scheme.ends(*pair, same=bool(same))
        )
    return table


def _count_tags(gold: Sentences, predicted: Sentences, scheme: Scheme) -> Counts:
    _check_equal(len(gold), len(predicted), "sentences")
    for index, (wanted, got) in enumerate(zip(map(len, gold), map(len, predicted), strict=True)):
        _check_equal(wanted, got, f"tags in sentence {index}")
    # A tag gets the next number when it is first looked up; O has to be 0.
    number: defaultdict[str, int] = defaultdict(count().__next__)
    number[OUTSIDE]
    streams = _number_tags(gold, number), _number_tags(predicted, number)
    if not all(map(scheme.has, number)):
        raise ValueError(_name_unknown((*gold, *predicted), scheme))
    return _count_streams(*streams, _read_tags(list(number), scheme))


def _number_tags(sentences: Sentences, number: defaultdict[str, int]) -> Ids:
    """All tags as numbers, with an O before each sentence and one at the end."""
    separated = chain.from_iterable(zip(repeat((OUTSIDE,)), sentences, strict=False))
    tags = chain(chain.from_iterable(separated), (OUTSIDE,))
    return np.fromiter(map(number.__getitem__, tags), dtype=np.int64)


def _count_ids(
    gold: ArrayLike, predicted: ArrayLike, lengths: ArrayLike, tags: Sequence[str], scheme: Scheme
) -> Counts:
    unknown = [tag for tag in tags if not scheme.has(tag)]
    if unknown:
        raise ValueError(f"wanted {scheme.describe()}, got {unknown[0]!r}")
    sizes = np.asarray(lengths, dtype=np.int64)
    streams = _separate(gold, sizes, len(tags)), _separate(predicted, sizes, len(tags))
    return _count_streams(*streams, _read_tags([OUTSIDE, *tags], scheme))


def _separate(ids: ArrayLike, lengths: Ids, size: int) -> Ids:
    """Tag t as t + 1, with a 0, which is an O, before each sentence and one at the end."""
    flat = np.asarray(ids)
    _check_equal(int(lengths.sum()), flat.size, "tokens (the sum of lengths)")
    if flat.size and not (flat.min() >= 0 and flat.max() < size):
        raise ValueError(f"wanted ids from 0 to {size - 1}, got {flat.min()} to {flat.max()}")
    separated = np.zeros(flat.size + lengths.size + 1, dtype=np.int64)
    separated[np.arange(flat.size) + np.repeat(np.arange(1, lengths.size + 1), lengths)] = flat + 1
    return separated


def _count_streams(gold: Ids, predicted: Ids, tag_set: _TagSet) -> Counts:
    """Counts from two streams of the same length in which 0 is O and separates sentences."""
    gold_start, gold_end, gold_label = _find_spans(gold, tag_set)
    start, end, label = _find_spans(predicted, tag_set)
    # Spans of one stream do not overlap, so that a start has at most one end and label.
    end_at = np.zeros(gold.size, dtype=np.int64)
    label_at = np.zeros(gold.size, dtype=np.int64)
    end_at[gold_start], label_at[gold_start] = gold_end, gold_label
    found = label[(end_at[start] == end) & (label_at[start] == label)]
    size = len(tag_set.labels)
    tp, got, wanted = (np.bincount(x, minlength=size) for x in (found, label, gold_label))
    occurs = np.flatnonzero(got + wanted)
    table = np.stack([tp, got - tp, wanted - tp], axis=1)[occurs]
    return Counts([tag_set.labels[row] for row in occurs], table)


def _find_spans(stream: Ids, tag_set: _TagSet) -> tuple[Ids, Ids, Ids]:
    """Start, end (exclusive) and label of every span, as positions in the stream."""
    bits = tag_set.neighbours[stream[:-1], stream[1:]]  # bits[i] is of the step from i to i + 1
    continues, starts = (bits & _CONTINUES).astype(bool), (bits & _STARTS).astype(bool)
    # A token that could do both starts a span only if the one before could not be in any:
    # in IOB1 the I of `O B-X I-X`, where the misplaced B is in no span.
    starts[1:] &= ~(continues[1:] & starts[:-1])
    breaks = np.flatnonzero(~continues)
    first = np.flatnonzero(starts) + 1
    last_step = breaks[np.searchsorted(breaks, first)]
    complete = (bits[last_step] & _ENDS).astype(bool)
    first, last = first[complete], last_step[complete]
    return first, last + 1, tag_set.label_of[stream[first]]


def _check_equal(wanted: int, got: int, what: str) -> None:
    if wanted != got:
        raise ValueError(f"wanted as many predicted as gold {what}, {wanted}, got {got}")


def _name_unknown(sentences: Iterable[Sequence[str]], scheme: Scheme) -> str:
    for index, sentence in enumerate(sentences):
        for position, tag in enumerate(sentence):
            if not scheme.has(tag):
                place = f"sentence {index}, tag {position}"
                return f"{place}: wanted {scheme.describe()}, got {tag!r}"
    raise AssertionError("no unknown tag")
