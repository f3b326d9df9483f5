"""F1 of every label against how often it occurs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.reports.embed import plain, shorten
from softf1.reports.figures import NAMED, Figure, axis, named, rows_of
from softf1.reports.tables import Column, Table

if TYPE_CHECKING:
    from softf1.reports.figures import Trace
    from softf1.reports.groups import Group
    from softf1.reports.labels import Label

ROWS = 40
"""Labels that the dot plot shows; the table has all."""


def draw_frequency(
    labels: list[Label], groups: list[Group], shown: set[str], *, part: str
) -> Figure:
    """One point a label and loss over the number of its examples, on a log scale."""
    traces: list[Trace] = []
    for group in groups:
        known = [label for label in labels if group.label in label.f1 and label.count(part)]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                **named(group),
                "x": [label.count(part) for label in known],
                "y": [100 * label.f1[group.label] for label in known],
                "customdata": [plain(label.name) for label in known],
                "marker": {"color": group.color, "symbol": group.symbol, "size": 10},
                "visible": group.label in shown,
                "hovertemplate": "%{customdata}<br>%{x:,} in " + part + ": F1 %{y:.1f}" + NAMED,
            }
        )
    return Figure(
        id="plot-frequency",
        title="F1 of each label by its frequency",
        summary=_summary(labels, groups, part),
        traces=traces,
        layout={
            "xaxis": axis(f"examples of the label in {part} (log scale)", type="log", dtick=1),
            "yaxis": axis("F1 (×100)", rangemode="tozero"),
        },
        table=make_table(labels, groups),
        height=400,
    )


def draw_labels(labels: list[Label], groups: list[Group], shown: set[str], *, part: str) -> Figure:
    """The labels under each other, the most frequent on top, one point a loss."""
    top = labels[:ROWS][::-1]
    names = [f"{shorten(label.name, 22)} · {label.count(part):,}" for label in top]
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "markers",
            **named(group),
            "x": [_hundredths(label.f1.get(group.label)) for label in top],
            "y": list(range(len(top))),
            "customdata": [plain(label.name) for label in top],
            "marker": {"color": group.color, "symbol": group.symbol, "size": 10},
            "visible": group.label in shown,
            "hovertemplate": "%{customdata}: F1 %{x:.1f}" + NAMED,
        }
        for group in groups
    ]
    more = f", the {ROWS} most frequent of {len(labels)}" if len(labels) > ROWS else ""
    rows = [[label.name, label.count(part), *_f1s(label, groups)] for label in labels]
    return Figure(
        id="plot-labels",
        title=f"The same label by label{more}",
        summary=f"Labels from the most frequent in {part} to the rarest with F1 of each loss.",
        traces=traces,
        layout={
            "xaxis": axis("F1 (×100)"),
            "yaxis": rows_of(names, limit=40),
        },
        height=max(400, 150 + 26 * len(names)),
        table=Table(
            id="label-points",
            caption="F1 of each label and loss",
            columns=(
                Column("label", "Label"),
                Column(part, f"In {part}", "int"),
                *(Column(group.label, group.label, "score") for group in groups),
            ),
            rows=rows,
        ),
    )


def make_table(labels: list[Label], groups: list[Group]) -> Table:
    """Precision, recall and F1 of every label and loss."""
    rows = [
        [label.name, label.group, label.train, label.test, group.label, *label.scores[group.label]]
        for label in labels
        for group in groups
        if group.label in label.scores
    ]
    return Table(
        id="labels",
        caption="Precision, recall and F1 of each label and loss, means over seeds",
        columns=(
            Column("label", "Label"),
            Column("group", "Group"),
            Column("support_train", "In train", "int"),
            Column("support_test", "In test", "int"),
            Column("loss", "Loss"),
            Column("precision", "Precision", "score"),
            Column("recall", "Recall", "score"),
            Column("f1", "F1", "score"),
        ),
        rows=rows,
    )


def _f1s(label: Label, groups: list[Group]) -> list[float | None]:
    return [label.f1.get(group.label) for group in groups]


def _hundredths(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _summary(labels: list[Label], groups: list[Group], part: str) -> str:
    first, last = labels[0], labels[-1]
    base = groups[0].label
    ends = [
        f"{label.name} ({label.count(part):,}) has {100 * label.f1[base]:.1f}"
        for label in (first, last)
        if base in label.f1
    ]
    return f"F1 of {len(labels)} labels. With {base}, " + ", ".join(ends) + "."
