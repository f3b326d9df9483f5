"""Batches of an evaluation until batching.py is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

T = TypeVar("T")
U = TypeVar("U")


class MicroBatch(NamedTuple):
    """Items that make up one forward."""

    items: NDArray[np.int64]
    width: int
    rows: int


def eval_batches(
    lengths: NDArray[np.int64], *, batch_tokens: int, world: int = 1, rank: int = 0
) -> list[MicroBatch]:
    """Longest first."""
    order, out, at = np.argsort(-lengths, kind="stable"), [], 0
    while at < len(order):
        width = int(lengths[order[at]])
        rows = max(1, batch_tokens // max(width, 1))
        out.append(MicroBatch(order[at : at + rows].astype(np.int64), width, rows))
        at += rows
    return out[rank::world]


def prefetch(make: Callable[[T], U], work: Iterable[T], *, depth: int = 2) -> Iterator[U]:  # noqa: ARG001
    """One after another."""
    return map(make, work)
