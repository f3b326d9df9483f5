"""Random tag sequences of a scheme: valid, nearly valid, and any letters in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.metrics.schemes import OUTSIDE, SCHEMES, encode_spans

if TYPE_CHECKING:
    import random

    from softf1.metrics.schemes import LabelledSpan

LABELS = ("PER", "LOC", "MISC")


def random_spans(rng: random.Random, length: int) -> list[LabelledSpan]:
    """Spans that often touch each other, with the same label or another."""
    spans: list[LabelledSpan] = []
    start = 0
    while start < length:
        end = min(length, start + rng.randint(1, 4))
        if rng.random() < 0.6:
            spans.append((start, end, rng.choice(LABELS)))
        start = end
    return spans


def random_tags(rng: random.Random, scheme: str, length: int) -> list[str]:
    """A third valid, a third with some tags changed, a third any tags."""
    letters = SCHEMES[scheme].prefixes.replace(OUTSIDE, "")
    vocabulary = [f"{letter}-{label}" for letter in letters for label in LABELS] + [OUTSIDE] * 2
    noise = rng.choice((0.0, 0.2, 1.0))
    tags = encode_spans(random_spans(rng, length), length=length, scheme=scheme)
    return [rng.choice(vocabulary) if rng.random() < noise else tag for tag in tags]
