from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from softf1.tasks.nbest import find_best_spans, list_answers, null_scores

INF = math.inf


def plain_spans(start, end, inside, *, n_best, max_length, positions="softmax"):
    """The n-best loop over the windows, the starts and the ends."""

    def value(logit):
        if positions == "softmax" or logit == -INF:
            return logit
        return -math.log1p(math.exp(-abs(logit))) + min(logit, 0.0)

    result = []
    for starts, ends, kept in zip(start.tolist(), end.tolist(), inside.tolist(), strict=True):
        places = [i for i, keep in enumerate(kept) if keep]
        best_starts = sorted(places, key=lambda i: (-starts[i], i))[:n_best]
        best_ends = sorted(places, key=lambda i: (-ends[i], i))[:n_best]
        found = []
        for first in best_starts:
            for last in best_ends:
                score = value(starts[first]) + value(ends[last])
                if first <= last < first + max_length and score > -INF:
                    found.append((-score, first, last + 1))
        result.append(sorted(found)[:n_best])
    return result


def as_lists(spans):
    return [
        [(-score, first, last) for first, last, score in zip(*row, strict=True) if score > -INF]
        for row in zip(spans.start.tolist(), spans.end.tolist(), spans.score.tolist(), strict=True)
    ]


def random_windows(rng, windows, length, *, steps=None):
    """Logits, rounded to a few values where ties are wanted, and contexts of any size."""
    start, end = rng.normal(0, 3, (2, windows, length)).astype(np.float32)
    if steps:
        start, end = np.round(start * steps) / steps, np.round(end * steps) / steps
    low, high = np.sort(rng.integers(0, length + 1, (2, windows)), axis=0)[:, :, None]
    inside = (np.arange(length) >= low) & (np.arange(length) < high)
    return start, end, inside


@pytest.mark.parametrize("positions", ["softmax", "sigmoid"])
@pytest.mark.parametrize("steps", [None, 1, 4])
@pytest.mark.parametrize("n_best", [1, 5, 20, 60])
def test_spans_are_those_of_the_plain_loop(n_best, steps, positions):
    start, end, inside = random_windows(np.random.default_rng(n_best), 300, 50, steps=steps)
    options = {"n_best": n_best, "max_length": 12, "positions": positions}
    found = as_lists(find_best_spans(start, end, inside=inside, **options))
    wanted = plain_spans(start, end, inside, **options)
    if positions == "softmax":
        assert found == wanted
    else:  # logarithms are rounded in their own way: the same spans where scores differ clearly
        for mine, plain in zip(found, wanted, strict=True):
            assert [x[0] for x in mine] == pytest.approx([x[0] for x in plain])
            assert steps or [x[1:] for x in mine] == [x[1:] for x in plain]


FLOATS = st.floats(-30, 30, width=32).map(lambda x: round(x, 1))
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 9))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data(), SHAPES, st.integers(1, 12), st.integers(1, 10))
def test_any_windows(data, shape, n_best, max_length):
    values = arrays.arrays(np.float64, shape, elements=st.one_of(FLOATS, st.just(-INF)))
    start, end = data.draw(values), data.draw(values)
    inside = data.draw(arrays.arrays(np.bool_, shape))
    options = {"n_best": n_best, "max_length": max_length}
    found = as_lists(find_best_spans(start, end, inside=inside, **options))
    assert found == plain_spans(start, end, inside, **options)


def test_worked_case():
    # Positions 1 to 4 are the context. Best start 1 (5), best end 3 (4): length 3, too long for 2.
    start, end = [[9, 5, 1, 3, 0]], [[9, 0, 2, 4, 1]]
    inside = [[False, True, True, True, True]]
    spans = find_best_spans(start, end, inside=inside, n_best=3, max_length=2)
    # (3, 4) = 3 + 4, (1, 3) = 5 + 2, the earlier start first, then (2, 4) = 1 + 4 before (1, 2).
    assert as_lists(spans) == [[(-7.0, 1, 3), (-7.0, 3, 4), (-5.0, 2, 4)]]


