"""Makes batches ahead of time, in a thread."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")
U = TypeVar("U")


def prefetch(make: Callable[[T], U], work: Iterable[T], *, depth: int = 2) -> Iterator[U]:
    """Like `map(make, work)`, with `depth` results and one in progress ahead, made in a thread.

    An exception is raised after the results before it. Closing the iterator, or
    dropping it, ends the thread as soon as the `make` in progress returns.

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
