"""Stratified splits and folds of a corpus, and texts that two splits share.

A score on texts of the training data says nothing about new texts. So a split never shares a text
with the rest, and `find_overlaps` counts shared texts between files. It compares 64-bit hashes:
8 bytes per text, on disk if there are many.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np

from softf1.data.examples import MrcExample, QAExample, SpanSentence, TaggedSentence
from softf1.metrics.schemes import OUTSIDE, split_tag

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

IN_MEMORY = 1 << 22
"""How many hashes are kept in memory (32 MiB); more are written to disk."""

BUCKETS = 64


def text_of(example: Any) -> Hashable:
    """Returns the text of an example, with white space normalised.

    >>> from softf1.data import TextExample
    >>> text_of(TextExample("a  fine day ", ("good",), line=1))
    'a fine day'
    """
    if isinstance(example, TaggedSentence):
        return example.words
    if isinstance(example, MrcExample):
        return example.query, example.words
    texts = getattr(example, "texts", None)
    if texts is None:  # an example of another package's task
        return repr(example)
    return tuple(map(_squeeze, texts)) if len(texts) > 1 else _squeeze(texts[0])


@lru_cache(2)  # questions of one context follow each other
def _squeeze(text: str) -> str:
    return " ".join(text.split())


def put_aside(examples: Sequence[Any], share: float, *, seed: int) -> NDArray[np.bool_]:
    """Chooses a share of the examples, stratified by label.

    Examples with the same text stay together, and so do questions about one article or context
    and queries about one sentence. An example with several labels counts for its rarest. The last
    example of a label is not put aside, unless no label has two.

    Args:
        examples: The examples; with fewer than two different texts none is chosen.
        share: The share of the texts; at least one is chosen.
        seed: The random seed.

    >>> from softf1.data import TextExample
    >>> texts = [TextExample(f"text {n}", ("rare" if n < 10 else "usual",), n) for n in range(100)]
    >>> aside = put_aside(texts, 0.2, seed=0)
    >>> int(aside.sum()), int(aside[:10].sum())
    (20, 2)
    """
    group, stratum = _stratify(examples)
    chosen = np.zeros(len(stratum), np.bool_)
    if len(stratum) > 1:
        order = np.random.default_rng(seed).permutation(len(stratum))
        for number, count in enumerate(_share_out(np.bincount(stratum), share)):
            chosen[order[stratum[order] == number][:count]] = True
        if not chosen.any():
            chosen[order[0]] = True
    return chosen[group]


def deal_folds(examples: Sequence[Any], folds: int, *, seed: int) -> NDArray[np.int64]:
    """Returns the fold of each example, from 0 up, stratified by label.

    Examples that `put_aside` keeps together stay in one fold, so that no model predicts a text
    that it was trained on.

    Args:
        examples: In the order of the file.
        folds: How many.
        seed: Which examples go into which fold.

    >>> from softf1.data import TextExample
    >>> texts = [TextExample(f"text {n}", ("rare" if n < 10 else "usual",), n) for n in range(100)]
    >>> fold = deal_folds(texts, 5, seed=0)
    >>> np.bincount(fold).tolist(), np.bincount(fold[:10]).tolist()
    ([20, 20, 20, 20, 20], [2, 2, 2, 2, 2])
    """
    group, stratum = _stratify(examples)
    order = np.random.default_rng(seed).permutation(len(stratum))
    order = order[np.argsort(stratum[order], kind="stable")]
    fold = np.empty(len(stratum), np.int64)
    fold[order] = np.arange(len(stratum)) % folds  # dealt out like cards, one label after the other
    return fold[group]


def _group(examples: Sequence[Any]) -> NDArray[np.int64]:
    """Returns the group of each example, by number: examples of a group stay together."""
    parent: dict[Hashable, Hashable] = {}

    def root(key: Hashable) -> Hashable:
        while parent.setdefault(key, key) != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    keys_of = [_keys(example) for example in examples]
    for first, *others in keys_of:
        for other in others:
            parent[root(other)] = root(first)
    numbers: dict[Hashable, int] = {}
    return np.array(
        [numbers.setdefault(root(keys[0]), len(numbers)) for keys in keys_of], dtype=np.int64
    )


def _keys(example: Any) -> list[Hashable]:
    """Keys that an example shares with those that must stay with it."""
    if isinstance(example, QAExample):
        title = [("title", example.title)] if example.title else []
        return [("text", _squeeze(example.context)), *title]
    if isinstance(example, MrcExample):
        sentence = example.id.rpartition(".")[0]  # `12` of query `12.3`
        return [("text", example.words), *([("sentence", sentence)] if sentence else [])]
    return [("text", text_of(example))]


def _stratify(examples: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the group of each example, and the stratum of each group: its rarest label, or none.

    Labels are numbered by how many groups have them, so that the rarest has the lowest number.
    """
    group = _group(examples)
    labels: list[set[str]] = [set() for _ in range(int(group.max(initial=-1)) + 1)]
    for number, example in zip(group.tolist(), examples, strict=True):
        labels[number] |= _labels(example)
    often = Counter(label for own in labels for label in own)
    ranked = sorted(often, key=lambda label: (often[label], label))
    rank = {label: number for number, label in enumerate(ranked)}
    rarest = [min((rank[label] for label in own), default=len(rank)) for own in labels]
    return group, np.unique(rarest, return_inverse=True)[1]


