"""label text lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from softf1.data.examples import TextExample
    from softf1.data.problems import Problems


def iterate(
    path: Path | str,
    *,
    separator: str = " ",
    label_separator: str | None = None,
    encoding_errors: str = "strict",
    problems: Problems | None = None,
) -> Iterator[TextExample]:
    """Reads one text a line after its label."""
    raise NotImplementedError
