"""`hf:NAME` through the `datasets` library, when it is installed; folders on disk too.

`hf:NAME`, `hf:NAME:CONFIG` or `hf:NAME:CONFIG:SPLIT`; an empty CONFIG is the default one. NAME may
be a folder that `save_to_disk` wrote, or one with files that the library knows.
"""

from __future__ import annotations

from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any

from softf1.data._json import Document, Node
from softf1.data._rows import Column, Row, guess_task
from softf1.data.examples import (
    Example,
    Format,
    PairExample,
    QAExample,
    TaggedSentence,
    TextExample,
)
from softf1.data.problems import Problems, RecordError, short
from softf1.data.squad import Offsets, read_answers
from softf1.data.tables import RowReader
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PREFIX = "hf:"
_WORDS = ("tokens", "words")
_TAGS = ("ner_tags", "tags", "labels", "pos_tags", "upos")


def iterate(
    path: Path | str,
    *,
    task: str,
    words: str | None = None,
    tag: str | None = None,
    text: Column = None,
    first: Column = None,
    second: Column = None,
    label: Column = None,
    id: Column = None,  # noqa: A002 - the column's usual name
    several: bool = False,
    offsets: Offsets = "check",
    problems: Problems | None = None,
) -> Iterator[Example]:
    """Reads the rows of a dataset; the line of an example is the number of its row, from 1.

    Args:
        path: `hf:NAME[:CONFIG[:SPLIT]]`; the default split is train, with a note.
        task: "tagging", "qa", "pairs" or "classification".
        words: The column of words (tagging); None looks for common names, as for all columns.
        tag: The column of tags (tagging).
        text: The column of the text; this and the columns up to `id` are as in `tables`.
        first: The column of a pair's first text.
        second: The column of a pair's second text.
        label: The column of the label; numbers of a ClassLabel become their names.
        id: The column of the id.
        several: As in `squad`.
        offsets: As in `squad`.
        problems: Decides about bad rows; None raises at the first.
    """
    problems = problems or Problems()
    problems.refuse_replacing(path)
    dataset = load_dataset(str(path))
    problems.note(f"{path}: split {dataset.split or 'not named'}, {len(dataset)} rows")
    make: Callable[[Row, int], Example]
    if task == TaggedSentence.task:
        make = _sentences(dataset, path, words=words, tag=tag)
    elif task == QAExample.task:
        make = _questions(dataset, path, several=several, offsets=offsets, problems=problems)
    else:
        roles = {"text": text} if task == TextExample.task else {"first": first, "second": second}
        asked: dict[str, Column] = {**roles, "label": label, "id": id}
        make = RowReader(dataset.column_names, asked, path, 1, None, problems).read
    # The names of a ClassLabel, or of a list of them.
    names = {
        column: getattr(getattr(feature, "feature", feature), "names", None)
        for column, feature in dataset.features.items()
    }
    rows = ({key: _to_names(value, names[key]) for key, value in row.items()} for row in dataset)
    return problems.read_each(enumerate(rows, 1), make, path)


def detect_task(path: str) -> str:
    """Detects the task from the columns of a dataset."""
    columns = set(load_dataset(path).column_names)
    if columns & {*_WORDS}:
        return TaggedSentence.task
    if {"context", "question"} <= columns:
        return QAExample.task
    if task := guess_task(columns):
        return task
    there = ", ".join(sorted(columns))
    raise InputError(
        f"wanted columns of a known task, got {there}; name the task with task=…", path=path
    )


def load_dataset(path: str) -> Any:
    """Loads the dataset `hf:NAME[:CONFIG[:SPLIT]]`."""
    try:
        import datasets  # an optional dependency
    except ImportError:
        message = "wanted the datasets library, which is not installed: pip install 'softf1[hf]'"
        raise InputError(message, path=path) from None
    name, _, rest = path.removeprefix(PREFIX).partition(":")
    config, _, split = rest.partition(":")
    if not name:
        raise InputError("wanted a name after hf:, such as hf:conll2003, got none", path=path)
    try:
        saved = any((Path(name) / f"dataset_{what}.json").exists() for what in ("info", "dict"))
        if saved:
            loaded = datasets.load_from_disk(name)
        else:
            loaded = datasets.load_dataset(name, config or None)
    except Exception as error:  # noqa: BLE001 - its backends raise anything
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(f"wanted a dataset, got: {reason}", path=path) from None
    if isinstance(loaded, dict):
        split = split or ("train" if "train" in loaded else next(iter(loaded)))
        if split not in loaded:
            message = f"wanted the split {split!r}, got the splits {', '.join(loaded)}"
            raise InputError(message, path=path)
        return loaded[split]
    return loaded


def _sentences(
    dataset: Any, path: Path | str, *, words: str | None, tag: str | None
) -> Callable[[Row, int], TaggedSentence]:
    words = _choose(dataset, path, words, _WORDS, "words")
    tag = _choose(dataset, path, tag, _TAGS, "tag")

    def make(row: Row, line: int) -> TaggedSentence:
        own: Any = row[words]
        tags: Any = row[tag]
        if not _texts(own) or not _texts(tags) or len(own) != len(tags):
            message = f"wanted as many tags as words, got {short(repr(own))}, {short(repr(tags))}"
            raise RecordError("words and tags differ", message)
        return TaggedSentence(tuple(own), tuple(map(intern, tags)), line, str(row.get("id") or ""))

    return make


def _questions(
    dataset: Any, path: Path | str, *, several: bool, offsets: Offsets, problems: Problems
) -> Callable[[Row, int], QAExample]:
    for column in ("context", "question"):
        _choose(dataset, path, column, (), "")

    def make(row: Row, line: int) -> QAExample:
        node = Node(row, Document("", path, line=line))
        context, question = node.get("context", str), node.get("question", str)
        answers = read_answers(node, context, several=several, offsets=offsets, problems=problems)
        name, title = str(row.get("id") or line), str(row.get("title") or "")
        return QAExample(name, question, context, answers, title, line)

    return make


def _choose(
    dataset: Any, path: Path | str, column: str | None, usual: tuple[str, ...], option: str
) -> str:
    there: list[str] = dataset.column_names
    for name in (column,) if column else usual:
        if name in there:
            return name
    wanted = column or " or ".join(usual)
    hint = f" (option {option})" if option else ""
    raise InputError(f"wanted the column {wanted}{hint}, got {', '.join(there)}", path=path)


def _to_names(value: Any, names: list[str] | None) -> Any:
    """Converts label numbers to names; -1, a hidden label, to None."""
    if names is None or value is None:
        return value
    if isinstance(value, list):
        return [_to_names(one, names) for one in value]
    return names[value] if 0 <= value < len(names) else None


def _texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


FORMATS = {
    "hf": Format(
        iterate,
        (TaggedSentence.task, QAExample.task, PairExample.task, TextExample.task),
        "hf:NAME, the datasets library",
    ),
}
