"""What counts as negative and as positive, task by task.

- tagging: words; O is negative, every other tag positive. Of plain labels (parts of speech) the
  most frequent is negative and the others are positive: a stray O among them is a label too.
- qa: the first and the last word of the answer are positive, two positions an answer even where
  they are one word, as the paper counts; the other words of the context are negative, once for
  each question. Of several alternative answers the first counts, as in training; of an answer of
  several spans all do. Words are divided by white space, Chinese ones are characters.
- mrc_ner: the same over the words of every query, for every span.
- pairs, classification: rows. Of two labels the positive one is 1, true, yes or the like; without
  such a name it is the rarer one. Of more labels the most frequent is negative.
- several labels a text: every row with every label; those that a row has are positive.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from softf1.data.examples import (
    Answer,
    MrcExample,
    PairExample,
    QAExample,
    TaggedSentence,
    TextExample,
)
from softf1.data.tags import find_scheme
from softf1.errors import InputError
from softf1.metrics.schemes import OUTSIDE, split_tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from softf1.data.registry import Corpus

YES = frozenset({"1", "true", "yes", "y", "pos", "positive", "duplicate", "paraphrase"})
"""Names of the positive one of two labels, whatever their case."""
NO_ANSWER = "no answer"

_IDEOGRAPH = "\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_IDEOGRAPH}]|[^\s{_IDEOGRAPH}]+")


@dataclass(frozen=True, slots=True)
class Counts:
    """Negatives and positives of a corpus, and its labels.

    Attributes:
        unit: What is counted, such as "words".
        negative: What is negative, in words.
        negatives: How many are.
        positives: How many are not.
        labels: Units by label.
        examples: Examples by the labels that they have at least once.
    """

    unit: str
    negative: str
    negatives: int
    positives: int
    labels: Counter[str]
    examples: Counter[str]

    @property
    def units(self) -> int:
        """All units."""
        return self.negatives + self.positives


def count(corpus: Corpus) -> Counts:
    """Counts a corpus by its task."""
    if corpus.task == "tagging":
        return _count_tags(corpus)
    if corpus.task == "qa":
        return _count_questions(corpus.of(QAExample))
    if corpus.task == "mrc_ner":
        return _count_queries(corpus.of(MrcExample))
    if corpus.task == "pairs":
        labels = [pair.label for pair in corpus.of(PairExample)]
        rows = [(label,) for label in labels if label is not None]
        return _count_rows(rows, corpus, "pairs")
    return _count_rows([text.labels for text in corpus.of(TextExample)], corpus, "texts")


def _count_tags(corpus: Corpus) -> Counts:
    sentences = corpus.of(TaggedSentence)
    tags = Counter(tag for sentence in sentences for tag in sentence.tags)
    if not tags:
        raise InputError("wanted tags to count, got words alone", path=corpus.path)
    plain = find_scheme(sentences) is None
    label_of = {tag: tag if plain else split_tag(tag)[1] or tag for tag in tags}
    labels: Counter[str] = Counter()
    for tag, number in tags.items():
        labels[label_of[tag]] += number
    examples = Counter(
        label for sentence in sentences for label in {label_of[tag] for tag in set(sentence.tags)}
    )
    negative = OUTSIDE if OUTSIDE in labels and not plain else labels.most_common(1)[0][0]
    said = "tag O" if negative == OUTSIDE else f"the most frequent tag {negative}"
    negatives = labels[negative]
    return Counts("words", said, negatives, tags.total() - negatives, labels, examples)


def _count_questions(questions: list[QAExample]) -> Counts:
    labels: Counter[str] = Counter()
    examples: Counter[str] = Counter()
    negatives = 0
    context, words = "", []
    for question in questions:
        if question.context != context:  # questions of one context follow each other
            context = question.context
            words = [match.span() for match in _WORD.finditer(context)]
        first = question.answers[0] if question.answers else Answer((), ())
        own = {"start": len(first.spans), "end": len(first.spans)}
        if not question.answers:
            own = {NO_ANSWER: 1}
        labels.update(own)
        examples.update(own.keys())
        negatives += len(words) - len(_edge_words(words, first))
    positives = labels["start"] + labels["end"]
    said = "words of the context that neither start nor end the first answer"
    return Counts("words", said, negatives, positives, labels, examples)


def _edge_words(words: list[tuple[int, int]], answer: Answer) -> set[int]:
    """The words that hold the first or the last character of a span."""
    edges = {place for start, end in answer.spans for place in (start, end - 1)}
    # The word before the first that starts after the edge; an edge on white space is in no word.
    found = {(bisect_right(words, (place, math.inf)) - 1, place) for place in edges}
    return {index for index, place in found if index >= 0 and place < words[index][1]}


def _count_queries(items: list[MrcExample]) -> Counts:
    labels: Counter[str] = Counter()
    examples: Counter[str] = Counter()
    negatives = 0
    for item in items:
        name = item.label or item.query
        labels[name] += 2 * len(item.spans)
        examples[name] += bool(item.spans)
        edges = {place for start, end in item.spans for place in (start, end - 1)}
        negatives += len(item.words) - len(edges)
    said = "words, asked by every query, that neither start nor end a span"
    return Counts("words", said, negatives, labels.total(), labels, examples)


def _count_rows(rows: Sequence[tuple[str, ...]], corpus: Corpus, unit: str) -> Counts:
    labels = Counter(label for row in rows for label in row)
    if not labels:
        raise InputError("wanted labels to count, got rows without any", path=corpus.path)
    if any(len(row) > 1 for row in rows):
        positives = labels.total()
        negatives = len(rows) * len(labels) - positives
        return Counts(
            f"{unit} × labels",
            "a label that a text does not have",
            negatives,
            positives,
            labels,
            labels,
        )
    negative = negative_label(labels)
    negatives = labels[negative]
    said = f"label {negative}"
    return Counts(unit, said, negatives, labels.total() - negatives, labels, labels)


def negative_label(labels: Counter[str]) -> str:
    """Of two labels the one that is not a yes, else the most frequent."""
    named_yes = [label for label in labels if label.lower() in YES]
    if len(labels) == 2 and len(named_yes) == 1:
        return next(label for label in labels if label not in named_yes)
    return max(labels, key=lambda label: (labels[label], label))


def labels_of(corpus: Corpus) -> frozenset[str]:
    """The labels that a corpus has."""
    return frozenset(count(corpus).labels)


def unseen_labels(train: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    """Labels of another split that training never sees: scored, never predicted.

    >>> unseen_labels(["PER", "LOC"], ["LOC", "ORG"])
    ('ORG',)
    """
    return tuple(sorted(set(other) - set(train)))


def describe_unseen(train: Corpus, other: Corpus) -> str | None:
    """One sentence about labels that occur in `other` only, None if there are none.

    Corpora of different tasks are not compared: their labels have nothing in common.
    """
    unseen = unseen_labels(labels_of(train), labels_of(other)) if train.task == other.task else ()
    if not unseen:
        return None
    return (
        f"{other.path}: {', '.join(unseen)} {'is' if len(unseen) == 1 else 'are'} not in "
        f"{train.path}: scored, never predicted"
    )
