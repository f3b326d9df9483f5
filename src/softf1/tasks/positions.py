"""Where an answer starts or ends, as the target of a softmax over positions or of sigmoids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from softf1.tasks.base import IGNORE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


def one_position(row: Ints, column: Ints, *, cls: Ints, unknown: Mask) -> NDArray[Any]:
    """The column of each row's first answer (B,), or of its classification token.

    Args:
        row: The row of each answer.
        column: Its column.
        cls: (B,), where the classification token stands.
        unknown: (B,), rows that cannot be learned from.

    >>> one_position(np.array([0, 0]), np.array([5, 7]), cls=np.array([1, 1]),
    ...              unknown=np.array([False, False]))
    array([5, 1])
    """
    target = cls.copy()
    target[row[::-1]] = column[::-1]
    return np.where(unknown, IGNORE, target)


def every_position(
    row: Ints, column: Ints, *, cls: Ints, unknown: Mask, allowed: Mask
) -> NDArray[Any]:
    """1 at every answer, or at the classification token of a row without one (B, L, 1).

    Args:
        row: The row of each answer.
        column: Its column.
        cls: (B,), where the classification token stands.
        unknown: (B,), rows that cannot be learned from.
        allowed: (B, L), positions that count.
    """
    target = np.where(allowed & ~unknown[:, None], 0.0, IGNORE).astype(np.float32)
    target[row, column] = 1
    without = np.setdiff1d(np.flatnonzero(~unknown), row)
    target[without, cls[without]] = 1
    return target[..., None]
