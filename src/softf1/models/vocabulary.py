"""Vocabularies of the encoders from scratch: made from the training data alone."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

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


def read_vocabulary(path: Path) -> dict[str, Any]:
    """What a codec wrote: tables of ids, and sizes."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"wanted a vocabulary in JSON, got {error}", path=path) from error
    if not isinstance(found, dict):
        raise InputError(f"wanted an object, got {type(found).__name__}", path=path)
    for name, value in found.items():
        numbers = value.values() if isinstance(value, dict) else [value]
        if not all(type(one) is int and 0 < one < 2**31 for one in numbers):
            raise InputError(f"wanted whole numbers from 1 for {name}", path=path)
    return found
