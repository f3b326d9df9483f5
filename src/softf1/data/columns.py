"""Which column of a table is the text, the label, the id: as told, or by the usual names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Column = str | int | None
"""A column by its name, by its number from 0, or not told."""

USUAL = {
    "text": ("text", "sentence", "content", "review", "tweet", "headline", "document"),
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
"""The names by which a column is recognised, whatever their case."""

OPTIONAL = ("label", "id")


def looks_like_header(cells: Sequence[str]) -> bool:
    """Whether one of the cells is a usual name of a column other than the id.

    >>> looks_like_header(["Quality", "#1 String"]), looks_like_header(["1", "a good film"])
    (True, False)
    """
    usual = {name for role, names in USUAL.items() if role != "id" for name in names}
    return any(cell.strip().lower() in usual for cell in cells)


def find_columns(
    names: Sequence[str], asked: Mapping[str, Column], path: Path | str, line: int
) -> dict[str, str]:
    """The name of the column of each role; a role without one is left out if it may be.

    >>> find_columns(["idx", "Sentence", "label"], {"text": None, "label": 2}, "a.tsv", 1)
    {'text': 'Sentence', 'label': 'label'}
    """
    found = {}
    for role, column in asked.items():
        name = _find(names, role, column)
        if name is not None:
            found[role] = name
        elif column is not None or role not in OPTIONAL:
            told = f"{column!r} for the {role}" if column is not None else f"for the {role}"
            there = ", ".join(names) or "none"
            hint = "" if column is not None else f"; choose one with {role}=NAME or {role}=NUMBER"
            message = f"wanted a column {told}, got the columns {there}{hint}"
            raise InputError(message, path=path, line=line)
    if len(set(found.values())) < len(found):
        message = f"wanted a column for each of {', '.join(found)}, got {found}"
        raise InputError(message, path=path, line=line)
    return found


def _find(names: Sequence[str], role: str, column: Column) -> str | None:
    if column is None:
        lower = {name.strip().lower(): name for name in reversed(names)}
        return next((lower[usual] for usual in USUAL[role] if usual in lower), None)
    if column in names:
        return str(column)
    number = int(column) if isinstance(column, int) or column.isdecimal() else -1
    return names[number] if 0 <= number < len(names) else None
