"""Predictions on files of any length, in chunks: memory does not grow with the file."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from softf1.data._text import read_start
from softf1.data.examples import MrcExample, TaggedSentence
from softf1.data.mrc import ask
from softf1.data.problems import Problems, RecordError
from softf1.data.registry import FORMATS, iterate
from softf1.errors import InputError
from softf1.tasks.base import format_line
from softf1.training.batching import prefetch
from softf1.training.evaluation import find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    import torch

    from softf1.tasks.base import Features, Prediction, Task
    from softf1.training.publish import Loaded

STDIN = "/dev/stdin"
CHUNK = 1000
"""Examples that are in memory at once; twice as many while the next chunk is made ready."""


def predict_lines(
    loaded: Loaded,
    examples: Iterable[Any],
    *,
    device: torch.device | str = "cpu",
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    batch_tokens: int = 16384,
    chunk: int = CHUNK,
) -> Iterator[bytes]:
    """A line of JSON for every example, in their order.

    Args:
        loaded: Model, task and codec; the model is on the device already.
        examples: What `read_input` gives; taken as they are needed.
        device: Where the model is.
        autocast: Makes the context of a forward.
        batch_tokens: Padded tokens of a batch.
        chunk: Examples that are encoded at once.
    """
    how = {"device": device, "autocast": autocast, "batch_tokens": batch_tokens}
    for own, predictions in predict_chunks(loaded, examples, chunk=chunk, **how):
        for example, prediction in zip(own, predictions, strict=True):
            yield format_line(loaded.task, example, prediction, gold=False)


def predict_chunks(
    loaded: Loaded, examples: Iterable[Any], *, chunk: int = CHUNK, **how: Any
) -> Iterator[tuple[list[Any], list[Prediction]]]:
    """Examples and their predictions, some at a time; the next ones are encoded meanwhile."""
    model, task, codec = loaded

    def encode(own: list[Any]) -> tuple[list[Any], Features]:
        return own, task.encode(own, codec)

    for own, features in prefetch(encode, cut(examples, chunk), depth=1):
        found = find(model, task, features, codec, **how)
        yield own, task.decode(found, features, own)


def cut(examples: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of `size` examples; queries about one sentence stay together, as decoding needs.

    >>> list(cut("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    own: list[Any] = []
    asked: set[str] = set()
    for example in examples:
        goes_on = isinstance(example, MrcExample) and bool(own)
        goes_on = goes_on and example.words == own[-1].words and example.label not in asked
        if len(own) >= size and not goes_on:
            yield own
            own = []
        if isinstance(example, MrcExample):
            asked = {*(asked if goes_on else ()), example.label}
        own.append(example)
    if own:
        yield own


def read_input(
    task: Task,
    path: Path | str,
    *,
    format: str | None = None,  # noqa: A002 - as in recipes
    options: Mapping[str, Any] | None = None,
    problems: Problems | None = None,
) -> Iterator[Any]:
    """The examples of a file to predict on, with labels or without.

    Args:
        task: Reads as it did in training, unless told otherwise here.
        path: A file, or `-` for the standard input, whose format must be known.
        format: Another format than that of training.
        options: Of the reader; where they or `format` are given, those of training are not used.
        problems: Decides about bad records.
    """
    problems = problems or Problems(unique=False)
    task = reading_as(task, format=format, options=options)
    if str(path) == "-":
        if task.format is None:
            raise InputError(
                "wanted --format with - (such as csv, or plain for lines of text), "
                "since the standard input is read only once"
            )
        reader = {key: value for key, value in task.reader.items() if key != "label"}
        return _read(_with_reader(task, task.format, reader), STDIN, problems)
    examples = _read(task, path, problems)
    try:
        first = next(examples)
    except InputError as error:
        other = _without_labels(task, path)
        if format is not None or set(options or ()) - {"encoding"}:
            raise
        if other is None:
            raise _advise(task, path, error) from None
        problems.note(f"{path}: read without labels")
        return _read(other, path, problems)
    return chain([first], examples)


def _advise(task: Task, path: Path | str, error: InputError) -> InputError:
    """The error, with the way to read lines of plain text where the file has such."""
    first = read_start(path).partition("\n")[0]
    plain = " " in first.strip() and not set(first) & set("\t{[,;")
    if isinstance(error, RecordError) or task.kind not in FORMATS["plain"].tasks or not plain:
        return error
    return InputError(f"{error}; lines of text without labels are read with --format plain")


def reading_as(
    task: Task,
    *,
    format: str | None,  # noqa: A002 - as in recipes
    options: Mapping[str, Any] | None,
) -> Task:
    """The task with another format of files or other options of their reader, if any are given."""
    if format is None and not options:
        return task
    same = {} if format is not None else task.reader
    return _with_reader(task, format or task.format, {**same, **(options or {})})


def _with_reader(task: Task, format: str | None, reader: dict[str, Any]) -> Task:  # noqa: A002
    other: Task = replace(task, format=format, reader=reader)  # type: ignore[type-var]
    return other


def _read(task: Task, path: Path | str, problems: Problems) -> Iterator[Any]:
    queries = getattr(task, "queries", None)
    if not isinstance(queries, dict):
        return iter(task.read(path, problems))
    found = iterate(path, format=task.format, task="tagging", problems=problems, **task.reader)
    return ask((one for one in found if isinstance(one, TaggedSentence)), queries)


def _without_labels(task: Task, path: Path | str) -> Task | None:
    """How else to read a file that does not read as in training: what it lacks may be labels."""
    if "label" in task.reader:
        kept = {key: value for key, value in task.reader.items() if key != "label"}
        return _with_reader(task, task.format, kept)
    rows = read_start(path).split("\n")
    one_column = all(len(row.split()) == 1 for row in rows if row) and any(rows)
    if task.kind in ("tagging", "mrc_ner") and one_column:
        return _with_reader(task, "conll", {"tag": None})
    return None
