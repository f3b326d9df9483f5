"""Rows of different lengths kept as one flat array: how they are indexed, laid out and padded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Ints = NDArray[np.int64]


def offsets(lengths: ArrayLike) -> Ints:
    """Where each row starts, and last where all end.

    >>> offsets([2, 0, 3])
    array([0, 2, 2, 5])
    """
    lengths = np.asarray(lengths, np.int64)
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def ranges(starts: ArrayLike, lengths: ArrayLike) -> Ints:
    """The positions `start, start + 1, …` of every row, one after another.

    >>> ranges([5, 0], [2, 3])
    array([5, 6, 0, 1, 2])
    """
    starts, lengths = np.asarray(starts, np.int64), np.asarray(lengths, np.int64)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    out: Ints = np.arange(total) + np.repeat(starts - ends + lengths, lengths)
    return out


def rows(lengths: ArrayLike) -> Ints:
    """The row of every entry.

    >>> rows([2, 0, 3])
    array([0, 0, 2, 2, 2])
    """
    lengths = np.asarray(lengths, np.int64)
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def pad(
    flat: NDArray[Any],
    lengths: ArrayLike,
    *,
    fill: float,
    width: int | None = None,
    shift: ArrayLike = 0,
) -> NDArray[Any]:
    """The rows as a matrix, `shift` columns from the left, the rest filled.

    >>> pad(np.array([1, 2, 3]), [1, 2], fill=0, shift=[1, 0])
    array([[0, 1],
           [2, 3]])
    """
    lengths = np.asarray(lengths, np.int64)
    shift = np.broadcast_to(np.asarray(shift, np.int64), lengths.shape)
    if width is None:
        width = int((lengths + shift).max(initial=0))
    out = np.full((len(lengths), width), fill, flat.dtype)
    out.reshape(-1)[ranges(np.arange(len(lengths)) * width + shift, lengths)] = flat
    return out
