"""Makes batches ahead of time: in a thread, and in pinned memory."""

from __future__ import annotations

from queue import Empty, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from softf1.tasks.base import Batch


T = TypeVar("T")
U = TypeVar("U")

Made = tuple[list[U], Exception | None]
"""A result, an error, or neither at the end."""


def pin_batch(batch: Batch) -> Batch:
    """Moves the batch to pinned memory, for asynchronous copies to a GPU."""
    return batch.apply(lambda tensor: tensor.pin_memory())


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
