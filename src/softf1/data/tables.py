"""Rows as examples: TSV, CSV, JSON lines, JSON lists; columns by name or by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.data._rows import Column, Kind, Row, find_columns, read_rows
from softf1.data.examples import Format, PairExample, TextExample
from softf1.data.problems import Problems, RecordError, short

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


def iterate(
    path: Path | str,
    *,
    kind: Kind = "tsv",
    task: str = TextExample.task,
    text: Column = None,
    first: Column = None,
    second: Column = None,
    label: Column = None,
    id: Column = None,  # noqa: A002 - the column's usual name
    header: bool | None = None,
    delimiter: str | None = None,
    label_separator: str | None = None,
    problems: Problems | None = None,
) -> Iterator[TextExample | PairExample]:
    """Reads one example per row.

    Args:
        path: The file.
        kind: "tsv" (a quotation mark is a character like others), "csv", "jsonl" (one object per
            line) or "json" (a list of objects).
        task: "classification" reads `text`, "pairs" reads `first` and `second`.
        text: The column of the text: its name, or its number from 0. None looks for the usual
            names and adds a note about the choice. The same holds for the other columns.
        first: The column of a pair's first text.
        second: The column of a pair's second text.
        label: The column of the label; without one, rows are unlabelled.
        id: The column of the id, which must not repeat.
        header: Whether the first row has the names; None means yes if a column is given by name,
            or if the row has one of the usual names.
        delimiter: The character between cells; by default a tab or a comma.
        label_separator: The text between several labels in a cell. A list in JSON needs none.
        problems: Decides about bad rows; None raises at the first.
    """
    problems = problems or Problems()
    roles = {"text": text} if task == TextExample.task else {"first": first, "second": second}
    asked = {**roles, "label": label, "id": id}
    named = any(isinstance(column, str) and not column.isdecimal() for column in asked.values())
    if header is None and named and kind in ("tsv", "csv"):
        header = True
    reader: RowReader | None = None

    def read(row: Row, line: int) -> TextExample | PairExample:
        nonlocal reader
        reader = reader or RowReader(list(row), asked, path, line, label_separator, problems)
        return reader.read(row, line)

    rows = read_rows(path, kind, problems, header=header, delimiter=delimiter)
    return problems.read_each(rows, read, path)


class RowReader:
    """Finds the columns by name, with a note about them, and makes examples from rows."""

    def __init__(
        self,
        names: Sequence[str],
        asked: Mapping[str, Column],
        path: Path | str,
        line: int,
        label_separator: str | None,
        problems: Problems,
    ) -> None:
        self.columns = find_columns(names, asked, path, line, labelled=problems.labelled is True)
        self.label_separator, self.problems = label_separator, problems
        self.ids: set[str] = set()
        if any(asked[role] is None for role in self.columns):
            took = ", ".join(f"{name!r} as {role}" for role, name in self.columns.items())
            problems.note(f"{path}: took the columns {took}")
        if "label" not in self.columns:
            problems.note(
                f"{path}: no column of labels among {', '.join(names)}: read as unlabelled"
            )

    def read(self, row: Row, line: int) -> TextExample | PairExample:
        """Makes the example of one row."""
        labels = self._labels(row)
        value = self._cell(row, "id")
        name = "" if value is None else str(value)
        if name and self.problems.unique:
            self.problems.remember(self.ids, name)
        if "text" in self.columns:
            return TextExample(self._text(row, "text"), labels, line, name)
        if len(labels) > 1:
            raise RecordError("several labels", f"wanted one label of a pair, got {labels}")
        first, second = self._text(row, "first"), self._text(row, "second")
        return PairExample(first, second, labels[0] if labels else None, line, name)

    def _text(self, row: Row, role: str) -> str:
        value = self._cell(row, role)
        if not isinstance(value, str) or not value.strip():
            message = f"wanted a text in {self.columns[role]!r}, got {value!r}"
            raise RecordError("no text", message)
        return value

    def _labels(self, row: Row) -> tuple[str, ...]:
        value = self._cell(row, "label")
        several = isinstance(value, list) or self.label_separator is not None
        values = value if isinstance(value, list) else [value]
        if self.label_separator is not None and isinstance(value, str):
            values = [part.strip() for part in value.split(self.label_separator)]
        labels = dict.fromkeys(self._label(one) for one in values if one not in ("", None))
        needed = not several and value is not None and self.problems.labelled is not False
        if needed and not labels:
            raise RecordError("no label", f"wanted a label in {self.columns['label']!r}, got none")
        return tuple(labels)

    def _label(self, value: object) -> str:
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, bool | int | float):
            return str(value).lower()
        message = f"wanted a label in {self.columns['label']!r}, got {short(repr(value))}"
        raise RecordError("no label", message)

    def _cell(self, row: Row, role: str) -> object:
        column = self.columns.get(role)
        if column is None:
            return None
        if column not in row and role == "label" and self.problems.labelled is False:
            return None
        if column not in row:
            message = f"wanted {column!r}, got the columns {', '.join(row) or 'none'}"
            raise RecordError("missing column", message)
        return row[column]


TASKS = (TextExample.task, PairExample.task)

FORMATS = {
    "tsv": Format(iterate, TASKS, "tabs, no quoting", {"kind": "tsv"}),
    "csv": Format(iterate, TASKS, "commas, quoted", {"kind": "csv"}),
    "jsonl": Format(iterate, TASKS, "one object per line", {"kind": "jsonl"}),
    "json": Format(iterate, TASKS, "a list of objects", {"kind": "json"}),
}
