"""Batch sampling: which items form each optimizer step, micro-batch and rank.

The items of an epoch are drawn and cut into large pools. Each pool is sorted by length and cut into
steps, and the steps are shuffled: the rows of a step are about equally long, and steps come in
random order. Without grouping by length, a pool is one step, of random items. All of this follows
from the seed and the epoch, so a resumed run needs only its epoch and step. A rank takes its share
of the whole step, so which items are in a step depends neither on the number of ranks nor on
accumulation.

| sampler | an epoch holds |
|---|---|
| shuffle | every item once |
| oversample | the largest stratum once, the others repeated up to its size |
| undersample | the smallest stratum once, the others thinned to its size, anew each epoch |
| balanced | as many items as there are, equally many of each stratum |

A task says which stratum an item is in. With two strata, the first three are the paper's original
set, +positive and −negative; they repeat items, while `softf1.data.rebalance` edits the copies.

Rows are padded to one of a few widths, the buckets, since every shape costs a compilation or a CUDA
graph. `collate_rows` makes tensors of them, with a constant number of rows; `prefetch` makes them
ahead of time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from softf1.errors import InputError
from softf1.tasks.base import IGNORE, Batch, Features, Task

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from softf1.models.tokenizers import Tokenizer

    Ints = NDArray[np.int64]

T = TypeVar("T")
U = TypeVar("U")

POOL = 128
"""Steps in a pool: enough that rows of a step differ little, few enough to stay random."""

MAX_BUCKETS = 12
RANDOM_BUCKETS = 4
"""Widths of steps of random rows, whose longest rows differ little."""

_GRAIN = 8
_CANDIDATES = 128


class MicroBatch(NamedTuple):
    """The items of one forward pass on one rank.

    Attributes:
        items: Indices of the items, longest first; empty on a rank without data.
        width: Token ids per row, padding included.
        rows: Rows to pad to, the same on every rank.
    """

    items: NDArray[np.int64]
    width: int
    rows: int


@dataclass(eq=False)
class BatchSampler:
    """Samples the optimizer steps of every epoch.

    Args:
        lengths: The number of ids in each item's row.
        batch_size: Items of one optimizer step, over all ranks and micro-batches.
        batch_tokens: Padded ids of one optimizer step; replaces `batch_size` unless it is 0.
        accumulate: Micro-batches into which a rank cuts its share.
        micro_tokens: Padded ids of one forward pass at most, unless it is 0: a rank cuts its
            share of a larger step into as many micro-batches as it takes. A longer row gets its
            own pass.
        sampler: Which items an epoch holds, as in the table above.
        strata: A number for each item, for samplers other than "shuffle".
        seed: The same seed gives the same steps.
        world: The number of ranks.
        rank: The number of this rank.
        by_length: Whether rows of a step are about equally long; otherwise they are random, and
            more of a step is padding.
        max_buckets: The maximum number of widths; 0 pads only to the longest row of a micro-batch,
            which is best if a new shape costs nothing (on the CPU, not compiled).

    >>> batches = BatchSampler([3, 9, 4, 8, 2], batch_size=2)
    >>> [[micro.items.tolist() for micro in step] for step in batches.epoch(0)]
    [[[1]], [[3, 2]], [[0, 4]]]
    >>> batches.shapes
    [(2, 8), (2, 9)]
    """

    lengths: Ints
    _: KW_ONLY
    batch_size: int
    batch_tokens: int = 0
    accumulate: int = 1
    micro_tokens: int = 0
    sampler: str = "shuffle"
    strata: Ints | None = None
    seed: int = 0
    world: int = 1
    rank: int = 0
    by_length: bool = True
    max_buckets: int = MAX_BUCKETS

    def __post_init__(self) -> None:
        """Chooses the buckets."""
        self.lengths = np.asarray(self.lengths, np.int64)
        if self.by_length or not self.max_buckets:
            self.buckets = make_buckets(self.lengths, most=self.max_buckets)
        else:
            order = np.random.default_rng(self.seed).permutation(self.lengths)
            tops = [part.max() for part in _pools(order, self.batch_size)]
            longest = np.append(tops, self.lengths.max())
            self.buckets = make_buckets(longest, most=min(RANDOM_BUCKETS, self.max_buckets))
        self._width = self.buckets[np.searchsorted(self.buckets, self.lengths)]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The largest (rows, width) of a micro-batch for each width, narrow ones first."""
        return [(self._most_rows(width), width) for width in self.buckets.tolist()]

    @property
    def splits(self) -> bool:
        """Whether some step exceeds `micro_tokens` and must be split."""
        return any(self._rows(width) > rows for rows, width in self.shapes)

    def epoch(self, n: int) -> list[list[MicroBatch]]:
        """Returns this rank's micro-batches for each step of epoch `n`.

        All ranks have equally many steps, and in each step equally many micro-batches, at least
        one; on a rank without data it has no items.
        """
        random = np.random.default_rng([self.seed, n])
        order = draw_items(self.sampler, len(self.lengths), self.strata, random)
        steps = list(self._by_tokens(order) if self.batch_tokens else self._by_size(order, random))
        return [self._deal(steps[i]) for i in random.permutation(len(steps)).tolist()]

    def _by_size(self, order: Ints, random: np.random.Generator) -> Iterator[Ints]:
        """Steps of `batch_size` items; the incomplete one comes at a random position."""
        size = self.batch_size
        for pool in _pools(order, (POOL if self.by_length else 1) * size):
            items = self._sort(pool)
            full, rest = divmod(len(items), size)
            sizes = [size] * full
            if rest:
                sizes.insert(int(random.integers(full + 1)), rest)
            yield from np.split(items, np.cumsum(sizes)[:-1])

    def _by_tokens(self, order: Ints) -> Iterator[Ints]:
        """Steps of `batch_tokens` padded ids; items left over go to the next pool."""
        left = order[:0]
        for pool in _pools(order, POOL * self._size(int(self._width.mean()))):
            items = self._sort(np.concatenate([left, pool]))
            *parts, left = _cut(items, self._width, self._size)
            yield from parts
        yield left

    def _sort(self, items: Ints) -> Ints:
        """Sorts items by length, longest first; ties stay in random order."""
        return items[np.argsort(-self.lengths[items], kind="stable")]

    def _size(self, width: int) -> int:
        """The number of items in a full step."""
        return max(1, self.batch_tokens // width) if self.batch_tokens else self.batch_size

    def _rows(self, width: int) -> int:
        return -(-self._size(width) // (self.world * self.accumulate))

    def _most_rows(self, width: int) -> int:
        """The maximum number of rows in one forward pass."""
        rows = self._rows(width)
        return max(1, min(rows, self.micro_tokens // width)) if self.micro_tokens else rows

    def _deal(self, items: Ints) -> list[MicroBatch]:
        """This rank's share: every `world`-th item, so that ranks have equally long rows."""
        top = int(self._width[items[0]])
        rows = self._rows(top)
        if rows > self._most_rows(top):
            return self._split(items)
        passes = -(-len(items) // (self.world * rows))
        own = items[self.rank :: self.world]
        parts = [own[i * rows : (i + 1) * rows] for i in range(passes)]
        return [
            MicroBatch(part, top if self.batch_tokens else self._fit(part), rows) for part in parts
        ]

    def _split(self, items: Ints) -> list[MicroBatch]:
        """Splits a step into passes of `micro_tokens`, the same number on every rank."""
        parts = _cut(items, self._width, lambda width: self._most_rows(width) * self.world)
        return _share(parts, self._width, self.world, self.rank)

    def _fit(self, items: Ints) -> int:
        return int(self._width[items[0]] if len(items) else self.buckets[0])


def eval_batches(
    lengths: ArrayLike,
    *,
    batch_tokens: int,
    max_padding: int | None = None,
    world: int = 1,
    rank: int = 0,
) -> list[MicroBatch]:
    """Batches for evaluation: every item once over all ranks, longest first.

    A micro-batch has up to `batch_tokens` padded ids. Every rank has as many micro-batches as the
    others, as sharded models need; the last may have no items. Rows are padded to one of a few
    widths. With `max_padding`, they are padded to the longest row of their batch, which ends before
    it has more padding ids than that: more batches, but fewer ids.

    >>> [batch.items.tolist() for batch in eval_batches([3, 9, 4, 8, 2], batch_tokens=18)]
    [[1, 3], [2, 0], [4]]
    >>> tight = eval_batches([3, 9, 4, 8, 2], batch_tokens=18, max_padding=1)
    >>> [(batch.items.tolist(), batch.width) for batch in tight]
    [([1, 3], 9), ([2, 0], 4), ([4], 2)]
    """
    known = np.asarray(lengths, np.int64)
    if not len(known):
        return []
    buckets = make_buckets(known, most=MAX_BUCKETS if max_padding is None else 0)
    width = buckets[np.searchsorted(buckets, known)]
    order = np.argsort(-known, kind="stable")

    def size(width: int) -> int:
        return max(1, batch_tokens // width) * world

    most = None if max_padding is None else max_padding * world
    return _share(_cut(order, width, size, max_padding=most), width, world, rank)


def _share(parts: Iterable[Ints], width: Ints, world: int, rank: int) -> list[MicroBatch]:
    """A rank's share of each part: every `world`-th item, in as many rows as the largest share."""
    return [
        MicroBatch(part[rank::world], int(width[part[0]]), -(-len(part) // world)) for part in parts
    ]


def collate_rows(
    task: Task, features: Features, micro: MicroBatch, tokenizer: Tokenizer, epoch: int = 0
) -> Batch:
    """Collates a micro-batch to `micro.rows` rows; the extra rows are padding.

    Padding rows repeat the first row, so that no row is without a token, and all their targets
    are ignored, so they change neither loss nor gradient. `items` and `places` are those of the
    real rows, so that `gather` returns these only; a boolean place is a mask of the logits and is
    padded with them. A micro-batch without items has padding rows only, of the shortest item.
    """
    empty = not len(micro.items)
    items = [int(features["length"].argmin())] if empty else micro.items.tolist()
    batch = task.collate(features, items, tokenizer, width=micro.width, epoch=epoch)
    more = micro.rows - len(items)
    if not more and not empty:
        return batch
    return Batch(
        np.zeros(0, np.int64) if empty else batch.items,
        {name: repeat_first(value, more) for name, value in batch.inputs.items()},
        {key: _ignore(target, more, everything=empty) for key, target in batch.targets.items()},
        {name: _place(value, more, empty=empty) for name, value in batch.places.items()},
    )


def repeat_first(value: Tensor, more: int) -> Tensor:
    """Pads a batch with copies of its first row.

    >>> repeat_first(torch.tensor([[1, 2]]), 1)
    tensor([[1, 2],
            [1, 2]])
    """
    return torch.cat([value, value[:1].expand(more, *value.shape[1:])]) if more else value


def _ignore(target: Tensor, more: int, *, everything: bool) -> Tensor:
    kept = target[:0] if everything else target
    rows = len(target) + more - len(kept)
    return torch.cat([kept, target.new_full((rows, *target.shape[1:]), IGNORE)])


def _place(value: Tensor, more: int, *, empty: bool) -> Tensor:
    if value.dtype == torch.bool:
        return repeat_first(value, more)
    return value[:0] if empty else value


def prefetch(make: Callable[[T], U], work: Iterable[T], *, depth: int = 2) -> Iterator[U]:
    """Like `map(make, work)`, but a thread makes `depth` results, and one in progress, ahead.

    An exception is raised after the results before it. Closing or dropping the iterator ends the
    thread as soon as the `make` in progress returns.

    >>> list(prefetch(lambda x: x * x, range(4)))
    [0, 1, 4, 9]
    """
    left = iter(work)

    def make_next() -> list[U]:
        return [make(one) for one in islice(left, 1)]

    pool = ThreadPoolExecutor(1, "prefetch")
    try:
        ahead = deque(pool.submit(make_next) for _ in range(depth + 1))
        while result := ahead.popleft().result():
            ahead.append(pool.submit(make_next))
            yield result.pop()  # no reference here while the caller works with it
    finally:
        pool.shutdown(cancel_futures=True)


def draw_items(sampler: str, items: int, strata: Ints | None, random: np.random.Generator) -> Ints:
    """Draws the items of one epoch in random order; balancing leaves out negative strata.

    >>> strata = np.array([0, 0, 0, 1, -1])
    >>> drawn = draw_items("oversample", 5, strata, np.random.default_rng(0))
    >>> sorted(drawn.tolist())
    [0, 1, 2, 3, 3, 3]
    """
    if sampler == "shuffle":
        return random.permutation(items)
    if strata is None or len(strata) != items:
        got = "none" if strata is None else len(strata)
        raise InputError(f"sampler {sampler} wanted a stratum for each of {items} items, got {got}")
    names, sizes = np.unique(strata[strata >= 0], return_counts=True)
    if not len(names):
        raise InputError(f"sampler {sampler} wanted items with labels, got none")
    members = np.split(np.argsort(strata, kind="stable")[-sizes.sum() :], np.cumsum(sizes)[:-1])
    wanted = _stratum_sizes(sampler, sizes, random)
    drawn = [_draw(own, count, random) for own, count in zip(members, wanted.tolist(), strict=True)]
    return random.permutation(np.concatenate(drawn))


def _stratum_sizes(sampler: str, sizes: Ints, random: np.random.Generator) -> Ints:
    """How many items to draw from each stratum."""
    if sampler == "oversample":
        return np.full_like(sizes, sizes.max())
    if sampler == "undersample":
        return np.full_like(sizes, sizes.min())
    each, more = divmod(int(sizes.sum()), len(sizes))
    lucky = random.permutation(len(sizes)) < more
    return each + lucky.astype(np.int64)


def _draw(members: Ints, count: int, random: np.random.Generator) -> Ints:
    """Draws `count` members: each equally often, and a random subset once more."""
    times, rest = divmod(count, len(members))
    return np.concatenate([*[members] * times, random.permutation(members)[:rest]])


def find_strata(task: Any, features: Features) -> Ints:
    """The stratum of every item, for samplers that balance; −1 for an item without a target."""
    if not hasattr(task, "strata"):
        raise InputError(f"task {task.kind} has no strata: wanted sampler shuffle")
    return np.asarray(task.strata(features), np.int64)


def make_buckets(lengths: Ints, *, most: int) -> Ints:
    """Chooses at most `most` bucket widths that need the least padding for these lengths.

    They are multiples of 8 (of more where rows are very long), but for the last, which is the
    longest row. With `most` = 0 every length is a width.

    >>> make_buckets(np.array([3, 5, 7, 20, 21, 60]), most=3)
    array([ 8, 24, 60])
    """
    longest = max(1, int(lengths.max()))
    if not most:
        return np.unique(np.maximum(lengths, 1))
    grain = _GRAIN
    while grain * _CANDIDATES < longest:
        grain *= 2
    widths = np.arange(0, longest + grain, grain)
    widths[-1] = longest
    chosen = widths[_choose_widths(widths, lengths, most)]
    used = np.unique(np.searchsorted(chosen, lengths))
    out: Ints = chosen[used]
    return out


def _choose_widths(widths: Ints, lengths: Ints, most: int) -> list[int]:
    """Chooses the widths by dynamic programming over their number and the largest of them.

    Rows longer than width i and not longer than width j are padded to j: that costs (how many) · j.
    """
    upto = np.cumsum(np.bincount(np.searchsorted(widths, lengths), minlength=len(widths)))
    cost = (upto - upto[:, None]) * widths.astype(np.float64)
    cost[np.tri(len(widths), k=-1, dtype=bool)] = np.inf  # not j < i; j = i adds no width
    total = cost[0]
    below = []
    for _ in range(most - 1):
        through = total[:, None] + cost
        below.append(through.argmin(0))
        total = through.min(0)
    kept = [len(widths) - 1]
    for step in reversed(below):
        kept.append(int(step[kept[-1]]))
    return sorted({width for width in kept if width})


def _pools(order: Ints, size: int) -> Iterator[Ints]:
    return (order[start : start + size] for start in range(0, len(order), size))


def _cut(
    items: Ints, width: Ints, size: Callable[[int], int], *, max_padding: int | None = None
) -> Iterator[Ints]:
    """Splits sorted items; `size` gives the number of items for the width of the first one.

    With `max_padding` a part ends before it has more padding ids than that.
    """
    start, widths = 0, width[items]
    while start < len(items):
        top = int(widths[start])
        stop = start + size(top)
        if max_padding is not None:
            padding = np.cumsum(top - widths[start:stop])
            stop = start + int(np.searchsorted(padding, max_padding, side="right"))
        yield items[start:stop]
        start = stop
