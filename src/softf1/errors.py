"""Errors that are printed as one line: what the input caused, and what a run ended with."""

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


class RunError(RuntimeError):
    """A run that could not go on: the command line prints it as one line and exits with 1."""
