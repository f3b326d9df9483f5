"""Surveys files: roles (train, dev, test), format, task, labels, imbalance and language."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from softf1.data._text import Encoded
from softf1.data.detect import Detected, detect, detect_in_format
from softf1.data.examples import TaggedSentence
from softf1.data.language import Language, guess_language
from softf1.data.problems import Problems
from softf1.data.registry import iterate, list_formats
from softf1.data.splits import find_overlaps
from softf1.data.stats import (
    Overview,
    Stats,
    describe,
    describe_new_labels,
    find_quantile,
    look_over,
)
from softf1.data.tags import convert
from softf1.errors import InputError
from softf1.options import look_up
from softf1.tasks.registry import choose_file_kind, find_task, list_tasks
from softf1.tasks.tags import check_tags

WORDS = {
    "train": {"train", "training"},
    "dev": {"dev", "devel", "valid", "validation", "val", "testa"},
    "test": {"test", "testb"},
}
"""Words in file names by role; CoNLL-2003 has two test files, testa and testb."""


def assign_roles(paths: Sequence[str]) -> dict[str, str]:
    """Assigns train, dev and test to paths, train first.

    A word in the file name decides, such as train, dev, valid, test; other files take the remaining
    roles in order. A single file is train, whatever its name.

    >>> assign_roles(["a/dev.txt", "a/train.txt"])
    {'train': 'a/train.txt', 'dev': 'a/dev.txt'}
    >>> assign_roles(["first.csv", "second.csv"])
    {'train': 'first.csv', 'dev': 'second.csv'}
    """
    if len(paths) > len(WORDS):
        raise InputError(f"wanted at most a train, a dev and a test file, got {len(paths)} files")
    if len(paths) == 1:
        return {"train": paths[0]}
    roles: dict[str, str] = {}
    for path in paths:
        role = _named_role(path)
        if role in roles:
            raise InputError(f"wanted one {role} file, got {roles[role]} and {path}")
        if role:
            roles[role] = path
    left = [role for role in WORDS if role not in roles]
    rest = [path for path in paths if path not in roles.values()]
    roles |= dict(zip(left, rest, strict=False))
    if "train" not in roles:
        got = " and ".join(f"{path} ({role})" for role, path in roles.items())
        raise InputError(f"wanted a training file among them, got {got}")
    return {role: roles[role] for role in WORDS if role in roles}


def _named_role(path: str) -> str | None:
    """The role in the name of the file, or else of its folder."""
    for part in list(reversed(re.split(r"[/\\]", path)))[:2]:
        found = set(re.findall(r"[a-z]+", part.lower()))
        roles = [role for role, words in WORDS.items() if words & found]
        if len(roles) == 1:
            return roles[0]
    return None


BATCH_SIZE = 32

OUTLIER = 4
"""An example is an outlier if it is this many times as long as 99% of the examples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """Facts about the files.

    Attributes:
        roles: The paths of train and, if given, dev and test.
        task: The task that the recipe is for.
        format: The format of all files; None if they differ, so that each is detected when read.
        reader: Options of the reader.
        reason: Why this format was chosen.
        corpus: The training data.
        stats: Its imbalance.
        language: The guessed language.
        encoder: The requested encoder.
        nesting: A sentence about spans that overlap, empty if none do.
        repairs: A sentence about tags that the task must repair, empty if there are none.
        notes: Remarks for the user, one sentence each.
    """

    roles: dict[str, str]
    task: str
    format: str | None
    reader: dict[str, Any]
    reason: str
    corpus: Overview
    stats: Stats
    language: Language
    encoder: str | None
    nesting: str
    repairs: str
    notes: tuple[str, ...]


