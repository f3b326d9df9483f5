"""Tag schemes of sentences: detects, checks, converts and, if asked, repairs them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from sys import intern
from typing import TYPE_CHECKING

from softf1.data.problems import Problems, RecordError
from softf1.errors import InputError
from softf1.metrics.schemes import (
    LENIENT,
    OUTSIDE,
    Scheme,
    decode_strict,
    detect_scheme,
    encode_spans,
    find_invalid,
    get_scheme,
    repair_tags,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from softf1.data.examples import TaggedSentence


def find_scheme(sentences: Iterable[TaggedSentence]) -> Scheme | None:
    """Detects the scheme of the tags; None for plain labels, such as parts of speech.

    >>> from softf1.data import TaggedSentence
    >>> find_scheme([TaggedSentence(("Ada", "slept"), ("I-PER", "O"), line=1)]).name
    'IOB1'
    >>> from softf1.data import TaggedSentence
    >>> find_scheme([TaggedSentence(("Ada", "slept"), ("PROPN", "VERB"), line=1)])
    """
    try:
        return detect_scheme(sentence.tags for sentence in sentences)
    except ValueError:
        return None


def convert(
    sentences: Iterable[TaggedSentence],
    *,
    source: str | Scheme,
    target: str | Scheme | None = None,
    repair: bool = False,
    path: Path | str | None = None,
    problems: Problems | None = None,
    remedy: str = "",
) -> Iterator[TaggedSentence]:
    """Checks tags against their scheme and converts them to another.

    Args:
        sentences: As a reader yields them.
        source: The scheme of their tags.
        target: The scheme to convert to; None leaves valid tags as they are.
        repair: Whether an invalid sequence becomes the spans that conlleval would see in it,
            counted as a change; otherwise it is an error that names its line.
        path: The file, for errors.
        problems: Decides about invalid sentences; None raises at the first.
        remedy: What the error adds where `repair` would help.
    """
    problems = problems or Problems()
    source, target = _scheme(source), _scheme(target or source)
    valid: set[tuple[str, str]] = set()
    for sentence in sentences:
        tags: Sequence[str] = sentence.tags
        pairs = set(pairwise((OUTSIDE, *tags, OUTSIDE)))
        if not pairs <= valid:
            if not (invalid := find_invalid(tags, source)):
                valid |= pairs
            else:
                line, message = sentence.line + invalid[0].index, invalid[0].message
                # Spans can be read only if every tag has a prefix of some scheme.
                repairable = all(map(LENIENT.has, tags))
                hint = f"; {remedy}" if remedy and repairable and not repair else ""
                error = RecordError("invalid tags", message + hint, path=path, line=line)
                if not (repair and repairable):
                    problems.add(error)
                    continue
                problems.change("tags repaired", str(error))
                tags = repair_tags(tags, source)
        if source != target:
            tags = encode_spans(decode_strict(tags, source), length=len(tags), scheme=target)
        same = tags is sentence.tags
        yield sentence if same else replace(sentence, tags=tuple(map(intern, tags)))


def to_characters(sentence: TaggedSentence, *, scheme: str | Scheme = "BMES") -> TaggedSentence:
    """Converts words with plain labels to characters with tags: joint segmentation and labels.

    >>> from softf1.data import TaggedSentence
    >>> to_characters(TaggedSentence(("我們", "看"), ("PRON", "VERB"), line=1))
    TaggedSentence(words=('我', '們', '看'), tags=('B-PRON', 'E-PRON', 'S-VERB'), line=1, id='')
    """
    spans, start = [], 0
    for word, tag in zip(sentence.words, sentence.tags, strict=True):
        spans.append((start, start + len(word), tag))
        start += len(word)
    tags = encode_spans(spans, length=start, scheme=_scheme(scheme))
    return replace(sentence, words=tuple("".join(sentence.words)), tags=tuple(map(intern, tags)))


def _scheme(name: str | Scheme) -> Scheme:
    try:
        return get_scheme(name)
    except ValueError as error:
        raise InputError(str(error)) from None
