"""`--set KEY=VALUE`: options of readers on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_OWN_OPTIONS = ("path", "format", "task", "on_error")
"""What commands have options of their own for."""


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds `--set`, as often as there are options."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the reader, such as tag=3 or label=category",
    )
    parser.add_argument(
        "--encoding", metavar="NAME", help="of the files, such as latin-1 (default: UTF-8)"
    )


def read_settings(items: Sequence[str], encoding: str | None = None) -> dict[str, object]:
    """The options by name.

    >>> read_settings(["tag=3", "header=false", "label=category"])
    {'tag': 3, 'header': False, 'label': 'category'}
    """
    found = dict(_setting(item) for item in items)
    return found if encoding is None else found | {"encoding": encoding}


def _setting(item: str) -> tuple[str, object]:
    key, found, value = item.partition("=")
    if not found or not key:
        raise InputError(f"wanted --set KEY=VALUE, got {item!r}")
    if key in _OWN_OPTIONS:
        raise InputError(f"wanted --set of an option of the reader, got {key}; see --help")
    words: dict[str, object] = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return key, words[value.lower()]
    return key, int(value) if value.lstrip("-").isdecimal() else value
