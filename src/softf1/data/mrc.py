"""BERT-MRC JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from softf1.data.examples import MrcExample, TaggedSentence
    from softf1.data.problems import Problems


def iterate(
    path: Path | str,
    *,
    problems: Problems | None = None,
) -> Iterator[MrcExample]:
    """Reads BERT-MRC items."""
    raise NotImplementedError


def write(path: Path | str, examples: Iterable[MrcExample]) -> None:
    """Writes BERT-MRC JSON, one item a query and context."""
    raise NotImplementedError


def read_queries(path: Path | str) -> dict[str, str]:
    """Reads label → query text."""
    raise NotImplementedError


def from_tagged(
    sentences: Iterable[TaggedSentence], queries: Mapping[str, str], *, scheme: str | None = None
) -> Iterator[MrcExample]:
    """Turns tagged sentences into one item per sentence and label."""
    raise NotImplementedError
