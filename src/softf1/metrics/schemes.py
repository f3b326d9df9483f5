"""Tag schemes as data, and tags and spans: detect a scheme, decode, encode, convert, repair.

A scheme is four letters, one for each role a token can have in a span: the first of several
(begin), one between (inside), the last of several (end), the only one (single). `BIO` writes a
single token as it writes a first one, `BIOES` has a letter for each role. IOB1 alone needs a fifth
letter, `split`, for a span right after another one of the same label.

    >>> tags = ["B-PER", "E-PER", "O", "S-LOC"]
    >>> scheme = detect_scheme([tags])
    >>> scheme.name
    'BIOES'
    >>> decode_strict(tags, scheme)
    [(0, 2, 'PER'), (3, 4, 'LOC')]
    >>> convert_tags(tags, scheme, "BIO")
    ['B-PER', 'I-PER', 'O', 'B-LOC']
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

OUTSIDE = "O"

# What can hold between a tag and the next one, as bits of a table.
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
        split: Replaces the first letter if the span touches one of the same label (IOB1).
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
        """Whether a token continues the span of the token before (`same`: labels are equal)."""
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
            return False  # seqeval's rule for IOB1: before a misplaced B-Y, B-X is no span either
        return previous in self.ending

    def allows(self, previous: str, prefix: str, *, same: bool) -> bool:
        """Whether a valid sequence can have these two neighbours."""
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


SCHEMES: Mapping[str, Scheme] = {
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
"""All schemes by name, in the order in which `detect_scheme` prefers them."""

LENIENT = Scheme("conlleval", begin="B", inside="IM", end="EL", single="BIMELSUW")
"""conlleval's rules over the letters of all schemes: any letter can be a span by itself."""

ALIASES: Mapping[str, str] = {"IOB2": "BIO", "IOB": "BIO", "IOBES": "BIOES"}


def get_scheme(name: str | Scheme) -> Scheme:
    """The scheme of that name (any case; `IOB2` is `BIO`), or the scheme itself.

    >>> get_scheme("iob2").name
    'BIO'
    """
    if isinstance(name, Scheme):
        return name
    key = ALIASES.get(name.upper(), name.upper())
    if key not in SCHEMES:
        raise ValueError(f"wanted a tag scheme of {', '.join(SCHEMES)}, got {name!r}")
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


@cache
def steps_of(scheme: Scheme) -> Callable[[tuple[str, str]], int]:
    """Returns a function that gives the bits of two neighbouring tags."""

    @lru_cache(100_000)  # a tag set is small; data with ever new tags must not fill the memory
    def step(pair: tuple[str, str]) -> int:
        before, after = pair
        if not scheme.has(after):
            return UNKNOWN
        if not scheme.has(before):
            return UNKNOWN | ALLOWED  # `before` was reported already, at its own place
        (previous, label), (prefix, next_label) = split_tag(before), split_tag(after)
        return scheme.relate(previous, prefix, same=label == next_label)

    return step


ODD = 4
"""Tags outside a scheme count as mistakes if at least this many times as many tags are in it."""

LabelledSpan = tuple[int, int, str]
"""(start, end, label), end exclusive."""


@dataclass(frozen=True, slots=True)
class InvalidTag:
    """A tag that its scheme does not allow where it stands.

    Attributes:
        index: Its position in the sentence, from 0.
        message: What was wanted and what was got.
    """

    index: int
    message: str


def decode_strict(tags: Sequence[str], scheme: str | Scheme) -> list[LabelledSpan]:
    """The spans that follow the scheme to the letter; what does not is no span.

    >>> decode_strict(["I-PER", "O", "B-LOC", "I-LOC"], "BIO")
    [(2, 4, 'LOC')]
    """
    return _decode(tags, get_scheme(scheme))


def decode_lenient(tags: Sequence[str]) -> list[LabelledSpan]:
    """The spans by conlleval's rules: every tag but `O` is in a span, whatever its prefix.

    A span continues from a first or inner letter (B, I, M) to an inner or last one (I, M, E, L) if
    the labels are equal, and breaks everywhere else. The letters of all schemes are understood.

    >>> decode_lenient(["I-PER", "O", "B-LOC", "I-LOC", "I-ORG"])
    [(0, 1, 'PER'), (2, 4, 'LOC'), (4, 5, 'ORG')]
    """
    return _decode(tags, LENIENT)


