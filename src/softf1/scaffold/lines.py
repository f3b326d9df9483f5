"""A recipe with comments: the values of each section, and beside them why."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from softf1.recipe.loading import format_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH = 100
COLUMN = 28


class Line(NamedTuple):
    """One key of a recipe.

    Attributes:
        key: Its name.
        value: Its value.
        why: The comment beside it.
        used: Otherwise it stands as a comment, for the user to take.
    """

    key: str
    value: Any
    why: str = ""
    used: bool = True


class Section(NamedTuple):
    """A table of a recipe: its name, remarks above it, its keys."""

    name: str
    lines: Sequence[Line]
    remarks: Sequence[str] = ()


def read_values(sections: Iterable[Section]) -> dict[str, Any]:
    """The nested tables that the sections stand for."""
    values: dict[str, Any] = {}
    for section in sections:
        table = values
        for part in section.name.split("."):
            table = table.setdefault(part, {})
        table |= {line.key: line.value for line in section.lines if line.used}
    return values


def format_sections(sections: Iterable[Section], *, head: Sequence[str]) -> str:
    """TOML with a comment at the top, remarks above sections and reasons beside keys."""
    blocks = [format_comment(head)]
    for section in sections:
        texts = [*map(_format_value, section.lines)]
        column = max(COLUMN, *(len(text) + 1 for text in texts))
        lines = [
            f"{text:<{column}}# {printable(line.why)}" if line.why else text
            for line, text in zip(section.lines, texts, strict=True)
        ]
        blocks.append("\n".join([f"{format_comment(section.remarks)}[{section.name}]", *lines]))
    return "\n\n".join(block.rstrip("\n") for block in blocks) + "\n"


def format_comment(remarks: Sequence[str]) -> str:
    """Remarks as lines that begin with #; what is too long is wrapped."""
    lines = [
        part
        for remark in remarks
        for part in (wrap(remark, WIDTH - 2, subsequent_indent="  ") if remark else [""])
    ]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def printable(text: str) -> str:
    r"""Text of a file for a comment: ends of lines and codes of terminals written out.

    >>> printable("a\nb")
    'a\\nb'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _format_value(line: Line) -> str:
    text = format_toml({line.key: line.value}).strip("\n")
    return text if line.used else f"# {text}"
