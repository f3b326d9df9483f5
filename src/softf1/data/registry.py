"""The formats by name, and the one way to read any of them: `read` and `iterate`."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar, cast

from softf1.data._text import Encoded
from softf1.data.counts import Counts, count
from softf1.data.problems import OnError, Problems
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from softf1.data.examples import Example

    Reader = Callable[..., Iterator[Example]]

ExampleT = TypeVar("ExampleT")
T = TypeVar("T")

TASKS = ("tagging", "mrc_ner", "qa", "pairs", "classification")

_SETTLED = ("path", "problems", "task", "kind", "layout")
"""Parameters of readers that file, format and task decide, which are no options of a user."""
_BOUNDS = ("max_line", "max_unpacked")
"""Options of every format: `Problems` has them."""
_KINDS = {"int": "int", "bool": "bool", "None": "NoneType"}
"""Types of an option by the words of its annotation; any other word is a text."""


@dataclass(frozen=True, slots=True)
class Format:
    """A file format: where its reader is, which tasks it can serve, and what it looks like.

    Attributes:
        module: The module of `softf1.data` whose `iterate` reads it.
        tasks: The tasks that its examples serve; a reader of several takes `task=`.
        summary: One line for listings.
        options: Options that this format fixes in the module's reader.
    """

    module: str
    tasks: tuple[str, ...]
    summary: str
    options: dict[str, object] = field(default_factory=dict)


FORMATS: dict[str, Format] = {
    "conll": Format("conll", ("tagging",), "one word a line in columns, blank line between"),
    "conll2012": Format(
        "conll",
        ("tagging",),
        "OntoNotes columns of CoNLL-2012, names in brackets",
        {"word": 3, "tag": 10, "comment": "#", "brackets": True},
    ),
    "chars": Format("chars", ("tagging",), "one character and its tag a line (Chinese)"),
    "conllu": Format("conllu", ("tagging",), "Universal Dependencies, ten columns"),
    "tagged": Format("tagged", ("tagging",), "one sentence a line, word_TAG word_TAG"),
    "squad": Format("squad", ("qa",), "SQuAD 1.1 and 2.0, CMRC 2018"),
    "quoref": Format("squad", ("qa",), "QuoRef: several spans an answer", {"several": True}),
    "mrc": Format("mrc", ("mrc_ner",), "BERT-MRC: query, context, positions"),
    "mrpc": Format("glue", ("pairs",), "MRPC of GLUE or of MSR", {"layout": "mrpc"}),
    "qqp": Format("glue", ("pairs",), "QQP of GLUE", {"layout": "qqp"}),
    "tsv": Format("tables", ("classification", "pairs"), "tabs, no quoting", {"kind": "tsv"}),
    "csv": Format("tables", ("classification", "pairs"), "commas, quoted", {"kind": "csv"}),
    "jsonl": Format("tables", ("classification", "pairs"), "one object a line", {"kind": "jsonl"}),
    "json": Format("tables", ("classification", "pairs"), "a list of objects", {"kind": "json"}),
    "lines": Format("lines", ("classification",), "label, a space, the text"),
    "plain": Format(
        "plain", ("tagging", "classification", "pairs"), "one text a line, no labels, to predict"
    ),
    "hf": Format(
        "hf", ("tagging", "qa", "pairs", "classification"), "hf:NAME, the datasets library"
    ),
}


@dataclass(frozen=True)
class Corpus:
    """One file's examples, with what was taken for granted and what was skipped."""

    path: str
    format: str
    task: str
    examples: list[Example]
    problems: Problems

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.examples)

    @cached_property
    def counts(self) -> Counts:
        """Negatives, positives and labels."""
        return count(self)

    def of(self, kind: type[ExampleT]) -> list[ExampleT]:
        """The examples as one type, or an error that says what the file has instead."""
        for example in self.examples:
            if not isinstance(example, kind):
                got = f"{type(example).__name__} (format {self.format}, task {self.task})"
                raise InputError(
                    f"wanted examples of type {kind.__name__}, got {got}", path=self.path
                )
        return cast("list[ExampleT]", self.examples)


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
        format: A name of `FORMATS`; None looks at the file and notes what it took.
        task: One of `TASKS`; needed where a format serves several and the file does not tell.
        on_error: "raise" stops at the first bad record, "skip" leaves it out and counts it.
        options: The reader's own options, such as `tag=3` for columns.

    Raises:
        InputError: Names the file, the line, what was wanted and what was got.
    """
    problems = Problems(on_error)
    name, kind, reader = choose(path, format=format, task=task, problems=problems, options=options)
    return Corpus(str(path), name, kind, list(reader()), problems)


def iterate(
    path: Path | str,
    *,
    format: str | None = None,  # noqa: A002 - as in read
    task: str | None = None,
    problems: Problems | None = None,
    **options: object,
) -> Iterator[Example]:
    """Reads a file of any known format one example at a time, in bounded memory for line formats.

    Takes what `read` takes, with `problems=Problems("skip")` in place of `on_error`.
    """
    problems = problems or Problems()
    _, _, reader = choose(path, format=format, task=task, problems=problems, options=options)
    return reader()


def choose(
    path: Path | str,
    *,
    format: str | None,  # noqa: A002 - as in read
    task: str | None,
    problems: Problems,
    options: dict[str, object],
) -> tuple[str, str, Callable[[], Iterator[Example]]]:
    """Settles format, task and options before anything is read; what was detected is noted."""
    name = format
    options = dict(options)
    if (encoding := options.pop("encoding", None)) is not None:
        path = Encoded(path, str(encoding))
    if task is not None:
        look_up(task, dict.fromkeys(TASKS), "task")
    if name is None:
        found = importlib.import_module("softf1.data.detect").detect(path, task=task, told=options)
        problems.note(f"{path}: took format {found.format}, task {found.task}: {found.reason}")
        name, task, options = found.format, found.task, {**found.options, **options}
    spec = look_up(name, FORMATS, "format")
    task = _settle_task(name, spec, task)
    reader: Reader = importlib.import_module(f"softf1.data.{spec.module}").iterate
    parameters = inspect.signature(reader).parameters
    own = inspect.signature(Problems).parameters
    allowed = {key: one for key, one in parameters.items() if key not in _SETTLED}
    allowed |= {key: own[key] for key in _BOUNDS}
    for option, value in options.items():
        _check_option(option, value, look_up(option, allowed, f"option of format {name}"))
    for bound in {*_BOUNDS} & {*options}:
        setattr(problems, bound, options[bound])
    options = {option: value for option, value in options.items() if option not in _BOUNDS}
    fixed = {"task": task} if "task" in parameters else {}
    read_all = partial(reader, path, problems=problems, **{**spec.options, **options, **fixed})
    return name, task, partial(_at_least_one, read_all, path, problems)


def _at_least_one(
    read_all: Callable[[], Iterator[Example]], path: Path | str, problems: Problems
) -> Iterator[Example]:
    """The reader's examples, or an error where it has none: an empty file is no data."""
    empty = True
    for example in read_all():
        empty = False
        yield example
    if empty:
        left = f" ({problems})" if problems.skipped else ""
        raise InputError(f"wanted at least one example, got none{left}", path=path)


def _check_option(name: str, value: object, parameter: inspect.Parameter) -> None:
    """Refuses a value of the wrong type: options come from recipes and command lines."""
    words = str(parameter.annotation).replace("Column", "str | int | None").split(" | ")
    kinds = {_KINDS.get(word, "str") for word in words}
    if type(value).__name__ not in kinds or value == "":
        raise InputError(f"wanted {name} to be {' or '.join(words)}, got {value!r}")


def _settle_task(format_name: str, spec: Format, task: str | None) -> str:
    """The task that was asked for, or the only one that the format serves."""
    if task is None and len(spec.tasks) == 1:
        return spec.tasks[0]
    if task not in spec.tasks:
        wanted = ", ".join(spec.tasks)
        raise InputError(f"format {format_name} serves the tasks {wanted}; got {task}")
    return task


def look_up(name: str, names: Mapping[str, T], what: str) -> T:
    """The entry of that name, or an error that lists the names there are."""
    if name in names:
        return names[name]
    near = get_close_matches(name, names, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise InputError(f"unknown {what} {name!r}{hint}; known: {', '.join(names)}")
