"""Scores of every label: from the comparison of a grid, or from the runs themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from softf1.reports.embed import shorten
from softf1.reports.files import items_of, number, section
from softf1.reports.groups import mean
from softf1.reports.tables import Column, Table

if TYPE_CHECKING:
    from softf1.reports.groups import Group
    from softf1.reports.study import Study

NAMES = ("precision", "recall", "f1")
_STARTS = ("B-", "S-", "U-")
"""What the first word of a span is tagged with: as many as there are spans."""


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
    """The labels, the most frequent first."""
    listed = items_of(study.comparison.get("labels"))
    labels = _compared(listed) if listed else _from_runs(study, groups)
    return sorted(labels, key=lambda label: (-(label.train or label.test or 0), label.name))


def make_groups(study: Study, groups: list[Group]) -> Table | None:
    """Mean F1 of the frequent labels, the rare ones and those between, as the comparison has it."""
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
    """Where frequencies are known: in train for every label, or else in test."""
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
    found = [number(section(table, name).get(key)) for table in tables if name in table]
    return mean(value for value in found if value is not None)


def _train_counts(result: dict[str, Any]) -> dict[str, int]:
    """Label → its training items; of tags, the spans that begin."""
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
    found = number(value)
    return None if found is None else int(found)
