"""Labels: their scores from a comparison or from runs, F1 by frequency, and their confusion."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from softf1.reports.figures import (
    Column,
    Figure,
    Table,
    Trace,
    axis,
    columns,
    percent,
    plain,
    rows_of,
    scatter,
    shorten,
)
from softf1.reports.reading import NONE, OUTSIDE, Pair, items_of, number, objects_of, section
from softf1.reports.study import Group, Study, mean_of

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = ("precision", "recall", "f1")
_STARTS = ("B-", "S-", "U-")
"""Prefixes of the first word of a span; they occur once per span."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Label:
    """A label with its frequency and (precision, recall, F1) by loss."""

    name: str
    group: str
    train: int | None
    test: int | None
    scores: dict[str, list[float | None]]

    @property
    def f1(self) -> dict[str, float]:
        """F1 by loss."""
        return {loss: values[2] for loss, values in self.scores.items() if values[2] is not None}

    def count(self, part: str) -> int:
        """How often it occurs in train or in test."""
        return (self.train if part == "train" else self.test) or 0


def read_labels(study: Study, groups: list[Group]) -> list[Label]:
    """Reads the labels, the most frequent first."""
    listed = objects_of(study.comparison.get("labels"))
    labels = _compared(listed) if listed else _from_runs(study, groups)
    return sorted(labels, key=lambda label: (-(label.train or label.test or 0), label.name))


def make_groups(study: Study, groups: list[Group]) -> Table | None:
    """A table of the mean F1 of head, mid and tail labels, from the comparison."""
    rows = [
        [
            str(one.get("group")),
            shorten(", ".join(map(str, items_of(one.get("labels")))), 120),
            *(number(section(one, "scores", group.label).get("f1")) for group in groups),
        ]
        for one in objects_of(study.comparison.get("groups"))
    ]
    if not rows:
        return None
    return Table(
        id="groups",
        caption="Mean F1 of head, mid and tail labels",
        columns=columns("group", "labels", *(Column(g.label, g.label, "score") for g in groups)),
        rows=rows,
    )


def frequency_part(labels: list[Label]) -> str:
    """The split that gives label frequencies: train if it has all labels, else test."""
    return "train" if all(label.train is not None for label in labels) else "test"


def _compared(listed: list[dict[str, Any]]) -> list[Label]:
    return [
        Label(
            name=str(one.get("label")),
            group=str(one.get("group") or ""),
            train=_whole(one.get("support_train")),
            test=_whole(one.get("support_test")),
            scores={
                loss: [number(section(one, "scores", loss).get(key)) for key in NAMES]
                for loss in section(one, "scores")
            },
        )
        for one in listed
    ]


def _from_runs(study: Study, groups: list[Group]) -> list[Label]:
    tables = {
        group.label: [section(run.result, "scores", study.split, "labels") for run in group.runs]
        for group in groups
    }
    first = study.runs[0]
    counts = _train_counts(first.result)
    names = dict.fromkeys(name for own in tables.values() for table in own for name in table)
    known = section(first.result, "scores", study.split, "labels")
    return [
        Label(
            name=name,
            group="",
            train=counts.get(name),
            test=_whole(section(known, name).get("support")),
            scores={
                loss: [
                    mean_of(number(section(table, name).get(key)) for table in own) for key in NAMES
                ]
                for loss, own in tables.items()
                if any(name in table for table in own)
            },
        )
        for name in names
    ]


def _train_counts(result: dict[str, Any]) -> dict[str, int]:
    """Training items by label; for tags, the number of spans."""
    counts: dict[str, int] = {}
    for classes in section(result, "class_counts").values():
        for name, count in classes.items() if isinstance(classes, dict) else ():
            size = _whole(count[-1] if isinstance(count, list) and count else count) or 0
            counts[name] = counts.get(name, 0) + size
            if name.startswith(_STARTS):
                counts[name[2:]] = counts.get(name[2:], 0) + size
    return counts


def _whole(value: Any) -> int | None:
    known = number(value)
    return None if known is None else int(known)


ROWS = 40
"""How many labels the dot plot shows; the table has all."""


def draw_labels(labels: list[Label], groups: list[Group], shown: set[str]) -> list[Figure]:
    """Draws F1 over the frequency of labels, and label by label; nothing without labels."""
    if not labels:
        return []
    part = frequency_part(labels)
    return [draw(labels, groups, shown, part) for draw in (_draw_frequency, _draw_rows)]


def _draw_frequency(labels: list[Label], groups: list[Group], shown: set[str], part: str) -> Figure:
    """Draws F1 over the number of examples, one point per label and loss, on a log scale."""
    traces: list[Trace] = []
    for group in groups:
        known = [label for label in labels if group.label in label.f1 and label.count(part)]
        counts = [label.count(part) for label in known]
        scores = percent(label.f1[group.label] for label in known)
        hover = "%{customdata}<br>%{x:,} in " + part + ": F1 %{y:.1f}"
        traces.append(_points(group, known, counts, scores, hover, shown))
    return Figure(
        id="plot-frequency",
        title="F1 of each label by its frequency",
        summary=_summary(labels, groups, part),
        traces=traces,
        x=axis(f"examples of the label in {part} (log scale)", type="log", dtick=1),
        y=axis("F1 (×100)", rangemode="tozero"),
        table=make_label_table(labels, groups),
        height=400,
    )


