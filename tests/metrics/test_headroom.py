"""Every oracle beside brute force on random data."""

import tracemalloc
from functools import partial
from itertools import product

import numpy as np
import pytest

from softf1.metrics import headroom
from softf1.metrics.classification import count_classes_ids, count_label_matrix
from softf1.metrics.counts import Counts
from softf1.metrics.headroom import (
    Events,
    best_thresholds,
    match_pairs,
    match_spans,
    mean_parts,
    sweep_bias,
    sweep_events,
    sweep_outside,
    sweep_sequences,
    sweep_threshold,
)
from softf1.metrics.schemes import get_scheme
from softf1.metrics.spans import SpanReader, count_strict_ids
from softf1.tasks.tags import decode_biased

FOLDS = 3


@pytest.fixture(autouse=True, params=[1_000_000, 40])
def block(request, monkeypatch):
    """All at once, and in many blocks."""
    monkeypatch.setattr(headroom, "BLOCK", request.param)


def f_of(counts, macro):
    """F1 of the labels that occur."""
    kept = counts.only([x for x in counts.labels if sum(counts.to_dict()[x])])
    return (kept.macro() if macro else kept.micro()).f


def brute_force(count, numbers, decided, fold, macro):
    """The best score over numbers, and what each fold gets with the best of the others.

    `count(number, rows)` gives counts of some rows; `decided(rows)` those of the decision.
    """
    every = np.ones(len(fold), bool)
    ways = [decided, *(lambda rows, x=x: count(x, rows) for x in numbers)]
    best = max(f_of(way(every), macro) for way in ways)
    total = Counts((), np.zeros((0, 3), np.int64))
    for part in range(FOLDS):  # scores that differ in the last digits are equal
        way = max(ways, key=lambda way, part=part: round(f_of(way(fold != part), macro), 10))
        total += way(fold == part)
    return best, f_of(total, macro)


def between(values):
    """A number below all values, one between any two neighbours, and one above."""
    known = np.unique(values[np.isfinite(values)])
    return [known[0] - 1, *((known[1:] + known[:-1]) / 2), known[-1] + 1]


@pytest.mark.parametrize("macro", [False, True])
@pytest.mark.parametrize("most", [3, 15])
@pytest.mark.parametrize("seed", range(8))
def test_one_threshold(seed, most, macro):
    random = np.random.default_rng(seed)
    items, labels = int(random.integers(4, 25)), int(random.integers(1, most + 1))
    scores = random.integers(0, 12, (items, labels)) / 12
    gold = random.random((items, labels)) < 0.2 + 0.5 * scores
    if labels > 1:
        scores[:, 0] = -np.inf  # a label that can never be given
    fold = random.permutation(np.arange(items) % FOLDS)
    names = [str(i) for i in range(labels)]

    def count(threshold, rows):
        return count_label_matrix(gold[rows], scores[rows] >= threshold, labels=names)

    got = sweep_threshold(scores, gold, scores >= 0.5, fold=fold, macro=macro)
    every = np.ones(items, bool)
    wanted = brute_force(count, between(scores), lambda rows: count(0.5, rows), fold, macro)
    assert got.decided == pytest.approx(f_of(count(0.5, every), macro))
    assert (got.score, got.honest) == pytest.approx(wanted)
    reached = got.decided if got.at is None else f_of(count(got.at, every), macro)
    assert reached == pytest.approx(got.score)


