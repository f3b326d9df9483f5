"""SQuAD JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from softf1.data.examples import QAExample
    from softf1.data.problems import Problems


def iterate(
    path: Path | str,
    *,
    several: bool = False,
    offsets: str = "check",
    problems: Problems | None = None,
) -> Iterator[QAExample]:
    """Reads questions; several: the answers are the spans of one (QuoRef)."""
    raise NotImplementedError
