"""What the predictions of all runs say, each file read once and no more kept than is shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from softf1.reports.changes import Changes, Record, collect, rank_changes, same
from softf1.reports.confusion import confuse
from softf1.reports.items import find_scheme, read_items
from softf1.reports.ranking import rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from softf1.reports.confusion import Pair
    from softf1.reports.groups import Group
    from softf1.reports.items import Item
    from softf1.reports.ranking import Ranked
    from softf1.reports.study import Study

DIFFERENT = "the runs were tested on different examples"


@dataclass(slots=True)
class Evidence:
    """What is left of the predictions.

    Attributes:
        pairs: Loss → (gold, predicted) → count, mean over its runs.
        ranked: Loss → the rankings of its runs, where lines have probabilities.
        changes: The examples that changed most between two losses.
        words: Whether pairs count words; texts otherwise.
        why_no_changes: The reason where there are none.
    """

    pairs: dict[str, dict[Pair, float]] = field(default_factory=dict)
    ranked: dict[str, list[Ranked]] = field(default_factory=dict)
    changes: Changes | None = None
    words: bool = False
    why_no_changes: str = ""


def gather(study: Study, groups: list[Group], best: Group | None) -> Evidence:
    """Reads the predictions of every run."""
    evidence = Evidence()
    files = [run.predictions(study.split) for group in groups for run in group.runs]
    present = next((path for path in files if path.is_file()), None)
    if present is None:
        evidence.why_no_changes = f"no run has predictions.{study.split}.jsonl"
        return evidence
    scheme = find_scheme(present)
    records: dict[str, tuple[list[Record], int]] = {}
    for group in groups:
        kept = group.rank == 0 or group is best
        paths = [run.predictions(study.split) for run in group.runs]
        read = [path for path in paths if path.is_file()]
        found, right = _read_group(evidence, group.label, read, scheme=scheme, keep=kept)
        if kept and read:
            records[group.label] = found, len(read)
        if not right:
            evidence.why_no_changes = DIFFERENT
    _compare(evidence, groups[0], best, records, study)
    return evidence


def _read_group(
    evidence: Evidence, label: str, paths: list[Path], *, scheme: str | None, keep: bool
) -> tuple[list[Record], bool]:
    """Reads the runs of one loss; gives its records, and whether all had the same examples."""
    pairs: Counter[Pair] = Counter()
    records: list[Record] = []
    same = True
    for path in paths:
        scored: list[Item] = []
        items = _watch(read_items(path, scheme=scheme), evidence, pairs, scored)
        if keep:
            same = collect(records, items) and same
        for _ in items:  # what is left, or all of it where no records are kept
            pass
        ranking = rank(scored)
        if ranking:
            evidence.ranked.setdefault(label, []).append(ranking)
    evidence.pairs[label] = {pair: count / len(paths) for pair, count in pairs.items()}
    return records, same


def _watch(
    items: Iterable[Item], evidence: Evidence, pairs: Counter[Pair], scored: list[Item]
) -> Iterator[Item]:
    for item in items:
        pairs.update(confuse(item))
        evidence.words = evidence.words or bool(item.words)
        if item.scores:
            scored.append(item)
        yield item


def _compare(
    evidence: Evidence,
    base: Group,
    best: Group | None,
    records: dict[str, tuple[list[Record], int]],
    study: Study,
) -> None:
    if best is None:
        evidence.why_no_changes = f"there is nothing beside {base.label} to compare with"
    if evidence.why_no_changes or best is None:
        return
    if base.label not in records or best.label not in records:
        evidence.why_no_changes = f"predictions.{study.split}.jsonl is missing"
        return
    (before, runs_before), (after, runs_after) = records[base.label], records[best.label]
    pairs = zip(before, after, strict=False)
    if len(before) != len(after) or not all(same(a.item, b.item) for a, b in pairs):
        evidence.why_no_changes = DIFFERENT
        return
    found = rank_changes(before, after, runs=(runs_before, runs_after))
    evidence.changes = found if found.kept else None
