"""Shows how imbalanced your data is: negatives, positives, their ratio, labels per batch."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from softf1.cli.options import SETTINGS, add_number, add_shared, read_settings
from softf1.cli.show import print_json, print_problems, print_table
from softf1.errors import InputError, printable

if TYPE_CHECKING:
    from softf1.data.stats import Overview, Stats


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 stats`."""
    parser.add_argument(
        "data", nargs="+", metavar="DATA", help="files, or hf:NAME; the first is the training data"
    )
    add_shared(parser, "--format", "--task")
    add_number(parser, "--batch-size", "examples per batch (default: 32)", default=32)
    add_shared(parser, "--on-error", *SETTINGS, "--json")


def run(options: argparse.Namespace) -> int:
    """Reads each file once, prints its table, and compares labels and texts of the files."""
    from softf1.data.splits import find_overlaps
    from softf1.data.stats import describe, describe_new_labels, look_over

    for path in options.data:
        if path.endswith(".toml"):
            message = "wanted a data file, got a recipe: stats takes the files that it names"
            raise InputError(message, path=path)
    extra = read_settings(options.set, options.encoding)
    corpora = [
        look_over(
            path,
            format=options.format,
            task=_choose_kind(path, options.task, options.format, extra),
            on_error=options.on_error,
            **extra,
        )
        for path in options.data
    ]
    stats = [describe(corpus, batch_size=options.batch_size) for corpus in corpora]
    unseen = [describe_new_labels(corpora[0], other) for other in corpora[1:]]
    names = _name_files(options.data)
    overlaps = find_overlaps({name: c.texts for name, c in zip(names, corpora, strict=True)})
    notes = [note for note in unseen if note]
    if options.json:
        files = [_describe(*both) for both in zip(stats, corpora, strict=True)]
        shared = [asdict(overlap) for overlap in overlaps]
        print_json({"version": 1, "files": files, "unseen": notes, "overlaps": shared})
        return 0
    for both in zip(stats, corpora, strict=True):
        _print_file(*both)
    for note in [*notes, *map(str, overlaps)]:
        print(printable(note))
    return 0


def _choose_kind(
    path: str, task: str | None, format_name: str | None, options: dict[str, object]
) -> str | None:
    """The kind of a file for the task that the user names; None detects it."""
    if task is None:
        return None
    from softf1.tasks.registry import choose_file_kind  # asks the task, which imports torch

    return choose_file_kind(task, path, format_name=format_name, options=options)


def _name_files(paths: list[str]) -> list[str]:
    """Returns the paths; a repeated one gets a number, so that names differ."""
    return [
        path if path not in paths[:number] else f"{path} (file {number + 1})"
        for number, path in enumerate(paths)
    ]


def _describe(stats: Stats, corpus: Overview) -> dict[str, Any]:
    return {
        **stats.as_dict(),
        "skipped": dict(corpus.problems.counts),
        "changed": dict(corpus.problems.changes),
        "notes": corpus.problems.notes,
    }


def _print_file(stats: Stats, corpus: Overview) -> None:
    print(f"{printable(stats.path)}: {stats.examples:,} examples, {stats.format}, {stats.task}")
    ratio = "no positives" if stats.ratio is None else f"ratio {stats.ratio:.2f}"
    counts = f"{stats.negatives:,} negatives, {stats.positives:,} positives, {ratio}\n"
    said = f"{counts}negative: {printable(stats.negative)}; counted in {stats.unit}"
    print(printable(stats.plain_labels) or said)
    if stats.nesting:
        print(stats.nesting)
    print(f"the most frequent label occurs {stats.spread:.1f} times as often as the rarest")
    lengths = stats.lengths
    print(
        f"words per example: median {lengths.median:,}, 99% have at most {lengths.most:,}, "
        f"longest {lengths.longest:,} (line {lengths.line:,})"
    )
    _print_labels(stats)
    print_problems(stats.path, corpus.problems)


def _print_labels(stats: Stats) -> None:
    heads = ("label", "count", "share", f"per batch of {stats.batch_size}", "batches without")
    rows = [
        (
            label.label,
            f"{label.count:,}",
            f"{label.share:.2%}",
            f"{label.per_batch:,.2f}",
            f"{label.share_without:.1%}",
        )
        for label in stats.labels
    ]
    print_table(heads, rows, numbers=slice(1, None))
