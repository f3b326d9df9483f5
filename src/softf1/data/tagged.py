"""One sentence per line, with a tag after each word: `word_TAG` (CTB) or `word/TAG` (WSJ).

The treebanks' marks around sentences (`<S ID=1>`), brackets of chunks and rulers are left out.
"""

from __future__ import annotations

import re
from sys import intern
from typing import TYPE_CHECKING

from softf1.data._text import EncodingErrors, lines
from softf1.data.examples import Format, TaggedSentence
from softf1.data.problems import Problems, RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MARK = re.compile(r"<[^<>\s]*( [^<>]*)?>|=+")
"""A line that is markup: `<S ID=7>`, `</S>`, `<HEADLINE>`, `=====`."""
_CHUNK = frozenset("[]")


def iterate(
    path: Path | str,
    *,
    separator: str = "_",
    encoding_errors: EncodingErrors = "strict",
    problems: Problems | None = None,
) -> Iterator[TaggedSentence]:
    """Reads one sentence per line; the tag follows the last separator of each word.

    Args:
        path: The file.
        separator: What stands between word and tag: "_" in CTB, "/" in WSJ.
        encoding_errors: "replace" keeps lines that are not UTF-8, with U+FFFD in them.
        problems: Decides about bad sentences; None raises at the first.
    """
    problems = problems or Problems()
    for number, line in lines(path, problems, errors=encoding_errors):
        if not line.strip() or _MARK.fullmatch(line.strip()):
            continue
        try:
            sentence = _read_line(line, separator, path, number)
        except RecordError as error:
            problems.add(error)
        else:
            if sentence.words:
                yield sentence


def _read_line(line: str, separator: str, path: Path | str, number: int) -> TaggedSentence:
    words, tags = [], []
    for item in line.replace("\t", " ").split(" "):
        if not item or item in _CHUNK:
            continue
        word, found, tag = item.rpartition(separator)
        if not (word and found and tag):
            message = f"wanted word{separator}TAG, got {item!r}"
            raise RecordError("word without tag", message, path=path, line=number)
        words.append(word)
        tags.append(intern(tag))
    return TaggedSentence(tuple(words), tuple(tags), number)


FORMATS = {
    "tagged": Format(iterate, (TaggedSentence.task,), "one sentence per line, word_TAG word_TAG"),
}
