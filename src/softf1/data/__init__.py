"""Readers, one file per format; they return examples, or an error that names the line.

`read` and `iterate` take any format; `softf1.data.<module>.iterate` reads a single format.
"""

from softf1.data.examples import (
    Answer,
    Example,
    Format,
    MrcExample,
    PairExample,
    QAExample,
    Span,
    SpanSentence,
    TaggedSentence,
    TextExample,
)
from softf1.data.problems import Problems, RecordError
from softf1.data.registry import FORMATS, TASKS, Corpus, iterate, list_formats, read

__all__ = [
    "FORMATS",
    "TASKS",
    "Answer",
    "Corpus",
    "Example",
    "Format",
    "MrcExample",
    "PairExample",
    "Problems",
    "QAExample",
    "RecordError",
    "Span",
    "SpanSentence",
    "TaggedSentence",
    "TextExample",
    "iterate",
    "list_formats",
    "read",
]
