"""Contexts of questions as arrays: tokens, windows, the tokens of answers, and targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from softf1.tasks.base import IGNORE
from softf1.tasks.rows import offsets, ranges, rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from softf1.data.examples import QAExample
    from softf1.models.tokenizers import Tokenizer

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


def encode_contexts(contexts: list[str], tokenizer: Tokenizer) -> dict[str, NDArray[Any]]:
    """Returns the tokens of all contexts, and the characters that each token stands for."""
    tokens, places = [np.zeros(0, np.int32)], [np.zeros((0, 2), np.int64)]
    for context, (ids, spans) in zip(contexts, tokenizer.aligned(contexts), strict=True):
        # Some tokenizers count the space before a word as part of it.
        spaces = [start < end and context[start].isspace() for start, end in spans]
        place = np.array(spans, np.int64).reshape(-1, 2)
        place[:, 0] += np.array(spaces, np.int64)
        tokens.append(np.array(ids, np.int32))
        places.append(place)
    flat = np.concatenate(places)
    return {
        "tokens": np.concatenate(tokens),
        "char_start": flat[:, 0],
        "char_end": flat[:, 1],
        "context_at": offsets([len(ids) for ids in tokens[1:]]),
    }


def slide_windows(
    start: Ints, stop: Ints, capacity: Ints, *, overlap: int
) -> tuple[Ints, Ints, Ints]:
    """Cuts the tokens from `start` to `stop` into windows of up to `capacity` tokens.

    Two neighbours share `overlap` tokens, at most half a window.

    Returns:
        The source of each window (an index into `start`), its first token, and its end.
    """
    length, step = stop - start, capacity - np.minimum(overlap, capacity // 2)
    count = 1 + np.maximum(0, -(-(length - capacity) // step))
    source = rows(count)
    first = start[source] + ranges(np.zeros_like(count), count) * step[source]
    return source, first, np.minimum(first + capacity[source], stop[source])


def locate_answer(
    example: QAExample, arrays: dict[str, NDArray[Any]], context: int
) -> list[tuple[int, int]]:
    """Returns the token spans of the first answer, counted over all contexts."""
    if not example.answers:
        return []
    low, high = arrays["context_at"][context : context + 2]
    starts, ends = arrays["char_start"][low:high], arrays["char_end"][low:high]
    spans = [
        (low + np.searchsorted(ends, start, side="right"), low + np.searchsorted(starts, end))
        for start, end in example.answers[0].spans
    ]
    return [(int(start), int(end)) for start, end in spans if start < end]


def one_position(row: Ints, column: Ints, *, cls: Ints, unknown: Mask) -> NDArray[Any]:
    """Softmax targets (B,): the column of each row's first answer, or of its classification token.

    Args:
        row: The row of each answer.
        column: The column of each answer.
        cls: (B,), the column of the classification token.
        unknown: (B,), rows whose answer was not found in the context; they are ignored.

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
    """Sigmoid targets (B, L, 1): 1 at every answer, or at the classification token without one.

    Args:
        row: The row of each answer.
        column: The column of each answer.
        cls: (B,), the column of the classification token.
        unknown: (B,), rows whose answer was not found in the context; they are ignored.
        allowed: (B, L), positions that are in the loss.
    """
    target = np.where(allowed & ~unknown[:, None], 0.0, IGNORE).astype(np.float32)
    target[row, column] = 1
    without = np.setdiff1d(np.flatnonzero(~unknown), row)
    target[without, cls[without]] = 1
    return target[..., None]
