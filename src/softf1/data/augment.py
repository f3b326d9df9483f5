"""Small edits that keep the meaning of a text: synonyms, or lighter edits if there are none.

Numbers, names and negations are never touched, since they decide whether two texts mean the same.
All randomness comes from the generator that the caller passes in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from softf1.errors import InputError

if TYPE_CHECKING:
    from random import Random

    from numpy.typing import ArrayLike

Synonyms = Callable[[str], Sequence[str]]
"""Returns synonyms of a lower-case word, the best first; none for an unknown word."""

STOP_WORDS = frozenset(
    """a an the of to in on at by for with from as and or is are was were be been do does did that
    this these those there very really just quite some any""".split()  # noqa: SIM905 - many words
)
_NEGATIONS = frozenset(
    "no not never none nothing nobody nor neither without cannot hardly barely".split()  # noqa: SIM905
)
_FUNCTION_WORDS = frozenset(
    """who whom whose what when where why how which you your yours him her hers his its our ours
    she they them their theirs myself yourself himself herself itself ourselves yourselves
    themselves can could will would shall should may might must have has had all every each both
    only but before after over under more less most least than too""".split()  # noqa: SIM905
)
"""Words whose nearest neighbours differ in meaning: your, our; before, after; more, less."""
_PROTECTED = STOP_WORDS | _NEGATIONS | _FUNCTION_WORDS
_TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def embedding_synonyms(
    vocabulary: Sequence[str],
    matrix: ArrayLike,
    *,
    neighbours: int = 3,
    threshold: float = 0.6,
) -> Synonyms:
    """Nearest neighbours among the whole words of an encoder's input embeddings.

    Neighbours occur in the same contexts, but so do antonyms: look at a sample of the edited rows
    before you trust them, and prefer a thesaurus where there is one.

    Args:
        vocabulary: The token of each row of `matrix`; pieces of words (`##ing`) are left out.
        matrix: The embeddings, (tokens, width).
        neighbours: The most synonyms of a word.
        threshold: The least cosine similarity of a synonym.

    >>> find = embedding_synonyms(["quick", "fast", "tree"], [[1.0, 0.1], [1.0, 0.2], [0.0, 1.0]])
    >>> find("quick"), find("tree"), find("unknown")
    (('fast',), (), ())
    """
    table = np.asarray(matrix, dtype=np.float32)
    if table.ndim != 2 or len(table) != len(vocabulary):
        wanted = f"wanted a matrix of {len(vocabulary)} rows, one per token"
        raise InputError(f"{wanted}, got shape {table.shape}")
    rows = [index for index, token in enumerate(vocabulary) if token.isalpha() and len(token) > 2]
    words = [vocabulary[index].lower() for index in rows]
    table = table[rows]
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    place = {word: index for index, word in enumerate(words)}

    @cache
    def find(word: str) -> tuple[str, ...]:
        own = place.get(word)
        if own is None:
            return ()
        cosines = table @ table[own]
        near = np.flatnonzero(cosines >= threshold)
        best = near[np.argsort(-cosines[near], kind="stable")]
        alike = dict.fromkeys(words[index] for index in best)
        # Another form of the word would change only its number or tense.
        others = (one for one in alike if not (one.startswith(word) or word.startswith(one)))
        return tuple(islice(others, neighbours))

    return find


def edit(text: str, random: Random, synonyms: Synonyms | None = None) -> str | None:
    """Returns the text with one word changed, or None if no word may be changed.

    A synonym is tried first. Without one the edit is light: a stop word is dropped or swapped with
    the word before it.

    >>> from random import Random
    >>> edit("How do I learn to swim?", Random(0), lambda word: {"learn": ["study"]}.get(word, []))
    'How do I study to swim?'
    >>> edit("In 1998", Random(0))
    """
    spots = [match.span() for match in _TOKEN.finditer(text)]
    random.shuffle(spots)
    if synonyms is not None:
        for start, end in spots:
            word = text[start:end]
            choices = synonyms(word) if _may_change(word) else []
            if choices:
                return text[:start] + random.choice(choices[:3]) + text[end:]
    return _light_edit(text, spots, random)


def _light_edit(text: str, spots: list[tuple[int, int]], random: Random) -> str | None:
    for start, end in spots:
        if text[start:end] not in STOP_WORDS or start == 0:
            continue
        if random.random() < 0.5:
            return text[:start].rstrip() + " " + text[end:].lstrip()
        before = re.search(r"([a-z]+) $", text[:start])
        if before and before[1] not in _NEGATIONS:
            return text[: before.start()] + f"{text[start:end]} {before[1]}" + text[end:]
    return None


def _may_change(word: str) -> bool:
    """Whether a word may change: no numbers, names, negations or function words."""
    return word.isalpha() and word.islower() and len(word) > 2 and word not in _PROTECTED
