"""The labels that are taken for each other, as a map of shares, for each loss."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from softf1.reports.confusion import label_order, shares
from softf1.reports.embed import plain
from softf1.reports.figures import Figure, axis, rows_of
from softf1.reports.tables import Column, Table

if TYPE_CHECKING:
    from softf1.reports.confusion import Pair
    from softf1.reports.figures import Trace

    Pairs = dict[Pair, float]

LISTED = 2000


def draw_confusion(pairs: dict[str, Pairs], first: str, *, side: str, unit: str) -> Figure | None:
    """One map for every loss, of which the reader chooses one.

    Args:
        pairs: Loss → counts of (gold, predicted), means over its runs.
        first: The loss that is shown at first.
        side: `left` or `right`, where the figure stands.
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
        [[a, b, pairs.get((gold, found), 0.0)] for b, found in zip(names, labels, strict=True)]
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
        [loss, gold, found, count]
        for loss, own in pairs.items()
        for (gold, found), count in sorted(own.items(), key=lambda item: (-item[1], item[0]))
        if gold != found
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
