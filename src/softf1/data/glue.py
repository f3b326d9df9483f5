"""GLUE's layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from softf1.data.examples import PairExample
    from softf1.data.problems import Problems


def iterate(
    path: Path | str,
    *,
    layout: str = "mrpc",
    encoding_errors: str = "strict",
    problems: Problems | None = None,
) -> Iterator[PairExample]:
    """Reads MRPC and QQP files."""
    raise NotImplementedError
