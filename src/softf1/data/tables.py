"""TSV, CSV and JSON lines with named or numbered columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from softf1.data.examples import PairExample, TextExample
    from softf1.data.problems import Problems

Column = str | int | None


def iterate(
    path: Path | str,
    *,
    kind: Literal["tsv", "csv", "jsonl"] = "tsv",
    task: Literal["classification", "pairs"] = "classification",
    text: Column = None,
    first: Column = None,
    second: Column = None,
    label: Column = None,
    id: Column = None,  # noqa: A002 - the column's usual name
    header: bool | None = None,
    label_separator: str | None = None,
    encoding_errors: str = "strict",
    problems: Problems | None = None,
) -> Iterator[TextExample | PairExample]:
    """Reads one example a row; columns that are not named are found by their usual names."""
    raise NotImplementedError
