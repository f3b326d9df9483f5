"""GLUE's MRPC and QQP, and MRPC as MSR published it: tabs, no quoting, fixed names of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from softf1.data import tables
from softf1.data._text import read_start
from softf1.data.examples import Format, PairExample, TextExample
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from softf1.data.problems import Problems

LAYOUTS = {
    "mrpc": {"first": "#1 String", "second": "#2 String", "label": "Quality", "id": "index"},
    "qqp": {"first": "question1", "second": "question2", "label": "is_duplicate", "id": "id"},
}


def iterate(
    path: Path | str, *, layout: Literal["mrpc", "qqp"] = "mrpc", problems: Problems | None = None
) -> Iterator[TextExample | PairExample]:
    """Reads the pairs of train, dev and test files; GLUE's test files have no labels.

    Args:
        path: The file.
        layout: "mrpc" or "qqp".
        problems: Decides about bad rows; None raises at the first.
    """
    if layout not in LAYOUTS:
        raise InputError(f"wanted layout {' or '.join(LAYOUTS)}, got {layout!r}")
    names = read_start(path).partition("\n")[0].split("\t")
    asked = LAYOUTS[layout]
    columns = {role: name for role, name in asked.items() if name in names}
    missing = [asked[role] for role in ("first", "second") if role not in columns]
    if missing:
        message = f"wanted the columns {', '.join(missing)} of {layout}, got {', '.join(names)}"
        raise InputError(message, path=path, line=1)
    return tables.iterate(
        path, kind="tsv", task=PairExample.task, **columns, header=True, problems=problems
    )


FORMATS = {
    "mrpc": Format(iterate, (PairExample.task,), "MRPC of GLUE or of MSR", {"layout": "mrpc"}),
    "qqp": Format(iterate, (PairExample.task,), "QQP of GLUE", {"layout": "qqp"}),
}
