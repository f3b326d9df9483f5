"""DROP's rules for several spans, which Quoref's evaluator uses, restated plainly."""

from __future__ import annotations

import random
import re
import string
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from softf1.metrics.quoref import assign, normalize_span, score_quoref, score_spans

PIECES = [
    *("a", "the", "The", "an", "Anna", "anna", "Ben-Li", "Ben", "Li", "well-known", "-", "--"),
    *("7", "7.0", "7.", "1,000", "1000", "-3", "$5", "5", "inf", "nan", "1e3", "1_0", "½"),
    *("", " ", "!", "(a)", "o'clock", "é", "\t", "the\tend", "李", "a."),
]


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def plain_normalize(text):
    words = []
    for token in re.split(" |-", text):
        word = token.lower()
        if not is_number(word):
            word = "".join(c for c in word if c not in string.punctuation)
        if is_number(word):
            word = str(float(word))
        word = " ".join(re.sub(r"\b(a|an|the)\b", " ", word).split())
        if word.strip():
            words.append(word)
    return " ".join(words).strip()


def plain_f1(gold, predicted):
    numbers = {word for word in gold if is_number(word)}
    if numbers and not numbers & {word for word in predicted if is_number(word)}:
        return 0.0
    common = len(gold & predicted)
    precision = common / len(predicted) if predicted else 1.0
    recall = common / len(gold) if gold else 1.0
    if precision == 0 and recall == 0:
        return 0.0
    return 2 * precision * recall / (precision + recall)


def plain_scores(predicted, gold):
    got, wanted = [plain_normalize(t) for t in predicted], [plain_normalize(t) for t in gold]
    exact = float(set(got) == set(wanted) and len(got) == len(wanted))
    table = np.array([[plain_f1(set(w.split()), set(g.split())) for g in got] for w in wanted])
    rows, columns = linear_sum_assignment(-table)
    return exact, round(float(table[rows, columns].sum()) / max(len(got), len(wanted)), 2)


def random_spans(rng):
    count = rng.randint(1, 4)
    return [" ".join(rng.choices(PIECES, k=rng.randint(1, 4))) for _ in range(count)]


def test_scores_of_random_and_adversarial_spans():
    rng = random.Random(0)
    for _ in range(3_000):
        gold = random_spans(rng)
        predicted = rng.sample(gold, len(gold)) + random_spans(rng)[: rng.randint(0, 2)]
        predicted = rng.sample(predicted, rng.randint(1, len(predicted)))
        assert score_spans(predicted, gold) == plain_scores(predicted, gold), (predicted, gold)
        for text in gold:
            assert normalize_span(text) == plain_normalize(text)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=3), st.text(max_size=20))
def test_scores_of_any_texts(gold, other):
    predicted = [*gold[1:], other]
    assert score_spans(predicted, gold) == plain_scores(predicted, gold)


def test_assignment_is_the_best_of_all():
    rng = np.random.default_rng(0)
    for rows, columns in rng.integers(1, 5, (300, 2)):
        table = rng.choice([0.0, 0.25, 0.5, 1.0], (rows, columns))
        pairs = assign(table)
        used_rows, used_columns = zip(*pairs, strict=True)
        assert len(set(used_rows)) == len(set(used_columns)) == min(rows, columns)
        tall = table if rows >= columns else table.T
        every = permutations(range(len(tall)), tall.shape[1])
        best = max(sum(tall[r, c] for c, r in enumerate(order)) for order in every)
        assert sum(table[pair] for pair in pairs) == best


def test_assignment_of_large_tables():
    table = np.random.default_rng(1).random((40, 60))
    rows, columns = linear_sum_assignment(-table)
    assert sum(table[pair] for pair in assign(table)) == pytest.approx(table[rows, columns].sum())


def test_worked_cases():
    # Pairs (Anna, Anna) 1 and (Ben Li, Ben) 2/3: (1 + 2/3) / 2 = 0.8333, officially 0.83.
    assert score_spans(["Anna", "Ben Li"], ["Ben", "Anna"]) == (0.0, 0.83)
    # One gold span was not predicted: 1/2.
    assert score_spans(["Anna"], ["Anna", "Ben"]) == (0.0, 0.5)
    # The same span twice is not the same as once.
    assert score_spans(["Anna", "anna"], ["Anna"]) == (0.0, 0.5)
    # Numbers: 7 is 7.0 and 1,000 is 1000, but a gold number that was not predicted forbids a match.
    assert score_spans(["7 men"], ["7.0 men"]) == (1.0, 1.0)
    assert score_spans(["1,000 men"], ["1000 men"]) == (1.0, 1.0)
    assert score_spans(["six men"], ["7 men"]) == (0.0, 0.0)
    assert score_spans(["7 men"], ["six men"]) == (0.0, 0.5)


def test_the_best_gold_answer_counts_and_nothing_scores_zero():
    scores = score_quoref([["Li"], [], ["x"]], [[["Ben"], ["Li"]], [["Ben"]], []])
    assert (scores.exact.total, scores.f1.total, scores.f1.count) == (1, 1, 3)
    with pytest.raises(ValueError, match="wanted a prediction for 1 questions, got 0"):
        score_quoref([], [[["a"]]])