def encode_spans(spans: Iterable[LabelledSpan], *, length: int, scheme: str | Scheme) -> list[str]:
    """The tags of a sentence of `length` tokens with these spans, which may not overlap.

    >>> encode_spans([(0, 1, "PER"), (1, 3, "PER")], length=4, scheme="IOB1")
    ['I-PER', 'B-PER', 'I-PER', 'O']
    """
    scheme = get_scheme(scheme)
    tags = [OUTSIDE] * length
    last_end, last_label = 0, None
    for start, end, label in sorted(spans):
        if not last_end <= start < end <= length:
            wanted = f"spans apart from each other within {length} tokens"
            got = f"{(start, end, label)} after one that ends at {last_end}"
            raise ValueError(f"wanted {wanted}, got {got}")
        touches = start == last_end and label == last_label
        prefixes = _prefixes(end - start, scheme, touches=touches)
        tags[start:end] = [join_tag(prefix, label) for prefix in prefixes]
        last_end, last_label = end, label
    return tags


def convert_tags(tags: Sequence[str], source: str | Scheme, target: str | Scheme) -> list[str]:
    """The same spans in another scheme; a sequence that is not valid in `source` is an error."""
    source = get_scheme(source)
    invalid = find_invalid(tags, source)
    if invalid:
        raise ValueError(f"tag {invalid[0].index}: {invalid[0].message}")
    return encode_spans(decode_strict(tags, source), length=len(tags), scheme=target)


def find_invalid(tags: Sequence[str], scheme: str | Scheme) -> list[InvalidTag]:
    """Every tag that cannot follow the one before it, and a span left open at the end.

    >>> find_invalid(["O", "I-PER", "O"], "BIO")
    [InvalidTag(index=1, message="wanted a tag that can follow 'O' in BIO, got 'I-PER'")]
    """
    scheme = get_scheme(scheme)
    steps = steps_of(scheme)
    pairs = pairwise((OUTSIDE, *tags, OUTSIDE))
    return [
        _describe_invalid(index, pair, scheme, last=len(tags))
        for index, pair in enumerate(pairs)
        if not steps(pair) & ALLOWED
    ]


def repair_tags(tags: Sequence[str], scheme: str | Scheme) -> list[str]:
    """A valid sequence with the spans that conlleval's rules see; valid tags stay as they are.

    >>> repair_tags(["I-PER", "I-PER", "O", "B-LOC"], "BIO")
    ['B-PER', 'I-PER', 'O', 'B-LOC']
    """
    return encode_spans(decode_lenient(tags), length=len(tags), scheme=scheme)


