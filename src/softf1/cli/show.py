"""Prints results for people, with scores as points (×100): of a run, or of a comparison."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.errors import one_line, printable

if TYPE_CHECKING:
    from softf1.data.problems import Problems

SPARE = ("better?", "ECE tuned", "ECE", "seeds", "± sd", "R", "P", "p (Holm)")
"""Columns of a comparison that a narrow terminal leaves out, in this order."""
OF_CALIBRATION = {"ECE": "calibration_error", "ECE tuned": "calibration_error_tuned"}
LEAST = 12
"""The least width of a column of text, in characters; longer cells are wrapped."""
OF_A_LABEL = ("precision", "recall", "f1")


def format_result(result: Mapping[str, Any], folder: Path) -> str:
    """Formats scores, labels of the last split, time and the folder."""
    blocks = [format_scores(result)]
    tuned, points = result.get("tuned"), result.get("operating_points", ())
    if tuned and not points and tuned["dev"] == result["scores"]["dev"]:
        blocks.append("no better threshold or bias was found on dev: they stay at 0.5 and 0")
    name, last = lines_of(result)[-1]
    if "labels" in last:
        blocks.append(format_labels(last["labels"], head=f"label, {name}" if tuned else "label"))
    blocks += filter(None, map(format_point, points))
    if result.get("collapsed"):
        blocks.append("collapsed: on dev, the saved model predicts nothing or only one class")
    blocks += [f"warning: {printable(message)}" for message in result["warnings"]]
    seconds = result["seconds"]
    blocks.append(
        f"{result['steps']:,} steps, best at epoch {result['best']['epoch']:g}; "
        f"{seconds['train']:.1f} s training at {result['tokens_per_second']:,.0f} tokens/s, "
        f"{seconds['evaluate']:.1f} s evaluation\n{printable(folder)}"
    )
    return "\n\n".join(blocks)


def format_point(point: Mapping[str, Any]) -> str:
    """Formats an operating point; empty if it misses its target, which a warning reports.

    >>> print(format_point({"label": "spam", "target": "precision>=0.9", "reached": True,
    ...                     "threshold": 0.75, "right": 40, "given": 41, "gold": 50,
    ...                     "bound": 0.8943, "confidence": 0.95}))
    spam: precision>=0.9 is reached from a threshold of 0.75: 40 of 41 on dev, at least 0.894 ...
    >>> format_point({"label": "", "target": "f2", "reached": None, "what": "bias of O",
    ...               "threshold": -0.5, "precision": 0.75, "recall": 0.875})
    'for f2, a bias of O of -0.5 is best on dev: precision 75.0%, recall 87.5%'
    """
    label = f"{point['label']}: " if point["label"] else ""
    if point["reached"] is None:
        what = f"a {point.get('what', 'threshold')} of {point['threshold']:.6g} is best on dev"
        shares = (f"{key} {point[key]:.1%}" for key in ("precision", "recall"))
        return printable(f"{label}for {point['target']}, {what}: {', '.join(shares)}")
    if not point["reached"]:
        return ""
    of = point["given" if point["target"].startswith("precision") else "gold"]
    reached = f"{point['target']} is reached from a threshold of {point['threshold']:.6g}"
    found = f"{point['right']:,} of {of:,} on dev, at least {point['bound']:.3f}"
    return printable(f"{label}{reached}: {found} with {point['confidence']:.0%} confidence")


def format_finished(result: Mapping[str, Any], folder: Path) -> str:
    """Says that a run was finished before, when, and its primary metric."""
    from softf1.training.run_folder import finished_on

    metric = result["headline"]
    scores = [f"{part} {metric} {100 * one[metric]:.2f}" for part, one in lines_of(result)]
    return (
        f"{folder}: finished before, on {finished_on(folder, result)}; nothing was trained, "
        f"--force trains it again\n{', '.join(scores)}"
    )


def lines_of(result: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The scores of each split, tuned ones last."""
    tuned = {f"{name} tuned": scores for name, scores in result.get("tuned", {}).items()}
    return [*result["scores"].items(), *tuned.items()]


