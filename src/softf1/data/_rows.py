"""Reads rows of TSV, CSV, JSON lines or a JSON list, each with its line and column names."""

from __future__ import annotations

import csv
from functools import partial
from typing import TYPE_CHECKING, Literal

from softf1.data._json import parse_json, stream
from softf1.data._text import lines
from softf1.data.examples import PairExample, TextExample
from softf1.data.problems import Problems, RecordError, say_setting, short
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


Column = str | int | None
"""A column by its name, by its number from 0, or None to detect it."""

USUAL = {
    "text": (
        *("text", "sentence", "content", "review", "tweet", "headline", "document"),
        *("message", "body", "comment", "utterance"),
    ),
    "first": (
        *("first", "sentence1", "question1", "text1", "text_a", "sentence_a", "premise"),
        *("q1", "s1", "#1 string"),
    ),
    "second": (
        *("second", "sentence2", "question2", "text2", "text_b", "sentence_b", "hypothesis"),
        *("q2", "s2", "#2 string"),
    ),
    "label": (
        *("label", "labels", "class", "category", "target", "gold_label", "is_duplicate"),
        *("quality", "sentiment"),
    ),
    "id": ("id", "idx", "guid", "index", "pair_id"),
}
"""The names by which a column is recognised, ignoring case."""

OPTIONAL = ("label", "id")


def looks_like_header(cells: Sequence[str]) -> bool:
    """Whether one of the cells is a common column name other than that of the id.

    >>> looks_like_header(["Quality", "#1 String"]), looks_like_header(["1", "a good film"])
    (True, False)
    """
    usual = {name for role, names in USUAL.items() if role != "id" for name in names}
    return any(cell.strip().lower() in usual for cell in cells)


def guess_task(names: Iterable[str]) -> str | None:
    """The task of rows with these columns; None if they have no text.

    >>> guess_task(["idx", "Sentence1", "sentence2"]), guess_task(["Text"]), guess_task(["id"])
    ('pairs', 'classification', None)
    """
    lower = {name.lower() for name in names}
    if lower & {*USUAL["first"]} and lower & {*USUAL["second"]}:
        return PairExample.task
    return TextExample.task if lower & {*USUAL["text"]} else None


def find_columns(
    names: Sequence[str],
    asked: Mapping[str, Column],
    path: Path | str,
    line: int,
    *,
    labelled: bool = False,
) -> dict[str, str]:
    """Finds the column of each role; optional roles without a column are left out.

    The label is optional unless `labelled`.

    >>> find_columns(["idx", "Sentence", "label"], {"text": None, "label": 2}, "a.tsv", 1)
    {'text': 'Sentence', 'label': 'label'}
    """
    columns = {}
    optional = ("id",) if labelled else OPTIONAL
    for role, column in asked.items():
        name = _find(names, role, column)
        if name is not None:
            columns[role] = name
        elif column is not None or role not in optional:
            told, hint, there = f"{column!r} for the {role}", "", ", ".join(names) or "none"
            if column is None:
                told = f"for the {role} ({', '.join(USUAL[role][:2])}, …)"
                hint = f"; choose one by name or number with {say_setting(role, 'NAME')}"
            message = f"wanted a column {told}, got the columns {there}{hint}"
            raise InputError(message, path=path, line=line)
    if len(set(columns.values())) < len(columns):
        message = f"wanted a column for each of {', '.join(columns)}, got {columns}"
        raise InputError(message, path=path, line=line)
    return columns


def _find(names: Sequence[str], role: str, column: Column) -> str | None:
    if column is None:
        lower = {name.strip().lower(): name for name in reversed(names)}
        return next((lower[usual] for usual in USUAL[role] if usual in lower), None)
    if column in names:
        return str(column)
    number = int(column) if isinstance(column, int) or column.isdecimal() else -1
    return names[number] if 0 <= number < len(names) else None


Kind = Literal["tsv", "csv", "jsonl", "json"]
Row = dict[str, object]

