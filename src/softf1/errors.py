"""Errors that the command line prints as one line: bad input, and failed runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


LONGEST = 1000
"""The maximum length of an error line."""


def printable(text: object) -> str:
    r"""Escapes control characters, so that text fits on one line of a terminal.

    >>> print(printable("a\tb\x1b[31m Zoë"))
    a\tb\x1b[31m Zoë
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def one_line(error: object) -> str:
    """Formats an error for the command line: escaped, and shortened in the middle if long."""
    text = printable(error)
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]} … {text[-half:]}"


class InputError(ValueError):
    """Bad input or usage: the command line prints it as one line and exits with 2.

    Attributes:
        path: The file with the error, if any.
        line: Its line, counted from 1.
    """

    def __init__(self, message: str, *, path: Path | str | None = None, line: int | None = None):
        self.path = path
        self.line = line
        place = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(f"{place}{message}")


class RunError(RuntimeError):
    """A failed run: the command line prints it as one line and exits with 1."""
