"""Questions over contexts: SQuAD 1.1 and 2.0, CMRC 2018 and, with `several`, QuoRef."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from softf1.data._json import Node, load
from softf1.data.examples import Answer, QAExample, Span
from softf1.data.problems import Problems, RecordError
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Offsets = Literal["check", "nearest"]


def iterate(
    path: Path | str,
    *,
    several: bool = False,
    offsets: Offsets = "check",
    problems: Problems | None = None,
) -> Iterator[QAExample]:
    """Reads the questions of a JSON file, in the order of the file.

    Args:
        path: The file.
        several: False reads a question's answers as alternatives (SQuAD, CMRC), True as the spans
            of one answer (QuoRef).
        offsets: "check" refuses an answer whose text is not at its offset; "nearest" moves it to
            the nearest place where the text is, and counts that.
        problems: Decides about bad questions; None raises at the first.
    """
    if offsets not in ("check", "nearest"):
        raise InputError(f'wanted offsets "check" or "nearest", got {offsets!r}')
    problems = problems or Problems()
    ids: set[str] = set()
    for title, context, node in _questions(load(path), problems):
        try:
            example = _read_question(title, context, node, several, offsets, problems)
            if example.id in ids:
                raise node.error("duplicate id", f"wanted a new id, got {example.id!r} again")
        except RecordError as error:
            problems.add(error)
        else:
            ids.add(example.id)
            yield example


def _questions(document: Node, problems: Problems) -> Iterator[tuple[str, str, Node]]:
    """Yields (title, context, question); an article or paragraph that is wrong is one problem."""
    for article in document.items("data"):
        try:
            title = article.find("title", str) or ""
            paragraphs = list(article.items("paragraphs"))
        except RecordError as error:
            problems.add(error)
            continue
        for paragraph in paragraphs:
            try:
                context = paragraph.get("context", str)
                questions = list(paragraph.items("qas"))
            except RecordError as error:
                problems.add(error)
                continue
            for question in questions:
                yield title, context, question


def _read_question(
    title: str, context: str, node: Node, several: bool, offsets: Offsets, problems: Problems
) -> QAExample:
    name, question = node.get("id", str), node.get("question", str)
    items = list(node.items("answers")) if node.find("answers", list) is not None else []
    impossible = node.find("is_impossible", bool)
    if impossible and items:
        raise node.error(
            "answer to the impossible", "wanted no answers where is_impossible is true"
        )
    if impossible is False and not items:
        raise node.error("no answer", "wanted an answer where is_impossible is false, got none")
    found = [_read_answer(item, context, offsets, problems) for item in items]
    if several and found:
        answers: tuple[Answer, ...] = (Answer(*zip(*sorted(found), strict=True)),)
    else:
        answers = tuple(Answer((span,), (text,)) for span, text in found)
    return QAExample(name, question, context, answers, title)


def _read_answer(
    node: Node, context: str, offsets: Offsets, problems: Problems
) -> tuple[Span, str]:
    text, start = node.get("text", str), node.get("answer_start", int)
    if not text:
        raise node.error("empty answer", "wanted the text of an answer, got none")
    if start >= 0 and context.startswith(text, start):
        return (start, start + len(text)), text
    place = _nearest(context, text, start)
    got = f"found at {place}" if place >= 0 else "it is nowhere in the context"
    message = f"wanted {_short(text)} at offset {start}, got {_short(context[max(start, 0) :][: len(text)])}"
    wrong = node.error("answer not at its offset", f"{message}; {got}")
    if offsets == "check" or place < 0:
        raise wrong
    problems.change("answer moved to where its text is", str(wrong))
    return (place, place + len(text)), text


def _nearest(context: str, text: str, start: int) -> int:
    """The place of the text that is nearest to `start`, -1 if there is none."""
    start = min(max(start, 0), len(context))
    before, after = context.rfind(text, 0, start + len(text)), context.find(text, start)
    if before < 0 or after < 0:
        return max(before, after)
    return before if start - before <= after - start else after


def _short(text: str, limit: int = 40) -> str:
    return repr(text if len(text) <= limit else text[:limit] + "…")