def detect_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme with all the letters that occur and the fewest invalid neighbours.

    Equally good ones go by the order of `SCHEMES`: tags that are only `B-` and `O` are `BIO`.

    >>> detect_scheme([["I-PER", "I-PER", "B-PER"], ["O", "I-LOC"]]).name
    'IOB1'
    """
    pairs: Counter[tuple[str, str]] = Counter()
    for sentence in sentences:
        pairs.update(pairwise((OUTSIDE, *sentence, OUTSIDE)))
    return scheme_of(pairs)


def scheme_of(pairs: Counter[tuple[str, str]]) -> Scheme:
    """As `detect_scheme`, from counts of neighbouring tags, with `O` around each sentence."""
    tags = {tag for pair in pairs for tag in pair}
    known = [scheme for scheme in SCHEMES.values() if all(map(scheme.has, tags))]
    if not known:
        wanted = ", ".join(f"{name} ({scheme.prefixes})" for name, scheme in SCHEMES.items())
        got = ", ".join(sorted({split_tag(tag)[0] for tag in tags}))
        raise ValueError(f"wanted the prefixes of a tag scheme, {wanted}, got {got}")
    return min(known, key=lambda scheme: _count_invalid(pairs, scheme))


def find_odd_tag(pairs: Counter[tuple[str, str]]) -> tuple[str, Scheme] | None:
    """Returns a tag that is not in the scheme of nearly all others, and that scheme, or None.

    Takes what `scheme_of` takes. If most tags are of no scheme, none is odd.

    >>> names = [["B-PER", "O", "B-LOC"], ["B-PER", "I-PER", "O"], ["E-ORG", "O"]]
    >>> pairs = Counter(pair for tags in names for pair in pairwise(("O", *tags, "O")))
    >>> tag, scheme = find_odd_tag(pairs)
    >>> tag, scheme.name
    ('E-ORG', 'BIO')
    """
    scheme = min(SCHEMES.values(), key=lambda scheme: _count_invalid(pairs, scheme))
    counts: Counter[str] = Counter()
    for (tag, _), number in pairs.items():
        counts[tag] += number
    odd = [tag for tag in counts if not scheme.has(tag)]
    wrong = sum(counts[tag] for tag in odd)
    right = counts.total() - counts[OUTSIDE] - wrong
    return (odd[0], scheme) if odd and right >= ODD * wrong else None


def describe_odd_tag(sentences: Sequence[Sequence[str]]) -> tuple[int, str] | None:
    """Returns the first sentence with an odd tag, and an error message; None without odd tags.

    Such a tag would otherwise make the tags of all sentences unreadable as spans.

    >>> names = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "B-PER", "BLOC"]]
    >>> describe_odd_tag(names)
    (1, "wanted O or a tag of BIO (B-, I-), as the other tags are; got 'BLOC'")
    """
    pairs: Counter[tuple[str, str]] = Counter()
    for tags in sentences:
        pairs.update(pairwise((OUTSIDE, *tags, OUTSIDE)))
    odd = find_odd_tag(pairs)
    if odd is None:
        return None
    tag, scheme = odd
    number = next(number for number, tags in enumerate(sentences) if tag in tags)
    return number, f"wanted {scheme.describe()}, as the other tags are; got {tag!r}"


def _count_invalid(pairs: Counter[tuple[str, str]], scheme: Scheme) -> int:
    steps = steps_of(scheme)
    return sum(n for pair, n in pairs.items() if not steps(pair) & ALLOWED)


def count_nested(spans: Iterable[LabelledSpan]) -> int:
    """How many spans lie inside another or cross one.

    >>> count_nested([(1, 4, "ORG"), (3, 4, "LOC"), (5, 6, "PER")])
    1
    """
    nested, reach = 0, 0
    for start, end, _ in sorted(set(spans), key=lambda span: (span[0], -span[1])):
        nested += start < reach
        reach = max(reach, end)
    return nested


def _prefixes(length: int, scheme: Scheme, *, touches: bool) -> list[str]:
    if length == 1:
        letters = [scheme.single]
    else:
        letters = [scheme.begin, *[scheme.inside] * (length - 2), scheme.end]
    if touches and scheme.split:
        letters[0] = scheme.split
    return letters


def _decode(tags: Sequence[str], scheme: Scheme) -> list[LabelledSpan]:
    spans: list[LabelledSpan] = []
    steps = steps_of(scheme)
    start: int | None = None
    for index, pair in enumerate(pairwise((OUTSIDE, *tags, OUTSIDE))):
        bits = steps(pair)
        if bits & UNKNOWN:
            raise ValueError(f"tag {index}: wanted {scheme.describe()}, got {pair[1]!r}")
        if start is None or not bits & CONTINUES:
            if start is not None and bits & ENDS:
                spans.append((start, index, split_tag(pair[0])[1]))
            start = index if bits & STARTS else None
    return spans


def _describe_invalid(
    index: int, pair: tuple[str, str], scheme: Scheme, *, last: int
) -> InvalidTag:
    previous, tag = pair
    if not scheme.has(tag):
        return InvalidTag(index, f"wanted {scheme.describe()}, got {tag!r}")
    if index == last:
        wanted = f"the span of {previous!r} to be closed ({scheme.name})"
        return InvalidTag(index - 1, f"wanted {wanted}, got the end of the sentence")
    wanted = f"a tag that can follow {previous!r} in {scheme.name}"
    return InvalidTag(index, f"wanted {wanted}, got {tag!r}")