def test_many_windows_are_done_in_parts():
    start, end, inside = random_windows(np.random.default_rng(0), 700, 30)
    whole = find_best_spans(start, end, inside=inside)
    for row in (0, 255, 256, 699):
        one = find_best_spans(
            start[row : row + 1], end[row : row + 1], inside=inside[row : row + 1]
        )
        assert one.score[0].tolist() == whole.score[row].tolist()


CONTEXT = "Le café — où Zoë  attend."
OFFSETS = [(0, 0), (0, 2), (3, 7), (8, 9), (10, 12), (13, 16), (18, 24), (24, 25)]


def windows_of_two_questions():
    """Question 0 has two overlapping windows, question 1 has one without any context."""
    offsets = np.array([OFFSETS, [(0, 0), *OFFSETS[3:], (0, 0), (0, 0)], [(0, 0)] * 8])
    start, end = np.zeros((2, 3, 8), dtype=np.float32)
    start[0, 5] = end[0, 5] = 2  # "Zoë" in the first window
    start[1, 3] = end[1, 4] = 2.5  # "Zoë  attend" in the second
    inside = np.zeros((3, 8), dtype=bool)
    inside[0, 1:] = inside[1, 1:6] = True
    return find_best_spans(start, end, inside=inside, n_best=3), offsets, [0, 0, 1]


def test_answers_are_exact_parts_of_the_context():
    spans, offsets, question = windows_of_two_questions()
    first, second = list_answers(
        spans, offsets=offsets, question=question, contexts=[CONTEXT, "nothing"], n_best=5
    )
    assert first[0] == ("Zoë  attend", 13, 24, 5.0)
    assert second == []
    for text, start, end, _ in first:
        assert CONTEXT[start:end] == text
    spans_of_first = [candidate[1:3] for candidate in first]
    assert len(set(spans_of_first)) == len(spans_of_first) == 5
    scores = [candidate.score for candidate in first]
    assert scores == sorted(scores, reverse=True)


def test_equal_scores_go_to_the_earlier_window():
    start = end = np.array([[0.0, 3.0], [3.0, 0.0]])
    offsets = np.array([[(0, 1), (2, 3)], [(4, 5), (6, 7)]])
    spans = find_best_spans(start, end, inside=np.ones((2, 2)))
    options = {"offsets": offsets, "contexts": ["a b c d"] * 2, "n_best": 1}
    assert [*list_answers(spans, question=[0, 0], **options)] == [[("b", 2, 3, 6.0)], []]
    # Windows of questions may come in any order.
    best = list_answers(spans, question=[1, 0], **options)
    assert [one.text for (one,) in best] == ["c", "b"]


def test_null_score_is_the_lowest_of_the_windows():
    start, end = np.array([[1.0, 9], [0.5, 9], [9, 2.0]]), np.array([[1.0, 9], [0.7, 9], [9, 3.0]])
    null = null_scores(start, end, null_position=[0, 0, 1], question=[0, 0, 1])
    assert null.tolist() == [1.2, 5.0]
    same = null_scores(start, end, null_position=0, question=[0, 0, 1], positions="sigmoid")
    sigmoid = [1 / (1 + math.exp(-x)) for x in (0.5, 0.7)]
    assert same[0] == pytest.approx(math.log(sigmoid[0] * sigmoid[1]))


def test_extreme_logits_have_finite_scores():
    start = np.array([[1e4, -1e4, 0.0]], dtype=np.float32)
    for positions in ("softmax", "sigmoid"):
        spans = find_best_spans(start, start, inside=np.ones((1, 3)), positions=positions)
        assert np.isfinite(spans.score[0, :6]).all()
        assert (spans.start[0, 0], spans.end[0, 0]) == (0, 1)


def test_no_windows():
    spans = find_best_spans(np.zeros((0, 4)), np.zeros((0, 4)), inside=np.zeros((0, 4)))
    assert spans.score.shape[0] == 0
    offsets = np.zeros((0, 4, 2), dtype=int)
    assert [*list_answers(spans, offsets=offsets, question=[], contexts=[])] == []


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_of_a_model_that_diverged_are_refused(bad):
    zeros = np.zeros((1, 2))
    with pytest.raises(ValueError, match="got NaN"):
        find_best_spans(np.full((1, 2), bad), zeros, inside=zeros)