def _draw_rows(labels: list[Label], groups: list[Group], shown: set[str], part: str) -> Figure:
    """Draws one row per label, the most frequent on top, with a point per loss."""
    top = labels[:ROWS][::-1]
    names = [f"{shorten(label.name, 22)} · {label.count(part):,}" for label in top]
    traces = []
    for group in groups:
        scores = percent(label.f1.get(group.label) for label in top)
        hover = "%{customdata}: F1 %{x:.1f}"
        traces.append(_points(group, top, scores, list(range(len(top))), hover, shown))
    more = f", the {ROWS} most frequent of {len(labels)}" if len(labels) > ROWS else ""
    rows = [
        [label.name, label.count(part), *(label.f1.get(group.label) for group in groups)]
        for label in labels
    ]
    return Figure(
        id="plot-labels",
        title=f"The same label by label{more}",
        summary=f"Labels from the most frequent in {part} to the rarest with F1 of each loss.",
        traces=traces,
        x=axis("F1 (×100)"),
        y=rows_of(names, limit=40),
        height=max(400, 150 + 26 * len(names)),
        table=Table(
            id="label-points",
            caption="F1 of each label and loss",
            columns=columns(
                "label",
                Column(part, f"In {part}", "int"),
                *(Column(group.label, group.label, "score") for group in groups),
            ),
            rows=rows,
        ),
    )


def make_label_table(labels: list[Label], groups: list[Group]) -> Table:
    """A table of precision, recall and F1 of every label and loss."""
    rows = [
        [label.name, label.group, label.train, label.test, group.label, *label.scores[group.label]]
        for label in labels
        for group in groups
        if group.label in label.scores
    ]
    return Table(
        id="labels",
        caption="Precision, recall and F1 of each label and loss, means over seeds",
        columns=columns(
            "label",
            "group",
            Column("support_train", "In train", "int"),
            Column("support_test", "In test", "int"),
            "loss",
            "precision:score",
            "recall:score",
            "f1:score",
        ),
        rows=rows,
    )


def _points(
    group: Group, labels: list[Label], x: list[Any], y: list[Any], hover: str, shown: set[str]
) -> Trace:
    """One point per label."""
    return scatter(
        "markers",
        x,
        y,
        group.legend,
        customdata=[plain(label.name) for label in labels],
        marker={"color": group.color, "symbol": group.symbol, "size": 10},
        visible=group.label in shown,
        hover=hover,
    )


def _summary(labels: list[Label], groups: list[Group], part: str) -> str:
    base = groups[0].label
    ends = [
        f"{label.name} ({label.count(part):,}) has {100 * label.f1[base]:.1f}"
        for label in (labels[0], labels[-1])
        if base in label.f1
    ]
    return f"F1 of {len(labels)} labels. With {base}, " + ", ".join(ends) + "."


Pairs = dict[Pair, float]
MANY = 30
"""The most labels in a heat map of confusions."""


def label_order(pairs: Mapping[Pair, float], *, limit: int = MANY) -> list[str]:
    """The labels in order of frequency, the background label last."""
    total: Counter[str] = Counter()
    for (gold, predicted), count in pairs.items():
        total[gold] += int(count * 1000)
        total[predicted] += int(count * 1000)
    named = sorted(total, key=lambda label: (label in (OUTSIDE, NONE), -total[label], label))
    special = [label for label in named if label in (OUTSIDE, NONE)]
    return [label for label in named if label not in special][: limit - len(special)] + special


def confusion_shares(pairs: Mapping[Pair, float], labels: list[str]) -> list[list[float | None]]:
    """Computes the share of each predicted label, by gold label; None without gold items.

    >>> confusion_shares({("A", "A"): 3.0, ("A", "B"): 1.0}, ["A", "B"])
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
"""The most rows in the table of confusions."""


def draw_confusion(pairs: dict[str, Pairs], first: str, *, side: str, unit: str) -> Figure | None:
    """Draws one heat map per loss; the reader chooses which to see.

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
        x=axis("predicted", **lines, tickangle=-45),
        y=axis("gold", **lines | {"range": [len(labels) - 0.5, -0.5]}),
        views=views,
        chooser="Loss",
        height=size,
        table=_table(pairs, unit),
    )


def _map(pairs: Pairs, labels: list[str]) -> Trace:
    table = confusion_shares(pairs, labels)
    counts = [
        [[plain(gold), plain(predicted), pairs.get((gold, predicted), 0.0)] for predicted in labels]
        for gold in labels
    ]
    few = len(labels) <= 12
    return {
        "type": "heatmap",
        "x": list(range(len(labels))),
        "y": list(range(len(labels))),
        "z": [percent(row) for row in table],
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
        "%{z:.1f}% of the gold ones<br>%{customdata[2]:,.1f} per run<extra></extra>",
    }


def _cell(share: float | None) -> str:
    return "" if not share else "<1" if share < 0.01 else f"{100 * share:.0f}"


def _table(pairs: dict[str, Pairs], unit: str) -> Table:
    rows: list[list[Any]] = [
        [loss, gold, predicted, count]
        for loss, own in pairs.items()
        for (gold, predicted), count in sorted(own.items())
        if gold != predicted
    ]
    return Table(
        id="confusion",
        caption=f"{unit.capitalize()} with another label than the gold one, mean over runs",
        columns=columns(
            "loss", "gold", "predicted", Column("count", f"{unit.capitalize()} a run", "number")
        ),
        rows=sorted(rows, key=lambda row: -row[3])[:LISTED],
    )
