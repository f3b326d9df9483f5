"""Tables of the page: shown, sorted, and downloaded as CSV."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "text", "verdict", "int", "score", "points", "number", "p", "share", "chance", "seconds"
]

_DIGITS = {"score": 2, "points": 2, "share": 1}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name in CSV, its heading, and how its numbers are written.

    `score` and `share` are fractions shown as hundredths, `points` the same with a sign; a
    `chance` is never shown as wholly sure; of a `verdict`, what follows a semicolon is folded away.
    """

    key: str
    title: str
    kind: Kind = "text"


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of raw values; the page writes them by the kind of their column."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: list[list[Any]]
    marked: frozenset[int] = field(default_factory=frozenset)

    def to_data(self) -> dict[str, Any]:
        """What the page's script needs for sorting and CSV."""
        columns = [[column.key, column.title, column.kind] for column in self.columns]
        return {"caption": self.caption, "columns": columns, "rows": self.rows}


def show(value: Any, kind: Kind) -> str:
    """A value as the page writes it.

    >>> show(0.8123, "score"), show(-0.004, "points"), show(None, "p"), show(12345, "int")
    ('81.23', '−0.40', '–', '12,345')
    >>> show(0.9996, "chance"), show(0.42, "chance")
    ('> 99', '42')
    """
    if value is None:
        return "–"
    if kind in ("text", "verdict") or not isinstance(value, (int, float)):
        return str(value)
    if kind in _DIGITS:
        sign = "+" if kind == "points" else ""
        return f"{100 * value:{sign}.{_DIGITS[kind]}f}".replace("-", "−")
    if kind == "chance":
        return "> 99" if value > 0.99 else "< 1" if value < 0.01 else f"{100 * value:.0f}"
    if kind == "seconds":
        return f"{value:,.1f}"
    if kind == "p":
        return "< 0.001" if value < 0.001 else f"{value:.3f}"
    return f"{value:,.0f}" if kind == "int" else f"{value:,.4g}".replace("-", "−")


def raw(value: Any) -> str:
    """A value for sorting.

    >>> raw(0.1 + 0.2), raw(None), raw("dice")
    ('0.3', '', 'dice')
    """
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
