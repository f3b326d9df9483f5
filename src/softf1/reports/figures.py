"""Tables and figures of the page, and escaping of text from data.

Figures are Plotly specifications: plain data, drawn by the page. Colours are names such as
`var(--c1)`, which the page's script looks up in its style sheet, in light and dark.

Jinja escapes what it puts into the HTML. Two places need their own rules: a JSON block must
not be able to end its script element, and Plotly reads a few tags (`<b>`, `<a href>`) in names.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind = Literal[
    "text", "verdict", "int", "score", "points", "number", "p", "share", "chance", "seconds"
]

_DIGITS = {"score": 2, "points": 2, "share": 1}


class Column(NamedTuple):
    """A column: its name in CSV, its heading, and how its numbers are written.

    `score` and `share` are fractions shown times 100, `points` the same with a sign. A `chance` is
    a probability, shown from "< 1" to "> 99". A `verdict` folds away what follows its semicolon.
    """

    key: str
    title: str
    kind: Kind = "text"


def columns(*given: str | Column) -> tuple[Column, ...]:
    """Makes columns; a string is `key` or `key:kind`, with the key as heading.

    >>> columns("loss", "average_precision:score")[1]
    Column(key='average_precision', title='Average precision', kind='score')
    """
    return tuple(_column(one) if isinstance(one, str) else one for one in given)


def _column(text: str) -> Column:
    key, _, kind = text.partition(":")
    return Column(key, key.replace("_", " ").capitalize(), cast("Kind", kind or "text"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of raw values; a column's kind decides how they are shown; `marked` rows stand out."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: list[list[Any]]
    marked: frozenset[int] = field(default_factory=frozenset)

    def to_data(self) -> dict[str, Any]:
        """The data that the page's script needs for sorting and CSV."""
        return {"caption": self.caption, "columns": self.columns, "rows": self.rows}


def show(value: Any, kind: Kind) -> str:
    """Formats a value for the page.

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
    """Converts a value for sorting.

    >>> raw(0.1 + 0.2), raw(None), raw("dice")
    ('0.3', '', 'dice')
    """
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


_HIDDEN = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
_HIDDEN |= {0x2028: "\\u2028", 0x2029: "\\u2029"}


def to_script_json(value: Any) -> str:
    r"""Dumps JSON that is safe inside a script element, with numbers rounded to six digits.

    >>> print(to_script_json({"label": "</script>", "f1": float("nan")}))
    {"label":"\u003c/script\u003e","f1":null}
    """
    read = json.loads(
        json.dumps(value),
        parse_float=lambda number: float(f"{float(number):.6g}"),
        parse_constant=lambda _: None,  # NaN and infinity
    )
    text = json.dumps(read, ensure_ascii=False, separators=(",", ":"))
    return clean(text).translate(_HIDDEN)


def clean(text: str) -> str:
    """Replaces unpaired surrogates and NUL, which a UTF-8 page cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")


def plain(text: object, *, limit: int = 32, end: int = 0) -> str:
    """Escapes text for Plotly, so that tags and entities in it are shown literally.

    >>> plain("<script>")
    '&lt;script&gt;'
    """
    line = " ".join(str(text).split())
    return html.escape(shorten(line, limit, end=end), quote=False)


def shorten(text: str, limit: int, *, end: int = 0) -> str:
    """Shortens text to `limit` characters and keeps its last `end`.

    >>> shorten("ordinary", 5), shorten("ordinary", 5, end=2)
    ('ordi…', 'or…ry')
    """
    return text if len(text) <= limit else text[: limit - 1 - end] + "…" + text[len(text) - end :]


def policy_hash(script: str) -> str:
    """The hash by which a content security policy allows this inline script."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


Trace = dict[str, Any]

ENDS = 12
"""How many last characters of a long name to keep: names with options often start alike."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A plot with a summary in words and a table of its data.

    Attributes:
        id: Its name in the page.
        title: What it shows.
        summary: What the plot shows, in words, for screen readers.
        traces: The data, if the figure has a single view.
        x: The x axis; the page adds fonts, margins and colours.
        y: The y axis.
        more: Other settings of its Plotly layout.
        table: The numbers behind it.
        height: In pixels.
        views: (name, traces) that a reader can choose between.
        chooser: What the reader chooses.
        wide: Whether it takes the whole width.
    """

    id: str
    title: str
    summary: str
    x: dict[str, Any]
    y: dict[str, Any]
    table: Table
    traces: list[Trace] = field(default_factory=list)
    height: int = 380
    views: list[tuple[str, list[Trace]]] = field(default_factory=list)
    chooser: str = ""
    wide: bool = False
    more: dict[str, Any] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """What the page's script draws."""
        return {
            "data": self.views[0][1] if self.views else self.traces,
            "layout": {"xaxis": self.x, "yaxis": self.y, **self.more, "height": self.height},
            "views": [{"name": name, "data": traces} for name, traces in self.views],
        }


def axis(title: str, **options: Any) -> dict[str, Any]:
    """Makes an axis with a title."""
    return {"title": {"text": title}, **options}


def scatter(
    mode: str,
    x: list[Any],
    y: list[Any],
    legend: Trace | None = None,
    *,
    hover: str = "",
    **more: Any,
) -> Trace:
    """Makes a trace of points or lines.

    Args:
        mode: What Plotly draws, such as `markers`.
        x: The x values.
        y: The y values.
        legend: Settings of its entry in the legend.
        hover: The hover text of a point; the name of the trace follows, if it has one.
        more: Other settings of the trace.
    """
    trace = {"type": "scatter", "mode": mode, **(legend or {}), "x": x, "y": y, **more}
    if not hover:
        return {**trace, "hoverinfo": "skip"}
    name = "%{fullData.name}" if "name" in trace else ""
    return {**trace, "hovertemplate": f"{hover}<extra>{name}</extra>"}


def percent(fractions: Iterable[float | None]) -> list[float | None]:
    """Multiplies fractions by 100; None stays None.

    >>> percent([0.5, None])
    [50.0, None]
    """
    return [None if value is None else 100 * value for value in fractions]


def rows_of(names: list[str], *, limit: int = 32) -> dict[str, Any]:
    """Makes an axis with a row per name, numbered so that equal shortened names stay separate."""
    return {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": [plain(name, limit=limit, end=min(ENDS, limit // 3)) for name in names],
        "range": [-0.6, len(names) - 0.4],
        "zeroline": False,
    }
