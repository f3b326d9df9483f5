"""Scores of every label, from a comparison or from runs, and F1 against how often it occurs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from softf1.reports.figures import NAMED, Figure, axis, named, rows_of
from softf1.reports.groups import mean
from softf1.reports.study import items_of, number, section
from softf1.reports.tables import Column, Table, plain, shorten

if TYPE_CHECKING:
    from softf1.reports.figures import Trace
    from softf1.reports.groups import Group
    from softf1.reports.study import Study


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
    scores: dict[str, tuple[float | None, float | None, float | None]]

    @property
    def f1(self) -> dict[str, float]:
        """F1 by loss."""
        return {loss: values[2] for loss, values in self.scores.items() if values[2] is not None}

    def count(self, part: str) -> int:
        """How often it occurs in train or in test."""
        return (self.train if part == "train" else self.test) or 0


def read_labels(study: Study, groups: list[Group]) -> list[Label]:
    """Reads the labels, the most frequent first."""
    listed = items_of(study.comparison.get("labels"))
    labels = _compared(listed) if listed else _from_runs(study, groups)
    return sorted(labels, key=lambda label: (-(label.train or label.test or 0), label.name))


def make_groups(study: Study, groups: list[Group]) -> Table | None:
    """A table of the mean F1 of head, mid and tail labels, from the comparison."""
    listed = [one for one in items_of(study.comparison.get("groups")) if isinstance(one, dict)]
    if not listed:
        return None
    rows = [
        [
            str(one.get("group")),
            shorten(", ".join(map(str, items_of(one.get("labels")))), 120),
            *(number(section(one, "scores", group.label).get("f1")) for group in groups),
        ]
        for one in listed
    ]
    heads = (Column("group", "Group"), Column("labels", "Labels"))
    return Table(
        id="groups",
        caption="Mean F1 of head, mid and tail labels",
        columns=(*heads, *(Column(g.label, g.label, "score") for g in groups)),
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
            scores={loss: _triple(section(one, "scores", loss)) for loss in section(one, "scores")},
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
                loss: _triple({key: _mean_of(own, name, key) for key in NAMES})
                for loss, own in tables.items()
                if any(name in table for table in own)
            },
        )
        for name in names
    ]


def _mean_of(tables: list[dict[str, Any]], name: str, key: str) -> float | None:
    values = [number(section(table, name).get(key)) for table in tables if name in table]
    return mean(value for value in values if value is not None)


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


def _triple(scores: dict[str, Any]) -> tuple[float | None, float | None, float | None]:
    precision, recall, f1 = (number(scores.get(key)) for key in NAMES)
    return precision, recall, f1


def _whole(value: Any) -> int | None:
    known = number(value)
    return None if known is None else int(known)


ROWS = 40
"""How many labels the dot plot shows; the table has all."""


def draw_frequency(
    labels: list[Label], groups: list[Group], shown: set[str], *, part: str
) -> Figure:
    """Draws F1 over the number of examples, one point per label and loss, on a log scale."""
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
    """Draws one row per label, the most frequent on top, with a point per loss."""
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
