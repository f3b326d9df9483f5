"""Tags of words and characters: schemes, entities, counts, tuned biases, CRF decoding."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from softf1.data.tags import to_characters
from softf1.errors import InputError
from softf1.metrics.biases import TunedBiases, tune_biases
from softf1.metrics.classification import count_classes
from softf1.metrics.operating import F1, Point, Target
from softf1.metrics.schemes import (
    ALLOWED,
    OUTSIDE,
    decode_lenient,
    decode_strict,
    detect_scheme,
    encode_spans,
    get_scheme,
    steps_of,
)
from softf1.metrics.spans import count_lenient, count_lenient_ids, count_strict
from softf1.models.crf import FORBIDDEN, best_tags, marginal_logits
from softf1.tasks.base import DIGITS, Features, Logits
from softf1.tasks.headroom import Sentence
from softf1.tasks.rows import Ints, offsets, ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from softf1.data.examples import TaggedSentence
    from softf1.metrics.counts import Counts
    from softf1.metrics.schemes import LabelledSpan

    Sentences = Sequence[Sequence[str]]

CHUNK = 256
"""Sentences of similar length that a CRF decodes at once."""
MOST_WORDS = 100_000
"""Words, padding included, that a CRF decodes at once, unless one sentence has more."""


def find_tag_scheme(features: Features) -> str | None:
    """Finds the scheme of the tags of a file; None if they are plain tags.

    Only pairs of adjacent tags matter for that, so one sentence for each pair that occurs is
    enough, and a large file takes no time.
    """
    names, tag = features.names["tags"], features["tag"]
    edge = len(names)
    before, starts, ends = _look_back(tag, features["sentence"], edge)
    seen = np.full((edge + 1) ** 2, -1)
    seen[before * (edge + 1) + tag] = np.arange(len(tag))
    seen[tag[ends - 1].astype(np.int64) * (edge + 1) + edge] = ends - 1
    chosen = np.unique(np.searchsorted(starts, seen[seen >= 0], side="right") - 1)
    sample = [[names[t] for t in tag[starts[i] : ends[i]]] for i in chosen]
    try:
        return detect_scheme(sample).name
    except ValueError:
        return None


def _look_back(tag: Ints, at: Ints, edge: int) -> tuple[Ints, Ints, Ints]:
    """Returns the tag before each word, `edge` at a sentence's start; and sentence starts and ends.

    Sentences without a word are left out.
    """
    starts, ends = at[:-1][np.diff(at) > 0], at[1:][np.diff(at) > 0]
    before = np.concatenate([[edge], tag[:-1]]).astype(np.int64)[: len(tag)]
    before[starts] = edge
    return before, starts, ends


def check_tags(
    tagged: Iterable[tuple[int, Sequence[str]]], scheme: str | None, path: Path | str | None
) -> None:
    """Raises for gold tags that cannot be scored.

    Args:
        tagged: Line number and tags of each sentence.
        scheme: The scheme of the training data; None if its tags are plain.
        path: The file, for the error.
    """
    known: set[str] = set()
    wanted = None if scheme is None else get_scheme(scheme)
    for line, tags in tagged:
        if not tags:
            raise InputError(
                "wanted tags to score against, got a sentence without", path=path, line=line
            )
        for tag in tags:
            if wanted and tag not in known and not wanted.has(tag):
                message = f"wanted {wanted.describe()}, as the training data has; got {tag!r}"
                raise InputError(message, path=path, line=line)
            known.add(tag)


def describe_invalid(features: Features, scheme: str) -> list[str]:
    """Returns a note about tags that may not follow the tag before, such as I-PER after O."""
    names, tag = (*features.names["tags"], OUTSIDE), features["tag"].astype(np.int64)
    edge = len(names) - 1
    before, _, ends = _look_back(tag, features["sentence"], edge)
    codes = np.concatenate([before * (edge + 1) + tag, tag[ends - 1] * (edge + 1) + edge])
    steps, wrong = steps_of(get_scheme(scheme)), Counter[tuple[str, str]]()
    for code, number in zip(*np.unique(codes, return_counts=True), strict=True):
        pair = names[code // (edge + 1)], names[code % (edge + 1)]
        if not steps(pair) & ALLOWED:
            wrong[pair] += int(number)
    if not wrong:
        return []
    ((first, second), _), *_ = wrong.most_common(1)
    many = "1 tag cannot" if wrong.total() == 1 else f"{wrong.total():,} tags cannot"
    said = f"{many} follow the tag before in {scheme}, such as {second} after {first}"
    cure = f'conlleval_f1 counts them; task.scheme = "{scheme}" repairs them'
    return [f"{said}: f1 leaves such spans out, {cure}"]


def by_word(values: NDArray[Any], logits: Logits, features: Features) -> NDArray[Any]:
    """Puts values of words into the order of the file, whatever order the batches came in."""
    words = len(features["tag"])
    seen = np.bincount(logits["word"], minlength=words)
    if (seen != 1).any():
        raise ValueError(
            f"wanted logits for {words} words, each once, got {len(logits['word'])}, "
            f"{(seen == 0).sum()} missing"
        )
    out = np.empty((words, *values.shape[1:]), values.dtype)
    out[logits["word"]] = values
    return out


def find_entities(
    tags: Sequence[str], confidence: Sequence[float], *, scheme: str
) -> dict[LabelledSpan, float]:
    """Returns the spans that tags mark, each with the product of the probabilities of its tags.

    Tags are chosen word by word, so the product is the model's own probability of all of them.

    >>> find_entities(["O", "B-PER", "I-PER"], [0.9, 0.8, 0.5], scheme="BIO")
    {(1, 3, 'PER'): 0.4}
    """
    return {
        (start, end, label): round(math.prod(confidence[start:end]), DIGITS)
        for start, end, label in decode_strict(tags, scheme)
    }


def read_sentence(line: Mapping[str, Any], tags: Sequence[str], scheme: str) -> Sentence:
    """Makes a sentence of the gold spans of a line and the spans of `tags`, with confidences."""
    sure = line.get("confidence") or [1.0] * len(tags)
    gold = set(decode_strict(line["gold"], scheme))
    return Sentence(line, gold, find_entities(tags, sure, scheme=scheme))


def span_labels(tags: Iterable[str]) -> list[str]:
    """The labels of the spans that tags mark.

    >>> span_labels(["O", "B-PER", "I-PER", "B-LOC"])
    ['LOC', 'PER']
    """
    return sorted({tag.partition("-")[2] for tag in tags} - {""})


def count_tags(gold: Sentences, predicted: Sentences, *, scheme: str | None) -> dict[str, Counts]:
    """Counts spans, strictly and by conlleval's rules (`lenient`), or plain tags."""
    if scheme is None:
        return {"counts": count_classes([*chain(*gold)], [*chain(*predicted)])}
    strict = count_strict(gold, predicted, scheme=scheme)
    return {"counts": strict, "lenient": count_lenient(gold, predicted)}


