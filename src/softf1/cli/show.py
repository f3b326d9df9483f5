"""Tables for people, such as that of a comparison, with points instead of shares."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from softf1.errors import one_line, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


def show_comparison(comparison: Mapping[str, Any]) -> None:
    """Print the table, the labels and the verdict."""
    from softf1.metrics.counts import name_score

    if not comparison["rows"]:
        print("No run is done, so there is nothing to compare.")
        return
    units = (
        f", {comparison['units']:,} independent"
        if comparison["units"] != comparison["examples"]
        else ""
    )
    name, split = name_score(comparison["headline"]), comparison["split"]
    print(f"{name} on {split}, {comparison['examples']:,} examples{units}")
    print_table(*_rows(comparison))
    if comparison["groups"] and len(comparison["labels"]) > 2:
        print_table(*_groups(comparison))
    if said := say_narrowest(comparison["rows"]):
        print(said)
    for note in comparison["notes"]:
        print(f"note: {printable(note)}")
    print(f"\n{printable(comparison['verdict'])}")


def _rows(comparison: Mapping[str, Any]) -> tuple[Sequence[str], list[Sequence[str]]]:
    first = "loss" if comparison["kind"] == "compare" else "values"
    rows, extra = comparison["rows"], list_columns(comparison)
    heads = [first, "seeds", "mean", "± sd", *extra, "difference", "95%", "p", "better?", ""]
    return heads, [list(_row(row, extra)) for row in rows]


def list_columns(comparison: Mapping[str, Any]) -> dict[str, str]:
    """Headings of the columns that say something, and their keys.

    Of one label each, micro F1, precision, recall and accuracy are one number: it stands once.
    """
    rows, known = comparison["rows"], {"P": "precision", "R": "recall", "ECE": "calibration_error"}
    kept = {head: key for head, key in known.items() if any(_number(row[key]) for row in rows)}
    same = all(row["precision"] == row["mean"] == row["recall"] for row in rows)
    return {head: key for head, key in kept.items() if not same or head == "ECE"}


def _row(row: Mapping[str, Any], extra: Mapping[str, str]) -> Iterator[str]:
    yield row["loss"]
    yield str(row["n"]) if row["role"] != "reference" else ""
    for key in ("mean", "sd", *extra.values()):
        yield points(row[key])
    yield points(row["difference"], sign="+")
    yield f"{points(row['low'])} … {points(row['high'])}" if _number(row["low"]) else ""
    yield f"{row['p_holm']:.3f}" if _number(row["p_holm"]) else ""
    yield f"{row['probability']:.0%}" if _number(row["probability"]) else ""
    yield row["verdict"]


def say_narrowest(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which width of the intervals this test set allows, however many seeds are run.

    >>> rows = [{"loss": "dice", "narrowest": 0.004, "role": "loss"}]
    >>> say_narrowest(rows)
    'However many seeds are run, this test set allows no interval narrower than ± 0.40.'
    """
    widths = [row["narrowest"] for row in rows if row["role"] == "loss"]
    known = sorted(width for width in widths if _number(width) and width > 0)
    if not known:
        return ""
    text = " to ".join(dict.fromkeys(f"± {points(width)}" for width in (known[0], known[-1])))
    return f"However many seeds are run, this test set allows no interval narrower than {text}."


def _groups(comparison: Mapping[str, Any]) -> tuple[Sequence[str], list[Sequence[str]]]:
    heads = ["F1 of labels", *(row["loss"] for row in comparison["rows"])]
    rows: list[Sequence[str]] = [
        [
            f"{one['group']} ({len(one['labels'])})",
            *(points(one["scores"][row["loss"]]["f1"]) for row in comparison["rows"]),
        ]
        for one in comparison["groups"]
    ]
    return heads, rows


def points(share: float | None, *, sign: str = "") -> str:
    """A share in points of a hundred; nothing for nothing.

    >>> points(0.81234), points(0.004, sign="+"), points(None)
    ('81.23', '+0.40', '')
    """
    return f"{100 * share:{sign}.2f}" if share is not None and _number(share) else ""


def _number(value: float | None) -> bool:
    return value is not None and value == value  # NaN differs from itself


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: slice = slice(1, -1)
) -> None:
    """A table on a terminal, columns divided by tabs in a pipe.

    Args:
        heads: What stands above the columns.
        rows: Their texts.
        numbers: The columns that stand to the right.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        print(*("\t".join(map(printable, row)) for row in (heads, *rows)), sep="\n")
        return
    table = Table(*heads)
    for column in table.columns[numbers]:
        column.justify = "right"
        column.no_wrap = True
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)


def finish(comparison: Mapping[str, Any], folder: Path) -> int:
    """Prints the comparison, and what failed; gives the exit code."""
    show_comparison(comparison)
    print(printable(f"{folder}/comparison.json, {folder}/comparison.csv"))
    for name, error in comparison["failed"].items():
        print(f"failed: {name}: {one_line(error)}", file=sys.stderr)
    return 1 if comparison["failed"] else 0
