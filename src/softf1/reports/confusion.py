"""Confusion matrices: counts of (gold, predicted) labels, and their heat map for each loss."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from softf1.reports.figures import Figure, axis, rows_of
from softf1.reports.tables import Column, Table, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from softf1.reports.figures import Trace
    from softf1.reports.items import Item, Span


Pair = tuple[str, str]
Pairs = dict[Pair, float]

OUTSIDE = "O"
NONE = "(none)"
MANY = 30


def confuse(item: Item) -> Iterator[Pair]:
    """The (gold, predicted) pairs of one item; words outside all spans are left out.

    >>> from softf1.reports.items import Item
    >>> item = Item(id="1", words=("Ada", "ran"), gold=frozenset({(0, 1, "PER")}),
    ...             predicted=frozenset({(0, 2, "LOC")}))
    >>> list(confuse(item))
    [('PER', 'LOC'), ('O', 'LOC')]
    """
    if item.words:
        gold, predicted = (_by_word(item, units) for units in (item.gold, item.predicted))
        yield from (
            pair for pair in zip(gold, predicted, strict=True) if pair != (OUTSIDE, OUTSIDE)
        )
        return
    yield from ((str(unit), str(unit)) for unit in sorted(item.gold & item.predicted, key=str))
    missed = sorted(map(str, item.gold - item.predicted)) or [NONE]
    extra = sorted(map(str, item.predicted - item.gold)) or [NONE]
    yield from ((a, b) for a in missed for b in extra if (a, b) != (NONE, NONE))


def _by_word(item: Item, units: frozenset[Span | str]) -> list[str]:
    labels = [OUTSIDE] * len(item.words)
    for start, end, label in sorted(unit for unit in units if not isinstance(unit, str)):
        labels[start:end] = [label] * (min(end, len(labels)) - start)
    return labels


def label_order(pairs: Mapping[Pair, float], *, limit: int = MANY) -> list[str]:
    """The labels in order of frequency, the background label last."""
    total: Counter[str] = Counter()
    for (gold, predicted), count in pairs.items():
        total[gold] += int(count * 1000)
        total[predicted] += int(count * 1000)
    named = sorted(total, key=lambda label: (label in (OUTSIDE, NONE), -total[label], label))
    special = [label for label in named if label in (OUTSIDE, NONE)]
    return [label for label in named if label not in special][: limit - len(special)] + special


def shares(pairs: Mapping[Pair, float], labels: list[str]) -> list[list[float | None]]:
    """The share of each predicted label, by gold label; None without gold items.

    >>> shares({("A", "A"): 3.0, ("A", "B"): 1.0}, ["A", "B"])
    [[0.75, 0.25], [None, None]]
    """
    totals: Counter[str] = Counter()
    for (gold, _), count in pairs.items():
        totals[gold] += count  # type: ignore[assignment]  # counts may be means over seeds
    return [
        [
            pairs.get((gold, predicted), 0.0) / totals[gold] if totals[gold] else None
            for predicted in labels
        ]
        for gold in labels
    ]


LISTED = 2000


def draw_confusion(pairs: dict[str, Pairs], first: str, *, side: str, unit: str) -> Figure | None:
    """Draws one heat map per loss, of which the reader chooses one.

    Args:
        pairs: Loss → counts of (gold, predicted), means over its runs.
        first: The loss to show at first.
        side: `left` or `right`: the position of the figure.
        unit: What is counted.
    """
    every: Counter[Pair] = Counter()
    for own in pairs.values():
        every.update(own)
    labels = label_order(every)
    if len(labels) < 2:
        return None
    views = [
        (loss, [_map(pairs[loss], labels)]) for loss in sorted(pairs, key=lambda k: k != first)
    ]
    size = max(340, 150 + 22 * len(labels))
    top = max(
        ((c, p) for p, c in pairs[first].items() if p[0] != p[1]), default=(0.0, ("", "")),
    )  # fmt: skip
    worst = f" Most often {top[1][0]} is taken for {top[1][1]}." if top[0] else ""
    lines = {**rows_of(labels, limit=18), "showgrid": False, "range": [-0.5, len(labels) - 0.5]}
    return Figure(
        id=f"plot-confusion-{side}",
        title="Labels of" if side == "left" else "beside those of",
        summary=f"Share of each gold label's {unit} that {first} gives each label.{worst}",
        traces=views[0][1],
        layout={
            "xaxis": axis("predicted", **lines, tickangle=-45),
            "yaxis": axis("gold", **lines | {"range": [len(labels) - 0.5, -0.5]}),
        },
        views=views,
        chooser="Loss",
        height=size,
        table=_table(pairs, unit),
    )


def _map(pairs: Pairs, labels: list[str]) -> Trace:
    table = shares(pairs, labels)
    names = [plain(label) for label in labels]
    counts = [
        [
            [a, b, pairs.get((gold, predicted), 0.0)]
            for b, predicted in zip(names, labels, strict=True)
        ]
        for a, gold in zip(names, labels, strict=True)
    ]
    few = len(labels) <= 12
    return {
        "type": "heatmap",
        "x": list(range(len(labels))),
        "y": list(range(len(labels))),
        "z": [[None if s is None else 100 * s for s in row] for row in table],
        "customdata": counts,
        "text": [[_cell(s) if few else "" for s in row] for row in table],
        "texttemplate": "%{text}",
        "textfont": {"size": 11, "color": "var(--ink)"},
        "zmin": 0,
        "zmax": 100,
        "colorscale": [[0, "var(--heat-0)"], [0.5, "var(--heat-1)"], [1, "var(--heat-2)"]],
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
        "hovertemplate": "gold %{customdata[0]}, predicted %{customdata[1]}<br>"
        "%{z:.1f}% of the gold ones<br>%{customdata[2]:,.1f} a run<extra></extra>",
    }


def _cell(share: float | None) -> str:
    return "" if not share else "<1" if share < 0.01 else f"{100 * share:.0f}"


def _table(pairs: dict[str, Pairs], unit: str) -> Table:
    rows: list[list[Any]] = [
        [loss, gold, predicted, count]
        for loss, own in pairs.items()
        for (gold, predicted), count in sorted(own.items(), key=lambda item: (-item[1], item[0]))
        if gold != predicted
    ]
    return Table(
        id="confusion",
        caption=f"{unit.capitalize()} with another label than the gold one, mean over runs",
        columns=(
            Column("loss", "Loss"),
            Column("gold", "Gold"),
            Column("predicted", "Predicted"),
            Column("count", f"{unit.capitalize()} a run", "number"),
        ),
        rows=sorted(rows, key=lambda row: -row[3])[:LISTED],
    )
