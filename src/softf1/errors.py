"""Errors that are printed as one line: what the input caused, and what a run ended with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


LONGEST = 1000
"""Characters of an error line at most."""


def printable(text: object) -> str:
    r"""A text for one line of a terminal: control characters written out, as in `repr`.

    >>> print(printable("a\tb\x1b[31m Zoë"))
    a\tb\x1b[31m Zoë
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def one_line(error: object) -> str:
    """An error as the command line prints it: escaped, and cut in the middle where it is long."""
    text = printable(error)
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]} … {text[-half:]}"


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
