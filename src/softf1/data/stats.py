"""How imbalanced a corpus is: the paper's Table 1 for any task, and what a batch will see.

Negatives and positives are counted in the unit that a loss is summed over:

- tagging: words; O is negative, every other tag positive. Without O (parts of speech) the most
  frequent label is negative and the others positive.
- mrc_ner: words of every query; the first and the last word of a span are positive.
- qa: words of every question's context; the first and the last word of the answer are positive. Of
  several alternative answers the first counts, as in training; of an answer of several spans all.
- pairs, classification: rows. Of two labels the positive one is 1, true, yes or the like; without
  such a name the rarer one. Of more than two, the most frequent label is negative.
- several labels a text: pairs of row and label; those that a row has are positive.

`share_without` is the chance that a batch has no example with the label at all. Drawing B of N
examples of which k have it, without putting back (hypergeometric), it is C(N-k, B) / C(N, B).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from softf1.data.examples import (
    Example,
    MrcExample,
    PairExample,
    QAExample,
    Span,
    TaggedSentence,
    TextExample,
)
from softf1.errors import InputError
from softf1.metrics.schemes import OUTSIDE, split_tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from softf1.data.registry import Corpus

YES = frozenset({"1", "true", "yes", "y", "pos", "positive", "duplicate", "paraphrase"})
"""Names of the positive label of two, whatever their case."""

_WORD = re.compile(r"\w+|[^\w\s]")
_CHINESE = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]|[^\W\u3400-\u9fff\uf900-\ufaff]+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class LabelStats:
    """One label: how often it occurs, and what a batch sees of it.

    Attributes:
        label: Its name.
        count: Units (words, rows) that have it.
        share: Of all units.
        examples: Examples (sentences, rows) that have it at least once.
        per_batch: Units expected in a batch.
        share_without: Chance that a batch has none.
    """

    label: str
    count: int
    share: float
    examples: int
    per_batch: float
    share_without: float


@dataclass(frozen=True, slots=True)
class Stats:
    """The imbalance of one corpus.

    Attributes:
        path: The file.
        format: What it was read as.
        task: Its task.
        unit: What is counted, such as "words".
        examples: Number of examples.
        negatives: Negative units.
        positives: Positive units.
        ratio: Negatives for each positive; None without positives.
        negative: What counts as negative, in words.
        batch_size: Examples a batch.
        labels: Every label, the most frequent first.
    """

    path: str
    format: str
    task: str
    unit: str
    examples: int
    negatives: int
    positives: int
    ratio: float | None
    negative: str
    batch_size: int
    labels: tuple[LabelStats, ...]

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Counts:
    """Units and examples by label, and what the units are."""

    unit: str
    negative: str
    positives: int
    total: int
    labels: Counter[str]
    examples: Counter[str]


def describe(corpus: Corpus, *, batch_size: int = 32) -> Stats:
    """Counts negatives and positives of a corpus, per label and per batch."""
    if batch_size < 1:
        raise InputError(f"wanted a batch size of at least 1, got {batch_size}")
    counts = _COUNT[corpus.task](corpus.examples)
    size = len(corpus.examples)
    labels = tuple(
        LabelStats(
            label,
            count,
            count / counts.total if counts.total else 0.0,
            counts.examples[label],
            count * min(batch_size, size) / size,
            share_without(size, counts.examples[label], batch_size),
        )
        for label, count in sorted(counts.labels.items(), key=lambda item: (-item[1], item[0]))
    )
    negatives = counts.total - counts.positives
    return Stats(
        corpus.path,
        corpus.format,
        corpus.task,
        counts.unit,
        size,
        negatives,
        counts.positives,
        negatives / counts.positives if counts.positives else None,
        counts.negative,
        batch_size,
        labels,
    )
