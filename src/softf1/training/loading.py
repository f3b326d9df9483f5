"""Collates micro-batches to tensors with a constant number of rows, ahead of time in a thread."""

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
"""A result, an error, or neither at the end."""


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


def pin_batch(batch: Batch) -> Batch:
    """Moves the batch to pinned memory, for asynchronous copies to a GPU."""

    def pin(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: value.pin_memory() for name, value in tensors.items()}

    return Batch(batch.items, pin(batch.inputs), pin(batch.targets), pin(batch.places))


def prefetch(make: Callable[[T], U], work: Iterable[T], *, depth: int = 2) -> Iterator[U]:
    """Like `map(make, work)`, with up to `depth` results made ahead in a background thread.

    An exception is raised after the results before it. Closing the iterator, or
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
            yield result.pop()  # no reference here while the caller works with it
    finally:
        stop.set()
        _drain(made)  # the thread may wait for space; after one more result it sees `stop`
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
