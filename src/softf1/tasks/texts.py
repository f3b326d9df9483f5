"""Running texts as flat ids, cut to what a row can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from softf1.tasks.ragged import ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from softf1.models.codec import Codec
    from softf1.tasks.base import Features

    Ints = NDArray[np.int64]
    Flat = tuple[NDArray[np.int32], Ints]


def encode_texts(texts: Sequence[str], codec: Codec) -> Flat:
    """The ids of all texts, flat, and how many each has."""
    found = codec.text_ids(texts)
    lengths = np.fromiter(map(len, found), np.int64, len(found))
    flat = np.fromiter((i for ids in found for i in ids), np.int32, int(lengths.sum()))
    return flat, lengths


def keep(text: Flat, kept: Ints) -> Flat:
    """The first ids of every text."""
    flat, lengths = text
    return flat[ranges(np.cumsum(lengths) - lengths, kept)], kept


def share(first: Ints, second: Ints, *, capacity: int) -> tuple[Ints, Ints]:
    """How many ids of each of two texts a row keeps: the longer one is cut first.

    >>> share(np.array([2, 9, 9]), np.array([9, 2, 9]), capacity=8)
    (array([2, 6, 4]), array([6, 2, 4]))
    """
    a = np.minimum(first, np.maximum(capacity // 2, capacity - second))
    return a, np.minimum(second, capacity - a)


def take(features: Features, name: str, index: Ints) -> Flat:
    """Some rows of a flat array with its offsets."""
    at = features[f"{name}_at"]
    length = at[index + 1] - at[index]
    return features[name][ranges(at[index], length)], length
