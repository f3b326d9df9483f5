"""Sentences with spans, which may overlap: JSON, one object per line or a list of objects.

An object has its words and the spans of its names, by word and with exclusive ends:

    {"words": ["the", "University", "of", "Graz"], "entities": [
        {"start": 1, "end": 4, "label": "ORG"}, {"start": 3, "end": 4, "label": "LOC"}]}

Or a text, with the spans by character. A span may also be a list, `[1, 4, "ORG"]`.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import itemgetter
from sys import intern
from typing import TYPE_CHECKING, Any, Literal

from softf1.data._rows import USUAL, Row, read_rows
from softf1.data.counts import WORD
from softf1.data.examples import Format, SpanSentence, TaggedSentence
from softf1.data.problems import Problems, RecordError, short
from softf1.metrics.schemes import count_nested, encode_spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from softf1.data._text import EncodingErrors
    from softf1.data.examples import Span
    from softf1.metrics.schemes import LabelledSpan

WORDS = ("words", "tokens", "tokenized_text")
TEXT = ("text", "sentence")
SPANS = ("entities", "spans", "ner", "label", "labels")
"""Keys under which words, a text and spans are found."""
LABEL = ("label", "type")
INCLUSIVE = "ner"
"""The key of GLiNER's files, whose spans end at their last word."""


def iterate(
    path: Path | str,
    *,
    kind: Literal["jsonl", "json"] = "jsonl",
    inclusive: bool | None = None,
    encoding_errors: EncodingErrors = "strict",
    problems: Problems | None = None,
) -> Iterator[TaggedSentence]:
    """Reads sentences with their spans; one that has no key of spans has no labels.

    Args:
        path: The file.
        kind: "jsonl" (one object per line) or "json" (a list of objects).
        inclusive: Whether the end of a span is its last word (or character), not the one behind
            it. None says so for spans under "ner", as GLiNER's files have them.
        encoding_errors: "replace" keeps lines that are not UTF-8, with U+FFFD in them.
        problems: Decides about bad objects; None raises at the first.
    """
    problems = problems or Problems()
    for line, row in read_rows(path, kind, problems, encoding_errors=encoding_errors):
        try:
            yield _Object(row, path, line).read(inclusive=inclusive)
        except RecordError as error:
            problems.add(error)


def has_spans(row: Any) -> bool:
    """Whether an object of a file has words or a text, and at least one span.

    A text that also has one label is read for that: its entities are a remark.

    >>> has_spans({"text": "in Graz", "entities": [{"start": 3, "end": 7, "label": "LOC"}]})
    True
    >>> has_spans({"text": "in Graz", "label": ["travel", "Austria"]})
    False
    """
    if not isinstance(row, dict) or not {*WORDS, *TEXT} & {*row}:
        return False
    if any(isinstance(row.get(name), str | int | float) for name in USUAL["label"]):
        return False
    spans = next((row[key] for key in SPANS if key in row), None)
    return isinstance(spans, list) and any(
        type(place) is int for one in spans[:1] for place in _take_apart(one)
    )


def split_text(text: str) -> list[Span]:
    """The words of a text as (start, end): spaces divide them, and punctuation stands alone.

    >>> [text[a:b] for text in ["In Graz (Styria)."] for a, b in split_text(text)]
    ['In', 'Graz', '(', 'Styria', ')', '.']
    """
    words = []
    for match in WORD.finditer(text):
        start, end = match.span()
        if match[0].isalnum():
            words.append((start, end))
            continue
        for place in range(start, end):
            if unicodedata.category(text[place])[0] in "PS":
                words += [(start, place)] if start < place else []
                words.append((place, place + 1))
                start = place + 1
        words += [(start, end)] if start < end else []
    return words


