"""Finds the format and the task of a file by looking at its first lines, and says why."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING

from softf1.data._rows import USUAL, guess_task, looks_like_header
from softf1.data._text import read_start
from softf1.data.examples import MrcExample, PairExample, QAExample, TaggedSentence, TextExample
from softf1.data.glue import LAYOUTS
from softf1.data.problems import short
from softf1.data.spans import has_spans
from softf1.errors import InputError
from softf1.metrics.schemes import SCHEMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_JSON = re.compile(r"\s*(\{\s*\"|\[\s*[\[{])")
_KEY = re.compile(r'"((?:[^"\\]|\\.)*)"\s*:')
_ROWS = 200
"""How many rows are inspected."""
_FEW_LABELS = 50
_LIST, _LINES = "a list of objects", "one object per line"
_TABLES: tuple[tuple[str, str, dict[str, object]], ...]
_TABLES = (("tsv", "\t", {}), ("csv", ",", {}), ("csv", ";", {"delimiter": ";"}))
_TEXTS = {PairExample.task: "two texts", TextExample.task: "a text"}


@dataclass(frozen=True, slots=True)
class Detected:
    """The detected format and task of a file.

    Attributes:
        format: A name of `FORMATS`.
        task: The task of its examples.
        reason: The evidence in the file.
        options: Detected reader options, such as column numbers.
    """

    format: str
    task: str
    reason: str
    options: dict[str, object] = field(default_factory=dict)


def detect(
    path: Path | str, *, task: str | None = None, told: Mapping[str, object] | None = None
) -> Detected:
    """Detects the format of a file: the first one that its lines fit.

    A format needs positive evidence; a file that fits none is an error that lists the formats,
    never a guess. `told` are reader options of the user: column names are evidence for a table.
    """
    if str(path).startswith("hf:"):
        from softf1.data.hf import detect_task  # rarely needed, and slow to import

        return Detected("hf", task or detect_task(str(path)), "the name starts with hf:")
    start = read_start(path)
    if not start.strip():
        raise InputError("wanted data, got an empty file", path=path)
    of_json = _JSON.match(start) is not None
    looks = (_spans, _json) if of_json else (partial(_told, told=told or {}), *_LOOKS)
    for look in looks:
        detected = look(start)
        if detected is not None and task in (None, detected.task):
            return detected
    wanted = "CoNLL columns, CoNLL-U, word_TAG lines, a table with a header, `label text`, JSON"
    if of_json:
        wanted = (
            "SQuAD, QuoRef, BERT-MRC, or objects, one per line or in a list, with a text, two "
            "texts, spans, or a context with question and answers"
        )
    asked = f" for the task {task}" if task else ""
    first = short(start.strip().partition("\n")[0])
    message = f"wanted one of {wanted}{asked}; got a first line of {first}"
    raise InputError(f"{message}{_advise(start)}", path=path)


def detect_in_format(
    path: Path | str, format_name: str, tasks: Sequence[str], told: Mapping[str, object]
) -> Detected:
    """Detects the task of a file whose format is given, and its options.

    Args:
        path: The file.
        format_name: Its format.
        tasks: The tasks that this format can be for.
        told: Reader options of the user.

    Raises:
        InputError: The file cannot be read, or does not show which of the tasks it is for.
    """
    if not str(path).startswith("hf:"):
        read_start(path)  # its own error is better than the one below
    found = None
    with suppress(InputError):
        found = detect(path, told=told)
    if found is None or found.task not in tasks:
        known = ", ".join(tasks)
        raise InputError(
            f"wanted the task of this file, one of {known}: say --task=NAME", path=path
        )
    own = found.options if found.format == format_name else {}
    return Detected(format_name, found.task, "as told", own)


HOW = "--set text=NAME --set label=NAME (in a recipe, task.reader.text and task.reader.label)"


def _advise(start: str) -> str:
    """A hint for a file that fits no format: name the columns if it is a table."""
    header, _, rest = start.strip().partition("\n")
    between = max("\t,;", key=header.count)
    names = [name.strip(' "') for name in header.split(between)]
    if looks_like_header(names) and not rest.strip():
        return ", and no rows below that header"
    row = rest.partition("\n")[0]
    if len(names) < 2 or row.count(between) < len(names) - 1:
        return "; name the format with --format"
    columns = ", ".join(short(name) for name in names)
    return f"; if its columns are {columns}, say which: {HOW}"


def _told(start: str, told: Mapping[str, object]) -> Detected | None:
    """Detects a table by the column names that the user gave."""
    names = [told[role] for role in USUAL if role in told]
    wanted = {name for name in names if isinstance(name, str) and not name.isdecimal()}
    header = start.partition("\n")[0]
    for kind, delimiter, options in _TABLES:
        if wanted and wanted <= {name.strip(' "') for name in header.split(delimiter)}:
            task = PairExample.task if "first" in told else TextExample.task
            return Detected(kind, task, f"a header with {', '.join(sorted(wanted))}", options)
    return None


def _spans(start: str) -> Detected | None:
    if not any(map(has_spans, _list_objects(start))):
        return None
    is_list = start.lstrip().startswith("[")
    kind, where = ("spans-json", _LIST) if is_list else ("spans", _LINES)
    return Detected(kind, TaggedSentence.task, f"{where} with spans")


def _json(start: str) -> Detected | None:
    if '"start_position"' in start and '"query"' in start:
        return Detected("mrc", MrcExample.task, "items with query and start_position")
    articles = '"paragraphs"' in start
    if articles and '"context_id"' in start:
        return Detected("quoref", QAExample.task, "paragraphs with context_id, as QuoRef has")
    if articles or all(f'"{key}"' in start for key in ("context", "question", "answers")):
        reason = "articles with paragraphs" if articles else "a context, question and answers"
        return Detected("squad", QAExample.task, reason)
    is_list = start.lstrip().startswith("[")
    kind, where = ("json", _LIST) if is_list else ("jsonl", _LINES)
    task = guess_task(_first_keys(start.strip(), is_list=is_list))
    return Detected(kind, task, f"{where} with {_TEXTS[task]}") if task else None


def _list_objects(start: str) -> Iterator[object]:
    """Yields the first objects that are complete."""
    at = 0
    with suppress(ValueError, RecursionError):  # no more objects, or one that is cut off
        for _ in range(_ROWS):
            value, at = json.JSONDecoder().raw_decode(start, start.index("{", at))
            yield value


def _first_keys(start: str, *, is_list: bool) -> list[str]:
    """The keys of the first object, as far as it was read."""
    try:
        value, end = json.JSONDecoder().raw_decode(start, start.find("{"))
    except (ValueError, RecursionError):
        return _KEY.findall(start) if is_list or "\n" not in start else []
    return list(value) if is_list or "\n" not in start[:end] else []


def _conllu(start: str) -> Detected | None:
    rows = [row for row in start.split("\n") if row and not row.startswith("#")][:_ROWS]
    if rows and all(row.count("\t") == 9 and row[0].isdigit() for row in rows):
        return Detected("conllu", TaggedSentence.task, "ten columns that begin with a number")
    return None


def _brackets(start: str) -> Detected | None:
    rows = [row.split() for row in start.split("\n") if row.strip() and row[0] != "#"][:_ROWS]
    name = re.compile(r"\(?[A-Z_]*\*\)?|\([A-Z_]+\)")
    if rows and all(len(row) >= 12 and name.fullmatch(row[10]) for row in rows):
        return Detected(
            "conll2012", TaggedSentence.task, "twelve columns or more with entities in brackets"
        )
    return None


def _table(start: str) -> Detected | None:
    header, _, rest = start.partition("\n")
    for kind, delimiter, options in _TABLES:
        names = [name.strip(' "').lower() for name in header.split(delimiter)]
        single = kind == "csv" and names[0] in USUAL["text"]  # unlabelled, to predict on
        if (len(names) < 2 and not single) or not looks_like_header(names) or not rest.strip():
            continue
        for layout, columns in LAYOUTS.items():
            if kind == "tsv" and {columns["first"].lower(), columns["second"].lower()} <= {*names}:
                return Detected(layout, PairExample.task, f"the columns of {layout}")
        if task := guess_task(names):
            reason = f"a header with {_TEXTS[task]}: {', '.join(names)}"
            return Detected(kind, task, reason, options)
    return None


def _columns(start: str) -> Detected | None:
    """Detects one word per line, or one character if nearly all words are one character."""
    blocks = [block for block in re.split(r"\n[ \t]*\n", start) if block.strip("\n")]
    rows = [row for block in blocks for row in block.split("\n") if row][:_ROWS]
    rows = [row for row in rows if not row.startswith(("-DOCSTART-", "# "))]
    if not rows:
        return None
    between = "\t" if "\t" in rows[0] else " "
    split = [row.rstrip(" ").rsplit(between, 1) for row in rows]
    cells = [pair for pair in split if len(pair) == 2]
    tags = {pair[1] for pair in cells}
    of_a_scheme = _has_prefixes(tags)
    # Tags of a scheme are evidence even if a few rows lack a tag; the reader reports those.
    if len(cells) < (0.7 * len(rows) if of_a_scheme else len(rows)):
        return None
    if _chinese_characters([pair[0] for pair in cells]):
        return Detected("chars", TaggedSentence.task, "one Chinese character and its tag per line")
    if of_a_scheme:
        return Detected(
            "conll", TaggedSentence.task, "one word per line, tags of a scheme in the last column"
        )
    widths = {len(row.split(between)) for row in rows} if between == "\t" else set()
    if len(blocks) < 2 or len(widths) > 1 or len(tags) > max(_FEW_LABELS, len(rows) // 3):
        return None
    return Detected("conll", TaggedSentence.task, "one word per line, tags in the last column")


def _chinese_characters(words: list[str]) -> bool:
    single = [word for word in words if len(word) == 1]
    chinese = sum("\u3400" <= word <= "\u9fff" for word in single)
    return len(single) > 0.8 * len(words) and chinese > 0.4 * len(words)


def _has_prefixes(tags: set[str]) -> bool:
    letters = {letter for scheme in SCHEMES.values() for letter in scheme.prefixes}
    return all(tag == "O" or (tag[:1] in letters and tag[1:2] == "-") for tag in tags)


def _tagged(start: str) -> Detected | None:
    rows = [row for row in start.split("\n") if row.strip() and row.strip()[0] not in "<="][:_ROWS]
    for separator in "_/":
        items = [item for row in rows for item in row.split() if item not in ("[", "]")]
        tag = re.compile(rf".+\{separator}[A-Z$.,:;`'#()|-]+[0-9A-Z$-]*")
        if len(items) > 1 and all(tag.fullmatch(item) for item in items):
            reason = f"lines of word{separator}TAG"
            return Detected("tagged", TaggedSentence.task, reason, {"separator": separator})
    return None


def _pairs(start: str) -> Detected | None:
    """Detects a table without header: label, two texts, and perhaps an id."""
    rows = [row.split("\t") for row in start.split("\n") if row][:_ROWS]
    widths = {len(row) for row in rows}
    if len(rows) < 2 or widths not in ({3}, {4}):
        return None
    labels = {row[0] for row in rows}
    texts = all(" " in row[1] and " " in row[2] for row in rows)
    if len(labels) > _FEW_LABELS or any(" " in label for label in labels) or not texts:
        return None
    columns: dict[str, object] = {"label": 0, "first": 1, "second": 2, "header": False}
    if widths == {4}:
        columns["id"] = 3
    return Detected("tsv", PairExample.task, "a label, two texts and tabs, no header", columns)


def _headless(start: str) -> Detected | None:
    """Detects a CSV without header: a text and one of few labels, in either order."""
    for kind, delimiter, options in _TABLES[1:]:
        rows: list[list[str]] = []
        with suppress(csv.Error):
            rows = list(islice(csv.reader(StringIO(start), delimiter=delimiter), _ROWS))
        if len(rows) < 4 or {len(row) for row in rows[:-1]} != {2}:  # the last may be cut off
            continue
        for label, text in ((1, 0), (0, 1)):
            labels = Counter(row[label].strip() for row in rows[:-1])
            few = len(labels) <= min(_FEW_LABELS, len(rows) // 2)
            heading = labels[rows[0][label].strip()] == 1  # the name of a column occurs once
            words = all(name and " " not in name for name in labels)
            if few and words and not heading and all(" " in row[text].strip() for row in rows[:-1]):
                shown = ", ".join(sorted(labels)[:5])
                columns = {"text": text, "label": label, "header": False}
                reason = f"a text and one of few labels, no header: {shown}"
                return Detected(kind, TextExample.task, reason, {**columns, **options})
    return None


def _lines(start: str) -> Detected | None:
    """Detects lines that start with a label from a small set, before a tab or space."""
    rows = [row for row in start.split("\n") if row.strip()][:_ROWS]
    between = "\t" if "\t" in rows[0] else " "
    pairs = [row.partition(between) for row in rows]
    labels = {label for label, _, text in pairs if text.strip()}
    complete = all(label and text.strip() for label, _, text in pairs)
    few = min(_FEW_LABELS, len(rows) // 2)
    if not complete or len(labels) > few:
        return None
    for mark in ",;":  # a CSV whose texts start with the same few words
        if all(mark in row for row in rows) and len({row.split(mark)[-1] for row in rows}) <= few:
            return None
    shown = ", ".join(sorted(labels)[:5])
    return Detected("lines", TextExample.task, f"lines that begin with one of few labels: {shown}")


_LOOKS = (_conllu, _brackets, _table, _columns, _tagged, _pairs, _headless, _lines)
"""Detectors, the most specific first; the first that fits wins."""
