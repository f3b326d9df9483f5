"""Reads the predictions of all runs once, and keeps only what the page shows.

It keeps the examples that changed most between the baseline and the best loss.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from softf1.reports.curves import rank
from softf1.reports.figures import Column, Table, columns, shorten
from softf1.reports.reading import confuse, detect_gold_scheme, read_items

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from softf1.reports.curves import Ranked
    from softf1.reports.reading import Item, Pair, Unit
    from softf1.reports.study import Group, Study


KEPT = 300
LONGEST = 700
"""How many characters of a text the page shows."""


@dataclass(slots=True)
class Record:
    """The predictions of one loss for one example, over its runs.

    Attributes:
        item: The example.
        errors: Units missing or too many, summed over the runs.
        votes: How many runs predicted each unit.
        right: The predicted units that were right.
    """

    item: Item
    errors: int = 0
    votes: Counter[Unit] = field(default_factory=Counter)
    right: set[Unit] = field(default_factory=set)

    def add(self, item: Item) -> None:
        """Adds the prediction of one run."""
        self.errors += item.errors
        self.votes.update(item.predicted)
        self.right |= item.predicted & item.gold


@dataclass(frozen=True, kw_only=True, slots=True)
class Find:
    """A unit that one loss predicts more often than the other."""

    text: str
    label: str
    right: bool
    before: int
    after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """An example whose errors changed.

    Attributes:
        id: Its id in the data.
        pieces: Its text, split at gold spans: (text, label or "").
        gold: Gold labels of a text.
        gain: How many errors fewer per run; negative if there are more.
        finds: The units that changed.
    """

    id: str
    pieces: tuple[tuple[str, str], ...]
    gold: tuple[str, ...]
    gain: float
    finds: tuple[Find, ...]

    @property
    def text(self) -> str:
        """The whole text, without labels."""
        return " ".join(piece for piece, _ in self.pieces)


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """The most changed examples, and how many changed.

    Attributes:
        kept: The most changed examples, largest change first.
        better: Examples with fewer errors than with the baseline.
        worse: Examples with more.
        runs: Runs of the baseline and of the other.
    """

    kept: list[Change]
    better: int
    worse: int
    runs: tuple[int, int]


def collect(records: list[Record], items: Iterable[Item]) -> bool:
    """Adds the items of one run to the records; False if the examples differ."""
    first = not records
    count = 0
    for item in items:
        if first:
            records.append(Record(item))
        if count == len(records) or not same(records[count].item, item):
            return False
        records[count].add(item)
        count += 1
    return count == len(records)


def same(one: Item, other: Item) -> bool:
    """Whether two items are the same example."""
    return (one.id, one.words, one.text) == (other.id, other.words, other.text)


def rank_changes(
    before: list[Record], after: list[Record], *, runs: tuple[int, int], limit: int = KEPT
) -> Changes:
    """Sorts examples by the change in errors per run, the most changed first."""
    gains = [
        (old.errors / runs[0] - new.errors / runs[1], place)
        for place, (old, new) in enumerate(zip(before, after, strict=True))
    ]
    order = sorted((pair for pair in gains if pair[0]), key=lambda pair: (-abs(pair[0]), pair[1]))
    better = sum(gain > 0 for gain, _ in order)
    kept = [_describe(before[i], after[i], gain, runs) for gain, i in order[:limit]]
    return Changes(kept=kept, better=better, worse=len(order) - better, runs=runs)


def _describe(old: Record, new: Record, gain: float, runs: tuple[int, int]) -> Change:
    item = old.item
    units = sorted(set(old.votes) | set(new.votes), key=_unit_order)
    finds = [
        Find(
            text=shorten(_text_of(item, unit), 80),
            label=unit if isinstance(unit, str) else unit[2],
            right=unit in old.right | new.right,
            before=old.votes[unit],
            after=new.votes[unit],
        )
        for unit in units
        if old.votes[unit] * runs[1] != new.votes[unit] * runs[0]
    ]
    gold = sorted(unit for unit in item.gold if isinstance(unit, str))
    pieces = mark_spans(item)
    return Change(id=item.id, pieces=pieces, gold=tuple(gold), gain=gain, finds=tuple(finds))


def _unit_order(unit: Unit) -> tuple[int, int, str]:
    return (0, 0, unit) if isinstance(unit, str) else unit


def _text_of(item: Item, unit: Unit) -> str:
    return "" if isinstance(unit, str) else " ".join(item.words[unit[0] : unit[1]])


def mark_spans(item: Item) -> tuple[tuple[str, str], ...]:
    """Splits the text at gold spans, with their labels; nested spans keep the outermost.

    >>> from softf1.reports.reading import Item
    >>> gold = frozenset({(0, 1, "PER")})
    >>> mark_spans(Item(id="1", words=("Ada", "ran"), gold=gold, predicted=set()))
    (('Ada', 'PER'), ('ran', ''))
    """
    if not item.words:
        return ((shorten(item.text, LONGEST), ""),)
    spans = sorted(
        (unit for unit in item.gold if not isinstance(unit, str)), key=lambda s: (s[0], -s[1])
    )
    covered = {place for start, end, _ in spans for place in range(start, end)}
    if len(covered) >= len(item.words):
        return ((shorten(" ".join(item.words), LONGEST), ""),)  # every word has a label: no marks
    pieces: list[tuple[str, str]] = []
    place = room = 0
    for start, end, label in [*spans, (len(item.words), len(item.words), "")]:
        if start < place:
            continue
        for words, name in ((item.words[place:start], ""), (item.words[start:end], label)):
            text = shorten(" ".join(words), max(LONGEST - room, 2))
            pieces += [(text, name)] if words and room < LONGEST else []
            room += len(text)
        place = end
    return tuple(pieces)


def make_changes_table(changes: Changes, names: tuple[str, str]) -> Table:
    """The changes for CSV, one row per changed unit."""
    rows = [
        [
            change.id,
            change.text,
            change.gain,
            find.text,
            find.label,
            find.right,
            find.before,
            find.after,
        ]
        for change in changes.kept
        for find in change.finds
    ]
    before, after = (f"runs_{name}" for name in names)
    return Table(
        id="changes",
        caption=f"Changed examples from {names[0]} to {names[1]}",
        columns=columns(
            Column("id", "Example"),
            "text",
            Column("fewer_errors", "Fewer errors a run", "number"),
            "found",
            "label",
            "right",
            Column(before, before, "int"),
            Column(after, after, "int"),
        ),
        rows=rows,
    )


DIFFERENT = "the runs were tested on different examples"


@dataclass(slots=True)
class Evidence:
    """The parts of the predictions that the page shows.

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


