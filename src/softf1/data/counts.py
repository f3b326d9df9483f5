"""Counts negatives and positives, by task.

- tagging: words; O is negative, every other tag positive. Among plain labels (parts of speech) the
  most frequent is negative and the others are positive: a stray O among them is a label too.
- spans: words; those in no span are negative. A word in spans of two labels is one positive, and
  counts for both labels.
- qa: the first and the last word of the answer are positive, two positions per answer even if they
  are one word, as the paper counts; the other words of the context are negative, once for each
  question. Of several alternative answers the first counts, as in training; of an answer with
  several spans all do. Words are separated by white space; a Chinese character is a word.
- mrc_ner: the same over the words of every query, for every span.
- pairs, classification: rows. Of two labels the positive one is 1, true, yes or the like; without
  such a name it is the rarer one. Of more labels the most frequent is negative.
- several labels per text: every combination of row and label; the labels of a row are positive.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from softf1.data.examples import (
    Example,
    MrcExample,
    PairExample,
    QAExample,
    SpanSentence,
    TaggedSentence,
    TextExample,
)
from softf1.errors import InputError
from softf1.metrics.schemes import OUTSIDE, count_nested, find_odd_tag, scheme_of, split_tag

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from softf1.metrics.schemes import LabelledSpan


YES = frozenset({"1", "1.0", "true", "yes", "y", "pos", "positive", "duplicate", "paraphrase"})
"""Names of the positive one of two labels, ignoring case."""
NO_ANSWER = "no answer"
MOST_LABELS = 1_000_000
"""With more distinct labels than this, it is probably not the column of labels."""

_IDEOGRAPH = "\u3400-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{_IDEOGRAPH}]|[^\s{_IDEOGRAPH}]+")


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """Negatives and positives of a corpus, and its labels.

    Attributes:
        unit: What is counted, such as "words".
        negative: What counts as negative, in words.
        negatives: The number of negatives.
        positives: The number of positives.
        labels: Units by label.
        examples: Number of examples that have each label at least once.
        scheme: The scheme of the tags; None where they are plain labels, or no tags.
        several: Whether a text has several labels or none, or an answer several spans.
        note: A remark about the labels for the user.
        spans: The number of spans in a file of spans or queries.
        nested: How many of them lie inside another or cross one.
    """

    unit: str
    negative: str
    negatives: int
    positives: int
    labels: Counter[str]
    examples: Counter[str]
    scheme: str | None = None
    several: bool = False
    note: str = ""
    spans: int = 0
    nested: int = 0

    @property
    def nesting(self) -> str:
        """A sentence about spans that overlap, empty where none do."""
        if not self.nested:
            return ""
        verbs = ("lies", "crosses") if self.nested == 1 else ("lie", "cross")
        where = f"{verbs[0]} inside another or {verbs[1]} one"
        return f"{self.nested:,} of {self.spans:,} spans {where}"

    @property
    def units(self) -> int:
        """All units."""
        return self.negatives + self.positives


class Tally:
    """Counts examples one at a time, in constant memory; the path is for error messages."""

    kind: ClassVar[type[Any]]

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self.labels: Counter[str] = Counter()
        self.examples: Counter[str] = Counter()

    def add(self, example: Any) -> None:
        """Counts one example; raises for another type, and for far too many labels."""
        if not isinstance(example, self.kind):
            message = f"wanted examples of type {self.kind.__name__}, got {type(example).__name__}"
            raise InputError(message, path=self.path)
        self.count(example)
        if len(self.examples) > MOST_LABELS:
            message = f"wanted at most {MOST_LABELS:,} different labels, got more"
            raise InputError(f"{message}: is it the right column?", path=self.path)

    def count(self, example: Any) -> None:
        """Counts an example of the right type."""
        raise NotImplementedError

    def finish(self) -> LabelCounts:
        """Returns the counts of all."""
        raise NotImplementedError


def start_tally(task: str, path: Path | str) -> Tally:
    """Returns the counter for a task."""
    own = (_Tags, _Questions, _Queries, _Pairs)
    return next((tally for tally in own if tally.kind.task == task), _Texts)(path)


class _Tags(Tally):
    kind = TaggedSentence

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self.sentences = 0
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.joined: Counter[str] = Counter()
        self.label_of: dict[str, str] = {}
        self.first_line: dict[str, int] = {}
        self.spans = _Spans(path)

    def count(self, example: Any) -> None:
        if isinstance(example, SpanSentence):
            self.spans.count(example)
            return
        tags, label_of = example.tags, self.label_of
        self.sentences += 1
        self.pairs.update(pairwise((OUTSIDE, *tags, OUTSIDE)))
        present = set(tags)
        self.examples.update(present)
        if not label_of.keys() >= present:
            label_of.update({tag: split_tag(tag)[1] or tag for tag in present})
            self.first_line = {**dict.fromkeys(present, example.line), **self.first_line}
        self.joined.update({label_of[tag] for tag in present})

    def finish(self) -> LabelCounts:
        if self.spans.labels:
            return self.spans.finish()
        tags: Counter[str] = Counter()
        for (tag, _), number in self.pairs.items():
            tags[tag] += number
        tags[OUTSIDE] -= self.sentences  # the O that `count` puts before each sentence
        tags = +tags
        if not tags:
            raise InputError("wanted tags to count, got words alone", path=self.path)
        try:
            scheme = scheme_of(self.pairs).name
        except ValueError:
            scheme = None
        for tag, number in tags.items():
            self.labels[tag if scheme is None else self.label_of[tag]] += number
        background = OUTSIDE in self.labels and scheme is not None
        negative = OUTSIDE if background else self.labels.most_common(1)[0][0]
        said = "tag O" if negative == OUTSIDE else f"the most frequent tag {negative}"
        note = ""
        if odd := find_odd_tag(self.pairs):  # training refuses it
            where = f"{self.path}:{self.first_line[odd[0]]}"
            note = f"{where}: wanted {odd[1].describe()}, as the other tags are; got {odd[0]!r}"
        negatives = self.labels[negative]
        examples = self.examples if scheme is None else self.joined
        counted = (negatives, tags.total() - negatives, self.labels, examples)
        return LabelCounts("words", said, *counted, scheme=scheme, note=note)


class _Spans(Tally):
    """Counts words by the labels of all spans that cover them: a word may count for several."""

    kind = SpanSentence
    words = spans = nested = 0

    def count(self, example: SpanSentence) -> None:
        inside = {(place, label) for a, b, label in example.spans for place in range(a, b)}
        outside = len(example.words) - len({place for place, _ in inside})
        own = Counter(label for _, label in inside) + Counter({OUTSIDE: outside})
        self.labels.update(own)
        self.examples.update(own.keys())
        self.words += len(example.words)
        self.spans += len(example.spans)
        self.nested += count_nested(example.spans)

    def finish(self) -> LabelCounts:
        negatives = self.labels[OUTSIDE]
        counted = (negatives, self.words - negatives, self.labels, self.examples)
        both = ("words", "words in no span", *counted, "BIO")
        return LabelCounts(*both, spans=self.spans, nested=self.nested)


class _Questions(Tally):
    kind = QAExample
    negatives, several = 0, False

    def count(self, example: QAExample) -> None:
        self.negatives += _count(example.context)
        if not example.answers:
            self.labels[NO_ANSWER] += 1
            self.examples[NO_ANSWER] += 1
            return
        spans = example.answers[0].spans
        for edge in ("start", "end"):
            self.labels[edge] += len(spans)
            self.examples[edge] += 1
        self.negatives -= _count_edges(example.context, spans)
        self.several = self.several or any(len(one.spans) > 1 for one in example.answers)

    def finish(self) -> LabelCounts:
        positives = self.labels["start"] + self.labels["end"]
        said = "words of the context that neither start nor end the first answer"
        counted = (self.negatives, positives, self.labels, self.examples)
        return LabelCounts("words", said, *counted, several=self.several)


def _count_edges(context: str, spans: Sequence[tuple[int, int]]) -> int:
    """Counts the words that hold the first or the last character of a span.

    >>> _count_edges("by Ida Roth", [(3, 11)]), _count_edges("by Ida Roth", [(3, 6)])
    (2, 1)
    """
    if len(spans) == 1 and context.isascii():  # the usual case, ten times as fast
        ((start, end),) = spans
        first, last = not context[start].isspace(), not context[end - 1].isspace()
        return first + last - (first and last and len(context[start:end].split()) == 1)
    words = [match.span() for match in WORD.finditer(context)] if spans else []
    edges = {place for start, end in spans for place in (start, end - 1)}
    # The word before the first that starts after the edge; an edge on white space is in no word.
    before = {(bisect_right(words, (place, math.inf)) - 1, place) for place in edges}
    return len({index for index, place in before if index >= 0 and place < words[index][1]})


class _Queries(Tally):
    kind = MrcExample
    negatives = spans = nested = 0
    words: tuple[str, ...] = ()

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self.asked: dict[str, list[LabelledSpan]] = {}

    def count(self, example: MrcExample) -> None:
        if example.words != self.words or example.label in self.asked:
            self._close_sentence()
        self.words = example.words
        self.asked[example.label] = [(*span, example.label) for span in example.spans]
        name = example.label or example.query
        self.labels[name] += 2 * len(example.spans)
        self.examples[name] += bool(example.spans)
        edges = {place for start, end in example.spans for place in (start, end - 1)}
        self.negatives += len(example.words) - len(edges)

    def _close_sentence(self) -> None:
        """Counts the spans of all labels of a sentence, whose queries follow each other."""
        spans = [span for own in self.asked.values() for span in own]
        self.spans += len(spans)
        self.nested += count_nested(spans)
        self.asked = {}

    def finish(self) -> LabelCounts:
        self._close_sentence()
        said = "words, asked by every query, that neither start nor end a span"
        counted = (self.negatives, self.labels.total(), self.labels, self.examples)
        return LabelCounts("words", said, *counted, spans=self.spans, nested=self.nested)


class _Texts(Tally):
    kind: ClassVar[type[Any]] = TextExample
    unit = "texts"
    rows, most, least = 0, 0, 1

    def count(self, example: TextExample | PairExample) -> None:
        self.rows += 1
        own = len(example.labels)
        self.examples.update(example.labels)
        self.most, self.least = max(self.most, own), min(self.least, own)

    def finish(self) -> LabelCounts:
        labels = self.examples
        if not labels:
            message = "wanted labels to count, got rows without any; name their column with"
            raise InputError(f"{message} --set label=NAME", path=self.path)
        several = (self.most, self.least) != (1, 1)
        if self.most > 1:
            unit, said = f"{self.unit} × labels", "a label that a text does not have"
            positives = labels.total()
            negatives = self.rows * len(labels) - positives
        else:
            unit, said = self.unit, f"label {negative_label(labels)}"
            negatives = labels[negative_label(labels)]
            positives = labels.total() - negatives
        return LabelCounts(unit, said, negatives, positives, labels, labels, several=several)


class _Pairs(_Texts):
    kind, unit = PairExample, PairExample.task

    def count(self, example: TextExample | PairExample) -> None:
        if example.labels:
            super().count(example)


def count_words(example: Example) -> int:
    """Returns how many words an example has in all its texts; a Chinese character is a word.

    >>> count_words(TextExample("a fine day", ("good",), line=1))
    3
    """
    if isinstance(example, TaggedSentence):
        return len(example.words)
    if isinstance(example, MrcExample):
        return _count(example.query) + len(example.words)
    return sum(map(_count, example.texts))


@lru_cache(2)  # questions of one context follow each other
def _count(text: str) -> int:
    return len(text.split()) if text.isascii() else len(WORD.findall(text))


def negative_label(labels: Counter[str]) -> str:
    """Returns the negative label: of two the one that does not mean yes, else the most frequent."""
    named_yes = [label for label in labels if label.lower() in YES]
    if len(labels) == 2 and len(named_yes) == 1:
        return next(label for label in labels if label not in named_yes)
    return max(labels, key=lambda label: (labels[label], label))
