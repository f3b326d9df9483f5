"""The examples that changed most between the baseline and the best loss, over all seeds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from softf1.reports.embed import shorten
from softf1.reports.tables import Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from softf1.reports.items import Item, Unit

KEPT = 300
LONGEST = 700
"""Characters of a text that the page shows."""


@dataclass(slots=True)
class Record:
    """What the runs of one loss found in one example.

    Attributes:
        item: The example.
        errors: Units missing or too many, summed over the runs.
        votes: How many runs found each unit.
        right: The found units that were right.
    """

    item: Item
    errors: int = 0
    votes: Counter[Unit] = field(default_factory=Counter)
    right: set[Unit] = field(default_factory=set)

    def add(self, item: Item) -> None:
        """Counts one run's prediction."""
        self.errors += item.errors
        self.votes.update(item.found)
        self.right |= item.found & item.gold


@dataclass(frozen=True, kw_only=True, slots=True)
class Find:
    """A unit that one side finds more often than the other."""

    text: str
    label: str
    right: bool
    before: int
    after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """An example whose errors changed.

    Attributes:
        id: Its name in the data.
        pieces: Its text, cut where gold spans begin and end: (text, label or nothing).
        gold: Gold labels of a text.
        gain: Errors fewer a run; below 0 there are more.
        finds: The units that changed.
    """

    id: str
    pieces: tuple[tuple[str, str], ...]
    gold: tuple[str, ...]
    gain: float
    finds: tuple[Find, ...]

    @property
    def text(self) -> str:
        """The whole text, without marks."""
        return " ".join(piece for piece, _ in self.pieces)


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """The most changed examples, and how many changed at all.

    Attributes:
        kept: The most changed, the most first.
        better: Examples with fewer errors than with the baseline.
        worse: Examples with more.
        runs: Runs of the baseline and of the other.
    """

    kept: list[Change]
    better: int
    worse: int
    runs: tuple[int, int]


def collect(records: list[Record], items: Iterable[Item]) -> bool:
    """Adds one run's items to the records; False where they are not the same examples."""
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
    """Whether two runs saw the same example."""
    return (one.id, one.words, one.text) == (other.id, other.words, other.text)


def rank_changes(
    before: list[Record], after: list[Record], *, runs: tuple[int, int], limit: int = KEPT
) -> Changes:
    """The examples by how much their errors a run changed, the most changed first."""
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
    pieces = cut(item)
    return Change(id=item.id, pieces=pieces, gold=tuple(gold), gain=gain, finds=tuple(finds))


def _unit_order(unit: Unit) -> tuple[int, int, str]:
    return (0, 0, unit) if isinstance(unit, str) else unit


def _text_of(item: Item, unit: Unit) -> str:
    return "" if isinstance(unit, str) else " ".join(item.words[unit[0] : unit[1]])


def cut(item: Item) -> tuple[tuple[str, str], ...]:
    """The text in pieces, gold spans with their label; of nested spans the outermost.

    >>> from softf1.reports.items import Item
    >>> cut(Item(id="1", words=("Ada", "ran"), gold=frozenset({(0, 1, "PER")}), found=frozenset()))
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


def make_table(changes: Changes, names: tuple[str, str]) -> Table:
    """The changes for CSV, one row a unit that changed."""
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
        columns=(
            Column("id", "Example"),
            Column("text", "Text"),
            Column("fewer_errors", "Fewer errors a run", "number"),
            Column("found", "Found"),
            Column("label", "Label"),
            Column("right", "Right"),
            Column(before, before, "int"),
            Column(after, after, "int"),
        ),
        rows=rows,
    )
