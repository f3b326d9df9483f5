"""The language of a corpus, as far as it decides which encoder can read it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from softf1.data.examples import Example, MrcExample, TaggedSentence

if TYPE_CHECKING:
    from collections.abc import Iterable

Language = Literal["English", "Chinese", "other"]

ENGLISH = frozenset(
    """a an and are as at be but by for from had has have he her his i in is it its me my not of on
    or our she that the their they this to was we were what when where which who will with you
    your""".split()  # noqa: SIM905 - a list of so many words is hard to read
)
"""Words that are a good part of any English text, and next to nothing of other languages."""

_WORD = re.compile(r"[^\W\d_]+")
_IDEOGRAPH = re.compile("[\u3400-\u9fff\uf900-\ufaff]")


def guess_language(examples: Iterable[Example]) -> Language:
    """Guesses the language: English by its function words, Chinese by its characters.

    >>> guess_language([TaggedSentence(("It", "is", "in", "Graz"), ("O", "O", "O", "O"), 1)])
    'English'
    """
    text = " ".join(
        word
        for one in examples
        for word in (one.words if isinstance(one, TaggedSentence | MrcExample) else one.texts)
    )
    words = [word.lower() for word in _WORD.findall(text)]
    letters = sum(map(len, words))
    if not letters:
        return "other"
    if len(_IDEOGRAPH.findall(text)) > letters / 3:
        return "Chinese"
    small = sum(word in ENGLISH for word in words) / len(words)
    ascii_letters = sum(len(word) for word in words if word.isascii()) / letters
    return "English" if small > 0.1 and ascii_letters > 0.9 else "other"
