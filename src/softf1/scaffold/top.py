"""The comment at the top of a proposed recipe: what is in the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.scaffold.lines import printable

if TYPE_CHECKING:
    from softf1.data.stats import LabelStats
    from softf1.scaffold.survey import Survey

SHOWN = 12
"""Labels that are listed; of more, the most frequent and the rarest."""


def describe_data(found: Survey) -> list[str]:
    """Lines about imbalance, labels and what a batch sees of them."""
    stats = found.stats
    ratio = "no positives" if stats.ratio is None else f"{stats.ratio:.3g} negatives for a positive"
    language = "" if found.language == "other" else f", {found.language} text"
    counts = f"{stats.negatives:,} negatives ({printable(stats.negative)}), {stats.positives:,}"
    counts += f" positives, counted in {stats.unit}: {ratio}"
    return [
        "Written by softf1 new, which looked at the data. Every key: docs/recipes.md.",
        "",
        f"{printable(stats.path)}: {stats.examples:,} examples{language}",
        printable(stats.plain_labels) or counts,
        *_describe_labels(stats.labels, stats.batch_size),
        *map(printable, found.notes),
    ]


def _describe_labels(labels: tuple[LabelStats, ...], batch_size: int) -> list[str]:
    half = SHOWN // 2
    shown = labels if len(labels) <= SHOWN else (*labels[:half], *labels[-half:])
    names = [printable(label.label) for label in shown]
    width = max(len("label"), *map(len, names))
    head = f"  {'label':<{width}}  {'count':>9}  {'share':>7}  batches of {batch_size} without it"
    lines = [
        f"  {name:<{width}}  {one.count:>9,}  {one.share:>7.2%}  {one.share_without:.0%}"
        for name, one in zip(names, shown, strict=True)
    ]
    if len(labels) > SHOWN:
        lines.insert(half, f"  … {len(labels) - SHOWN} more …")
    return [head, *lines]
