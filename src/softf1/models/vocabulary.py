"""Vocabularies of the encoders from scratch: made from the training data alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PAD, UNKNOWN = 0, 1
"""Padding and unknown are two ids: an unknown word is a word."""


def count_vocabulary(items: Iterable[str], *, most: int, at_least: int = 2) -> dict[str, int]:
    """Ids from 2 on for the most frequent items.

    Items that occur once stay unknown, so that the unknown id is seen, and learned, in training.

    >>> count_vocabulary("abracadabra", most=3)
    {'a': 2, 'b': 3, 'r': 4}
    """
    frequent = Counter(items).most_common(most)
    kept = [item for item, count in frequent if count >= at_least]
    return {item: number for number, item in enumerate(kept, start=2)}
