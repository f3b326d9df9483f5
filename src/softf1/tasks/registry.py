"""Tasks by kind; another package adds one through the entry point group `softf1.tasks`."""

from __future__ import annotations

import dataclasses
import importlib
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from softf1.data._text import Encoded
from softf1.data.detect import detect
from softf1.data.registry import list_formats
from softf1.errors import InputError
from softf1.files import load_json
from softf1.options import check_options, find_plugins, look_up, option_types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from softf1.tasks.base import Task

FILE = "softf1.json"
"""The file of a model folder that holds the task, with its labels and thresholds."""

TASKS = {
    "tagging": "softf1.tasks.tagging:Tagging",
    "classification": "softf1.tasks.classification:Classification",
    "pairs": "softf1.tasks.classification:Pairs",
    "qa": "softf1.tasks.qa:QA",
    "mrc_ner": "softf1.tasks.mrc_ner:MrcNer",
    "span_ner": "softf1.tasks.span_ner:SpanNer",
}


def list_tasks() -> dict[str, str]:
    """Returns the module and class of each kind of task, plugins included.

    >>> list_tasks()["tagging"]
    'softf1.tasks.tagging:Tagging'
    """
    return TASKS | {point.name: point.value for point in find_plugins("softf1.tasks")}


def make_task(kind: str, **options: Any) -> Task:
    """Makes a task of that kind.

    >>> make_task("tagging", unit="joint").unit
    'joint'
    """
    if "encoding" in options:  # the text encoding of files: an option of every reader
        options["reader"] = {**options.get("reader", {}), "encoding": options.pop("encoding")}
    cls = find_task(kind)
    types = option_types(cls)
    for field in dataclasses.fields(cls):
        if field.metadata.get("learned") and get_origin(types[field.name]) is tuple:
            values = options.get(field.name, ()) if get_args(types[field.name])[0] is str else ()
            for value in values if isinstance(values, (list, tuple)) else ():
                if not isinstance(value, str):  # a saved task may have been changed by hand
                    raise InputError(f"wanted texts as {field.name} of task {kind}, got {value!r}")
            types = types | {field.name: tuple}  # labels may be any text
    task: Task = cls(**check_options(options, types, owner=f"task {kind}"))
    return task


def find_task(kind: str) -> Any:
    """Returns the class of a kind of task.

    >>> find_task("qa").head
    'span'
    """
    where, _, name = look_up(kind, list_tasks(), "task").partition(":")
    return getattr(importlib.import_module(where), name)


def choose_file_kind(
    kind: str, path: str, *, format_name: str | None, options: Mapping[str, object]
) -> str:
    """Chooses the kind of task whose readers read a file for this kind of task.

    If a task reads files of several kinds, the format decides, or else the content of the file:
    BERT-MRC reads its own files, and tagging files with a query for each label.

    Args:
        kind: The task.
        path: The file.
        format_name: Its format; None detects it.
        options: Options of the reader.
    """
    task = find_task(kind)
    one = task.file_kind
    kinds = getattr(task, "file_kinds", (one if isinstance(one, str) else kind,))
    if len(kinds) == 1:
        return kinds[0]
    if format_name is not None:
        served = look_up(format_name, list_formats(), "format").tasks
        return next((own for own in kinds if own in served), kinds[0])
    if encoding := options.get("encoding"):
        path = Encoded(path, str(encoding))
    for own in kinds[:-1]:
        with suppress(InputError):
            return detect(path, task=own, told=options).task
    return kinds[-1]


def save_task(
    task: Task,
    folder: Path | str,
    *,
    plain_bias: Mapping[str, list[float]] | None = None,
    files: Mapping[str, Any] | None = None,
) -> None:
    """Writes the task beside its model.

    Args:
        task: The task, with its labels and thresholds.
        folder: The model folder.
        plain_bias: The trained bias of each head whose saved bias includes tuned shifts, by key.
        files: Size and checksum of the model's files.
    """
    fields = dataclasses.fields(task)  # type: ignore[arg-type]  # every task is a dataclass
    content = {"kind": task.kind, **{field.name: getattr(task, field.name) for field in fields}}
    content |= {"plain_bias": plain_bias} if plain_bias else {}
    content |= {"files": dict(files)} if files else {}
    text = json.dumps(content, ensure_ascii=False, indent=1)
    (Path(folder) / FILE).write_text(text + "\n", "utf-8")


def load_plain_bias(folder: Path | str) -> dict[str, list[float]]:
    """Reads the trained bias of each head whose saved bias includes tuned shifts, by key."""
    return dict(_read_file(folder).get("plain_bias", {}))


def load_task(folder: Path | str) -> Task:
    """Loads the task of a model folder, with its labels and thresholds."""
    options = _read_file(folder)
    for name in ("files", "plain_bias"):
        options.pop(name, None)
    kind = str(options.pop("kind"))
    return make_task(kind, **options)


def read_files(folder: Path | str) -> dict[str, dict[str, Any]]:
    """Reads size and checksum of the model's files; empty if an older version wrote the folder."""
    files = _read_file(folder).get("files", {})
    entries = files.items() if isinstance(files, dict) else [("files", files)]
    for name, known in entries:
        if (
            not isinstance(known, dict)
            or not {"size", "sha256"} <= {*known}
            or Path(name).name != name
        ):
            message = f"wanted size and sha256 of a file, got {known!r} of {name!r}"
            raise InputError(message, path=Path(folder) / FILE)
    return dict(entries)


def _read_file(folder: Path | str) -> dict[str, Any]:
    path = Path(folder) / FILE
    if not path.is_file():
        raise InputError("wanted a model folder written by softf1, found no task", path=path)
    content = load_json(path, "a task in JSON")
    if not isinstance(content, dict) or "kind" not in content:
        raise InputError("wanted a task in JSON, got no object with its kind", path=path)
    return content
