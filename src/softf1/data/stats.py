"""How imbalanced a corpus is: the paper's Table 1 for any task, and what a batch will see.

Negatives and positives are counted in the unit that a loss is summed over (`counts.py`).

`share_without` is the chance that a batch has no example with a label. Drawing B of N examples of
which k have it, without putting back (hypergeometric), it is C(N−k, B) / C(N, B).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from softf1.data.counts import NO_ANSWER, count
from softf1.errors import InputError

if TYPE_CHECKING:
    from softf1.data.registry import Corpus


@dataclass(frozen=True, slots=True)
class LabelStats:
    """One label: how often it occurs, and what a batch sees of it.

    Attributes:
        label: Its name.
        count: Units (words, rows) that have it.
        share: Of all units; of all questions for those without an answer.
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
        spread: The most frequent label for each of the rarest.
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
    spread: float
    negative: str
    batch_size: int
    labels: tuple[LabelStats, ...]

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return asdict(self)


def describe(corpus: Corpus, *, batch_size: int = 32) -> Stats:
    """Counts negatives and positives of a corpus, per label and per batch."""
    if batch_size < 1:
        raise InputError(f"wanted a batch size of at least 1, got {batch_size}")
    counts = count(corpus)
    size = len(corpus.examples)
    labels = tuple(
        LabelStats(
            label,
            units,
            units / max(size if label == NO_ANSWER else counts.units, 1),
            counts.examples[label],
            units * min(batch_size, size) / size,
            share_without(size, counts.examples[label], batch_size),
        )
        for label, units in sorted(counts.labels.items(), key=lambda item: (-item[1], item[0]))
    )
    return Stats(
        corpus.path,
        corpus.format,
        corpus.task,
        counts.unit,
        size,
        counts.negatives,
        counts.positives,
        counts.negatives / counts.positives if counts.positives else None,
        max(counts.labels.values()) / max(min(counts.labels.values()), 1),
        counts.negative,
        batch_size,
        labels,
    )


def share_without(examples: int, having: int, batch_size: int) -> float:
    """The chance that a batch has none of the examples that have a label.

    Of 4 examples 1 has it: a batch of 2 misses it with chance C(3, 2) / C(4, 2) = 3 / 6.

    >>> share_without(4, 1, 2)
    0.5
    """
    batch = min(batch_size, examples)
    if having > examples - batch:
        return 0.0
    # The product form of the ratio of binomials, over the smaller of the two numbers.
    few, many = sorted((having, batch))
    logs = (math.log1p(-many / (examples - step)) for step in range(few))
    return math.exp(math.fsum(logs))