@pytest.mark.parametrize("macro", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_one_bias(seed, macro):
    random = np.random.default_rng(seed)
    items, classes = int(random.integers(4, 25)), 3
    logits = random.integers(-6, 6, (items, classes)) / 2 + random.random((items, classes)) / 8
    gold = np.where(random.random(items) < 0.6, logits.argmax(1), random.integers(0, 4, items))
    logits[:, 1] += 1.5  # one class is given too often
    fold = random.permutation(np.arange(items) % FOLDS)
    names = list("abcd")  # the last is never given

    def count(bias, rows):
        given = (logits[rows] + [0, bias, 0]).argmax(1)
        return count_classes_ids(gold[rows], given, labels=names)

    rest = np.delete(logits, 1, axis=1).max(1) - logits[:, 1]
    got = sweep_bias(logits, gold, logits.argmax(1), index=1, fold=fold, macro=macro)
    wanted = brute_force(count, between(rest), lambda rows: count(0, rows), fold, macro)
    assert (got.score, got.honest) == pytest.approx(wanted)
    every = np.ones(items, bool)
    assert got.decided == pytest.approx(f_of(count(0, every), macro))
    assert f_of(count(got.at or 0, every), macro) == pytest.approx(got.score)


TAGS = ("O", "B-X", "I-X", "B-Y", "I-Y", "B-Z")  # the last in gold alone


@pytest.mark.parametrize("scheme", ["BIO", "IOB1"])
@pytest.mark.parametrize("seed", range(6))
def test_one_bias_for_o(seed, scheme):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 7, 9)
    words = int(lengths.sum())
    logits = random.normal(size=(words, 5)) + np.array([1.0, 0, 0, 0, 0])
    gold = np.where(random.random(words) < 0.7, logits.argmax(1), random.integers(0, 6, words))
    logits[:, 0] += 1
    fold = random.permutation(np.arange(len(lengths)) % FOLDS)

    def count(bias, kept):
        rows = np.repeat(kept, lengths)
        given = (logits[rows] + [bias, 0, 0, 0, 0]).argmax(1)
        return count_strict_ids(gold[rows], given, lengths=lengths[kept], tags=TAGS, scheme=scheme)

    got = sweep_outside(
        logits,
        gold,
        logits.argmax(1),
        lengths=lengths,
        tags=TAGS,
        outside=0,
        scheme=scheme,
        fold=fold,
    )
    rest = logits[:, 1:].max(1) - logits[:, 0]
    wanted = brute_force(count, between(rest), lambda kept: count(0, kept), fold, macro=False)
    assert (got.score, got.honest) == pytest.approx(wanted)
    every = np.ones(len(lengths), bool)
    assert f_of(count(got.at or 0, every), False) == pytest.approx(got.score)


def all_sequences(emissions, moves, lengths):
    """Every sequence of each sentence, its score, and its number of O."""
    ends = np.cumsum(lengths)
    for end, size in zip(ends, lengths, strict=True):
        rows, size_of = emissions[end - size : end], emissions.shape[1]
        ways = np.array(list(product(range(size_of), repeat=int(size))))
        path = np.pad(ways, ((0, 0), (1, 1)), constant_values=size_of)
        scores = rows[np.arange(size), ways].sum(1) + moves[path[:, :-1], path[:, 1:]].sum(1)
        yield ways, scores, (ways == 0).sum(1)


