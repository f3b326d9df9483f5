"""Examples that readers return and tasks take: frozen, with the text as in the file.

Each type names the task that it is for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from softf1.metrics.schemes import LabelledSpan

Span = tuple[int, int]
"""(start, end), end exclusive."""


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """Words (or characters) with one tag each; `tags` is empty where the file has none."""

    task: ClassVar = "tagging"
    words: tuple[str, ...]
    tags: tuple[str, ...]
    line: int
    id: str = ""


@dataclass(frozen=True, slots=True)
class SpanSentence(TaggedSentence):
    """A sentence of a file of spans, which may overlap; `tags` is empty where they do."""

    spans: tuple[LabelledSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text with its labels: exactly one for single-label data, any number for multi-label."""

    task: ClassVar = "classification"
    text: str
    labels: tuple[str, ...]
    line: int
    id: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The text alone."""
        return (self.text,)


@dataclass(frozen=True, slots=True)
class PairExample:
    """Two texts and the label of the pair (None where the file has none)."""

    task: ClassVar = "pairs"
    first: str
    second: str
    label: str | None
    line: int
    id: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """Both texts."""
        return self.first, self.second

    @property
    def labels(self) -> tuple[str, ...]:
        """The label as a tuple, like the labels of a text."""
        return () if self.label is None else (self.label,)


@dataclass(frozen=True, slots=True)
class Answer:
    """One gold answer: its spans in characters of the context (several in QuoRef), with text."""

    spans: tuple[Span, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QAExample:
    """A question over a context; no answers means that it is impossible, as in SQuAD 2.0."""

    task: ClassVar = "qa"
    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    title: str = ""
    line: int = 0

    @property
    def texts(self) -> tuple[str, ...]:
        """Question and context."""
        return self.question, self.context


@dataclass(frozen=True, slots=True)
class MrcExample:
    """A BERT-MRC item: one query (one label) over the words of one context."""

    task: ClassVar = "mrc_ner"
    id: str
    query: str
    label: str
    words: tuple[str, ...]
    spans: tuple[Span, ...] = field(default=())
    line: int = 0


Example = TaggedSentence | TextExample | PairExample | QAExample | MrcExample
"""Any example that a reader may return."""


@dataclass(frozen=True, slots=True)
class Format:
    """A file format: its reader, the tasks it supports, and a summary.

    Another package adds one through the entry point group `softf1.formats`.

    Attributes:
        read: Reads a path; its keyword parameters are the options of the format, and `problems`.
        tasks: The tasks that it supports; a reader for several takes `task=`.
        summary: One line for listings.
        options: Options that this format fixes in the reader.
    """

    read: Callable[..., Iterator[Example]]
    tasks: tuple[str, ...]
    summary: str
    options: dict[str, object] = field(default_factory=dict)
