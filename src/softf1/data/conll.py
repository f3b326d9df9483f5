"""Columns: one word per line, a blank line between sentences (CoNLL-2003, WSJ, OntoNotes).

A sentence whose lines all have the same number of cells is split by one `str.split`, in half the
time of splitting line by line. Only other sentences are split by line, to divide them at lines of
white space or to name the line that is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from sys import intern
from typing import TYPE_CHECKING

from softf1.data._text import blocks
from softf1.data.examples import Format, TaggedSentence
from softf1.data.problems import Problems, RecordError, short
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCSTART = "-DOCSTART-"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a line: `width` cells, and which of them are word and tag.

    With `whole_word` the word may be the separator itself, such as a space in lines of characters.
    """

    separator: str
    width: int
    word: int
    tag: int | None
    whole_word: bool = False

    def split_block(self, block: str) -> list[str] | None:
        r"""Splits a block into cells, with a newline cell per line; None if a line is irregular.

        >>> Columns(" ", 2, 0, 1).split_block("a DT\nmap NN")
        ['a', 'DT', '\n', 'map', 'NN']
        >>> Columns(" ", 2, 0, 1).split_block("a DT\nmap")
        """
        between = self.separator
        marked = block.replace("\n", f"{between}\n{between}")
        if between * 2 in marked or marked.startswith(between) or marked.endswith(between):
            return None  # an empty cell
        cells = marked.split(between)
        count = block.count("\n")
        even = len(cells) == count * (self.width + 1) + self.width
        even = even and cells[self.width :: self.width + 1].count("\n") == count
        return cells if even else None

    def split_line(self, line: str) -> list[str]:
        """Splits one line into cells; several spaces are one separator, several tabs are not."""
        if self.whole_word:
            return line.rstrip(" ").rsplit(self.separator, self.width - 1)
        if self.separator == " ":
            return [cell for cell in line.split(" ") if cell]
        return line.split(self.separator)

    def split_rows(self, rows: list[str], line: int) -> list[list[str]]:
        """Splits lines; raises if one does not have `width` cells, or has an empty word or tag."""
        table = [self.split_line(row) for row in rows]
        for number, cells in enumerate(table, line):
            ragged = len(cells) != self.width
            if ragged or not cells[self.word] or (self.tag is not None and not cells[self.tag]):
                columns = f"{self.width} columns separated by {self.separator!r}, got {len(cells)}"
                empty = "a word and a tag, got an empty cell"
                message = (
                    f"wanted {columns if ragged else empty}: {short(self.separator.join(cells))}"
                )
                if any(row.startswith("# ") for row in rows[: number - line + 1]):
                    message += "; if lines that begin with # are comments, say --set comment=#"
                raise RecordError("ragged row" if ragged else "empty cell", message, line=number)
        return table


def iterate(
    path: Path | str,
    *,
    word: int = 0,
    tag: int | None = -1,
    separator: str | None = None,
    comment: str | None = None,
    brackets: bool = False,
    problems: Problems | None = None,
) -> Iterator[TaggedSentence]:
    """Reads sentences from columns; skips `-DOCSTART-` lines.

    Args:
        path: The file.
        word: The column of the word, from 0, or from -1 at the end.
        tag: The column of the tag; None reads words only.
        separator: The text between cells; None takes tabs if the first line has one, else runs
            of spaces. Other white space, such as the Chinese full-width space, is text.
        comment: Lines between sentences that start with this are left out. There is no default,
            because many tweets start with "#".
        brackets: The tag column has the brackets of CoNLL-2012, such as `(ORG*`, `*`, `*)`; the
            tags become BIO. Lines may then have another number of cells in each sentence.
        problems: Decides about bad sentences; None raises at the first.
    """
    problems = problems or Problems()
    layout: Columns | None = None
    for line, block in blocks(path, problems):
        start, text = _drop_marks(line, block, comment)
        if not text:
            continue
        if layout is None or brackets:
            layout = look_at(text, path, start, separator=separator, word=word, tag=tag)
        for sentence in read_block(text, path, start, layout, problems):
            yield _close_brackets(sentence) if brackets else sentence


def look_at(
    block: str, path: Path | str, line: int, *, separator: str | None, word: int, tag: int | None
) -> Columns:
    """Finds the layout of a file by its first line; raises if it lacks the columns."""
    row = block.partition("\n")[0]
    separator = separator or ("\t" if "\t" in row else " ")
    width = len(Columns(separator, 0, 0, None).split_line(row))
    places = [column if column >= 0 else width + column for column in (word, tag or 0)]
    for column, place in zip((word, tag or 0), places, strict=True):
        if not 0 <= place < width:
            message = f"wanted column {column}, got {width} columns: {short(row)}"
            raise InputError(message, path=path, line=line)
    if tag is None:
        return Columns(separator, width, places[0], None)
    if places[0] == places[1]:
        got = "1 column" if width == 1 else f"column {places[0]} for both"
        message = f"wanted a word and a tag, got {got} (tag=None reads words alone)"
        raise InputError(f"{message}: {short(row)}", path=path, line=line)
    return Columns(separator, width, places[0], places[1])


def read_block(
    block: str, path: Path | str, line: int, layout: Columns, problems: Problems
) -> Iterator[TaggedSentence]:
    """Yields the sentence of a block, or several if lines of white space divide it."""
    cells = layout.split_block(block)
    if cells is not None:
        stride = layout.width + 1
        tags = () if layout.tag is None else tuple(map(intern, cells[layout.tag :: stride]))
        yield TaggedSentence(tuple(cells[layout.word :: stride]), tags, line)
        return

    def read(rows: list[str], line: int) -> TaggedSentence:
        table = layout.split_rows(rows, line)
        tags = () if layout.tag is None else tuple(intern(cells[layout.tag]) for cells in table)
        return TaggedSentence(tuple(cells[layout.word] for cells in table), tags, line)

    yield from problems.read_each(_paragraphs(block, line), read, path)


def _paragraphs(block: str, line: int) -> Iterator[tuple[int, list[str]]]:
    rows: list[str] = []
    for number, row in enumerate([*block.split("\n"), ""], line):
        if row.strip(" \t"):
            rows.append(row)
        elif rows:
            yield number - len(rows), rows
            rows = []


def _drop_marks(line: int, block: str, comment: str | None) -> tuple[int, str]:
    """Drops document marks and comments at the start of a block."""
    while block.startswith(DOCSTART) or (comment and block.startswith(comment)):
        block = block.partition("\n")[2]
        line += 1
    return line, block


def _close_brackets(sentence: TaggedSentence) -> TaggedSentence:
    """Turns `(ORG*`, `*`, `*)` into B-ORG, I-ORG, I-ORG."""
    tags, inside = [], ""
    for cell in sentence.tags:
        if cell.startswith("("):
            inside = cell.strip("()*")
            tags.append(f"B-{inside}")
        else:
            tags.append(f"I-{inside}" if inside else "O")
        if cell.endswith(")"):
            inside = ""
    return replace(sentence, tags=tuple(map(intern, tags)))


FORMATS = {
    "conll": Format(
        iterate,
        (TaggedSentence.task,),
        "one word per line in columns, blank line between sentences",
    ),
    "conll2012": Format(
        iterate,
        (TaggedSentence.task,),
        "OntoNotes columns of CoNLL-2012, entities in brackets",
        {"word": 3, "tag": 10, "comment": "#", "brackets": True},
    ),
}
