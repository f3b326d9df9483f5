"""Problems while reading: the first error stops it, or bad records are skipped and counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

Record = TypeVar("Record")
Made = TypeVar("Made")

OnError = Literal["raise", "skip"]
EncodingErrors = Literal["strict", "replace"]
MAX_LINE = 1 << 24
"""16 MiB, longer than any novel: a line is held in memory as a whole."""
MAX_UNPACKED = 1 << 34
"""16 GiB, far more than a small gzip file should unpack to."""
_FIRST = 3
"""How many positions per reason the report names."""


def short(text: str, limit: int = 50) -> str:
    """Quotes a text for a message, shortened if it is long."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


class RecordError(InputError):
    """One record (row, sentence, question) that cannot be used; the next one may be fine.

    Without a path, `Problems.read_each` adds the path and, where there is none, the line.

    Attributes:
        reason: A short reason that groups such records in the report, such as "ragged row".
        message: What was wanted and what was got, without the place.
    """

    def __init__(
        self, reason: str, message: str, *, path: Path | str | None = None, line: int | None = None
    ) -> None:
        self.reason, self.message = reason, message
        super().__init__(message, path=path, line=line)


def say_setting(name: str, value: str) -> str:
    """Says how an option of the reader is set: on the command line, and in a recipe.

    >>> say_setting("text", "NAME")
    '--set text=NAME (in a recipe, task.reader.text=NAME)'
    """
    return f"--set {name}={value} (in a recipe, task.reader.{name}={value})"


@dataclass(eq=False)
class Problems:
    """Handles bad records, and counts the skipped ones by reason.

    With `on_error="raise"` the first bad record stops the reading. With `"skip"` it is skipped and
    counted. Changes are repairs that the user asked for. Notes are assumptions of a reader that the
    user should see.

    >>> problems = Problems("skip")
    >>> problems.add(RecordError("ragged row", "wanted 3 columns, got 2", path="a.tsv", line=7))
    >>> problems.skipped, str(problems)
    (1, 'skipped 1: ragged row (1; first a.tsv:7: wanted 3 columns, got 2)')

    Attributes:
        counts: Skipped records by reason.
        changes: Repaired records by what was done.
        first: The first few messages of each reason.
        notes: Remarks, each once.
        labelled: True if a table needs a column of labels, False if rows need no label either.
            None makes only a row without a label an error, in a table that has the column.
        unique: Whether a repeated id is a bad record; readers then keep all ids in memory.
        most_ids: How many ids are kept to find repeated ones; None keeps all.
        max_line: The most bytes of a line, of a sentence in columns, or of a value in JSON.
        max_unpacked: Bytes that a gzip file may unpack to.
        encoding_errors: In formats of lines, "replace" keeps lines that are not UTF-8, with U+FFFD
            in them, and counts them as changes.
    """

    on_error: OnError = "raise"
    _: KW_ONLY
    labelled: bool | None = None
    unique: bool = True
    most_ids: int | None = None
    max_line: int = MAX_LINE
    max_unpacked: int = MAX_UNPACKED
    encoding_errors: EncodingErrors = "strict"
    counts: Counter[str] = field(default_factory=Counter, init=False)
    changes: Counter[str] = field(default_factory=Counter, init=False)
    first: dict[str, list[str]] = field(default_factory=dict, init=False)
    notes: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Raises for unknown settings."""
        settings = {"on_error": OnError, "encoding_errors": EncodingErrors}
        for name, values in settings.items():
            if getattr(self, name) not in get_args(values):
                wanted = " or ".join(f'"{value}"' for value in get_args(values))
                raise InputError(f"wanted {name} {wanted}, got {getattr(self, name)!r}")

    def read_each(
        self,
        records: Iterable[tuple[int, Record]],
        read: Callable[[Record, int], Made | None],
        path: Path | str,
    ) -> Iterator[Made]:
        """Yields what `read` makes of each record and its line; None is left out.

        If `read` raises a `RecordError`, the record is bad, and the error names its line.
        """
        for line, record in records:
            try:
                made = read(record, line)
            except RecordError as error:
                if error.path is None:
                    place = error.line or line
                    error = RecordError(error.reason, error.message, path=path, line=place)
                self.add(error)
            else:
                if made is not None:
                    yield made

    def add(self, error: RecordError) -> None:
        """Raises the error, or counts its record as skipped."""
        if self.on_error == "raise":
            raise error
        self.counts[error.reason] += 1
        self._remember(error.reason, str(error))

    def change(self, reason: str, message: str) -> None:
        """Counts a repair that the user asked for."""
        self.changes[reason] += 1
        self._remember(reason, message)

    def note(self, text: str) -> None:
        """Adds a note for the user; each note is kept once."""
        if text not in self.notes:
            self.notes.append(text)

    def refuse_replacing(self, path: Path | str) -> None:
        """Raises for `encoding_errors="replace"` in a format that does not consist of lines."""
        if self.encoding_errors != "strict":
            message = "wanted no encoding_errors, which only formats of lines have a use for"
            raise InputError(f"{message}, got {self.encoding_errors!r}", path=path)

    def remember(
        self, ids: set[str], name: str, error: Callable[[str, str], RecordError] = RecordError
    ) -> None:
        """Remembers an id, up to `most_ids` of them; raises if it was seen before."""
        if name in ids:
            raise error("duplicate id", f"wanted a new id, got {name!r} again")
        if self.most_ids is not None and len(ids) >= self.most_ids:
            self.note(f"ids were compared with the first {self.most_ids:,} only")
        else:
            ids.add(name)

    def forget_skipped(self) -> None:
        """Starts counting anew, for a file that is read again in another way."""
        for reason in self.counts:
            del self.first[reason]
        self.counts.clear()

    @property
    def skipped(self) -> int:
        """The number of skipped records."""
        return self.counts.total()

    def __str__(self) -> str:
        """One line: how many, why, and the first positions."""
        skipped = f"skipped {self.skipped}{self._reasons(self.counts)}"
        if not self.changes:
            return skipped
        return f"{skipped}; changed {self.changes.total()}{self._reasons(self.changes)}"

    def _remember(self, reason: str, message: str) -> None:
        examples = self.first.setdefault(reason, [])
        if len(examples) < _FIRST:
            examples.append(message)

    def _reasons(self, counts: Counter[str]) -> str:
        parts = [
            f"{reason} ({count}; first {self.first[reason][0]})"
            for reason, count in counts.most_common()
        ]
        return f": {'; '.join(parts)}" if parts else ""
