"""The formats by name, and `read` and `iterate` for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from softf1.data import (
    chars,
    conll,
    conllu,
    glue,
    hf,
    lines,
    mrc,
    plain,
    spans,
    squad,
    tables,
    tagged,
)
from softf1.data._text import Encoded
from softf1.data.counts import LabelCounts, start_tally
from softf1.data.detect import detect, detect_in_format
from softf1.data.problems import OnError, Problems
from softf1.errors import InputError
from softf1.options import check_options, find_plugins, look_up, option_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from softf1.data.examples import Example, Format

_SETTLED = ("path", "problems", "task", "kind", "layout")
"""Parameters of readers that follow from file, format and task, so users cannot set them."""
_SHARED = ("max_line", "max_unpacked", "encoding_errors")
"""Options of every format, handled by `Problems`."""

_READERS = (conll, chars, conllu, tagged, spans, mrc, squad, glue, tables, lines, plain, hf)

FORMATS: dict[str, Format] = {
    name: one for reader in _READERS for name, one in reader.FORMATS.items()
}
"""Our own formats; each reader declares those that it reads."""

TASKS = tuple(dict.fromkeys(task for one in FORMATS.values() for task in one.tasks))
"""The task kinds that our own formats support."""


@dataclass(frozen=True)
class Corpus:
    """The examples of one file, with notes about assumptions and skipped records."""

    path: str
    format: str
    task: str
    examples: list[Example]
    problems: Problems

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.examples)

    @cached_property
    def counts(self) -> LabelCounts:
        """Negatives, positives and labels."""
        tally = start_tally(self.task, self.path)
        for example in self.examples:
            tally.add(example)
        return tally.finish()


def list_formats() -> dict[str, Format]:
    """Lists the formats by name, including those of other packages (`softf1.formats`)."""
    return FORMATS | {point.name: point.load() for point in find_plugins("softf1.formats")}


def read(
    path: Path | str,
    *,
    format: str | None = None,  # noqa: A002 - the word that users know from recipes and --format
    task: str | None = None,
    on_error: OnError = "raise",
    **options: object,
) -> Corpus:
    """Reads a whole file of any known format.

    Args:
        path: A file (UTF-8, a BOM, CRLF and gzip are fine), or `hf:NAME`. `encoding=` names
            another encoding.
        format: A name of `FORMATS`; None detects it and adds a note.
        task: One of `TASKS`; needed if the format has several and the file does not show which.
        on_error: "raise" stops at the first bad record, "skip" skips and counts it.
        options: The reader's own options, such as `tag=3` for columns.

    Raises:
        InputError: The file is wrong; the message names the line, what was expected and found.
    """
    problems = Problems(on_error)
    name, kind, examples = open_corpus(path, problems, format=format, task=task, **options)
    return Corpus(str(path), name, kind, list(examples), problems)


def iterate(
    path: Path | str, *, problems: Problems | None = None, **settings: Any
) -> Iterator[Example]:
    """Reads a file of any known format one example at a time, in bounded memory for line formats.

    Takes the arguments of `read`, with `problems=Problems("skip")` instead of `on_error`.
    """
    return open_corpus(path, problems or Problems(), **settings)[2]


def open_corpus(
    path: Path | str,
    problems: Problems,
    /,
    *,
    format: str | None = None,  # noqa: A002 - as in read
    task: str | None = None,
    **options: object,
) -> tuple[str, str, Iterator[Example]]:
    """Chooses format, task and options before reading; adds a note about what was detected.

    Takes the arguments of `read`. Returns the format, the task and the examples.
    """
    name = format
    if (encoding := options.pop("encoding", None)) is not None:
        path = Encoded(path, str(encoding))
    formats = list_formats()
    if task is not None:
        look_up(task, dict.fromkeys(kind for one in formats.values() for kind in one.tasks), "task")
    if name is None:
        detected = detect(path, task=task, told=options)
        problems.note(
            f"{path}: took format {detected.format}, task {detected.task}: {detected.reason}"
        )
        name, task, options = detected.format, detected.task, {**detected.options, **options}
    spec = look_up(name, formats, "format")
    if task is None and len(spec.tasks) == 1:
        task = spec.tasks[0]
    elif task is None and path:
        detected = detect_in_format(path, name, spec.tasks, options)
        task, options = detected.task, {**detected.options, **options}
    if task not in spec.tasks:
        raise InputError(f"format {name} serves the tasks {', '.join(spec.tasks)}; got {task}")
    parameters = option_types(spec.read)
    allowed = {key: one for key, one in parameters.items() if key not in _SETTLED}
    allowed |= {key: option_types(Problems)[key] for key in _SHARED}
    options = check_options(options, allowed, owner=f"format {name}")
    for key in {*_SHARED} & {*options}:
        setattr(problems, key, options.pop(key))
    fixed = {"task": task} if "task" in parameters else {}
    read_all = partial(spec.read, path, problems=problems, **{**spec.options, **options, **fixed})
    return name, task, _at_least_one(read_all, path, problems)


def _at_least_one(
    read_all: Callable[[], Iterator[Example]], path: Path | str, problems: Problems
) -> Iterator[Example]:
    """Yields the reader's examples; raises if there are none."""
    empty = True
    for example in read_all():
        empty = False
        yield example
    if empty:
        left = f" ({problems})" if problems.skipped else ""
        raise InputError(f"wanted at least one example, got none{left}", path=path)
