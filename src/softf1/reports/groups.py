"""Runs put together by loss, and what is said of a group: mean and spread over seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from softf1.reports.study import items_of, number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from softf1.reports.study import Run, Study

COLORS = 8
SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "pentagon",
    "star",
    "hexagon",
)
DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The runs of one row, and how plots draw them.

    Attributes:
        label: The loss, or the values of a sweep.
        runs: Its runs, by seed.
        rank: 0 for the baseline, then the place among the others.
        row: Its row of comparison.json; empty without.
    """

    label: str
    runs: tuple[Run, ...]
    rank: int
    row: dict[str, Any]

    @property
    def tuned(self) -> bool:
        """Whether these are other runs once more, with what was tuned on dev."""
        return self.runs[0].tuned

    @property
    def reference(self) -> bool:
        """Whether nothing was trained for it: it stands in the table alone."""
        return self.runs[0].reference

    @property
    def competes(self) -> bool:
        """Whether it is there to win, and not to compare with."""
        return not self.reference and self.row.get("role", "loss") == "loss"

    @property
    def key(self) -> str:
        """Its name among traces, unlike that of any other group."""
        return f"g{self.rank}"

    @property
    def color(self) -> str:
        """The name of its colour: ink for the baseline; the page has them in light and dark."""
        return "var(--ink-2)" if self.rank == 0 else f"var(--c{(self.rank - 1) % COLORS + 1})"

    @property
    def symbol(self) -> str:
        """The mark of its points, so that colour is not all that tells groups apart."""
        return "x" if self.rank == 0 else SYMBOLS[(self.rank - 1) % len(SYMBOLS)]

    @property
    def dash(self) -> str:
        """The line of its curves."""
        return DASHES[(self.rank - 1) // COLORS % len(DASHES)] if self.rank else "solid"

    def scores(self, split: str, name: str) -> list[float]:
        """One number of every run that has it."""
        scores = (run.score(split, name) for run in self.runs)
        return [value for value in scores if value is not None]

    def mean(self, split: str, name: str, *, row: str | None = None) -> float | None:
        """The mean over seeds: as the comparison says under `row`, or else of the runs."""
        own = number(self.row.get(row or name))
        return own if own is not None else mean(self.scores(split, name))


def group_runs(study: Study) -> list[Group]:
    """The groups, the baseline first, then in the order of the comparison or of appearance."""
    rows = {str(row.get("loss")): row for row in items_of(study.comparison.get("rows"))}
    labels = [study.baseline, *rows, *(run.label for run in study.runs)]
    members: dict[str, list[Run]] = {label: [] for label in labels}
    for run in study.runs:
        members[run.label].append(run)
    present = [(label, runs) for label, runs in members.items() if runs]
    return [
        Group(
            label=label,
            runs=tuple(sorted(runs, key=lambda run: (run.seed, run.id))),
            rank=rank,
            row=rows.get(label, {}),
        )
        for rank, (label, runs) in enumerate(present)
    ]


def in_order(study: Study, groups: list[Group]) -> list[Group]:
    """The groups in the order of the runs, the baseline where it stands among them."""
    places = {run.label: place for place, run in reversed(list(enumerate(study.runs)))}
    return sorted(groups, key=lambda group: places[group.label])


def chosen_on(groups: list[Group], metric: str) -> str:
    """Where the best is chosen: on dev, or on test where no run has scores on dev.

    Chosen on dev, the best loss's test scores beside the baseline's flatter nobody.
    """
    return "dev" if any(group.scores("dev", metric) for group in groups[1:]) else "test"


def pick_best(groups: list[Group], metric: str) -> Group | None:
    """The group other than the baseline with the best mean.

    Not one that was tuned on dev: its score there says little.
    """
    split = chosen_on(groups, metric)
    known = [g for g in groups[1:] if g.scores(split, metric) and not g.tuned and g.competes]
    return max(known, key=lambda g: mean(g.scores(split, metric)) or 0.0, default=None)


def mean(values: Iterable[float]) -> float | None:
    """The mean; None of nothing.

    >>> mean([0.25, 0.75]), mean([])
    (0.5, None)
    """
    known = list(values)
    return math.fsum(known) / len(known) if known else None


def deviation(values: Iterable[float]) -> float | None:
    """The standard deviation with n − 1; None of fewer than two.

    >>> deviation([1.0, 3.0]), deviation([1.0])
    (1.4142135623730951, None)
    """
    known = list(values)
    if len(known) < 2:
        return None
    middle = math.fsum(known) / len(known)
    return math.sqrt(math.fsum((x - middle) ** 2 for x in known) / (len(known) - 1))
