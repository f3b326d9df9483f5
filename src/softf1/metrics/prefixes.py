"""The tag schemes as data: the letter of each role, and what follows from it for two neighbours.

A scheme is four letters, one for each role a token can have in a span: the first of several
(begin), one between (inside), the last of several (end), the only one (single). `BIO` writes a
single token as it writes a first one, `BIOES` has a letter for each role. IOB1 alone needs a fifth
letter, `split`, for a span that touches one of its own label before it.

    >>> SCHEMES["BIOES"].continues("B", "E", same=True)
    True
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OUTSIDE = "O"

# What can hold between a tag and the next one, as bits, so that it can be looked up.
CONTINUES, STARTS, ENDS, ALLOWED, UNKNOWN = 1, 2, 4, 8, 16


@dataclass(frozen=True, slots=True)
class Scheme:
    """The letter of each role; a letter may play several roles.

    Attributes:
        name: The name in `SCHEMES`.
        begin: First token of a span of several.
        inside: Between first and last.
        end: Last token of a span of several.
        single: The only token of a span.
        split: Replaces the first letter where the span touches one of the same label (IOB1).
    """

    name: str
    begin: str
    inside: str
    end: str
    single: str
    split: str = ""

    @property
    def prefixes(self) -> str:
        """All letters, `O` last, each once."""
        letters = self.begin + self.inside + self.end + self.single + self.split + OUTSIDE
        return "".join(dict.fromkeys(letters))

    @property
    def starting(self) -> str:
        """The letters that can be the first of a span."""
        return self.begin + self.single + self.split

    @property
    def ending(self) -> str:
        """The letters that can be the last of a span."""
        return self.end + self.single + self.split

    def describe(self) -> str:
        """The tags of the scheme, for messages."""
        return f"O or a tag of {self.name} ({'-, '.join(self.prefixes[:-1])}-)"

    def has(self, tag: str) -> bool:
        """Whether this is a tag of the scheme, with any label."""
        prefix, label = split_tag(tag)
        return len(prefix) == 1 and prefix in self.prefixes and not (prefix == OUTSIDE and label)

    def continues(self, previous: str, prefix: str, *, same: bool) -> bool:
        """Whether a token goes on with the span of the token before (`same`: labels are equal)."""
        opened = self.begin + self.inside + self.split
        return same and previous in opened and prefix in self.inside + self.end

    def starts(self, previous: str, prefix: str, *, same: bool) -> bool:
        """Whether a token that does not continue a span starts one."""
        if prefix == self.split:
            return same and previous != OUTSIDE
        return prefix in self.starting

    def ends(self, previous: str, prefix: str, *, same: bool) -> bool:
        """Whether a span that is not continued is complete."""
        if self.split and previous == prefix == self.split and not same:
            return False  # seqeval's rule for IOB1: B-X before the misplaced B-Y is lost with it
        return previous in self.ending

    def allows(self, previous: str, prefix: str, *, same: bool) -> bool:
        """Whether a correct sequence can have these two neighbours."""
        if self.continues(previous, prefix, same=same):
            return True
        closed = previous == OUTSIDE or previous in self.ending
        return closed and (prefix == OUTSIDE or self.starts(previous, prefix, same=same))

    def relate(self, previous: str, prefix: str, *, same: bool) -> int:
        """All of the above as bits."""
        return (
            CONTINUES * self.continues(previous, prefix, same=same)
            + STARTS * self.starts(previous, prefix, same=same)
            + ENDS * self.ends(previous, prefix, same=same)
            + ALLOWED * self.allows(previous, prefix, same=same)
        )


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        scheme.name: scheme
        for scheme in (
            Scheme("BIO", begin="B", inside="I", end="I", single="B"),
            Scheme("IOB1", begin="I", inside="I", end="I", single="I", split="B"),
            Scheme("IOE2", begin="I", inside="I", end="E", single="E"),
            Scheme("BIOES", begin="B", inside="I", end="E", single="S"),
            Scheme("BILOU", begin="B", inside="I", end="L", single="U"),
            Scheme("BMES", begin="B", inside="M", end="E", single="S"),
            Scheme("BMEWO", begin="B", inside="M", end="E", single="W"),
        )
    }
)
"""All schemes by name, in the order in which `detect_scheme` prefers them."""

LENIENT = Scheme("conlleval", begin="B", inside="IM", end="EL", single="BIMELSUW")
"""conlleval's rules over the letters of all schemes: any letter can be a span by itself."""

ALIASES: Mapping[str, str] = MappingProxyType({"IOB2": "BIO", "IOB": "BIO", "IOBES": "BIOES"})


def get_scheme(name: str | Scheme) -> Scheme:
    """The scheme of that name (any case; `IOB2` is `BIO`), or the scheme itself.

    >>> get_scheme("iob2").name
    'BIO'
    """
    if isinstance(name, Scheme):
        return name
    key = ALIASES.get(name.upper(), name.upper())
    if key not in SCHEMES:
        msg = f"wanted a tag scheme of {', '.join(SCHEMES)}, got {name!r}"
        raise ValueError(msg)
    return SCHEMES[key]


def split_tag(tag: str) -> tuple[str, str]:
    """Prefix and label of a tag; the label of a bare `B` (and of `O`) is empty.

    >>> split_tag("B-work-of-art"), split_tag("S"), split_tag("O")
    (('B', 'work-of-art'), ('S', ''), ('O', ''))
    """
    prefix, _, label = tag.partition("-")
    return prefix, label


def join_tag(prefix: str, label: str) -> str:
    """The tag of a prefix and a label, the inverse of `split_tag`."""
    return f"{prefix}-{label}" if label else prefix


class Steps(dict[tuple[str, str], int]):
    """The bits of two tags that follow each other, worked out when they are first met."""

    def __init__(self, scheme: Scheme):
        """Start with none."""
        super().__init__()
        self.scheme = scheme

    def __missing__(self, pair: tuple[str, str]) -> int:
        """Work the bits out and keep them."""
        if len(self) > 100_000:
            self.clear()  # endless new tags are no tag set: do not keep them all
        before, after = pair
        if not self.scheme.has(after):
            bits = UNKNOWN
        elif not self.scheme.has(before):
            bits = UNKNOWN | ALLOWED  # reported where it stands
        else:
            (previous, label), (prefix, next_label) = split_tag(before), split_tag(after)
            bits = self.scheme.relate(previous, prefix, same=label == next_label)
        self[pair] = bits
        return bits


steps_of = cache(Steps)
"""The one table of each scheme."""
