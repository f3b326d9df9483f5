"""Which label is taken for which: counts of (gold, predicted) over the words or the texts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from softf1.reports.items import Item, Span

Pair = tuple[str, str]

OUTSIDE = "O"
NONE = "(none)"
MANY = 30


def confuse(item: Item) -> Iterator[Pair]:
    """The pairs of one item; words that are in no span on either side say nothing.

    >>> from softf1.reports.items import Item
    >>> item = Item(id="1", words=("Ada", "ran"), gold=frozenset({(0, 1, "PER")}),
    ...             found=frozenset({(0, 2, "LOC")}))
    >>> list(confuse(item))
    [('PER', 'LOC'), ('O', 'LOC')]
    """
    if item.words:
        gold, found = (_by_word(item, units) for units in (item.gold, item.found))
        yield from (pair for pair in zip(gold, found, strict=True) if pair != (OUTSIDE, OUTSIDE))
        return
    yield from ((str(unit), str(unit)) for unit in sorted(item.gold & item.found, key=str))
    missed = sorted(map(str, item.gold - item.found)) or [NONE]
    extra = sorted(map(str, item.found - item.gold)) or [NONE]
    yield from ((a, b) for a in missed for b in extra if (a, b) != (NONE, NONE))


def _by_word(item: Item, units: frozenset[Span | str]) -> list[str]:
    labels = [OUTSIDE] * len(item.words)
    for start, end, label in sorted(unit for unit in units if not isinstance(unit, str)):
        labels[start:end] = [label] * (min(end, len(labels)) - start)
    return labels


def label_order(pairs: Mapping[Pair, float], *, limit: int = MANY) -> list[str]:
    """The most frequent labels, most frequent first, what stands for none of them last."""
    total: Counter[str] = Counter()
    for (gold, found), count in pairs.items():
        total[gold] += int(count * 1000)
        total[found] += int(count * 1000)
    named = sorted(total, key=lambda label: (label in (OUTSIDE, NONE), -total[label], label))
    special = [label for label in named if label in (OUTSIDE, NONE)]
    return [label for label in named if label not in special][: limit - len(special)] + special


def shares(pairs: Mapping[Pair, float], labels: list[str]) -> list[list[float | None]]:
    """Of every gold label, the share that got each label; None where there are no gold ones.

    >>> shares({("A", "A"): 3.0, ("A", "B"): 1.0}, ["A", "B"])
    [[0.75, 0.25], [None, None]]
    """
    totals: Counter[str] = Counter()
    for (gold, _), count in pairs.items():
        totals[gold] += count  # type: ignore[assignment]  # counts may be means over seeds
    return [
        [pairs.get((gold, found), 0.0) / totals[gold] if totals[gold] else None for found in labels]
        for gold in labels
    ]
