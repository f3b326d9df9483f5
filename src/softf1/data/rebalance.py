"""Rebalancing of pair data, as in the paper's ablation on QQP.

| variant | what changes | share of positives, by default |
|---|---|---|
| +positive | positives are added | 50% |
| +negative | negatives are added | 21% |
| -negative | negatives are removed at random | 50% |
| +both | both are added | 50%, at the size of +negative |

The paper says that the three variants with a + have the same size. Starting from its 37% positives,
that contradicts these shares, so `size` is an option: if it is given without `share`, the share of
+positive and +negative follows from the size.

Added rows are edited copies of training rows (`augment.edit`) with the label of their source. An
edited row can equal one of dev or test only by chance: `held_out` prevents that, and `check_leak`
finds such rows, including those that were in the training data before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Literal

from softf1.data.augment import Synonyms, edit
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from softf1.data.examples import PairExample

Variant = Literal["+positive", "+negative", "-negative", "+both"]
SHARES: dict[str, float] = {"+positive": 0.5, "+negative": 0.21, "-negative": 0.5, "+both": 0.5}
_TRIES = 20
"""How many edits are tried per wanted row before the texts count as too short."""


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The number of positive and negative rows to end up with."""

    positives: int
    negatives: int


def plan(
    variant: Variant,
    positives: int,
    negatives: int,
    *,
    share: float | None = None,
    size: int | None = None,
) -> RowCounts:
    """Computes the number of rows that a variant leads to.

    >>> plan("+positive", 37, 63), plan("-negative", 37, 63)
    (RowCounts(positives=63, negatives=63), RowCounts(positives=37, negatives=37))
    >>> plan("+negative", 37, 63), plan("+both", 37, 63)
    (RowCounts(positives=37, negatives=139), RowCounts(positives=88, negatives=88))
    >>> plan("+negative", 37, 63, size=126)
    RowCounts(positives=37, negatives=89)
    """
    if variant not in SHARES:
        raise InputError(f"wanted a variant of {', '.join(SHARES)}, got {variant!r}")
    if share is not None and not 0 < share < 1:
        raise InputError(f"wanted a share of positives between 0 and 1, got {share}")
    wanted = share or SHARES[variant]
    if variant == "+both":
        whole = size or plan("+negative", positives, negatives).negatives + positives
        made = RowCounts(round(whole * wanted), whole - round(whole * wanted))
    elif variant == "+positive":
        made = RowCounts(round(negatives * wanted / (1 - wanted)), negatives)
        made = made if size is None else RowCounts(size - negatives, negatives)
    else:
        made = RowCounts(positives, round(positives * (1 - wanted) / wanted))
        made = made if size is None else RowCounts(positives, size - positives)
    _check(made, variant, positives, negatives, share)
    return made


def _check(
    made: RowCounts, variant: str, positives: int, negatives: int, share: float | None
) -> None:
    grown = made.positives >= positives and made.negatives >= negatives
    right = made.negatives <= negatives if variant == "-negative" else grown
    if not right or made.negatives < 0:
        got = f"{positives} positives and {negatives} negatives"
        leads = f"{made.positives} and {made.negatives}"
        raise InputError(
            f"{variant} cannot lead from {got} to {leads}; choose another share or size"
        )
    real = made.positives / max(made.positives + made.negatives, 1)
    if share is not None and abs(real - share) > 0.01:
        message = f"wanted a share of {share:.2f} positives, got a size that makes it {real:.2f}"
        raise InputError(f"{message}; give one of the two")


def rebalance(
    pairs: Sequence[PairExample],
    variant: Variant,
    *,
    seed: int,
    synonyms: Synonyms | None = None,
    positive: str = "1",
    share: float | None = None,
    size: int | None = None,
    held_out: Iterable[PairExample] = (),
) -> list[PairExample]:
    """Makes the training pairs of a variant: the kept rows in order, then the added ones.

    Args:
        pairs: Training rows, each labelled.
        variant: "+positive", "+negative", "-negative" or "+both".
        seed: The same seed gives the same rows.
        synonyms: From `augment`; None makes light edits only.
        positive: The label that counts as positive.
        share: Share of positives at the end; the paper's by default.
        size: Rows at the end.
        held_out: Rows of dev and test, which no added row may equal.
    """
    groups: dict[bool, list[PairExample]] = {True: [], False: []}
    for pair in pairs:
        if pair.label is None:
            raise InputError(f"wanted labelled pairs, got one without at line {pair.line}")
        groups[pair.label == positive].append(pair)
    if not groups[True] or not groups[False]:
        labels = ", ".join(sorted({str(pair.label) for pair in pairs}))
        raise InputError(f"wanted positives ({positive!r}) and negatives, got the labels {labels}")
    made = plan(variant, len(groups[True]), len(groups[False]), share=share, size=size)
    random = Random(seed)  # noqa: S311 - sampling, nothing secret
    if made.negatives < len(groups[False]):
        kept = {id(pair) for pair in random.sample(groups[False], made.negatives)}
        return [pair for pair in pairs if pair.label == positive or id(pair) in kept]
    taken = {_key(pair) for pair in (*pairs, *held_out)}
    added: list[PairExample] = []
    for is_positive, wanted in ((True, made.positives), (False, made.negatives)):
        count = wanted - len(groups[is_positive])
        added += _grow(groups[is_positive], count, taken, random, synonyms)
    return [*pairs, *added]


def check_leak(pairs: Iterable[PairExample], held_out: Iterable[PairExample]) -> None:
    """Raises if a training pair is also in dev or test, in either order of the two texts."""
    hidden = {_key(pair): pair.line for pair in held_out}
    for pair in pairs:
        line = hidden.get(_key(pair))
        if line is not None:
            name = pair.id or f"from line {pair.line}"
            message = f"wanted no row of dev or test in training, got {name}"
            raise InputError(f"{message}, which is line {line} there")


def _grow(
    sources: list[PairExample],
    count: int,
    taken: set[tuple[str, ...]],
    random: Random,
    synonyms: Synonyms | None,
) -> list[PairExample]:
    """Makes `count` new rows: edited copies of the sources, equally often, in random order."""
    added: list[PairExample] = []
    order: list[PairExample] = []
    for _ in range(_TRIES * count):
        if len(added) == count:
            break
        if not order:
            order = random.sample(sources, len(sources))
        source = order.pop()
        made = _edit_pair(source, random, synonyms)
        if made is not None and _key(made) not in taken:
            taken.add(_key(made))
            added.append(replace(made, id=f"{source.id or source.line}+{len(added) + 1}"))
    if len(added) < count:
        raise InputError(
            f"wanted {count} new rows, got {len(added)}: the texts are too short to edit"
        )
    return added


def _edit_pair(pair: PairExample, random: Random, synonyms: Synonyms | None) -> PairExample | None:
    """Returns the pair with one text edited and the same label."""
    if random.random() < 0.5:
        first = edit(pair.first, random, synonyms)
        return None if first is None else replace(pair, first=first)
    second = edit(pair.second, random, synonyms)
    return None if second is None else replace(pair, second=second)


def _key(pair: PairExample) -> tuple[str, ...]:
    """A key that is equal for the same texts in any order, case and spacing."""
    return tuple(sorted(" ".join(text.casefold().split()) for text in (pair.first, pair.second)))
