"""Words to characters: tagging in a language without spaces, alone or joint with segmentation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from softf1.data.tags import to_characters
from softf1.metrics.schemes import decode_lenient, encode_spans
from softf1.tasks.ragged import offsets

if TYPE_CHECKING:
    from softf1.data.examples import TaggedSentence


def split_characters(sentence: TaggedSentence, scheme: str, *, joint: bool) -> TaggedSentence:
    """The characters of a sentence, with the tags of its spans.

    Args:
        sentence: Words, tagged in any scheme or not at all.
        scheme: The scheme of the result.
        joint: Every word is a span with its tag as label: segmentation and tags in one.

    >>> from softf1.data.examples import TaggedSentence
    >>> sentence = TaggedSentence(("Ann", "is"), ("B-PER", "O"), line=1)
    >>> split_characters(sentence, "BIO", joint=False).tags
    ('B-PER', 'I-PER', 'I-PER', 'O', 'O')
    """
    characters = tuple("".join(sentence.words))
    if not sentence.tags:
        return replace(sentence, words=characters)
    if joint:
        return to_characters(sentence, scheme=scheme)
    at = offsets([len(word) for word in sentence.words]).tolist()
    spans = [(at[start], at[end], label) for start, end, label in decode_lenient(sentence.tags)]
    tags = encode_spans(spans, length=len(characters), scheme=scheme)
    return replace(sentence, words=characters, tags=tuple(tags))
