"""One text per line, after its label: `label text`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.data._text import lines
from softf1.data.examples import Format, TextExample
from softf1.data.problems import Problems, RecordError, short

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def iterate(
    path: Path | str,
    *,
    separator: str | None = None,
    label_separator: str | None = None,
    problems: Problems | None = None,
) -> Iterator[TextExample]:
    """Reads one text per line; the label ends at the first separator.

    Args:
        path: The file.
        separator: What ends the label; None takes a tab if the first line has one, else a space.
        label_separator: The text between several labels, such as "," in `sport,money text`.
        problems: Decides about bad lines; None raises at the first.
    """
    problems = problems or Problems()
    for number, line in lines(path, problems):
        if not line.strip():
            continue
        separator = separator or ("\t" if "\t" in line else " ")
        label, _, text = line.partition(separator)
        if not label or not text.strip():
            message = f"wanted a label, {separator!r} and a text, got {short(line)}"
            problems.add(RecordError("no label and text", message, path=path, line=number))
            continue
        labels = label.split(label_separator) if label_separator else [label]
        yield TextExample(text.strip(), tuple(dict.fromkeys(filter(None, labels))), number)


FORMATS = {
    "lines": Format(iterate, (TextExample.task,), "label, a space, the text"),
}
