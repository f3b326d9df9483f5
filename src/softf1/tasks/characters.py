"""Words to characters: tagging in a language without spaces, alone or joint with segmentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.metrics.schemes import decode_lenient, encode_spans
from softf1.tasks.ragged import offsets

if TYPE_CHECKING:
    from softf1.data.examples import TaggedSentence
    from softf1.metrics.schemes import LabelledSpan


def split_characters(sentence: TaggedSentence, scheme: str) -> tuple[list[str], list[str]]:
    """The characters of a sentence with the tags of its spans, whatever scheme it is in.

    >>> from softf1.data.examples import TaggedSentence
    >>> split_characters(TaggedSentence(("Ann", "is"), ("B-PER", "O"), line=1), "BIO")
    (['A', 'n', 'n', 'i', 's'], ['B-PER', 'I-PER', 'I-PER', 'O', 'O'])
    """
    spans = decode_lenient(sentence.tags)
    return _characters(sentence, spans, scheme)


def join_segmentation(sentence: TaggedSentence, scheme: str) -> tuple[list[str], list[str]]:
    """The characters of a sentence, every word a span with its tag as label.

    >>> from softf1.data.examples import TaggedSentence
    >>> join_segmentation(TaggedSentence(("go", "!"), ("VERB", "PUNCT"), line=1), "BMES")
    (['g', 'o', '!'], ['B-VERB', 'E-VERB', 'S-PUNCT'])
    """
    spans = [(i, i + 1, tag) for i, tag in enumerate(sentence.tags)]
    return _characters(sentence, spans, scheme)


def _characters(
    sentence: TaggedSentence, spans: list[LabelledSpan], scheme: str
) -> tuple[list[str], list[str]]:
    characters = [character for word in sentence.words for character in word]
    if not sentence.tags:
        return characters, []
    at = offsets([len(word) for word in sentence.words]).tolist()
    moved = [(at[start], at[end], label) for start, end, label in spans]
    return characters, encode_spans(moved, length=len(characters), scheme=scheme)
