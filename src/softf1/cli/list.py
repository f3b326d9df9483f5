"""What there is to choose from: losses, tasks, encoders and recipes, a line for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

KINDS = ("losses", "tasks", "encoders", "recipes")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 list`."""
    parser.add_argument("what", nargs="?", choices=KINDS, help="one of them (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def run(options: argparse.Namespace) -> int:
    """Prints the entries that were asked for."""
    from softf1.training.catalog import describe

    found = {kind: describe(kind) for kind in ([options.what] if options.what else KINDS)}
    if options.json:
        import json

        print(json.dumps({"version": 1, **found}, ensure_ascii=False, indent=1))
        return 0
    print("\n\n".join("\n".join(_lines(kind, entries)) for kind, entries in found.items()))
    return 0


def _lines(kind: str, entries: list[dict[str, Any]]) -> list[str]:
    """A heading and a line an entry, names padded to one width."""
    width = max(len(entry["name"]) for entry in entries)
    return [f"{kind}:", *(f"  {entry['name']:<{width}}  {_about(entry)}" for entry in entries)]


def _about(entry: dict[str, Any]) -> str:
    if "task" not in entry:
        return str(entry["summary"])
    figure = entry["paper"].partition(" (")[0].partition(":")[0]
    return f"{entry['task']:<14}  {entry['summary']}; published: {figure}"
