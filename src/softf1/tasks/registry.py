"""Tasks by kind; another package adds one through the entry point group `softf1.tasks`."""

from __future__ import annotations

import dataclasses
import importlib
import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.data.registry import look_up
from softf1.errors import InputError
from softf1.tasks.options import check_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from softf1.tasks.base import Task

FILE = "softf1.json"
"""Holds the task, with its labels and thresholds, in a model folder."""

TASKS = {
    "tagging": "softf1.tasks.tagging:Tagging",
    "classification": "softf1.tasks.classification:Classification",
    "pairs": "softf1.tasks.classification:Classification",
    "qa": "softf1.tasks.qa:QA",
    "mrc_ner": "softf1.tasks.mrc_ner:MrcNer",
}


def list_tasks() -> dict[str, str]:
    """Where each kind of task is, installed packages included.

    >>> list_tasks()["tagging"]
    'softf1.tasks.tagging:Tagging'
    """
    return TASKS | {point.name: point.value for point in entry_points(group="softf1.tasks")}


def make_task(kind: str, **options: Any) -> Task:
    """The task of that kind.

    >>> make_task("tagging", unit="joint").unit
    'joint'
    """
    where, _, name = look_up(kind, list_tasks(), "task").partition(":")
    cls = getattr(importlib.import_module(where), name)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for option in options:
        look_up(option, fields, f"option of task {kind}")
    check_options(cls, options, kind=kind)
    if "kind" in fields:  # one class that serves several
        options["kind"] = kind
    task: Task = cls(**options)
    return task


def describe_task(task: Task, *, learned: bool = True) -> dict[str, Any]:
    """All that is needed to make the task again; without `learned`, what the user chose."""
    fields = dataclasses.fields(task)  # type: ignore[arg-type]  # every task is a dataclass
    kept = [f.name for f in fields if learned or not f.metadata.get("learned")]
    return {"kind": task.kind, **{name: getattr(task, name) for name in kept}}


def save_task(
    task: Task, folder: Path | str, *, plain_bias: Mapping[str, list[float]] | None = None
) -> None:
    """Write the task beside its model.

    Args:
        task: With its labels and thresholds.
        folder: Of the model.
        plain_bias: The bias of each head as it was trained, where the saved one has more in it.
    """
    content = describe_task(task) | ({"plain_bias": plain_bias} if plain_bias else {})
    text = json.dumps(content, ensure_ascii=False, indent=1)
    (Path(folder) / FILE).write_text(text + "\n", "utf-8")


def load_plain_bias(folder: Path | str) -> dict[str, list[float]]:
    """The bias of each head as it was trained, by key; only of those that were saved with more."""
    found = json.loads((Path(folder) / FILE).read_text("utf-8"))
    return dict(found.get("plain_bias", {}))


def load_task(folder: Path | str) -> Task:
    """The task of a model folder, with its labels and thresholds."""
    path = Path(folder) / FILE
    if not path.is_file():
        raise InputError("wanted a model folder written by softf1, found no task", path=path)
    try:
        found = json.loads(path.read_text("utf-8"))
        options = {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}
        kind = str(options.pop("kind"))
        options.pop("plain_bias", None)
    except (ValueError, AttributeError, LookupError) as error:
        raise InputError(f"wanted a task in JSON, got {error}", path=path) from error
    return make_task(kind, **options)