@dataclass(frozen=True, slots=True)
class _Object:
    """One object of a file, and where it is."""

    row: Row
    path: Path | str
    line: int

    def read(self, *, inclusive: bool | None) -> TaggedSentence:
        """The sentence, with tags where its spans do not overlap."""
        words, places = self._words()
        name = "" if self.row.get("id") is None else str(self.row["id"])
        key = next((key for key in SPANS if self.row.get(key) is not None), None)
        if key is None:
            return TaggedSentence(words, (), self.line, name)
        given = self.row[key]
        if not isinstance(given, list):
            raise self._error("no spans", f'wanted a list in "{key}", got {short(repr(given))}')
        more = key == INCLUSIVE if inclusive is None else inclusive
        spans = tuple(sorted({self._span(one, words, places, more=more) for one in given}))
        tags: Sequence[str] = ()
        if not count_nested(spans):
            tags = encode_spans(spans, length=len(words), scheme="BIO")
        return SpanSentence(words, tuple(map(intern, tags)), self.line, name, spans)

    def _words(self) -> tuple[tuple[str, ...], list[Span] | None]:
        """The words; of a text also where they are."""
        key = next((key for key in (*WORDS, *TEXT) if key in self.row), None)
        if key is None:
            there = ", ".join(self.row) or "none"
            raise self._error("no words", f'wanted "words" or "text", got the keys {there}')
        value = self.row[key]
        if key in TEXT:
            places = split_text(value) if isinstance(value, str) else []
            if not places:
                message = f'wanted a text in "{key}", got {short(repr(value))}'
                raise self._error("no words", message)
            return tuple(str(value)[start:end] for start, end in places), places
        words = value if isinstance(value, list) else []
        if not words or not all(isinstance(word, str) and word.strip() for word in words):
            message = f'wanted a list of words in "{key}", got {short(repr(value))}'
            raise self._error("no words", message)
        return tuple(words), None

    def _span(
        self, value: object, words: Sequence[str], places: list[Span] | None, *, more: bool
    ) -> LabelledSpan:
        start, end, label = _take_apart(value)
        if type(start) is not int or type(end) is not int:
            message = f'wanted a span as {{"start", "end", "label"}}, got {short(repr(value))}'
            raise self._error("wrong span", message)
        if not isinstance(label, str) or not label.strip():
            raise self._error("no label", f"wanted a label of the span, got {short(repr(value))}")
        end += more
        if places is not None:
            start, end = self._find_words(start, end, words, places)
        if not 0 <= start < end <= len(words):
            message = f"wanted a span within {len(words)} words, got {short(repr(value))}"
            raise self._error("span outside", message)
        return start, end, label.strip()

    def _find_words(self, start: int, end: int, words: Sequence[str], places: list[Span]) -> Span:
        """The words of a span of characters; white space at its ends is in no word."""
        size = len(next(str(self.row[key]) for key in TEXT if key in self.row))
        first = bisect_right(places, start, key=itemgetter(1))
        last = bisect_left(places, end, key=itemgetter(0))
        if not (0 <= start < end <= size and first < last):
            message = f"wanted a span within {size} characters, with a word in it"
            raise self._error("span outside", f"{message}, got {start} to {end}")
        for place in (first, last - 1):
            if places[place][0] < start or places[place][1] > end:
                message = f"wanted a span of whole words, got {start} to {end}"
                raise self._error("word cut", f"{message}, which cuts {short(words[place])}")
        return first, last

    def _error(self, reason: str, message: str) -> RecordError:
        return RecordError(reason, message, path=self.path, line=self.line)


def _take_apart(value: object) -> tuple[object, object, object]:
    """Start, end and label, None for what is not there."""
    if isinstance(value, dict):
        label = next((value[key] for key in LABEL if key in value), None)
        return value.get("start"), value.get("end"), label
    if isinstance(value, list) and len(value) == 3:
        return value[0], value[1], value[2]
    return None, None, None


_TASKS = (TaggedSentence.task,)
FORMATS = {
    "spans": Format(
        *(iterate, _TASKS, "one object per line: words or a text, and spans that may overlap"),
        {"kind": "jsonl"},
    ),
    "spans-json": Format(iterate, _TASKS, "the same as a list of objects", {"kind": "json"}),
}
