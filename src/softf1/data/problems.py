"""What went wrong while reading: one error that stops, or a count of what was skipped."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from softf1.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

OnError = Literal["raise", "skip"]
_FIRST = 3
"""How many places of each reason the report names."""


class RecordError(InputError):
    """One record (row, sentence, question) that cannot be used; the next one may be fine.

    Attributes:
        reason: A few words that group such records in the report, such as "ragged row".
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        path: Path | str | None = None,
        line: int | None = None,
    ) -> None:
        self.reason = reason
        super().__init__(message, path=path, line=line)


class Problems:
    """Decides what a bad record does, and remembers the skipped ones by reason.

    With `on_error="raise"` the first bad record ends the reading. With `"skip"` it is left out and
    counted. Notes are what a reader took for granted and a user should see, each said once.

    >>> problems = Problems("skip")
    >>> problems.add(RecordError("ragged row", "wanted 3 columns, got 2", path="a.tsv", line=7))
    >>> problems.skipped, str(problems)
    (1, 'skipped 1: ragged row (1; first a.tsv:7: wanted 3 columns, got 2)')
    """

    def __init__(self, on_error: OnError = "raise") -> None:
        if on_error not in ("raise", "skip"):
            raise InputError(f'wanted on_error "raise" or "skip", got {on_error!r}')
        self.on_error = on_error
        self.counts: Counter[str] = Counter()
        self.first: dict[str, list[str]] = {}
        self.notes: list[str] = []

    def add(self, error: RecordError) -> None:
        """Raises the error, or counts it as skipped."""
        if self.on_error == "raise":
            raise error
        self.count(error.reason, str(error))

    def count(self, reason: str, example: str) -> None:
        """Counts something that was changed or left out, keeping the first few examples."""
        self.counts[reason] += 1
        if self.counts[reason] <= _FIRST:
            self.first.setdefault(reason, []).append(example)

    def note(self, text: str) -> None:
        """Keeps one remark for the user; the same remark is kept once."""
        if text not in self.notes:
            self.notes.append(text)

    @property
    def skipped(self) -> int:
        """How many records were counted, all reasons together."""
        return self.counts.total()

    def __str__(self) -> str:
        """One line: how many, why, and where first."""
        parts = [
            f"{reason} ({count}; first {self.first[reason][0]})"
            for reason, count in self.counts.most_common()
        ]
        return f"skipped {self.skipped}: {'; '.join(parts)}" if parts else "skipped 0"
