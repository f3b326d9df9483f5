"""Writes the page of all commands from their own help: `python docs/commands.py`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from softf1.cli.main import VERBS, build_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = Path(__file__).parent / "reference/commands.md"

HEAD = (
    "# Commands\n\n"
    "`softf1 VERB …`, or `python -m softf1 VERB …`. "
    "This page has the same text as `--help`.\n\n"
    "Exit codes: 0 is success, 1 a failure such as a full disk, 2 bad input or usage, with a "
    "one-line message that names the file, the line and what was expected. Progress goes to "
    "standard error, results to standard output: bars and tables on a terminal, plain lines and "
    "tabs in a pipe. Put `key=value` right after the recipe.\n\n"
)


def write_page() -> str:
    """The whole page."""
    parser = build_parser()
    (verbs,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001 - argparse tells its options nowhere else
    rows = "".join(f"| [`{verb}`](#softf1-{verb}) | {VERBS[verb]} |\n" for verb in verbs.choices)
    table = f"| verb | what it does |\n|---|---|\n{rows}\n"
    return HEAD + table + "\n".join(_section(verb, sub) for verb, sub in verbs.choices.items())


def _section(verb: str, parser: argparse.ArgumentParser) -> str:
    rows = "".join(f"| {name} | {text} |\n" for name, text in _options(parser))
    head = f"## softf1 {verb}\n\n{parser.description}\n"
    return f"{head}\n| option | |\n|---|---|\n{rows}" if rows else head


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:  # noqa: SLF001 - as above
        if isinstance(action, argparse._HelpAction):  # noqa: SLF001 - as above
            continue
        value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
        if action.choices:
            value = "|".join(map(str, action.choices))
        takes = action.nargs != 0
        name = action.option_strings[-1] if action.option_strings else str(value)
        shown = f"{name} {value}" if action.option_strings and takes else name
        text = (action.help or "").replace("|", "\\|")
        yield f"`{shown}`".replace("|", "\\|"), text


if __name__ == "__main__":
    FILE.write_text(write_page(), encoding="utf-8")
    print(FILE)