def read_evidence(study: Study, groups: list[Group], best: Group | None) -> Evidence:
    """Reads the predictions of every run."""
    evidence = Evidence()
    files = [run.predictions(study.split) for group in groups for run in group.runs]
    present = next((path for path in files if path.is_file()), None)
    if present is None:
        evidence.why_no_changes = f"no run has predictions.{study.split}.jsonl"
        return evidence
    scheme = detect_gold_scheme(present)
    records: dict[str, tuple[list[Record], int]] = {}
    for group in groups:
        kept = group.rank == 0 or group is best
        paths = [run.predictions(study.split) for run in group.runs]
        read = [path for path in paths if path.is_file()]
        read_records, right = _read_group(evidence, group.label, read, scheme=scheme, keep=kept)
        if kept and read:
            records[group.label] = read_records, len(read)
        if not right:
            evidence.why_no_changes = DIFFERENT
    _compare(evidence, groups[0], best, records, study)
    return evidence


def _read_group(
    evidence: Evidence, label: str, paths: list[Path], *, scheme: str | None, keep: bool
) -> tuple[list[Record], bool]:
    """Reads the runs of one loss; returns its records, and whether all have the same examples."""
    pairs: Counter[Pair] = Counter()
    records: list[Record] = []
    same = True
    for path in paths:
        scored: list[Item] = []
        items = _watch(read_items(path, scheme=scheme), evidence, pairs, scored)
        if keep:
            same = collect(records, items) and same
        for _ in items:  # the rest of the file, or all of it if no records are kept
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
    changes = rank_changes(before, after, runs=(runs_before, runs_after))
    evidence.changes = changes if changes.kept else None