def _labels(example: Any) -> set[str]:
    if isinstance(example, SpanSentence):
        return {label for _, _, label in example.spans}
    if isinstance(example, TaggedSentence):
        return {split_tag(tag)[1] or tag for tag in {*example.tags} - {OUTSIDE}}
    if isinstance(example, MrcExample):
        return {example.label or example.query} if example.spans else set()
    if isinstance(example, QAExample):
        return {"answer"} if example.answers else set()
    return set(getattr(example, "labels", ()))


def _share_out(sizes: NDArray[np.int64], share: float) -> list[int]:
    """How many to take of each stratum: rounded down, plus one where the remainder is largest.

    A stratum whose share is above half an example gives one, so that dev has its label.

    >>> _share_out(np.array([1, 9, 20]), 0.1)
    [0, 1, 2]
    """
    exact = sizes * share
    counts = np.where(exact < 1, np.round(exact), np.floor(exact)).astype(np.int64)
    more = max(1, round(share * int(sizes.sum()))) - int(counts.sum())
    for number in np.argsort(counts - exact, kind="stable")[: max(0, more)].tolist():
        counts[number] += 1
    kept: list[int] = np.minimum(counts, sizes - 1).tolist()
    return kept


class TextHashes:
    """The hashes of many texts, in order.

    >>> train, dev = TextHashes(["a", "b", "b"]), TextHashes(["b", "c"])
    >>> train.count_in(dev), dev.count_in(train), len(train)
    (2, 1, 3)
    """

    def __init__(self, texts: Iterable[Hashable] = (), *, in_memory: int = IN_MEMORY) -> None:
        self.in_memory = in_memory
        self.order = 0
        self.spilled: list[NDArray[np.int64]] = []
        self._new = array("q")
        self._file: Any = None
        self._size = 0
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        """The number of texts."""
        return self._size

    def add(self, text: Hashable) -> None:
        """Adds one text."""
        value = hash(text)
        self._new.append(value)
        self.order = hash((self.order, value))
        self._size += 1
        if len(self._new) >= self.in_memory:
            self._spill()

    def count_in(self, other: TextHashes) -> int:
        """Counts the texts, with repetitions, that are also in another set of texts."""
        pairs = zip(self._buckets(), other._buckets(), strict=True)
        return sum(int(np.isin(own, theirs).sum()) for own, theirs in pairs)

    def same_as(self, other: TextHashes) -> bool:
        """Whether both have the same texts in the same order."""
        return len(self) == len(other) and self.order == other.order

    def _buckets(self) -> Iterable[NDArray[np.int64]]:
        """Yields the hashes in `BUCKETS` ranges of values, so that few are in memory at once."""
        fresh = np.sort(np.frombuffer(self._new, np.int64))
        bounds = _bounds(fresh)
        for number in range(BUCKETS):
            yield np.concatenate([fresh[slice(*bounds[number : number + 2])], *self._read(number)])

    def _spill(self) -> None:
        values = np.sort(np.frombuffer(self._new, np.int64))
        if self._file is None:
            self._file = TemporaryFile()  # noqa: SIM115 - open as long as this object lives
            finalize(self, self._file.close)
        self._file.seek(0, 2)
        self.spilled.append(self._file.tell() // 8 + _bounds(values))
        self._file.write(values.tobytes())
        self._new = array("q")

    def _read(self, number: int) -> Iterable[NDArray[np.int64]]:
        for bounds in self.spilled:
            start, end = bounds[number : number + 2].tolist()
            self._file.seek(start * 8)
            yield np.frombuffer(self._file.read((end - start) * 8), np.int64)


def _bounds(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The start of each bucket of sorted hashes, and the end of the last."""
    edges = (np.arange(1, BUCKETS) - BUCKETS // 2) * (2**64 // BUCKETS)
    starts = np.searchsorted(values, edges)
    return np.concatenate([[0], starts, [len(values)]])


@dataclass(frozen=True, slots=True)
class Overlap:
    """Texts that two parts share.

    Attributes:
        first: The name of a part, or its file.
        second: Another one.
        in_first: Number of examples of the first whose text is in the second.
        in_second: Number of examples of the second whose text is in the first.
        of_second: Number of all examples of the second.
        same: Whether both have the same texts in the same order.
    """

    first: str
    second: str
    in_first: int
    in_second: int
    of_second: int
    same: bool

    def __str__(self) -> str:
        """One sentence."""
        if self.same:
            return (
                f"{self.second} has the same {self.of_second:,} texts as {self.first}, in the same "
                "order: is one file given twice?"
            )
        shared = f"{self.second}: {self.in_second:,} of {self.of_second:,} texts"
        return f"{shared} {'is' if self.in_second == 1 else 'are'} also in {self.first}"


def find_overlaps(parts: Mapping[str, TextHashes]) -> list[Overlap]:
    """Counts the texts that two parts share, such as train and test.

    >>> parts = {"train": TextHashes(["a", "b", "b"]), "dev": TextHashes(["b", "c"])}
    >>> [str(overlap) for overlap in find_overlaps(parts)]
    ['dev: 1 of 2 texts is also in train']
    """
    overlaps = []
    for (first, one), (second, other) in combinations(parts.items(), 2):
        if shared := other.count_in(one):
            same = one.same_as(other)
            overlaps.append(Overlap(first, second, one.count_in(other), shared, len(other), same))
    return overlaps
