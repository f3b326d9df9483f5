"""One sentence per line, with a tag after each word: `word_TAG` (CTB) or `word/TAG` (WSJ).

The treebanks' marks around sentences (`<S ID=1>`), chunk brackets and lines of `=` are left out.
"""

from __future__ import annotations

import re
from functools import partial
from sys import intern
from typing import TYPE_CHECKING

from softf1.data._text import lines
from softf1.data.examples import Format, TaggedSentence
from softf1.data.problems import Problems, RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MARK = re.compile(r"<[^<>\s]*( [^<>]*)?>|=+")
"""A line that is markup: `<S ID=7>`, `</S>`, `<HEADLINE>`, `=====`."""
_CHUNK = frozenset("[]")


def iterate(
    path: Path | str, *, separator: str = "_", problems: Problems | None = None
) -> Iterator[TaggedSentence]:
    """Reads one sentence per line; the tag follows the last separator of each word.

    Args:
        path: The file.
        separator: The text between word and tag: "_" in CTB, "/" in WSJ.
        problems: Decides about bad sentences; None raises at the first.
    """
    problems = problems or Problems()
    numbered = lines(path, problems)
    return problems.read_each(numbered, partial(_read_line, separator=separator), path)


def _read_line(line: str, number: int, separator: str) -> TaggedSentence | None:
    if not line.strip() or _MARK.fullmatch(line.strip()):
        return None
    words, tags = [], []
    for item in line.replace("\t", " ").split(" "):
        if not item or item in _CHUNK:
            continue
        word, found, tag = item.rpartition(separator)
        if not (word and found and tag):
            raise RecordError("word without tag", f"wanted word{separator}TAG, got {item!r}")
        words.append(word)
        tags.append(intern(tag))
    return TaggedSentence(tuple(words), tuple(tags), number) if words else None


FORMATS = {
    "tagged": Format(iterate, (TaggedSentence.task,), "one sentence per line, word_TAG word_TAG"),
}
