"""Questions over contexts: SQuAD 1.1 and 2.0, CMRC 2018 and, with `several`, QuoRef.

A file has articles with paragraphs, as published, or a row for each question with its context, as
the datasets library writes them: `{"id": …, "context": …, "question": …, "answers": {"text": […],
"answer_start": […]}}`, in a list or one per line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from softf1.data._json import Node, stream
from softf1.data.examples import Answer, Format, QAExample
from softf1.data.problems import Problems, short
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
        offsets: "check" refuses an answer whose text is not at its offset. "nearest" moves it to
            the nearest place where its text is; an answer that is nowhere in the context is kept
            for scoring, after the others and without a span. Both cases are counted.
        problems: Decides about bad questions; None raises at the first.
    """
    if offsets not in ("check", "nearest"):
        raise InputError(f'wanted offsets "check" or "nearest", got {offsets!r}')
    problems = problems or Problems()
    ids: set[str] = set()

    def read(asked: tuple[str, str, Node], _: int) -> QAExample:
        title, context, node = asked
        name, question = node.get("id", str), node.get("question", str)
        answers = read_answers(node, context, several=several, offsets=offsets, problems=problems)
        problems.remember(ids, name, node.error)
        return QAExample(name, question, context, answers, title, node.line)

    return problems.read_each(enumerate(_questions(path, problems)), read, path)


def _questions(path: Path | str, problems: Problems) -> Iterator[tuple[str, str, Node]]:
    """Yields (title, context, question); a bad article or paragraph counts as one problem."""

    def open_article(node: Node, _: int) -> tuple[str, list[Node]]:
        title = node.find("title", str) or ""
        return title, [node] if _is_row(node) else list(node.items("paragraphs"))

    def open_paragraph(node: Node, _: int) -> tuple[str, list[Node]]:
        return node.get("context", str), [node] if _is_row(node) else list(node.items("qas"))

    articles = enumerate(stream(path, problems, key="data", rows="question"))
    for title, paragraphs in problems.read_each(articles, open_article, path):
        for context, questions in problems.read_each(enumerate(paragraphs), open_paragraph, path):
            for question in questions:
                yield title, context, question


def _is_row(node: Node) -> bool:
    """Whether an element of the file is a question itself, with its context."""
    return not node.steps and "question" in node.fields()


def read_answers(
    node: Node, context: str, *, several: bool, offsets: Offsets, problems: Problems
) -> tuple[Answer, ...]:
    """Reads the answers of a question; those without a span come last."""
    read = [_read_answer(item, context, offsets, problems) for item in _answers(node)]
    read.sort(key=lambda answer: (not answer.spans, answer.spans if several else ()))
    if not several or not read:
        return tuple(read)
    spans = tuple(span for answer in read for span in answer.spans)
    return (Answer(spans, tuple(text for answer in read for text in answer.texts)),)


def _answers(node: Node) -> list[Node]:
    """Returns the answers of a question; some test sets do not even have the key."""
    given = node.find("answers", object)
    if isinstance(given, dict):
        items = _pair_answers(node.child("answers"))
    else:
        items = [] if given is None else list(node.items("answers"))
    impossible = node.find("is_impossible", bool)
    if impossible and items:
        raise node.error(
            "impossible, yet answered", "wanted no answers where is_impossible is true"
        )
    if impossible is False and not items:
        raise node.error("no answer", "wanted an answer where is_impossible is false, got none")
    return items


def _pair_answers(node: Node) -> list[Node]:
    """Returns answers that are given as a list of texts and a list of offsets."""
    texts, starts = node.get("text", list), node.numbers("answer_start")
    if len(texts) != len(starts):
        message = f"wanted as many answer_start as text, got {len(starts)} and {len(texts)}"
        raise node.error("uneven answers", message)
    pairs = zip(texts, starts, strict=True)
    return [
        Node({"text": text, "answer_start": start}, node.document, node.steps)
        for text, start in pairs
    ]


def _read_answer(item: Node, context: str, offsets: Offsets, problems: Problems) -> Answer:
    text, start = item.get("text", str), item.get("answer_start", int)
    if not text:
        raise item.error("empty answer", "wanted the text of an answer, got none")
    if start >= 0 and context.startswith(text, start):
        return Answer(((start, start + len(text)),), (text,))
    place = _nearest(context, text, start)
    got = short(context[max(start, 0) :][: len(text)])
    hint = f"found at {place}" if place >= 0 else "it is nowhere in the context"
    hint += " (see offsets=nearest)" if offsets == "check" else ""
    message = f"wanted {short(text)} at offset {start}, got {got}; {hint}"
    wrong = item.error("answer not at its offset", message)
    if offsets == "check":
        raise wrong
    if place < 0:
        problems.change("answer without a place kept as text", str(wrong))
        return Answer((), (text,))
    problems.change("answer moved to where its text is", str(wrong))
    return Answer(((place, place + len(text)),), (text,))


def _nearest(context: str, text: str, start: int) -> int:
    """The occurrence of the text nearest to `start`, -1 if there is none."""
    start = min(max(start, 0), len(context))
    before, after = context.rfind(text, 0, start + len(text)), context.find(text, start)
    if before < 0 or after < 0:
        return max(before, after)
    return before if start - before <= after - start else after


FORMATS = {
    "squad": Format(iterate, (QAExample.task,), "SQuAD 1.1 and 2.0, CMRC 2018"),
    "quoref": Format(
        iterate, (QAExample.task,), "QuoRef: several spans per answer", {"several": True}
    ),
}
