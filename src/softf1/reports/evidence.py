"""Reads the predictions of all runs once, and keeps only what the page shows.

It keeps only those examples that changed most between the baseline and the best loss.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from softf1.reports.curves import Ranked, rank
from softf1.reports.figures import Column, Table, columns, shorten
from softf1.reports.reading import Item, Pair, Span, Unit, confuse, detect_gold_scheme, read_items

if TYPE_CHECKING:
    from collections.abc import Iterable

    from softf1.reports.study import Group, Study


KEPT = 300
"""The most changed examples that the page lists."""
LONGEST = 700
"""How many characters of a text the page shows."""


@dataclass(slots=True)
class Record:
    """The predictions of one loss for one example, over its runs.

    Attributes:
        item: The example.
        errors: Missing and extra units, summed over the runs.
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


class Find(NamedTuple):
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
        gain: How many fewer errors per run; negative if there are more.
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
    given = list(items)
    if not records:
        records.extend(map(Record, given))
    if not same((record.item for record in records), given):
        return False
    for record, item in zip(records, given, strict=True):
        record.add(item)
    return True


def same(some: Iterable[Item], others: Iterable[Item]) -> bool:
    """Whether these are the same examples."""
    one, other = ([(item.id, item.words, item.text) for item in items] for items in (some, others))
    return one == other


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
    finds = []
    for unit in sorted(old.votes | new.votes, key=_as_span):
        before, after = old.votes[unit], new.votes[unit]
        if before * runs[1] != after * runs[0]:
            start, end, label = _as_span(unit)
            text = shorten(" ".join(item.words[start:end]), 80)
            finds.append(Find(text, label, unit in old.right | new.right, before, after))
    gold = sorted(unit for unit in item.gold if isinstance(unit, str))
    pieces = mark_spans(item)
    return Change(id=item.id, pieces=pieces, gold=tuple(gold), gain=gain, finds=tuple(finds))


def _as_span(unit: Unit) -> Span:
    """Returns a span as it is, and the label of a text as a span without words."""
    return (0, 0, unit) if isinstance(unit, str) else unit


def mark_spans(item: Item) -> tuple[tuple[str, str], ...]:
    """Splits the text at gold spans, with their labels; of nested spans only the outermost counts.

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
    """Makes the table of changes for the CSV download, one row per changed unit."""
    rows = [
        [change.id, change.text, change.gain, *find]
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
    files = {
        group.label: [
            path for run in group.runs if (path := run.predictions(study.split)).is_file()
        ]
        for group in groups
    }
    present = next((path for paths in files.values() for path in paths), None)
    if present is None:
        evidence.why_no_changes = f"no run has predictions.{study.split}.jsonl"
        return evidence
    scheme = detect_gold_scheme(present)
    records: dict[str, list[Record]] = {}
    for group in groups:
        pairs: Counter[Pair] = Counter()
        paths = files[group.label]
        for path in paths:
            items = list(read_items(path, scheme=scheme))
            pairs.update(pair for item in items for pair in confuse(item))
            evidence.words = evidence.words or any(item.words for item in items)
            if ranking := rank(items):
                evidence.ranked.setdefault(group.label, []).append(ranking)
            compared = group.rank == 0 or group is best
            if compared and not collect(records.setdefault(group.label, []), items):
                evidence.why_no_changes = DIFFERENT
        evidence.pairs[group.label] = {pair: count / len(paths) for pair, count in pairs.items()}
    if best is None:
        evidence.why_no_changes = f"there is nothing beside {groups[0].label} to compare with"
    elif not evidence.why_no_changes:
        runs = len(files[groups[0].label]), len(files[best.label])
        if 0 in runs:
            evidence.why_no_changes = f"predictions.{study.split}.jsonl is missing"
        else:
            _compare(evidence, records[groups[0].label], records[best.label], runs)
    return evidence


def _compare(
    evidence: Evidence, before: list[Record], after: list[Record], runs: tuple[int, int]
) -> None:
    if not same((record.item for record in before), (record.item for record in after)):
        evidence.why_no_changes = DIFFERENT
        return
    changes = rank_changes(before, after, runs=runs)
    evidence.changes = changes if changes.kept else None