_LARGEST_CELL = 2**31 - 1
"""Characters of a CSV cell; the library's own limit of 131,072 is less than a long document."""


def read_rows(
    path: Path | str,
    kind: Kind,
    problems: Problems,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
) -> Iterator[tuple[int, Row]]:
    """Yields (line number, row); raises for options that the kind does not use."""
    for name, value in (("header", header), ("delimiter", delimiter)):
        if value is not None and kind in ("json", "jsonl"):
            raise InputError(f"wanted no {name}, which {kind} has no use for, got {value!r}")
    if kind == "json":
        nodes = enumerate(stream(path, problems))
        return problems.read_each(nodes, lambda node, _: (node.line, node.fields()), path)
    numbered = lines(path, problems)
    if kind == "jsonl":
        return problems.read_each(numbered, partial(_parse_object, path=path), path)
    if kind == "tsv":
        cells = ((number, line.split(delimiter or "\t")) for number, line in numbered if line)
        return _named(cells, path, problems, header=header)
    if kind != "csv":
        raise InputError(f"wanted kind tsv, csv, jsonl or json, got {kind!r}")
    between = delimiter or ","
    if len(between) != 1 or between in '"\r\n':
        raise InputError(f"wanted a delimiter of one character, got {between!r}")
    return _named(_split_quoted(numbered, between, path, problems), path, problems, header=header)


def _parse_object(text: str, line: int, path: Path | str) -> tuple[int, Row] | None:
    if not text.strip():
        return None
    value = parse_json(text, path, line=line)
    if not isinstance(value, dict):
        raise RecordError("not an object", f"wanted an object, got {short(text)}")
    return line, value


def _named(
    rows: Iterator[tuple[int, list[str]]],
    path: Path | str,
    problems: Problems,
    *,
    header: bool | None,
) -> Iterator[tuple[int, Row]]:
    """Names each cell by its column, or by its number if the file has no header."""
    names: list[str] | None = None
    for line, cells in rows:
        if names is None:
            named = looks_like_header(cells) if header is None else header
            names = cells if named else [str(number) for number in range(len(cells))]
            if len(set(names)) < len(names):
                message = f"wanted different names of columns, got {', '.join(names)}"
                raise InputError(message, path=path, line=line)
            if named:
                continue
        if len(cells) != len(names):
            columns = "1 column" if len(names) == 1 else f"{len(names)} columns"
            message = f"wanted {columns}, got {len(cells)}: {short(cells[0])}"
            problems.add(RecordError("ragged row", message, path=path, line=line))
            continue
        yield line, dict(zip(names, cells, strict=True))


def _split_quoted(
    numbered: Iterator[tuple[int, str]], delimiter: str, path: Path | str, problems: Problems
) -> Iterator[tuple[int, list[str]]]:
    """Splits lines in which quotes may contain delimiters and line breaks."""
    taken: list[int] = []
    size = 0

    def feed() -> Iterator[str]:
        nonlocal size
        for number, line in numbered:
            taken.append(number)
            size += len(line)
            if size > problems.max_line and len(taken) > 1:
                message = f"wanted rows of at most {problems.max_line:,} characters, got a longer"
                hint = (
                    f"is a quotation mark missing? {say_setting('max_line', 'NUMBER')} allows more"
                )
                raise InputError(f"{message}; {hint}", path=path, line=taken[0])
            yield f"{line}\n"

    csv.field_size_limit(max(_LARGEST_CELL, csv.field_size_limit()))
    rows = csv.reader(feed(), delimiter=delimiter, strict=True)
    while True:
        taken.clear()
        size = 0
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            wrong = RecordError(
                "bad quoting", f"wanted CSV, got: {error}", path=path, line=taken[0]
            )
            if "end of data" in str(error):
                # The rest of the file is inside one pair of quotes: skipping it would hide that.
                raise wrong from None
            problems.add(wrong)
            continue
        if cells:
            yield taken[0], cells
