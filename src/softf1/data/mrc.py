"""BERT-MRC: one item per label and sentence, with a query that asks for the label.

An item is `{"qas_id", "query", "context", "entity_label", "start_position", "end_position",
"span_position", "impossible"}` with the words of the context joined by spaces and inclusive ends.
Files that have only query, context and positions are read too.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.data._json import Node, load_document, stream
from softf1.data.examples import Format, MrcExample, Span, SpanSentence, TaggedSentence
from softf1.data.problems import Problems, RecordError, short
from softf1.data.tags import convert, find_scheme
from softf1.errors import InputError
from softf1.files import write_text
from softf1.metrics.schemes import LabelledSpan, decode_strict, describe_odd_tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_SPAN = re.compile(r"(\d+)[;,](\d+)")


def iterate(path: Path | str, *, problems: Problems | None = None) -> Iterator[MrcExample]:
    """Reads the items of a file; spans become (start, end) with exclusive end."""
    problems = problems or Problems()
    ids: set[str] = set()

    def read(node: Node, index: int) -> MrcExample:
        example = _read_item(node, str(index))
        problems.remember(ids, example.id, node.error)
        return example

    return problems.read_each(enumerate(stream(path, problems)), read, path)


def write(path: Path | str, examples: Iterable[MrcExample]) -> None:
    """Writes items in the authors' format; raises if a word contains a space."""
    items = [json.dumps(_to_item(example), ensure_ascii=False) for example in examples]
    write_text(Path(path), "[\n" + ",\n".join(items) + "\n]\n")


def read_queries(path: Path | str) -> dict[str, str]:
    """Reads the query of each label, at the top level or under "default"."""
    document = load_document(path)
    node = document.child("default") if document.find("default", object) is not None else document
    queries = {label: node.get(label, str) for label in node.fields()}
    if not queries:
        raise node.error("no query", "wanted a query for each label, got none")
    return queries


def from_tagged(
    sentences: Iterable[TaggedSentence],
    queries: Mapping[str, str],
    *,
    scheme: str | None = None,
    repair: bool = False,
    path: Path | str | None = None,
    problems: Problems | None = None,
) -> Iterator[MrcExample]:
    """Makes BERT-MRC items from tagged sentences: one per sentence and query.

    Args:
        sentences: With tags of a scheme or with spans, as a reader yields them.
        queries: The query of each label; a label of the file that has none is an error.
        scheme: The scheme of the tags; None detects it, which needs all sentences in memory.
        repair: Whether invalid tags are repaired, as in `tags.convert`.
        path: The file, for errors.
        problems: Decides about invalid sentences; None raises at the first.
    """
    both = find_spans(sentences, scheme, repair=repair, path=path, problems=problems)
    for index, (sentence, spans) in enumerate(both):
        if unasked := {label for _, _, label in spans} - queries.keys():
            message = f"wanted a query for {', '.join(sorted(unasked))}, got {', '.join(queries)}"
            raise InputError(message, path=path, line=sentence.line)
        yield from _ask(index, sentence, spans, queries)


def find_spans(
    sentences: Iterable[TaggedSentence],
    scheme: str | None,
    *,
    repair: bool,
    path: Path | str | None,
    problems: Problems | None,
) -> Iterator[tuple[TaggedSentence, Sequence[LabelledSpan]]]:
    """Yields each sentence with its spans, which the file has or which are decoded from tags."""
    if scheme is None:
        sentences = list(sentences)
        if any(isinstance(sentence, SpanSentence) for sentence in sentences):
            for sentence in sentences:
                if isinstance(sentence, SpanSentence):
                    yield sentence, sentence.spans
                else:
                    message = "wanted spans of this sentence, got none"
                    error = RecordError("no spans", message, path=path, line=sentence.line)
                    (problems or Problems()).add(error)
            return
        if odd := describe_odd_tag([sentence.tags for sentence in sentences]):
            number, message = odd
            raise InputError(message, path=path, line=sentences[number].line)
        detected = find_scheme(sentences)
        if detected is None:
            raise InputError("wanted tags of a scheme such as BIO, got plain labels", path=path)
        scheme = detected.name
    how: Any = {"repair": repair, "path": path, "problems": problems}
    remedy = "task.repair=true takes the span that conlleval would see"
    for sentence in convert(sentences, source=scheme, remedy=remedy, **how):
        yield sentence, decode_strict(sentence.tags, scheme)


