"""Chinese, one character and its tag per line, a blank line between sentences.

Characters are read literally: the character of a line may be a space or a full-width space, which a
split at white space would lose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.data._text import blocks
from softf1.data.conll import Columns, read_block
from softf1.data.examples import Format, TaggedSentence
from softf1.data.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def iterate(
    path: Path | str,
    *,
    separator: str | None = None,
    tagged: bool = True,
    problems: Problems | None = None,
) -> Iterator[TaggedSentence]:
    """Reads sentences from lines of one character and its tag.

    Args:
        path: The file.
        separator: The text before the tag; None takes a tab if the first line has one, else a
            space.
        tagged: False reads characters without tags.
        problems: Decides about bad sentences; None raises at the first.
    """
    problems = problems or Problems()
    layout = None if tagged else Columns("\n", 1, 0, None)
    for line, block in blocks(path, problems):
        if layout is None:
            row = block.partition("\n")[0]
            between = separator or ("\t" if "\t" in row else " ")
            layout = Columns(between, 2, 0, 1, whole_word=True)
        yield from read_block(block, path, line, layout, problems)


FORMATS = {
    "chars": Format(
        iterate, (TaggedSentence.task,), "one character and its tag per line (Chinese)"
    ),
}
