"""Questions over contexts: SQuAD 1.1 and 2.0, CMRC 2018 and, with `several`, QuoRef.

Articles with paragraphs, as published, or a row for each question with its context, as the datasets
library writes them: `{"id": …, "context": …, "question": …, "answers": {"text": […],
"answer_start": […]}}`, in a list or one a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from softf1.data._json import Node, stream
from softf1.data.examples import Answer, Format, QAExample
from softf1.data.problems import Problems, RecordError, short
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
            the nearest place where its text is; a text that is nowhere is kept for scoring, behind
            the others and without a span. Both are counted.
        problems: Decides about bad questions; None raises at the first.
    """
    if offsets not in ("check", "nearest"):
        raise InputError(f'wanted offsets "check" or "nearest", got {offsets!r}')
    problems = problems or Problems()
    ids: set[str] = set()
    for title, context, node in _questions(path, problems):
        try:
            name, question = node.get("id", str), node.get("question", str)
            if name in ids:
                raise node.error("duplicate id", f"wanted a new id, got {name!r} again")
            read = [
                _read_answer(item, context, offsets=offsets, problems=problems)
                for item in _answers(node)
            ]
        except RecordError as error:
            problems.add(error)
        else:
            problems.remember(ids, name)
            read.sort(key=lambda answer: not answer.spans)
            answers = join_answers(read) if several else tuple(read)
            yield QAExample(name, question, context, answers, title, node.line)


def _questions(path: Path | str, problems: Problems) -> Iterator[tuple[str, str, Node]]:
    """Yields (title, context, question); a bad article or paragraph counts as one problem."""
    for article in stream(path, problems, key="data", rows="question"):
        try:
            title = article.find("title", str) or ""
            if "question" in article.fields():
                yield title, article.get("context", str), article
                continue
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


def _answers(node: Node) -> list[Node]:
    """Reads the answers of a question; some test sets have none, nor the key."""
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
    """Answers that are given as a list of texts and one of offsets."""
    texts, starts = node.get("text", list), node.numbers("answer_start")
    if len(texts) != len(starts):
        message = f"wanted as many answer_start as text, got {len(starts)} and {len(texts)}"
        raise node.error("uneven answers", message)
    pairs = zip(texts, starts, strict=True)
    return [
        Node({"text": text, "answer_start": start}, node.document, node.steps)
        for text, start in pairs
    ]


def _read_answer(item: Node, context: str, *, offsets: Offsets, problems: Problems) -> Answer:
    text, start = item.get("text", str), item.get("answer_start", int)
    return make_answer(text, start, context, offsets=offsets, problems=problems, error=item.error)


def make_answer(
    text: str,
    start: int,
    context: str,
    *,
    offsets: Offsets,
    problems: Problems,
    error: Callable[[str, str], RecordError],
) -> Answer:
    """Makes an answer at its offset; `error(reason, message)` makes an error with the line."""
    if not text:
        raise error("empty answer", "wanted the text of an answer, got none")
    if start >= 0 and context.startswith(text, start):
        return Answer(((start, start + len(text)),), (text,))
    place = _nearest(context, text, start)
    got = short(context[max(start, 0) :][: len(text)])
    hint = f"found at {place}" if place >= 0 else "it is nowhere in the context"
    hint += " (see offsets=nearest)" if offsets == "check" else ""
    message = f"wanted {short(text)} at offset {start}, got {got}; {hint}"
    wrong = error("answer not at its offset", message)
    if offsets == "check":
        raise wrong
    if place < 0:
        problems.change("answer without a place kept as text", str(wrong))
        return Answer((), (text,))
    problems.change("answer moved to where its text is", str(wrong))
    return Answer(((place, place + len(text)),), (text,))


def join_answers(answers: list[Answer]) -> tuple[Answer, ...]:
    """Joins several spans to one answer, in the order of the context."""
    if not answers:
        return ()
    answers.sort(key=lambda answer: (not answer.spans, answer.spans))
    spans = tuple(span for answer in answers for span in answer.spans)
    return (Answer(spans, tuple(text for answer in answers for text in answer.texts)),)


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
