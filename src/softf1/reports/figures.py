"""Figures as Plotly specifications: plain data, drawn by the page.

Colours are names such as `var(--c1)`, which the page's script looks up in its style sheet, in
light and dark. All text from data goes through `plain`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from softf1.reports.tables import plain

if TYPE_CHECKING:
    from softf1.reports.groups import Group
    from softf1.reports.tables import Table

Trace = dict[str, Any]

NAMED = "<extra>%{fullData.name}</extra>"
"""Ends a hover text with the name of its trace."""


ENDS = 12
"""How many last characters of a long name to keep: names with options often start alike."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A plot with a summary in words and a table of its data.

    Attributes:
        id: Its name in the page.
        title: What it shows.
        summary: What the plot shows, in words, for screen readers.
        traces: The data; of the first view where there are several.
        layout: Axes and shapes; fonts, margins and colours are the page's.
        table: The numbers behind it.
        height: In pixels.
        views: (name, traces) that a reader can choose between.
        chooser: What the reader chooses.
        wide: Whether it takes the whole width.
    """

    id: str
    title: str
    summary: str
    traces: list[Trace]
    layout: dict[str, Any]
    table: Table
    height: int = 380
    views: list[tuple[str, list[Trace]]] = field(default_factory=list)
    chooser: str = ""
    wide: bool = False

    def to_data(self) -> dict[str, Any]:
        """What the page's script draws."""
        views = [{"name": name, "data": traces} for name, traces in self.views]
        return {
            "data": self.traces,
            "layout": {**self.layout, "height": self.height},
            "views": views,
        }


def axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": title}, **options}


def named(group: Group) -> Trace:
    """Trace settings for the entry of a group in the legend."""
    name = plain(group.label, end=ENDS)
    return {"name": name, "legendgroup": group.key, "meta": group.label}


def rows_of(names: list[str], *, limit: int = 32) -> dict[str, Any]:
    """An axis with a row per name; rows are numbers, so equal shortened names stay separate."""
    return {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": [plain(name, limit=limit, end=min(ENDS, limit // 3)) for name in names],
        "range": [-0.6, len(names) - 0.4],
        "zeroline": False,
    }