@lru_cache(maxsize=200_000)  # most predictions are the same from run to run
def count_sentence(
    gold: tuple[str, ...], tags: tuple[str, ...], *, scheme: str | None
) -> dict[str, Counts]:
    """The counts of one sentence."""
    return count_tags([gold], [tags], scheme=scheme)


def tune_spans(
    logits: NDArray[Any],
    gold: NDArray[Any],
    *,
    lengths: NDArray[Any],
    labels: Sequence[str],
    target: Target = F1,
    curve: bool = False,
) -> tuple[tuple[float, ...], list[Point]]:
    """Tunes one bias, for O, to the best span F1; a bias per tag overfits small dev sets.

    Args:
        logits: (words, C).
        gold: (words,), −100 for a tag that training never saw.
        lengths: Words of each sentence.
        labels: The tags.
        target: F-beta or a cost to tune for.
        curve: Whether to return the bias as an operating point too.
    """
    if OUTSIDE not in labels:
        return (), []
    outside = labels.index(OUTSIDE)
    # A tag that training never saw cannot be found at any bias.
    known = np.where(gold < 0, outside, gold)
    tuned = tune_biases(
        logits,
        known,
        background=outside,
        count=lambda g, p, n: count_lenient_ids(g, p, lengths=n, tags=labels),
        average="micro",
        lengths=lengths,
        score=target.value,
        curve=curve,
    )
    points = [describe_bias(tuned, outside, target)] if curve else []
    return tuned.biases if any(tuned.biases) else (), points


def describe_bias(tuned: TunedBiases, outside: int, target: Target) -> Point:
    """Describes the bias of O as an operating point; spans are counted leniently, as in tuning."""
    chosen, honest = tuned.biases[outside], tuned.counts.micro()
    right, wrong, missed = dict(tuned.curve)[chosen].table.sum(axis=0).tolist()
    rows = [(bias, counts.micro()) for bias, counts in tuned.curve]
    return Point(
        target=target.text,
        threshold=chosen,
        reached=None,
        bound=None,
        given=right + wrong,
        right=right,
        gold=right + missed,
        cross_fitted=(honest.precision, honest.recall),
        curve=[(bias, own.precision, own.recall) for bias, own in rows],
        what=f"bias of {OUTSIDE}",
    )


def split_characters(sentence: TaggedSentence, scheme: str, *, joint: bool) -> TaggedSentence:
    """Splits a sentence into characters, with the tags of its spans.

    Args:
        sentence: Words, tagged in any scheme or not at all.
        scheme: The scheme of the result.
        joint: Every word is a span with its tag as label: segmentation and tags in one.

    >>> from softf1.data.examples import TaggedSentence
    >>> sentence = TaggedSentence(("Ann", "is"), ("B-PER", "O"), line=1)
    >>> split_characters(sentence, "BIO", joint=False).tags
    ('B-PER', 'I-PER', 'I-PER', 'O', 'O')
    """
    characters = tuple("".join(sentence.words))
    if not sentence.tags:
        return replace(sentence, words=characters)
    if joint:
        return to_characters(sentence, scheme=scheme)
    at = offsets([len(word) for word in sentence.words]).tolist()
    spans = [(at[start], at[end], label) for start, end, label in decode_lenient(sentence.tags)]
    tags = encode_spans(spans, length=len(characters), scheme=scheme)
    return replace(sentence, words=characters, tags=tuple(tags))