def survey(
    paths: Sequence[str],
    *,
    task: str | None = None,
    format: str | None = None,  # noqa: A002 - the word that users know from recipes and --format
    options: Mapping[str, object] | None = None,
    encoder: str | None = None,
) -> Survey:
    """Reads the files; `task`, `format` and reader options replace what would be detected."""
    roles = assign_roles(paths)
    detected = {role: _look(path, task, format, options or {}) for role, path in roles.items()}
    if detected["train"].format in ("csv", "tsv", "json", "jsonl"):
        _check_labels(roles["train"], detected["train"])
    corpora = {role: look_over(roles[role], **_reading(one)) for role, one in detected.items()}
    train = corpora["train"]
    for role, corpus in corpora.items():
        if corpus.task != train.task:
            message = f"wanted files of one task, {train.path} is {train.task}"
            raise InputError(f"{message}; got {corpus.task} ({role})", path=corpus.path)
    if train.task == TaggedSentence.task:
        if train.counts.note:  # one tag does not fit the scheme of the others
            raise InputError(train.counts.note)
        for role, corpus in corpora.items():
            _check_tags(corpus, detected[role], train.counts.scheme)
    nested = next((corpus for corpus in corpora.values() if corpus.counts.nested), None)
    nesting = nested.counts.nesting if nested else ""
    if nested and task == TaggedSentence.task:
        message = f"wanted spans that do not overlap, since a word has one tag; {nesting}"
        raise InputError(f"{message}; --task span_ner or mrc_ner finds them", path=nested.path)
    unseen = [
        describe_new_labels(train, other) for role, other in corpora.items() if role != "train"
    ]
    overlaps = find_overlaps({corpus.path: corpus.texts for corpus in corpora.values()})
    kind = task or (_find_task_for_nested(train.task) if nesting else train.task)
    repairs = ""
    if hasattr(find_task(kind), "repair"):
        each = (_describe_repairs(corpora[role], one) for role, one in detected.items())
        repairs = next(filter(None, each), "")
    first = detected["train"]
    alike = all(
        (one.format, one.options) == (first.format, first.options) for one in detected.values()
    )
    return Survey(
        roles=roles,
        task=kind,
        format=train.format if alike else None,
        reader=first.options if alike else {},
        reason=first.reason,
        corpus=train,
        stats=describe(train, batch_size=BATCH_SIZE),
        language=guess_language(train.first),
        encoder=encoder,
        nesting=nesting,
        repairs=repairs,
        notes=(*filter(None, unseen), *map(str, overlaps), *_find_outliers(train)),
    )


def _find_task_for_nested(kind: str) -> str:
    """Finds the task that reads files of this kind and predicts nested spans."""
    found = {name: find_task(name) for name in list_tasks()}
    able = (name for name, one in found.items() if one.file_kind == kind and hasattr(one, "nested"))
    return next(able, kind)


def _find_outliers(train: Overview) -> list[str]:
    """A note about the longest example, if it is far longer than the others."""
    longest = max(train.lengths)
    most = find_quantile(train.lengths - Counter([longest]), 0.99)
    if longest < OUTLIER * most or not most:
        return []
    said = f"has {longest:,} words, 99% of the others at most {most:,}"
    return [f"{train.path}:{train.longest} {said}: task.max_length cuts it"]


def _check_labels(path: str, detected: Detected) -> None:
    """Raises if a table has no label column, and lists its columns."""
    problems = Problems()
    next(iterate(path, problems=problems, **_reading(detected)), None)
    note = next((one for one in problems.notes if "no column of labels" in one), None)
    if note is not None:
        there = note.partition(" among ")[2].removesuffix(": read as unlabelled")
        message = f"wanted a column of labels, got {there}: say which with --set label=NAME"
        raise InputError(message, path=path)


def _check_tags(corpus: Overview, detected: Detected, scheme: str | None) -> None:
    """Raises if tags have another scheme than the training data."""
    if corpus.counts.scheme == scheme:
        return
    sentences = iterate(corpus.path, **_reading(detected))
    tagged = ((one.line, one.tags) for one in sentences if isinstance(one, TaggedSentence))
    check_tags(tagged, scheme, corpus.path)


def _describe_repairs(corpus: Overview, detected: Detected) -> str:
    """A sentence about tags of a file that its scheme does not allow; empty if there are none."""
    if corpus.counts.scheme is None:
        return ""
    problems, sentences = Problems(), iterate(corpus.path, **_reading(detected))
    tagged = (one for one in sentences if isinstance(one, TaggedSentence))
    for _ in convert(tagged, source=corpus.counts.scheme, repair=True, problems=problems):
        pass
    wrong = problems.changes.total()
    many = "1 sentence has" if wrong == 1 else f"{wrong:,} sentences have"
    said = f"{corpus.path}: {many} tags that {corpus.counts.scheme} does not allow"
    return said if wrong else ""


def _reading(detected: Detected) -> dict[str, Any]:
    """Returns the arguments with which `read` reads a file."""
    return {"format": detected.format, "task": detected.task or None, **detected.options}


def _look(
    path: str, task: str | None, format_name: str | None, options: Mapping[str, object]
) -> Detected:
    """Detects format, task and options of one file."""
    if encoding := options.get("encoding"):
        path = Encoded(path, str(encoding))
    if task is not None:
        task = choose_file_kind(task, path, format_name=format_name, options=options)
    if format_name is None:
        found = detect(path, task=task, told=options)
    else:
        tasks = look_up(format_name, list_formats(), "format").tasks
        found = Detected(format_name, task or "", "as told")
        if task is None and len(tasks) > 1:
            found = detect_in_format(path, format_name, tasks, options)
    return replace(found, options={**found.options, **options})
