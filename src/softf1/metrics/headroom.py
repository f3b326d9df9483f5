"""How much F1 could be gained, and where: the best decision in hindsight, and oracles for spans.

A sweep moves one number (a threshold, or the bias of one class) over all values at which any
decision changes, and keeps the counts up to date, so that the best F1 is exact: no other value of
that number gives more on these items. That is in hindsight; `Best.honest` is what is left of it
when the number is chosen on other items.

    >>> scores, gold = [[0.9], [0.4], [0.3], [0.2]], [[True], [True], [True], [False]]
    >>> best = sweep_threshold(scores, gold, np.array(scores) >= 0.5, fold=[0, 1, 0, 1])
    >>> round(best.decided, 3), best.score, round(best.at, 2)
    (0.5, 1.0, 0.25)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from softf1.metrics.counts import Floats, Ints, Mask, check_numbers, divide, ratios_of
from softf1.metrics.crossfit import average_f
from softf1.metrics.ranking import check_scores
from softf1.metrics.spans import SpanReader, count_each_strict_ids
from softf1.metrics.thresholds import choose_micro

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike

    from softf1.metrics.schemes import LabelledSpan

    Pair = tuple[LabelledSpan, LabelledSpan]

BLOCK = 1_000_000
"""The most events, or tokens, that are in memory at once."""
DIGITS = 10
"""Scores that are the same to so many digits count as equal."""
NOTHING = "there is nothing to find in these examples"
LIMIT = 100.0
"""The largest bias that is tried for sequences; nobody wants odds of e^100."""
LONG = 700
"""Words of the longest sentence whose sequences are tried at every bias that changes them."""


class Best(NamedTuple):
    """The most that moving one number (a threshold or bias) could gain.

    Attributes:
        decided: The score of the decisions that were made.
        score: The best score over all values of the number, on these very items.
        at: A value that reaches it; None if nothing is better than what was decided.
        honest: The score if each fold takes the value that is best on the others.
    """

    decided: float
    score: float
    at: float | None
    honest: float


class Events(NamedTuple):
    """What changes in a table of counts while the number grows, from the lowest to the highest.

    Attributes:
        start: The table before the first event, `(folds, rows, columns)`.
        at: The value of the number above which each event has happened, `(events,)`.
        fold: The fold of each event, `(events,)`.
        row: The rows that each event changes, `(events, k)`.
        change: What it adds to these rows, `(events, k, columns)`.
    """

    start: Floats
    at: Floats
    fold: Ints
    row: Ints
    change: Floats


Parts = Callable[[Floats], tuple[Floats, Floats]]
"""Maps table rows `(…, columns)` to numerators and denominators; a score is the ratio of sums."""


def micro_parts(tables: Floats) -> tuple[Floats, Floats]:
    """The parts of the F1 of all labels together, from counts (tp, fp, fn)."""
    tp, fp, fn = np.moveaxis(tables, -1, 0)
    return 2 * tp, 2 * tp + fp + fn


def macro_parts(tables: Floats) -> tuple[Floats, Floats]:
    """The parts of the mean F1 over the labels that occur, in gold or prediction."""
    above, below = micro_parts(tables)
    return divide(above, below), (below > 0).astype(float)


def mean_parts(tables: Floats) -> tuple[Floats, Floats]:
    """The parts of a total divided by a count."""
    return tables[..., 0], tables[..., 1]


def reduce_parts(tables: Floats, parts: Parts) -> Floats:
    """Returns the score `(…)` of tables `(…, rows, columns)`."""
    return divide(*(part.sum(axis=-1) for part in parts(tables)))


def micro_f(tables: Floats) -> Floats:
    """F1 `(…)` of the sums over labels of counts `(…, labels, 3)`."""
    return reduce_parts(tables, micro_parts)


def macro_f(tables: Floats) -> Floats:
    """The mean F1 over the labels that occur, in gold or prediction."""
    return reduce_parts(tables, macro_parts)


def sweep_events(events: Events, decided: Floats, *, score: Parts) -> Best:
    """Finds the best value of the number, and the cross-fitted score.

    Args:
        events: What changes while the number grows.
        decided: The table of the decisions that were made, `(folds, rows, columns)`; wins ties.
        score: The parts of the score, such as `micro_parts`.
    """
    order = np.argsort(events.at, kind="stable")
    fold, row, change = events.fold[order], events.row[order], events.change[order]
    ordered = Events(events.start, events.at[order], fold, row, change)
    numbers, possible = _list_numbers(ordered.at)
    by_row = np.argsort(row, axis=None, kind="stable")

    def choose(out: int | None) -> int | None:
        """Returns after how many events the score without fold `out` is best; None: as decided."""
        given = decided.sum(axis=0) - (0 if out is None else decided[out])
        now = float(reduce_parts(given, score))
        values = np.where(possible, _follow(ordered, by_row, out, score), -1).round(DIGITS)
        top = int(np.argmax(values))
        return top if values[top] > round(now, DIGITS) else None

    def table(place: int | None) -> Floats:
        if place is None:
            return decided
        made = events.start.copy()
        np.add.at(made, (fold[:place, None], row[:place]), change[:place])
        return made

    best = choose(None)
    chosen = [table(choose(out))[out] for out in range(len(decided))]
    scores = (reduce_parts(x.sum(0), score) for x in (decided, table(best), np.array(chosen)))
    now, then, honest = map(float, scores)
    return Best(now, then, None if best is None else float(numbers[best]), honest)


def _list_numbers(at: Floats) -> tuple[Floats, Mask]:
    """Returns a value of the number before all events and after each, and if there is one."""
    if not len(at):
        return np.zeros(1), np.ones(1, bool)
    before, after = np.append(at[0] - 2, at), np.append(at, at[-1] + 2)
    # Events at equal values happen together; no number lies beyond infinity.
    possible = (after > before) & (before < np.inf) & (after > -np.inf)
    with np.errstate(invalid="ignore"):
        numbers = np.where(np.isfinite(before), (before + after) / 2, after - 1)
        numbers = np.where(np.isposinf(numbers), before + 1, numbers)
    return numbers, possible


def _follow(events: Events, by_row: Ints, out: int | None, score: Parts) -> Floats:
    """Returns the score without fold `out` before all events and after each, `(1 + events,)`.

    An event changes few rows, so only their parts of the score are computed again.

    Args:
        events: The events in the order of their values.
        by_row: Flat indices into `events.row`, sorted by row, then by event.
        out: The fold that is left out; None for none.
        score: The parts of the score.
    """
    start = events.start.sum(axis=0) - (0 if out is None else events.start[out])
    kept, (count, width) = events.fold != out, events.row.shape
    steps = np.zeros((2, count + 1))
    steps[:, 0] = [part.sum() for part in score(start)]
    ends = np.cumsum(np.bincount(events.row.ravel(), minlength=len(start)))
    for table, low, high in zip(start, np.append(0, ends), ends, strict=False):
        now = table
        for first in range(low, high, BLOCK):
            event, which = np.divmod(by_row[first : min(first + BLOCK, high)], width)
            own = events.change[event, which] * kept[event, None]
            tables = np.cumsum(np.concatenate([now[None], own]), axis=0)
            now = tables[-1]
            for step, part in zip(steps, score(tables), strict=True):
                np.add.at(step, event + 1, np.diff(part))
    return divide(*np.cumsum(steps, axis=1))


def sweep_threshold(
    scores: ArrayLike,
    gold: ArrayLike,
    decided: ArrayLike,
    *,
    fold: ArrayLike,
    macro: bool = False,
) -> Best:
    """Sweeps one threshold for all labels: a label is given if its score is at least as high.

    Args:
        scores: `(items, labels)`; −inf for a label that can never be given.
        gold: Whether an item has a label, `(items, labels)`.
        decided: Whether the label was given, `(items, labels)`.
        fold: The fold of each item, `(items,)`.
        macro: Whether to maximise macro F1; else micro F1.
    """
    values, right = check_scores(scores, gold)
    given, own = np.asarray(decided, bool), np.asarray(fold, np.int64)
    items, labels = values.shape
    row = np.tile(np.arange(labels) if macro else np.zeros(labels, np.int64), items)
    rows = labels if macro else 1
    part = np.repeat(own, labels)
    tables = [_tabulate(right, chosen, part, row, rows) for chosen in (np.ones_like(right), given)]
    lost = np.where(right.reshape(-1, 1), [-1.0, 0.0, 1.0], [0.0, -1.0, 0.0])
    events = Events(tables[0], values.ravel(), part, row[:, None], lost[:, None])
    return sweep_events(events, tables[1], score=macro_parts if macro else micro_parts)


def _tabulate(right: Mask, given: Mask, fold: Ints, row: Ints, rows: int) -> Floats:
    """Returns tp, fp and fn `(folds, rows, 3)` of yes-or-no decisions."""
    table = np.zeros((int(fold.max(initial=0)) + 1, rows, 3))
    for column, which in enumerate((right & given, ~right & given, right & ~given)):
        np.add.at(table[..., column], (fold, row), which.ravel())
    return table


def sweep_bias(
    logits: ArrayLike,
    gold: ArrayLike,
    decided: ArrayLike,
    *,
    index: int,
    fold: ArrayLike,
    macro: bool = False,
) -> Best:
    """Sweeps one bias, which is added to the logit of class `index` before the argmax.

    Args:
        logits: `(items, classes)`.
        gold: The right class of each item, `(items,)`; one beyond the classes is never given.
        decided: The class that was given, `(items,)`; −1 for none.
        index: The class with the bias.
        fold: The fold of each item, `(items,)`.
        macro: Whether to maximise macro F1; else micro F1, the share of right items.
    """
    values, margin, other = _against(logits, index)
    right, given = np.asarray(gold, np.int64), np.asarray(decided, np.int64)
    own = np.asarray(fold, np.int64)
    classes = max(values.shape[1], *(int(x.max(initial=0)) + 1 for x in (right, given)))
    count = partial(_count_given, right, own, classes)
    start, now = count(other), count(given)
    row = np.stack([other, np.full_like(other, index)], axis=1)  # the class before and after
    hit = (row == right[:, None])[..., None]
    change = np.where(hit, [1.0, 0.0, -1.0], [0.0, 1.0, 0.0]) * [[-1.0], [1.0]]
    if not macro:
        start, now, row = start.sum(1, keepdims=True), now.sum(1, keepdims=True), row * 0
    events = Events(start, margin, own, row, change)
    return sweep_events(events, now, score=macro_parts if macro else micro_parts)


def _against(logits: ArrayLike, index: int) -> tuple[Floats, Floats, Ints]:
    """Returns the logits, the bias above which class `index` wins, and the best other class."""
    values = np.asarray(logits, float)
    check_numbers(values, "logits")
    rest = values.copy()
    rest[:, index] = -np.inf
    other = np.argmax(rest, axis=1)
    return values, rest[np.arange(len(rest)), other] - values[:, index], other


def _count_given(right: Ints, fold: Ints, classes: int, given: Ints) -> Floats:
    """Returns tp, fp and fn `(folds, classes, 3)` for one class per item; −1 is none."""
    table = np.zeros((int(fold.max(initial=0)) + 1, classes, 3))
    hit = right == given
    np.add.at(table, (fold, right, np.where(hit, 0, 2)), 1)
    wrong = ~hit & (given >= 0)
    np.add.at(table[..., 1], (fold[wrong], given[wrong]), 1)
    return table


def sweep_outside(
    logits: ArrayLike,
    gold: ArrayLike,
    decided: ArrayLike,
    *,
    lengths: ArrayLike,
    tags: Sequence[str],
    outside: int,
    scheme: str,
    fold: ArrayLike,
) -> Best:
    """Sweeps one bias for O; a span counts if it is exactly right.

    As the bias grows, the words of a sentence become O one after the other; its spans are counted
    after each. Sentences, and pieces of sentences whose spans do not depend on each other, are
    handled separately; all their changes, sorted by the bias, give the counts at every value.

    Args:
        logits: `(words, classes)`, sentence after sentence.
        gold: The right tag of each word, `(words,)`, an index into `tags`.
        decided: The tag that was given, `(words,)`.
        lengths: The number of words of each sentence.
        tags: The tag of each class, then tags that occur in gold only.
        outside: The class O.
        scheme: The scheme of the tags.
        fold: The fold of each sentence.
    """
    _, margin, other = _against(logits, outside)
    right, sizes, own = (np.asarray(x, np.int64) for x in (gold, lengths, fold))
    now = np.zeros((int(own.max(initial=0)) + 1, 1, 3))
    each = count_each_strict_ids(right, decided, lengths=sizes, tags=tags, scheme=scheme)
    np.add.at(now[:, 0], own, each)
    read = SpanReader(tags, scheme)
    wanted = read.find(right, lengths=sizes)
    end_at, label_at = np.zeros((2, len(right)), np.int64)
    end_at[wanted.start], label_at[wanted.start] = wanted.end, wanted.label

    def count(variants: Ints, words: Ints) -> Ints:
        """Counts right and given spans `(pieces, variants, 2)` in `(pieces, variants, words)`."""
        rows, width = variants.size // max(1, variants.shape[-1]), variants.shape[-1]
        found = read.find(variants.ravel(), lengths=np.full(rows, width))
        row, column = np.divmod(found.start, width)
        start = words[row // variants.shape[1], column]
        hit = (end_at[start] == start + found.end - found.start) & (label_at[start] == found.label)
        made = [np.bincount(x, minlength=rows) for x in (row[hit], row)]
        return np.stack(made, axis=-1).reshape(*variants.shape[:2], 2)

    pieces = read.cut(other, lengths=sizes)
    begins, ends = np.cumsum(pieces) - pieces, np.cumsum(sizes)
    part_of = own[np.searchsorted(ends, begins, side="right")]
    start = np.zeros_like(now)
    np.add.at(start[:, 0, 2], own, each[:, 0] + each[:, 2])
    at, part, change = [np.zeros(0)], [np.zeros(0, np.int64)], [np.zeros((0, 2))]
    for width in np.unique(pieces).tolist():
        every = np.flatnonzero(pieces == width)
        many = max(1, BLOCK // (width * (width + 1)))
        for some in np.split(every, range(many, len(every), many)):
            words = begins[some, None] + np.arange(width)
            rank = np.argsort(np.argsort(margin[words], axis=1, kind="stable"), axis=1)[:, None]
            at.append(np.sort(margin[words], axis=1).ravel())
            part.append(np.repeat(part_of[some], width))
            blocks, step = [], max(1, BLOCK // (len(some) * width))
            for low in range(0, width, step):  # variants with `low` words or more as O
                flipped = np.arange(low, min(low + step, width) + 1)[:, None]
                counts = count(np.where(rank < flipped, outside, other[words][:, None]), words)
                blocks.append(np.diff(counts, axis=1))
                if not low:
                    np.add.at(start[:, 0, :2], part_of[some], counts[:, 0])
            change.append(np.concatenate(blocks, axis=1).reshape(-1, 2))
    start[:, 0] += start[:, 0, :1] * [0, -1, -1]  # from right, given and gold to tp, fp and fn
    hits, given = np.concatenate(change).T
    changes = np.stack([hits, given - hits, -hits], axis=-1)[:, None]
    row = np.zeros((len(hits), 1), np.int64)
    events = Events(start, np.concatenate(at), np.concatenate(part), row, changes)
    return sweep_events(events, now, score=micro_parts)


def sweep_sequences(
    decode: Callable[[Ints, Floats], tuple[Ints, Floats]],
    gold: ArrayLike,
    decided: ArrayLike,
    *,
    lengths: ArrayLike,
    tags: Sequence[str],
    outside: int,
    scheme: str,
    fold: ArrayLike,
) -> Best:
    """Sweeps one bias for O, added before the best sequence of tags is decoded (CRF).

    The score of a sequence is linear in the bias, with the number of its O tags as the slope, so
    the best sequences of a sentence form the upper envelope of lines. Decoding at the lowest and
    the highest bias gives its ends. Where the lines of two neighbours cross, decoding gives either
    a line above both, or none: then they are neighbours for good. This finds every bias from
    −`LIMIT` to `LIMIT` at which a sequence changes, in two decodings for each; sentences of more
    than `LONG` words are decoded at fewer of them.

    Args:
        decode: Takes indices of sentences and a bias for each; returns their best tags, sentence
            after sentence, and the scores `(sentences,)` of these tags without the bias.
        gold: The right tag of each word, `(words,)`, an index into `tags`.
        decided: The tag that was given, `(words,)`.
        lengths: The number of words of each sentence.
        tags: The tag of each class, then tags that occur in gold only.
        outside: The class O.
        scheme: The scheme of the tags.
        fold: The fold of each sentence.
    """
    wanted, sizes, own = (np.asarray(x, np.int64) for x in (gold, lengths, fold))
    begins = np.cumsum(sizes) - sizes
    count = partial(count_each_strict_ids, tags=tags, scheme=scheme)

    def try_biases(sentences: Ints, biases: Floats) -> Floats:
        """Returns score without bias, number of O, tp, fp and fn of each best sequence."""
        rows = [np.zeros((0, 5))]
        for first, last in _chunks(sizes[sentences]):
            some = sentences[first:last]
            given, base = decode(some, biases[first:last])
            size = sizes[some]
            owner = np.repeat(np.arange(len(some)), size)
            word = np.arange(len(owner)) + np.repeat(begins[some] - np.cumsum(size) + size, size)
            zeros = np.bincount(owner, given == outside, minlength=len(some))
            found = count(wanted[word], given, lengths=size)
            rows.append(np.column_stack([base, zeros, found]))
        return np.concatenate(rows)

    owner = np.arange(len(sizes))
    left, right = (try_biases(owner, np.full(len(sizes), x)) for x in (-LIMIT, LIMIT))
    now, start = np.zeros((2, int(own.max(initial=0)) + 1, 1, 3))
    np.add.at(now[:, 0], own, count(wanted, decided, lengths=sizes))
    np.add.at(start[:, 0], own, left[:, 2:])
    at, part, change = [np.zeros(0)], [np.zeros(0, np.int64)], [np.zeros((0, 3))]
    most = np.where(sizes > LONG, 2 * LONG**2 // np.maximum(sizes, 1), np.iinfo(np.int64).max)
    while True:
        apart = left[:, 1] < right[:, 1]
        owner, left, right = owner[apart], left[apart], right[apart]
        if not len(owner):
            break
        cross = (left[:, 0] - right[:, 0]) / (right[:, 1] - left[:, 1])
        middle = try_biases(owner, cross)
        most = most - np.bincount(owner, minlength=len(sizes))
        value, other = (x[:, 0] + cross * x[:, 1] for x in (left, middle))
        split = other > value + 1e-9 * (1 + np.abs(value))
        split &= (left[:, 1] < middle[:, 1]) & (middle[:, 1] < right[:, 1]) & (most[owner] > 0)
        at.append(cross[~split])
        part.append(own[owner[~split]])
        change.append(right[~split, 2:] - left[~split, 2:])
        owner = np.concatenate([owner[split], owner[split]])
        left, right = (
            np.concatenate([left[split], middle[split]]),
            np.concatenate([middle[split], right[split]]),
        )
    fold_of = np.concatenate(part)
    row = np.zeros((len(fold_of), 1), np.int64)
    events = Events(start, np.concatenate(at), fold_of, row, np.concatenate(change)[:, None])
    return sweep_events(events, now, score=micro_parts)


def _chunks(costs: Ints) -> Iterator[tuple[int, int]]:
    """Yields ranges of items whose costs add up to at most `BLOCK`, or of one costlier item."""
    first, held = 0, 0
    for place, cost in enumerate(costs.tolist()):
        if place > first and held + cost > BLOCK:
            yield first, place
            first, held = place, 0
        held += cost
    if first < len(costs):
        yield first, len(costs)


def best_thresholds(
    scores: ArrayLike, gold: ArrayLike, *, macro: bool = False, never: ArrayLike = ()
) -> tuple[float, Floats]:
    """Returns the best F1 with a threshold for each label, exactly, and the thresholds.

    No decision that keeps the ranking by each label's score can do better. Macro F1 is best where
    each label's F1 is. Micro F1, 2·Σtp / (Σgiven + Σgold), is found by Dinkelbach's method: for a
    guess x of it, each label takes the threshold with the largest 2·tp − x·given, which gives the
    next guess.

    Args:
        scores: `(items, labels)`.
        gold: `(items, labels)`.
        macro: Whether to maximise macro F1, over the labels that occur in gold; else micro F1.
        never: For each gold label that has no scores, how often it occurs.

    >>> best_thresholds([[0.9, 0.2], [0.1, 0.3]], [[1, 0], [0, 1]])
    (1.0, array([0.9, 0.3]))
    """
    values, right = np.asarray(scores, float), np.asarray(gold, bool)
    lost, wanted = np.asarray(never, np.int64), right.sum(axis=0)
    order = np.argsort(-values, axis=0, kind="stable")
    ranked = np.take_along_axis(values, order, axis=0)
    # Row k: the counts if the k items with the highest scores are given a label. The last column
    # is for all labels without scores.
    table = np.zeros((len(values) + 1, len(wanted) + 1, 3), np.int64)
    table[1:, :-1, 0] = np.cumsum(np.take_along_axis(right, order, axis=0), axis=0)
    table[1:, :-1, 1] = np.arange(1, len(table))[:, None] - table[1:, :-1, 0]
    # Items with equal scores are given together: rows that split them count as giving nothing.
    table[1:-1, :-1][ranked[1:] == ranked[:-1]] = 0
    table[..., 2] = np.append(wanted, lost.sum()) - table[..., 0]
    ranked = np.concatenate([np.full((1, len(wanted)), np.inf), ranked])
    columns = np.arange(len(wanted) + 1)
    if macro:
        f = ratios_of(table)[..., 2]
        choice = np.argmax(f, axis=0)
        occurs = np.count_nonzero(wanted) + np.count_nonzero(lost)
        best = divide(f[choice, columns].sum(), occurs)
    else:
        choice = choose_micro(table, 1.0)
        best = average_f(table[choice, columns], average="micro")
    return float(best), ranked[choice[:-1], columns[:-1]]


def say_gains(gains: Sequence[tuple[str, float]], unknown: str = "") -> str:
    """Says in points of 100 what each part wins, and why the decision's part is not known.

    >>> say_gains([("a better decision", 0.008), ("a better ranking", 0.142)])
    'a better decision wins at most 0.8, a better ranking 14.2'
    >>> say_gains([("right labels", 0.02)])
    'right labels win at most 2.0'
    >>> say_gains([])
    'there is nothing to find in these examples'
    """
    if not gains:
        return NOTHING
    (first, most), *others = [(wins, 100 * gain) for wins, gain in gains]
    verb = "wins" if first.startswith("a ") else "win"
    said = [f"{first} {verb} at most {most:.1f}", *(f"{wins} {gain:.1f}" for wins, gain in others)]
    more = f"; what a better decision or ranking wins is not known: {unknown}" if unknown else ""
    return ", ".join(said) + more


class SpanMatches(NamedTuple):
    """Found spans of one sentence paired with gold ones, each span used once.

    Attributes:
        right: The number of spans with the right start, end and label.
        labels: (found, gold) pairs with equal start and end; those with equal labels included.
        limits: (found, gold) pairs that overlap and have equal labels, as many as possible.
        both: (found, gold) pairs that overlap, as many as possible.
    """

    right: int
    labels: list[Pair]
    limits: list[Pair]
    both: list[Pair]


def match_spans(gold: Collection[LabelledSpan], found: Collection[LabelledSpan]) -> SpanMatches:
    """Pairs found spans with the gold ones that they could become.

    >>> match = match_spans({(0, 2, "PER"), (4, 6, "LOC")}, {(0, 2, "ORG"), (5, 6, "LOC")})
    >>> match.right, match.labels, match.limits, len(match.both)
    (0, [((0, 2, 'ORG'), (0, 2, 'PER'))], [((5, 6, 'LOC'), (4, 6, 'LOC'))], 2)
    """
    wanted, given = sorted(set(gold)), sorted(set(found))
    right = set(wanted) & set(given)
    if len(right) == len(wanted) == len(given) or not wanted or not given:
        only = [(span, span) for span in sorted(right)]
        return SpanMatches(len(right), only, only, only)
    starts, place = [start for start, _, _ in wanted], {span: i for i, span in enumerate(wanted)}
    longest = max(end - start for start, end, _ in wanted)
    same = {i: place[span] for i, span in enumerate(given) if span in place}
    overlap, limits, equal = [], [], []
    for start, end, label in given:
        near = range(bisect_right(starts, start - longest), bisect_left(starts, end))
        overlap.append([i for i in near if wanted[i][1] > start])
        limits.append([i for i in overlap[-1] if wanted[i][2] == label])
        equal.append([i for i in overlap[-1] if wanted[i][:2] == (start, end)])
    pairs = [
        [(given[a], wanted[b]) for a, b in match_pairs(edges, first=same)]
        for edges in (equal, limits, overlap)
    ]
    return SpanMatches(len(right), *pairs)


def match_pairs(
    after: Sequence[Sequence[int]], *, first: Mapping[int, int]
) -> list[tuple[int, int]]:
    """Returns a maximum matching: as many pairs (row, column) as possible, each used once.

    Uses augmenting paths, starting from pairs that are known.

    Args:
        after: The columns that each row may be paired with.
        first: The column of each row that is paired at the start; no column twice.

    >>> match_pairs([[0, 1], [0]], first={})
    [(0, 1), (1, 0)]
    """
    column_of = dict(first)
    row_of = {column: row for row, column in column_of.items()}
    for start in range(len(after)):
        if start in column_of:
            continue
        waiting, came = [start], {}
        for row in waiting:  # the list grows inside the loop
            for column in after[row]:
                if column not in came:
                    came[column] = row
                    waiting += [row_of[column]] if column in row_of else []
            free = next((column for column in after[row] if column not in row_of), None)
            while free is not None:  # back along the path, each row takes the column after it
                taker = row_of[free] = came[free]
                before = column_of.get(taker)
                column_of[taker], free = free, before
            if start in column_of:
                break
    return sorted(column_of.items())
