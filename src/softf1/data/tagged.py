"""One sentence a line."""

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
    separator: str = "_",
    encoding_errors: str = "strict",
    problems: Problems | None = None,
) -> Iterator[TaggedSentence]:
    """Reads word_TAG lines."""
    raise NotImplementedError