def format_scores(result: Mapping[str, Any]) -> str:
    """Formats one line per split, tuned scores too; the primary metric comes first.

    With one label per text, micro precision, recall and F1 are the accuracy, and left out.

    >>> print(format_scores({"headline": "f1", "scores": {"dev": {"precision": 1, "f1": 0.5}}}))
           f1  precision
    dev  50.00     100.00
    """
    lines, metric = dict(lines_of(result)), result["headline"]
    first = next(iter(lines.values()))
    numbers = [name for name, value in first.items() if isinstance(value, int | float)]
    same = {
        name
        for name in OF_A_LABEL
        if name != metric and all(own.get(name) == own.get("accuracy") for own in lines.values())
    }
    shares = [name for name in numbers if not name.endswith("threshold") and name not in same]
    columns = sorted(shares, key=lambda name: name != metric)
    table = [[name, *(f"{100 * own[c]:.2f}" for c in columns)] for name, own in lines.items()]
    return format_table(["", *columns], table)


def format_labels(labels: Mapping[str, Mapping[str, float]], *, head: str = "label") -> str:
    """Formats precision, recall and F1 of each label, the most frequent first."""
    ordered = sorted(labels.items(), key=lambda item: (-item[1]["support"], item[0]))
    table = [
        [
            printable(name),
            *(f"{100 * own[column]:.2f}" for column in OF_A_LABEL),
            f"{own['support']:,}",
        ]
        for name, own in ordered
    ]
    return format_table([head, *OF_A_LABEL, "support"], table)


def format_table(head: list[str], lines: list[list[str]]) -> str:
    """Aligns columns: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [head, *lines]
    )


def print_json(content: Any) -> None:
    """Prints a result as JSON."""
    print(json.dumps(content, ensure_ascii=False, indent=1))


def print_notes(notes: Iterable[str]) -> None:
    """Prints notes to standard error, apart from the output."""
    for note in notes:
        print(f"note: {printable(note)}", file=sys.stderr)


def print_problems(path: str, problems: Problems) -> None:
    """Prints the notes of a reader, and how many records it skipped or changed."""
    print_notes(problems.notes)
    if problems.counts or problems.changes:
        print(printable(f"{path}: {problems}"), file=sys.stderr)


def show_comparison(comparison: Mapping[str, Any]) -> None:
    """Prints the table, the labels and the verdict."""
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
    heads, rows = _rows(comparison)
    details = _take_details(rows) if on_terminal() else []
    print_table(heads, rows, spare=SPARE)
    print(*details, sep="\n", end="\n" if details else "")
    if comparison["groups"] and len(comparison["labels"]) > 2:
        print_table(*_groups(comparison), numbers=slice(1, None))
    if said := say_narrowest(comparison["rows"]):
        print(said)
    for note in comparison["notes"]:
        print(f"note: {printable(note)}")
    print(f"\n{printable(comparison['verdict'])}")


def _take_details(rows: list[list[str]]) -> list[str]:
    """Moves the reasons of the verdicts out of the rows, so that verdicts stay short."""
    details = []
    for row in rows:
        row[-1], _, rest = row[-1].partition("; ")
        if rest:
            details.append(printable(f"{row[0]}: {rest}"))
    return details


def _rows(comparison: Mapping[str, Any]) -> tuple[Sequence[str], list[list[str]]]:
    first = "loss" if comparison["kind"] == "compare" else "values"
    rows, extra = comparison["rows"], list_columns(comparison)
    heads = [
        first,
        "seeds",
        "mean",
        "± sd",
        *extra,
        "difference",
        "95%",
        "p (Holm)",
        "better?",
        "verdict",
    ]
    return heads, [list(_row(row, extra)) for row in rows]


def list_columns(comparison: Mapping[str, Any]) -> dict[str, str]:
    """Returns the headings and keys of the columns that are not empty.

    With one label per text, precision and recall equal the score in every row, and are left out.
    """
    rows, known = comparison["rows"], {"P": "precision", "R": "recall", **OF_CALIBRATION}
    kept = {h: key for h, key in known.items() if any(_number(row.get(key)) for row in rows)}
    same = all(row["precision"] == row["mean"] == row["recall"] for row in rows)
    return {head: key for head, key in kept.items() if not same or head in OF_CALIBRATION}


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
    """Says how narrow the intervals can get on this test set with any number of seeds.

    >>> rows = [{"loss": "dice", "narrowest": 0.004, "role": "loss"}]
    >>> say_narrowest(rows)
    'More seeds cannot narrow the intervals below ± 0.4: the test set is too small.'
    """
    widths = [row["narrowest"] for row in rows if row["role"] == "loss"]
    known = sorted(width for width in widths if _number(width) and width > 0)
    if not known:
        return ""
    text = " to ".join(dict.fromkeys(f"{100 * width:.2g}" for width in (known[0], known[-1])))
    return f"More seeds cannot narrow the intervals below ± {text}: the test set is too small."


def _groups(comparison: Mapping[str, Any]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Makes a table of the F1 of head, mid and tail labels, one row per loss."""
    groups = comparison["groups"]
    heads = ["F1 of labels", *(f"{one['group']} ({len(one['labels'])})" for one in groups)]
    names = [row["loss"] for row in comparison["rows"]]
    return heads, [[name, *(points(one["scores"][name]["f1"]) for one in groups)] for name in names]