def count_transitions(
    ids: NDArray[np.int64], at: NDArray[Any], labels: Sequence[str], scheme: str | None
) -> tuple[tuple[float, ...], ...]:
    """Initial transitions of a CRF: log of how much more often than by chance tags are adjacent.

    One is added to each count. A pair that the tag scheme rules out is `FORBIDDEN`, unless the data
    have it. The last row and column are for the start and end of a sentence.

    >>> at, ids = np.array([0, 3]), np.array([0, 1, 0])
    >>> made = count_transitions(ids, at, ["O", "B-PER", "I-PER"], "BIO")
    >>> made[0][2]  # I-PER after O
    -100.0
    >>> made[0][1] > 0
    True
    """
    edge = len(labels)
    before, _, ends = _look_back(ids, at, edge)
    counts = np.zeros((edge + 1, edge + 1))
    np.add.at(counts, (before, ids), 1)
    np.add.at(counts, (ids[ends - 1], np.full(len(ends), edge)), 1)
    smooth = counts + 1
    shares = smooth / smooth.sum()
    odds = np.log(shares / (shares.sum(1, keepdims=True) * shares.sum(0, keepdims=True)))
    if scheme is not None:
        steps, named = steps_of(get_scheme(scheme)), (*labels, OUTSIDE)
        ruled_out = np.array([[not steps((a, b)) & ALLOWED for b in named] for a in named])
        odds[ruled_out & (counts == 0)] = FORBIDDEN
    return tuple(map(tuple, odds.round(DIGITS).tolist()))


def decode_sequences(
    emissions: NDArray[Any], transitions: NDArray[Any], at: Ints
) -> tuple[Ints, NDArray[Any]]:
    """Returns the tags of the best sequence of each sentence, and logits of tag marginals.

    Args:
        emissions: (words, C), sentence after sentence.
        transitions: (C + 1, C + 1).
        at: The first word of each sentence, and the end of the last.

    Returns:
        (words,), and (words, C) whose softmax is the probability of a tag over all sequences.
    """
    best, made = np.zeros(len(emissions), np.int64), np.empty_like(emissions)
    moves, sizes = torch.from_numpy(transitions), np.diff(at)
    for some, inside, lengths in _group_lengths(sizes):
        place = ranges(at[some], sizes[some])
        padded = torch.zeros(*inside.shape, emissions.shape[1])
        padded[inside] = torch.from_numpy(emissions[place])
        best[place] = best_tags(padded, moves, lengths)[inside].numpy()
        made[place] = marginal_logits(padded, moves, inside)[inside].numpy()
    return best, made


def _group_lengths(sizes: Ints) -> Iterator[tuple[Ints, Tensor, Tensor]]:
    """Groups sentences of similar length: indices, mask of words, and lengths of each group."""
    order = np.argsort(sizes, kind="stable")[(sizes == 0).sum() :]
    first = 0
    while first < len(order):
        some = order[first : first + CHUNK]
        some = some[: max(1, MOST_WORDS // int(sizes[some[-1]]))]
        lengths = torch.from_numpy(sizes[some])
        yield some, torch.arange(int(lengths[-1])) < lengths[:, None], lengths
        first += len(some)


def decode_biased(
    emissions: NDArray[Any],
    transitions: NDArray[Any],
    at: Ints,
    outside: int,
    sentences: Ints,
    biases: NDArray[np.float64],
) -> tuple[Ints, NDArray[np.float64]]:
    """Returns the best sequences of some sentences if O has a bias, and their scores without it.

    Args:
        emissions: (words, C), of all sentences.
        transitions: (C + 1, C + 1).
        at: The first word of each sentence, and the end of the last.
        outside: The class of O.
        sentences: (N,), the sentences to decode.
        biases: (N,), the bias of O in each of them.
    """
    sizes = np.diff(at)[sentences]
    begins = offsets(sizes)
    tags = np.zeros(begins[-1], np.int64)
    moves = transitions.astype(np.float64)
    for some, inside, lengths in _group_lengths(sizes):
        padded = torch.zeros(*inside.shape, emissions.shape[1], dtype=torch.float64)
        words = emissions[ranges(at[sentences[some]], sizes[some])].astype(np.float64)
        words[:, outside] += np.repeat(biases[some], sizes[some])
        padded[inside] = torch.from_numpy(words)
        found = best_tags(padded, torch.from_numpy(moves), lengths)[inside].numpy()
        tags[ranges(begins[some], sizes[some])] = found
    owner = np.repeat(np.arange(len(sizes)), sizes)
    before, starts, ends = _look_back(tags, begins, emissions.shape[1])
    score = emissions[ranges(at[sentences], sizes), tags] + moves[before, tags]
    total = np.bincount(owner, score, minlength=len(sizes)).astype(np.float64)
    total[owner[starts]] += moves[tags[ends - 1], -1]
    return tags, total
