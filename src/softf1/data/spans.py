"""Sentences with spans, which may overlap: JSON, one object per line or a list of objects.

An object has its words and the spans of its names, by word and with exclusive ends:

    {"words": ["the", "University", "of", "Graz"], "entities": [
        {"start": 1, "end": 4, "label": "ORG"}, {"start": 3, "end": 4, "label": "LOC"}]}

Or a text, with the spans by character. A span may also be a list, `[1, 4, "ORG"]`.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from functools import partial
from operator import itemgetter
from sys import intern
from typing import TYPE_CHECKING, Any, Literal

from softf1.data._rows import USUAL, Row, read_rows
from softf1.data.counts import WORD
from softf1.data.examples import Format, Span, SpanSentence, TaggedSentence
from softf1.data.problems import Problems, RecordError, short
from softf1.metrics.schemes import LabelledSpan, count_nested, encode_spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


WORDS = ("words", "tokens", "tokenized_text")
TEXT = ("text", "sentence")
SPANS = ("entities", "spans", "ner", "label", "labels")
"""Keys under which objects have words, a text and spans."""
LABEL = ("label", "type")
INCLUSIVE = "ner"
"""The key of GLiNER's files, whose spans end at their last word."""


def iterate(
    path: Path | str,
    *,
    kind: Literal["jsonl", "json"] = "jsonl",
    inclusive: bool | None = None,
    problems: Problems | None = None,
) -> Iterator[TaggedSentence]:
    """Reads sentences with their spans; one without a key of `SPANS` is unlabelled.

    Args:
        path: The file.
        kind: "jsonl" (one object per line) or "json" (a list of objects).
        inclusive: Whether the end of a span is its last word (or character), not the one after it.
            None means true for spans under "ner", as in GLiNER's files, and false for others.
        problems: Decides about bad objects; None raises at the first.
    """
    problems = problems or Problems()
    rows = read_rows(path, kind, problems)
    return problems.read_each(rows, partial(_read, inclusive=inclusive), path)


def has_spans(row: Any) -> bool:
    """Whether an object of a file has words or a text, and at least one span.

    An object that also has a single label is for classification, and its spans do not count.

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
    """Splits a text into words (start, end) at white space; punctuation marks are words too.

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


def _read(row: Row, line: int, *, inclusive: bool | None) -> TaggedSentence:
    """Reads the sentence of an object, with tags if its spans do not overlap."""
    words, text, places = _words(row)
    name = "" if row.get("id") is None else str(row["id"])
    key = next((key for key in SPANS if row.get(key) is not None), None)
    if key is None:
        return TaggedSentence(words, (), line, name)
    given = row[key]
    if not isinstance(given, list):
        raise RecordError("no spans", f'wanted a list in "{key}", got {short(repr(given))}')
    more = key == INCLUSIVE if inclusive is None else inclusive
    taken = {_span(one, len(words), text, places, more=more) for one in given}
    spans = tuple(sorted(taken))
    tags: Sequence[str] = ()
    if not count_nested(spans):
        tags = encode_spans(spans, length=len(words), scheme="BIO")
    return SpanSentence(words, tuple(map(intern, tags)), line, name, spans)


def _words(row: Row) -> tuple[tuple[str, ...], str, list[Span]]:
    """Returns the words; for a text also the text, and where each word is in it."""
    key = next((key for key in (*WORDS, *TEXT) if key in row), None)
    if key is None:
        there = ", ".join(row) or "none"
        raise RecordError("no words", f'wanted "words" or "text", got the keys {there}')
    value = row[key]
    if isinstance(value, str) and key in TEXT and (places := split_text(value)):
        return tuple(value[start:end] for start, end in places), value, places
    words = value if isinstance(value, list) and key in WORDS else []
    if words and all(isinstance(word, str) and word.strip() for word in words):
        return tuple(words), "", []
    wanted = "a text" if key in TEXT else "a list of words"
    raise RecordError("no words", f'wanted {wanted} in "{key}", got {short(repr(value))}')


def _span(value: object, words: int, text: str, places: list[Span], *, more: bool) -> LabelledSpan:
    start, end, label = _take_apart(value)
    if type(start) is not int or type(end) is not int:
        message = f'wanted a span as {{"start", "end", "label"}}, got {short(repr(value))}'
        raise RecordError("wrong span", message)
    if not isinstance(label, str) or not label.strip():
        raise RecordError("no label", f"wanted a label of the span, got {short(repr(value))}")
    end += more
    if places:
        start, end = _find_words(start, end, text, places)
    if not 0 <= start < end <= words:
        message = f"wanted a span within {words} words, got {short(repr(value))}"
        raise RecordError("span outside", message)
    return start, end, label.strip()


def _find_words(start: int, end: int, text: str, places: list[Span]) -> Span:
    """Converts a span of characters to words; white space at its ends is ignored."""
    first = bisect_right(places, start, key=itemgetter(1))
    last = bisect_left(places, end, key=itemgetter(0))
    if not (0 <= start < end <= len(text) and first < last):
        message = f"wanted a span within {len(text)} characters, with a word in it"
        raise RecordError("span outside", f"{message}, got {start} to {end}")
    for begins, ends in (places[first], places[last - 1]):
        if begins < start or ends > end:
            message = f"wanted a span of whole words, got {start} to {end}"
            raise RecordError("word cut", f"{message}, which cuts {short(text[begins:ends])}")
    return first, last


def _take_apart(value: object) -> tuple[object, object, object]:
    """Returns start, end and label; None for what is missing."""
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
