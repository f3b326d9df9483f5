"""The page of `softf1 suspects`: labels that are probably wrong, the likeliest first."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from softf1.errors import InputError
from softf1.files import write_text
from softf1.reports.figures import Column, Table, columns, shorten, to_script_json
from softf1.reports.page import EXTRA, fill

FILE, PAGE = "suspects.json", "suspects.html"
NOTHING = "nothing"
OTHER_FORM = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
"""Errors that reading a file of another form raises."""
LONGEST = 600
"""How many characters of each piece of a text the page shows."""


def check_extra() -> None:
    """Raises early if the packages for the page are missing."""
    if find_spec("jinja2") is None:
        raise InputError(EXTRA)


def write_suspects(folder: Path | str) -> Path:
    """Writes the page of a folder that `softf1 suspects` made, from its `suspects.json`.

    Returns:
        The page.
    """
    check_extra()
    from jinja2 import TemplateError  # an optional extra

    path, page = Path(folder) / FILE, Path(folder) / PAGE
    try:
        text = fill("suspects.html.j2", **make_variables(json.loads(path.read_text("utf-8"))))
    except (*OTHER_FORM, OSError, TemplateError) as error:
        raise InputError(f"wanted what softf1 suspects wrote, got {error!r}", path=path) from error
    write_text(page, text)
    return page


def make_variables(content: dict[str, Any]) -> dict[str, Any]:
    """The variables of the template."""
    suspects = [_describe(one) for one in content["suspects"]]
    confusions, listed = make_confusions(suspects), make_list(suspects)
    tables = {table.id: table.to_data() for table in (confusions, listed)}
    return {
        "content": content,
        "title": f"{content['name']}: labels to review",
        "suspects": suspects,
        "kinds": {kind: _slug(kind) for kind in content["kinds"]},
        "confusions": confusions,
        "data": to_script_json({"figures": {}, "tables": tables}),
    }


def _describe(one: dict[str, Any]) -> dict[str, Any]:
    before, suspect, after = (str(piece) for piece in one["pieces"])
    return {
        **one,
        "slug": _slug(one["kind"]),
        "before": shorten(before, LONGEST, end=LONGEST // 2),
        "suspect": shorten(suspect, LONGEST),
        "after": shorten(after, LONGEST),
        "text": " ".join(filter(None, (before, suspect, after))),
    }


def _slug(kind: str) -> str:
    return kind.replace(" ", "-")


def make_confusions(suspects: list[dict[str, Any]]) -> Table:
    """A table of given and suggested labels, with counts."""
    pairs = Counter((_labels(one["given"]), _labels(one["suggested"])) for one in suspects)
    return Table(
        id="confusions",
        caption="What is given and what is suggested, in the list below",
        columns=columns("given", "suggested", Column("count", "Suspects", "int")),
        rows=[[*pair, count] for pair, count in pairs.most_common()],
    )


def make_list(suspects: list[dict[str, Any]]) -> Table:
    """A table of all suspects, for the download."""
    names = ("file", "line", "kind", "given", "suggested", "score", "text")
    rows = [
        [_say(one[name]) if name in ("given", "suggested") else one[name] for name in names]
        for one in suspects
    ]
    heads = tuple(Column(name, name) for name in names)
    return Table(id="suspects", caption="Suspects", columns=heads, rows=rows)


def _labels(marks: list[dict[str, Any]]) -> str:
    return ", ".join(mark["label"] for mark in marks) or NOTHING


def _say(marks: list[dict[str, Any]]) -> str:
    parts = (": ".join(filter(None, (mark["label"], mark.get("text")))) for mark in marks)
    return "; ".join(parts) or NOTHING