def ask(sentences: Iterable[TaggedSentence], queries: Mapping[str, str]) -> Iterator[MrcExample]:
    """Makes an item per sentence and query without using tags: for text to predict on."""
    for index, sentence in enumerate(sentences):
        yield from _ask(index, sentence, (), queries)


def _ask(
    index: int, sentence: TaggedSentence, spans: Sequence[LabelledSpan], queries: Mapping[str, str]
) -> Iterator[MrcExample]:
    for number, (label, query) in enumerate(queries.items(), 1):
        own = tuple((start, end) for start, end, name in spans if name == label)
        name = f"{index}.{number}"
        yield MrcExample(name, query, label, sentence.words, own, sentence.line)


def _read_item(node: Node, default_id: str) -> MrcExample:
    query, context = node.get("query", str), node.get("context", str)
    words = tuple(context.split(" "))
    if not context.strip():
        raise node.error("no words", "wanted words in the context, got none")
    spans = _spans(node)
    for start, end in spans:
        if not 0 <= start < end <= len(words):
            message = f"wanted a span within {len(words)} words, got {start} to {end - 1}"
            raise node.error("span outside", message)
    impossible = node.find("impossible", bool)
    if impossible is not None and impossible != (not spans):
        message = f"wanted impossible to be {str(not spans).lower()} with {len(spans)} spans"
        raise node.error("impossible and spans differ", f"{message}, got {str(impossible).lower()}")
    name = node.find("qas_id", str) or default_id
    label = node.find("entity_label", str) or ""
    return MrcExample(name, query, label, words, spans, node.line)


def _spans(node: Node) -> tuple[Span, ...]:
    """Reads spans, with exclusive ends; without span_position, the n-th start has the n-th end."""
    starts, ends = node.numbers("start_position"), node.numbers("end_position")
    if node.find("span_position", list) is None:
        if len(starts) != len(ends):
            message = f"wanted as many ends as starts, got {len(starts)} and {len(ends)}"
            raise node.error("starts and ends differ", message)
        return tuple(sorted({(start, end + 1) for start, end in zip(starts, ends, strict=True)}))
    spans = set()
    for item in node.get("span_position", list):
        match = _SPAN.fullmatch(item) if isinstance(item, str) else None
        if match is None:
            raise node.error("wrong span", f'wanted a span such as "3;5", got {item!r}')
        spans.add((int(match[1]), int(match[2]) + 1))
    if {s for s, _ in spans} != set(starts) or {e - 1 for _, e in spans} != set(ends):
        message = f"wanted the starts and ends of span_position, got {starts} and {ends}"
        raise node.error("starts and ends differ", message)
    return tuple(sorted(spans))


def _to_item(example: MrcExample) -> dict[str, object]:
    for word in example.words:
        if not word or " " in word:
            message = f"item {example.id}: wanted words without a space, got {short(word)}"
            raise RecordError("space in a word", message)
    return {
        "qas_id": example.id,
        "query": example.query,
        "context": " ".join(example.words),
        "entity_label": example.label,
        "start_position": [start for start, _ in example.spans],
        "end_position": [end - 1 for _, end in example.spans],
        "span_position": [f"{start};{end - 1}" for start, end in example.spans],
        "impossible": not example.spans,
    }


FORMATS = {
    "mrc": Format(iterate, (MrcExample.task,), "BERT-MRC: query, context, positions"),
}