def points(share: float | None, *, sign: str = "") -> str:
    """Formats a share in points; empty for None.

    >>> points(0.81234), points(0.004, sign="+"), points(None)
    ('81.23', '+0.40', '')
    """
    return f"{100 * share:{sign}.2f}" if share is not None and _number(share) else ""


def _number(value: float | None) -> bool:
    return value is not None and value == value  # NaN differs from itself


def on_terminal() -> bool:
    """Whether output goes to a terminal, or should be formatted as if it did."""
    from rich.console import Console

    return Console().is_terminal


def print_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: slice = slice(1, -1),
    spare: Sequence[str] = (),
) -> None:
    """Prints a table on a terminal, or columns divided by tabs in a pipe.

    Args:
        heads: The headings.
        rows: The texts of the cells.
        numbers: Columns that are aligned to the right and never cut.
        spare: Headings of columns to leave out, in this order, until the table fits the terminal.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    lines = [[printable(cell) for cell in row] for row in (heads, *rows)]
    if not console.is_terminal:
        print(*map("\t".join, lines), sep="\n")
        return
    exact = set(range(len(heads))[numbers])
    widths = {
        place: width if place in exact else min(width, LEAST)
        for place, width in enumerate(max(map(len, cells)) for cells in zip(*lines, strict=True))
    }
    left_out = []
    for name in filter(heads.__contains__, spare):
        if sum(widths.values()) + 3 * len(widths) + 1 <= console.width:
            break
        del widths[heads.index(name)]
        left_out.append(name)
    table = Table()
    for place, width in widths.items():
        own = {"justify": "right", "no_wrap": True} if place in exact else {"overflow": "fold"}
        table.add_column(Text(lines[0][place]), min_width=width, **own)
    for row in lines[1:]:
        table.add_row(*(Text(row[place]) for place in widths))
    console.print(table)
    if left_out:
        print(f"columns left out to fit the terminal: {', '.join(left_out)}")


def show_and_exit(comparison: Mapping[str, Any], folder: Path) -> int:
    """Prints the comparison, and what failed; returns the exit code."""
    show_comparison(comparison)
    print(printable(f"{folder}/comparison.json, {folder}/comparison.csv"))
    return report_failed(comparison["failed"])


def report_failed(failed: Mapping[str, str]) -> int:
    """Prints the errors of failed runs; returns the exit code."""
    for name, error in failed.items():
        print(f"failed: {name}: {one_line(error)}", file=sys.stderr)
    return 1 if failed else 0
