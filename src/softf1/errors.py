"""The one class of error that a user's input can cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class InputError(ValueError):
    """Bad input or usage: the command line prints it as one line and exits with 2.

    Attributes:
        path: The file that is wrong, if it is one.
        line: The line in it, counted from 1.
    """

    def __init__(self, message: str, *, path: Path | str | None = None, line: int | None = None):
        self.path = path
        self.line = line
        place = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(f"{place}{message}")
