"""Columns: one word a line, a blank line between sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from softf1.data.examples import TaggedSentence
    from softf1.data.problems import Problems


def iterate(
    path: Path | str,
    *,
    word: int = 0,
    tag: int | None = -1,
    separator: str | None = None,
    comment: str | None = None,
    brackets: bool = False,
    encoding_errors: str = "strict",
    problems: Problems | None = None,
) -> Iterator[TaggedSentence]:
    """Reads sentences from columns."""
    raise NotImplementedError