@pytest.mark.parametrize("seed", range(8))
def test_one_bias_for_o_before_the_best_sequence(seed):
    """Beside every sequence of every sentence, at biases between all where any two are equal."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 5, 5)
    words, tags = int(lengths.sum()), TAGS[:3]
    emissions = random.normal(size=(words, 3)) * 2 + np.array([1.0, 0, 0])
    moves = random.normal(size=(4, 4))
    moves[0, 2] = moves[3, 2] = -100.0  # the scheme rules it out
    gold = np.where(random.random(words) < 0.7, emissions.argmax(1), random.integers(0, 3, words))
    fold = random.permutation(np.arange(len(lengths)) % FOLDS)
    known = list(all_sequences(emissions, moves, lengths))
    decode = partial(decode_biased, emissions, moves, np.append(0, np.cumsum(lengths)), 0)

    def best(bias):
        return np.concatenate([ways[(x + bias * zeros).argmax()] for ways, x, zeros in known])

    def count(bias, kept):
        rows = np.repeat(kept, lengths)
        how = {"lengths": lengths[kept], "tags": tags, "scheme": "BIO"}
        return count_strict_ids(gold[rows], best(bias)[rows], **how)

    crossings = []
    for _, scores, zeros in known:
        top = np.array([scores[zeros == k].max(initial=-1e9) for k in range(zeros.max() + 1)])
        a, b = np.triu_indices(len(top), 1)
        crossings.append((top[a] - top[b]) / (b - a))
    everything = np.concatenate(crossings)
    numbers = between(everything[np.abs(everything) < 1e6])
    now, _ = decode(np.arange(5), np.zeros(5))
    assert (now == best(0.0)).all()
    how = {"lengths": lengths, "tags": tags, "outside": 0, "scheme": "BIO", "fold": fold}
    got = sweep_sequences(decode, gold, now, **how)
    wanted = brute_force(count, numbers, lambda kept: count(0.0, kept), fold, macro=False)
    assert (got.score, got.honest) == pytest.approx(wanted)
    assert f_of(count(got.at or 0, np.ones(5, bool)), False) == pytest.approx(got.score)


def test_a_long_sentence_is_decoded_at_fewer_biases(monkeypatch):
    asked = []
    emissions, at = np.random.default_rng(0).normal(size=(60, 3)), np.array([0, 60])

    def decode(sentences, biases):
        asked.extend(biases)
        return decode_biased(emissions, np.zeros((4, 4)), at, 0, sentences, biases)

    now, _ = decode(np.arange(1), np.zeros(1))
    how = {"lengths": [60], "tags": TAGS[:3], "outside": 0, "scheme": "BIO", "fold": [0]}
    sweep_sequences(decode, emissions.argmax(1), now, **how)
    every = len(asked)
    monkeypatch.setattr(headroom, "LONG", 20)  # 2 · 20² / 60 = 13 times, or one round more
    best = sweep_sequences(decode, emissions.argmax(1), now, **how)
    assert len(asked) - every < 30 < every
    assert best.score >= best.decided


@pytest.mark.parametrize("macro", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_threshold_a_label(seed, macro):
    random = np.random.default_rng(seed)
    items = int(random.integers(3, 9))
    scores, gold = random.integers(0, 6, (items, 3)) / 6, random.random((items, 3)) < 0.4
    names, lost = ["a", "b", "c"], 2
    never = Counts(["unseen"], np.array([[0, 0, lost]]))

    def score(thresholds):
        counts = count_label_matrix(gold, scores >= thresholds, labels=names) + never
        return f_of(counts, macro)

    tried = product(*([*np.unique(scores[:, c]), np.inf] for c in range(3)))
    best, thresholds = best_thresholds(scores, gold, macro=macro, never=[lost])
    assert best == pytest.approx(max(map(score, tried)))
    assert score(thresholds) == pytest.approx(best)


def most_pairs(edges):
    """The most pairs, by trying every column, and none, for every row."""

    def go(place, used):
        if place == len(edges):
            return 0
        own = [c for c in np.flatnonzero(edges[place]).tolist() if c not in used]
        return max([go(place + 1, used), *(1 + go(place + 1, used | {c}) for c in own)])

    return go(0, frozenset())


@pytest.mark.parametrize("seed", range(30))
def test_as_many_pairs_as_there_can_be(seed):
    random = np.random.default_rng(seed)
    edges = random.random((int(random.integers(1, 6)), int(random.integers(1, 6)))) < 0.35
    after = [np.flatnonzero(row).tolist() for row in edges]
    pairs = match_pairs(after, first=dict(np.argwhere(edges)[:1].tolist()))
    assert all(edges[pair] for pair in pairs)
    rows, columns = {a for a, _ in pairs}, {b for _, b in pairs}
    assert len(rows) == len(columns) == len(pairs) == most_pairs(edges)


def spans(random, *, nested):
    size, out = int(random.integers(0, 5)), set()
    for _ in range(size):
        start = int(random.integers(0, 8))
        one = (start, start + int(random.integers(1, 4)), "XYZ"[int(random.integers(3))])
        if nested or all(one[1] <= s or one[0] >= e for s, e, _ in out):
            out.add(one)
    return out


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_spans_with_right_labels_or_limits(seed, nested):
    random = np.random.default_rng(seed)
    gold, found = spans(random, nested=nested), spans(random, nested=nested)
    match = match_spans(gold, found)

    def edges(may):
        return np.array([[may(a, b) for b in gold] for a in found]).reshape(len(found), len(gold))

    def overlap(a, b):
        return a[0] < b[1] and b[0] < a[1]

    ways = (
        lambda a, b: a[:2] == b[:2],
        lambda a, b: overlap(a, b) and a[2] == b[2],
        overlap,
    )
    assert match.right == len(gold & found)
    for pairs, may in zip(match[1:], ways, strict=True):
        assert all(may(a, b) and a in found and b in gold for a, b in pairs)
        assert len(pairs) == most_pairs(edges(may))


def test_a_long_chain_of_shifted_spans_is_paired():
    gold = {(i, i + 2, "X") for i in range(0, 4000, 2)}
    found = {(i - 1, i + 1, "X") for i in range(2, 4000, 2)} | {(4001, 4002, "X")}
    assert len(match_spans(gold, found).limits) == 1999


def test_the_number_before_an_endless_one_is_a_number():
    """A question without any answer is infinitely sure to have none."""
    start, decided = np.zeros((1, 1, 2)), np.array([[[0.0, 2.0]]])
    start[..., 1] = 2
    change = np.array([[[1.0, 0.0]], [[-1.0, 0.0]]])
    row = np.zeros((2, 1), np.int64)
    events = Events(start, np.array([3.0, np.inf]), np.zeros(2, np.int64), row, change)
    assert sweep_events(events, decided, score=mean_parts) == (0.0, 0.5, 4.0, 0.0)


def test_only_the_rows_of_an_event_are_counted_again(monkeypatch):
    """With 400 labels, as with one, the score is made of a few numbers for each event."""
    seen, count = [], headroom.macro_parts
    scores = np.random.default_rng(0).random((10, 400))
    monkeypatch.setattr(headroom, "macro_parts", lambda x: seen.append(x.size) or count(x))
    sweep_threshold(scores, scores > 0.7, scores > 0.5, fold=np.arange(10) % 2, macro=True)
    events, ways = scores.size, 3  # with all folds, and without each
    assert sum(seen) < 3 * (ways * 2 * events + 20 * 400)


def test_long_sentences_take_no_memory_for_all_pairs():
    """A file without empty lines is one sentence; a table of 20,000 × 20,000 has 400 MB."""
    size, random = 20_000, np.random.default_rng(0)
    logits = random.normal(size=(size, 3))
    how = {"lengths": [size], "tags": TAGS[:3], "outside": 0, "scheme": "BIO", "fold": [0]}
    gold = {(i, i + 2, "X") for i in range(0, size, 2)}
    tracemalloc.start()
    try:
        best = sweep_outside(logits, random.integers(0, 3, size), logits.argmax(1), **how)
        match = match_spans(gold, {(start + 1, end + 1, x) for start, end, x in gold})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert best.score > best.decided
    assert len(match.limits) == size / 2
    assert most < 100e6


@pytest.mark.parametrize("scheme", ["BIO", "IOB1", "IOE2", "BIOES", "BMES"])
@pytest.mark.parametrize("seed", range(4))
def test_pieces_of_a_sentence_do_not_depend_on_each_other(seed, scheme):
    """With any tokens made O, the spans of the pieces are those of the whole."""
    random = np.random.default_rng(seed)
    prefixes = [x for x in get_scheme(scheme).prefixes if x != "O"]
    tags = ["O", *(f"{prefix}-{label}" for prefix in prefixes for label in "XY")]
    read, ids = SpanReader(tags, scheme), random.integers(1, len(tags), 200)
    pieces = read.cut(ids, lengths=[150, 50])
    assert pieces.sum() == 200
    assert {150, 200} <= set(np.cumsum(pieces).tolist())
    assert len(pieces) > 10
    for share in (0.0, 0.2, 0.6):
        given = np.where(random.random(200) < share, 0, ids)
        whole, parts = (read.find(given, lengths=x) for x in ([150, 50], pieces))
        assert all((a == b).all() for a, b in zip(whole, parts, strict=True))


def test_nothing_at_all_scores_0():
    none = np.zeros((0, 2))
    assert sweep_threshold(none, none > 0, none > 0, fold=np.zeros(0, int))[:2] == (0, 0)
    assert best_thresholds(none, none > 0)[0] == 0
    assert match_spans((), {(0, 1, "X")}).right == 0


def test_logits_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="1 NaN"):
        sweep_bias([[np.nan, 0.0]], [0], [0], index=0, fold=[0])
