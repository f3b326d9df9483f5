"""CoNLL-U, the format of Universal Dependencies: ten columns, tabs, comments before a sentence.

Words are the syntactic words: a multiword token (`3-4`) is read as its parts, and empty nodes
(`8.1`) are left out, so that every word has its own tag.
"""

from __future__ import annotations

from functools import partial
from sys import intern
from typing import TYPE_CHECKING, Literal

from softf1.data._text import blocks
from softf1.data.conll import Columns
from softf1.data.examples import Format, TaggedSentence
from softf1.data.problems import Problems, RecordError
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Field = Literal["upos", "xpos", "deprel"]
_COLUMNS = {"upos": 3, "xpos": 4, "deprel": 7}
_WIDTH = 10
_SENT_ID = "# sent_id = "


def iterate(
    path: Path | str, *, tag: Field = "upos", problems: Problems | None = None
) -> Iterator[TaggedSentence]:
    """Reads words and one of their fields as tags.

    Args:
        path: The file.
        tag: "upos" (universal part of speech), "xpos" (the treebank's own) or "deprel".
        problems: Decides about bad sentences; None raises at the first.
    """
    if tag not in _COLUMNS:
        raise InputError(f"wanted tag {', '.join(_COLUMNS)}, got {tag!r}")
    problems = problems or Problems()
    layout = Columns("\t", _WIDTH, 1, _COLUMNS[tag])
    read = partial(_read_block, layout=layout, tag=tag)
    return problems.read_each(blocks(path, problems), read, path)


def _read_block(block: str, line: int, *, layout: Columns, tag: str) -> TaggedSentence | None:
    name = ""
    while block.startswith("#"):
        comment, _, block = block.partition("\n")
        name = comment.removeprefix(_SENT_ID) if comment.startswith(_SENT_ID) else name
        line += 1
    words: list[str] = []
    tags: list[str] = []
    rows = layout.split_rows(block.split("\n") if block else [], line)
    for number, cells in enumerate(rows, line):
        if "-" in cells[0] or "." in cells[0]:
            continue
        if cells[0] != str(len(words) + 1):
            message = f"wanted word id {len(words) + 1}, got {cells[0]!r}"
            raise RecordError("word ids not in order", message, line=number)
        if cells[layout.tag or 0] == "_" != cells[layout.word]:
            raise RecordError(f"no {tag}", f"wanted a value of {tag}, got _", line=number)
        words.append(cells[layout.word])
        tags.append(intern(cells[layout.tag or 0]))
    return TaggedSentence(tuple(words), tuple(tags), line, name) if words else None


FORMATS = {
    "conllu": Format(iterate, (TaggedSentence.task,), "Universal Dependencies, ten columns"),
}
