"""What a command prints of a run: where it goes, its scores, the scores of each label."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.errors import printable
from softf1.training.folder import finished_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    from softf1.recipe import Recipe

SHOWN = ("precision", "recall", "f1")


def default_folder(recipe: Recipe) -> Path:
    """Where a run goes unless a user says otherwise.

    >>> from softf1.recipe import build_recipe
    >>> recipe = build_recipe({"name": "mine", "task": {"kind": "tagging", "train": "a.txt"},
    ...                        "encoder": {"name": "bilstm"}, "loss": {"name": "ce+dice"}})
    >>> default_folder(recipe).as_posix()
    'runs/mine-ce+dice-s0'
    """
    return Path("runs") / f"{recipe.name}-{recipe.loss.name}-s{recipe.train.seed}"


def format_result(result: Mapping[str, Any], folder: Path) -> str:
    """Scores, the labels of the last part, time and what to read next."""
    blocks = [format_scores(result)]
    last = list(result["scores"].values())[-1]
    if "labels" in last:
        blocks.append(format_labels(last["labels"]))
    if result.get("collapsed"):
        blocks.append("collapsed: on dev the kept model finds nothing, or one class alone")
    blocks += [f"warning: {printable(message)}" for message in result["warnings"]]
    seconds = result["seconds"]
    blocks.append(
        f"{result['steps']:,} steps, best at epoch {result['best']['epoch']:g}; "
        f"{seconds['train']:.1f} s training at {result['tokens_per_second']:,.0f} tokens/s, "
        f"{seconds['evaluate']:.1f} s evaluation\n{printable(folder)}"
    )
    return "\n\n".join(blocks)


def format_finished(result: Mapping[str, Any], folder: Path) -> str:
    """When a run was finished before, and its headline: nothing was trained now."""
    headline = result["headline"]
    scores = [f"{part} {headline} {100 * one[headline]:.2f}" for part, one in lines_of(result)]
    return (
        f"{folder}: finished before, on {finished_on(folder, result)}; nothing was trained, "
        f"--force trains it anew\n{', '.join(scores)}"
    )


def lines_of(result: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The scores of each part of the data, tuned ones last."""
    tuned = {f"{name} tuned": found for name, found in result.get("tuned", {}).items()}
    return [*result["scores"].items(), *tuned.items()]


def format_scores(result: Mapping[str, Any]) -> str:
    """A line for each part of the data, tuned ones too; the score that decided comes first.

    >>> print(format_scores({"headline": "f1", "scores": {"dev": {"precision": 1, "f1": 0.5}}}))
           f1  precision
    dev  50.00     100.00
    """
    lines = dict(lines_of(result))
    found = next(iter(lines.values()))
    numbers = [name for name, value in found.items() if isinstance(value, int | float)]
    shares = [name for name in numbers if not name.endswith("threshold")]
    columns = sorted(shares, key=lambda name: name != result["headline"])
    table = [[name, *(f"{100 * found[c]:.2f}" for c in columns)] for name, found in lines.items()]
    return format_table(["", *columns], table)


def format_labels(labels: Mapping[str, Mapping[str, float]]) -> str:
    """Precision, recall and F1 of each label, the most frequent first."""
    found = sorted(labels.items(), key=lambda item: (-item[1]["support"], item[0]))
    table = [
        [printable(name), *(f"{100 * own[column]:.2f}" for column in SHOWN), f"{own['support']:,}"]
        for name, own in found
    ]
    return format_table(["label", *SHOWN, "support"], table)


def format_table(head: list[str], lines: list[list[str]]) -> str:
    """Columns side by side, the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [head, *lines]
    )
