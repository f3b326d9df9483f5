"""Groups runs by loss, with the mean and spread over seeds."""

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
    """The runs of one row of the comparison, and their style in plots.

    Attributes:
        label: The loss, or the values of a sweep.
        runs: Its runs, by seed.
        rank: 0 for the baseline, then the position among the others.
        row: Its row of comparison.json; empty without.
    """

    label: str
    runs: tuple[Run, ...]
    rank: int
    row: dict[str, Any]

    @property
    def tuned(self) -> bool:
        """Whether this row repeats the runs of another, with thresholds tuned on dev."""
        return self.runs[0].tuned

    @property
    def reference(self) -> bool:
        """Whether it is a reference without training, shown in the table only."""
        return self.runs[0].reference

    @property
    def competes(self) -> bool:
        """Whether it competes with the baseline; controls and references do not."""
        return not self.reference and self.row.get("role", "loss") == "loss"

    @property
    def key(self) -> str:
        """A unique name for its traces."""
        return f"g{self.rank}"

    @property
    def color(self) -> str:
        """Its CSS colour variable, defined for light and dark; ink for the baseline."""
        return "var(--ink-2)" if self.rank == 0 else f"var(--c{(self.rank - 1) % COLORS + 1})"

    @property
    def symbol(self) -> str:
        """The symbol of its points, so that groups differ not only in colour."""
        return "x" if self.rank == 0 else SYMBOLS[(self.rank - 1) % len(SYMBOLS)]

    @property
    def dash(self) -> str:
        """The line style of its curves."""
        return DASHES[(self.rank - 1) // COLORS % len(DASHES)] if self.rank else "solid"

    def scores(self, split: str, name: str) -> list[float]:
        """The scores of all runs that have this metric."""
        scores = (run.score(split, name) for run in self.runs)
        return [value for value in scores if value is not None]

    def mean(self, split: str, name: str, *, row: str | None = None) -> float | None:
        """The mean over seeds, from the comparison (key `row`) or else from the runs."""
        own = number(self.row.get(row or name))
        return own if own is not None else mean(self.scores(split, name))


def group_runs(study: Study) -> list[Group]:
    """Groups runs: baseline first, then in the order of the comparison or of appearance."""
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
    """The groups in the order of the runs, including the baseline."""
    places = {run.label: place for place, run in reversed(list(enumerate(study.runs)))}
    return sorted(groups, key=lambda group: places[group.label])


def chosen_on(groups: list[Group], metric: str) -> str:
    """The split that chooses the best loss: dev, or test if no run has dev scores.

    Chosen on dev, the test score of the best loss is not biased upwards.
    """
    return "dev" if any(group.scores("dev", metric) for group in groups[1:]) else "test"


def pick_best(groups: list[Group], metric: str) -> Group | None:
    """The group other than the baseline with the best mean.

    Rows tuned on dev are left out: their dev score is too optimistic.
    """
    split = chosen_on(groups, metric)
    known = [g for g in groups[1:] if g.scores(split, metric) and not g.tuned and g.competes]
    return max(known, key=lambda g: mean(g.scores(split, metric)) or 0.0, default=None)


def mean(values: Iterable[float]) -> float | None:
    """The mean; None for no values.

    >>> mean([0.25, 0.75]), mean([])
    (0.5, None)
    """
    known = list(values)
    return math.fsum(known) / len(known) if known else None


def deviation(values: Iterable[float]) -> float | None:
    """The standard deviation with n − 1; None for fewer than two values.

    >>> deviation([1.0, 3.0]), deviation([1.0])
    (1.4142135623730951, None)
    """
    known = list(values)
    if len(known) < 2:
        return None
    middle = math.fsum(known) / len(known)
    return math.sqrt(math.fsum((x - middle) ** 2 for x in known) / (len(known) - 1))
