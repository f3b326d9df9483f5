"""Micro-batches as tensors: rows padded to a constant number, put together ahead in a thread."""

from __future__ import annotations

from queue import Empty, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from softf1.tasks.base import IGNORE, Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from softf1.models.tokenizers import Tokenizer
    from softf1.tasks.base import Features, Task
    from softf1.training.batching import MicroBatch

T = TypeVar("T")
U = TypeVar("U")

Made = tuple[list[U], Exception | None]
"""A result, an error in its place, or neither: the end."""


def collate_rows(
    task: Task, features: Features, micro: MicroBatch, tokenizer: Tokenizer, epoch: int = 0
) -> Batch:
    """The micro-batch as tensors of `micro.rows` rows, of which the further ones count nowhere.

    They repeat the first row, so that no row is without a token, and all their targets are
    ignored: neither loss nor gradient knows them. `items` and `places` are those of the real rows,
    so that `gather` finds these alone; a place of booleans is a mask of the logits and grows with
    them. Without items there are only rows that count nowhere, of the shortest item.
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
    """More rows, copies of the first, so that nothing odd is in them.

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


def pin_batch(batch: Batch) -> Batch:
    """The batch in memory that a GPU copies from without waiting."""

    def pin(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: value.pin_memory() for name, value in tensors.items()}

    return Batch(batch.items, pin(batch.inputs), pin(batch.targets), pin(batch.places))


def prefetch(make: Callable[[T], U], work: Iterable[T], *, depth: int = 2) -> Iterator[U]:
    """Like `map(make, work)`, with up to `depth` results made ahead in a background thread.

    An exception comes out in its place, after the results before it. Closing the iterator, or
    dropping it, ends the thread as soon as the `make` in progress returns.

    >>> list(prefetch(lambda x: x * x, range(4)))
    [0, 1, 4, 9]
    """
    if depth < 1:
        raise ValueError(f"wanted a depth of 1 or more, got {depth}")
    return _consume(make, work, depth)


def _consume(make: Callable[[T], U], work: Iterable[T], depth: int) -> Iterator[U]:
    made: Queue[Made[U]] = Queue(depth)
    stop = Event()
    thread = Thread(target=_produce, args=(make, work, made, stop), name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            result, error = made.get()
            if error is not None:
                raise error
            if not result:
                return
            yield result.pop()  # not held here while the caller works with it
    finally:
        stop.set()
        _drain(made)  # the thread may wait for room; one more result fits, then it sees `stop`
        thread.join()


def _produce(make: Callable[[T], U], work: Iterable[T], made: Queue[Made[U]], stop: Event) -> None:
    error: Exception | None = None
    try:
        for one in work:
            if stop.is_set():
                return
            made.put(([make(one)], None))
    except Exception as raised:  # noqa: BLE001 - raised again where the result is taken
        error = raised
    if not stop.is_set():
        made.put(([], error))


def _drain(made: Queue[Any]) -> None:
    try:
        while True:
            made.get_nowait()
    except Empty:
        return
