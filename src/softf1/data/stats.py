"""The imbalance of a corpus: the paper's Table 1 for any task, and label counts per batch.

Negatives and positives are counted in the unit that a loss is summed over (`counts.py`).

`share_without` is the probability that a batch has no example with a label. For B examples drawn
without replacement from N, of which k have the label, it is C(N−k, B) / C(N, B).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from softf1.data.counts import NO_ANSWER, LabelCounts, count_words, start_tally
from softf1.data.problems import OnError, Problems
from softf1.data.registry import Corpus, open_corpus
from softf1.data.splits import TextHashes, text_of
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from softf1.data.examples import Example

MOST_IDS = 1_000_000
FIRST = 2_000
"""How many first examples an overview keeps."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Facts about a corpus from one pass, in constant memory.

    Attributes:
        path: The file.
        format: Its format.
        task: Its task.
        problems: Skipped records and notes.
        counts: Negatives, positives and labels.
        lengths: Number of examples by length in words.
        longest: The line of the longest example.
        texts: Hashes of the texts, to compare files.
        first: The first examples.
    """

    path: str
    format: str
    task: str
    problems: Problems
    counts: LabelCounts
    lengths: Counter[int]
    longest: int
    texts: TextHashes
    first: list[Example]

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.texts)


def look_over(path: Path | str, *, on_error: OnError = "raise", **settings: Any) -> Overview:
    """Reads a file of any size once; takes the arguments of `read`."""
    problems = Problems(on_error, most_ids=MOST_IDS)
    name, kind, examples = open_corpus(path, problems, **settings)
    return _look_over(str(path), name, kind, examples, problems)


def _look_over(
    path: str, name: str, task: str, examples: Iterable[Example], problems: Problems
) -> Overview:
    tally, texts = start_tally(task, path), TextHashes()
    first: list[Example] = []
    lengths: Counter[int] = Counter()
    most = longest = 0
    for example in examples:
        tally.add(example)
        texts.add(text_of(example))
        length = count_words(example)
        lengths[length] += 1
        if length > most:
            most, longest = length, example.line
        if len(first) < FIRST:
            first.append(example)
    counts = tally.finish()
    if counts.note:
        problems.note(counts.note)
    return Overview(path, name, task, problems, counts, lengths, longest, texts, first)


@dataclass(frozen=True, slots=True)
class LabelStats:
    """The frequency of one label, in the corpus and in a batch.

    Attributes:
        label: Its name.
        count: Units (words, rows) that have it.
        share: Its share of all units; for "no answer", of all questions.
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
class Lengths:
    """The lengths of examples, in words.

    Attributes:
        median: The median length.
        most: The 99th percentile.
        longest: The longest.
        line: The line of the longest example.
    """

    median: int
    most: int
    longest: int
    line: int


@dataclass(frozen=True, slots=True)
class Stats:
    """The imbalance of one corpus.

    Attributes:
        path: The file.
        format: Its format.
        task: Its task.
        unit: What is counted, such as "words".
        examples: Number of examples.
        negatives: Negative units.
        positives: Positive units.
        ratio: Negatives per positive; None without positives.
        spread: Ratio of the most frequent label to the rarest.
        negative: What counts as negative, in words.
        batch_size: Examples per batch.
        labels: Every label, the most frequent first.
        lengths: How long examples are.
        spans: Spans of a file of spans or queries.
        nested: How many of these lie inside another or cross one.
        nesting: A sentence about nested spans; empty if there are none.
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
    lengths: Lengths
    spans: int = 0
    nested: int = 0
    nesting: str = ""

    @property
    def plain_labels(self) -> str:
        """A sentence instead of negatives and positives, for tags without a background label.

        Parts of speech have no background: "not a noun" is not a class.
        """
        if not self.negative.startswith("the most frequent tag"):
            return ""
        top = self.labels[0]
        return (
            f"{self.negatives + self.positives:,} {self.unit} with {len(self.labels)} labels and "
            f"no background: {top.label}, the most frequent, has {top.share:.1%}"
        )

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return asdict(self)


def describe(corpus: Corpus | Overview, *, batch_size: int = 32) -> Stats:
    """Computes the imbalance of a corpus, per label and per batch."""
    if batch_size < 1:
        raise InputError(f"wanted a batch size of at least 1, got {batch_size}")
    if isinstance(corpus, Corpus):
        names = corpus.path, corpus.format, corpus.task
        corpus = _look_over(*names, corpus.examples, corpus.problems)
    counts, size = corpus.counts, len(corpus)
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
        Lengths(
            find_quantile(corpus.lengths, 0.5),
            find_quantile(corpus.lengths, 0.99),
            max(corpus.lengths, default=0),
            corpus.longest,
        ),
        counts.spans,
        counts.nested,
        counts.nesting,
    )


def describe_new_labels(train: Corpus | Overview, other: Corpus | Overview) -> str | None:
    """Describes labels that occur only in `other`; None if there are none.

    Corpora of different tasks are not compared.
    """
    if train.task != other.task:
        return None
    unseen = sorted({*other.counts.labels} - {*train.counts.labels})
    if not unseen:
        return None
    return (
        f"{other.path}: {', '.join(unseen)} {'is' if len(unseen) == 1 else 'are'} not in "
        f"{train.path}: scored, never predicted"
    )


def find_quantile(counts: Counter[int], share: float) -> int:
    """The quantile: the least value that this share of all values does not exceed.

    >>> find_quantile(Counter({3: 98, 7: 1, 500: 1}), 0.99)
    7
    """
    wanted, below = share * counts.total(), 0
    for value in sorted(counts):
        below += counts[value]
        if below >= wanted:
            return value
    return 0


def share_without(examples: int, having: int, batch_size: int) -> float:
    """The probability that a batch has no example with a label.

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
