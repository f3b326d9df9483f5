"""The official SQuAD rules restated plainly, and compared on random and adversarial texts."""

from __future__ import annotations

import random
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softf1.metrics.squad import (
    QAScores,
    best_null_threshold,
    normalize_answer,
    score_squad,
    score_squad2,
)

ARTICLES = [
    "a",
    "an",
    "the",
    "The",
    "AN",
    "theory",
    "a-the",
    "the.",
    "'the'",
    "an,",
    "athe",
    "_a_",
    "a_b",
    "the2",
    "“the”",
]
WORDS = [
    "New",
    "new",
    "york",
    "York's",
    "u.s.",
    "co-op",
    "$5.00",
    "5",
    "é",
    "É",
    "İ",
    "ß",
    "½",
    "北京",
    "的",
    "—",
    "’",
    "!",
    "...",
]
PIECES = [*ARTICLES, *WORDS, "", " ", "  ", "\t", "\u00a0", "\n", "co op"]


def plain_normalize(text):
    kept = [c for c in text.lower() if c not in string.punctuation]
    result, word = "", ""
    # An article becomes a space where no letter, digit or underscore is beside it.
    for c in [*kept, " "]:
        if c.isalnum() or c == "_":
            word += c
        else:
            result += (" " if word in ("a", "an", "the") else word) + c
            word = ""
    return " ".join(result.split())


def plain_exact(predicted, answer):
    return 1 if plain_normalize(predicted) == plain_normalize(answer) else 0


def plain_f1(predicted, answer, *, version):
    got, wanted = plain_normalize(predicted).split(), plain_normalize(answer).split()
    if version == 2 and (not got or not wanted):
        return int(got == wanted)
    left, same = list(wanted), 0
    for word in got:
        if word in left:
            left.remove(word)
            same += 1
    if same == 0:
        return 0
    precision, recall = same / len(got), same / len(wanted)
    return 2 * precision * recall / (precision + recall)


def plain_best(predicted, scores, null, answers):
    """find_best_thresh of the official evaluator: one question after the other."""
    current = best = sum(not a for a in answers)
    threshold = 0.0
    for i in sorted(range(len(null)), key=lambda k: null[k]):
        if answers[i]:
            current += scores[i]
        elif predicted[i]:
            current -= 1
        if current > best:
            best, threshold = current, null[i]
    return best / len(answers), threshold


def random_text(rng):
    return rng.choice(("", " ")).join(rng.choices(PIECES, k=rng.randint(0, 6)))


def random_questions(seed, count, most=3, least=0):
    rng = random.Random(seed)
    predicted, answers = [], []
    for _ in range(count):
        golds = [random_text(rng) for _ in range(rng.randint(least, most))]
        predicted.append(rng.choice([*golds, random_text(rng), ""]))
        answers.append(golds)
    return predicted, answers


def test_normalisation():
    for seed in range(5_000):
        text = random_text(random.Random(seed))
        assert normalize_answer(text) == plain_normalize(text), repr(text)


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=30), st.text("aAnNtThHeE _-.\u0130", max_size=12))
def test_normalisation_of_any_text(text, articles):
    assert normalize_answer(text + articles) == plain_normalize(text + articles)


def test_version_1():
    predicted, answers = random_questions(0, 3_000, least=1)
    scores = score_squad(predicted, answers)
    pairs = list(zip(predicted, answers, strict=True))
    assert scores.exact.total == sum(max(plain_exact(p, a) for a in golds) for p, golds in pairs)
    f1 = sum(max(plain_f1(p, a, version=1) for a in golds) for p, golds in pairs)
    assert scores.f1.total == pytest.approx(f1, abs=1e-9)
    assert scores.f1.count == 3_000


@pytest.mark.parametrize("threshold", [0.0, 0.4, 1.0])
def test_version_2(threshold):
    predicted, answers = random_questions(1, 3_000)
    null = np.random.default_rng(0).choice(np.linspace(-0.5, 1.5, 41), 3_000)
    scores = score_squad2(predicted, answers, null_scores=null, threshold=threshold)
    raw = {"exact": [], "f1": []}
    kept = {"exact": [], "f1": []}
    for p, golds, n in zip(predicted, answers, null, strict=True):
        golds_with_words = [a for a in golds if plain_normalize(a)] or [""]
        raw["exact"].append(max(plain_exact(p, a) for a in golds_with_words))
        raw["f1"].append(max(plain_f1(p, a, version=2) for a in golds_with_words))
        for name, values in kept.items():
            values.append(int(not golds) if n > threshold else raw[name][-1])
    has = [bool(golds) for golds in answers]
    for name, values in kept.items():
        for part, wanted in (
            (scores.all, values),
            (scores.has_answer, [v for v, h in zip(values, has, strict=True) if h]),
            (scores.no_answer, [v for v, h in zip(values, has, strict=True) if not h]),
        ):
            assert getattr(part, name).total == pytest.approx(sum(wanted), abs=1e-9)
            assert getattr(part, name).count == len(wanted)
    assert scores.best_exact == pytest.approx(plain_best(predicted, raw["exact"], null, answers))
    assert scores.best_f1 == pytest.approx(plain_best(predicted, raw["f1"], null, answers))


def test_worked_cases():
    # {summer, of, 1969} of the 4 words predicted: precision 3/4, recall 1, F1 6/7.
    assert score_squad(["in the summer of 1969"], [["Summer of 1969!"]]).f1.value == pytest.approx(
        6 / 7
    )
    # Words count as often as they occur: "no no" shares two of "no no no"; P 1, R 2/3, F1 0.8.
    assert score_squad(["no, no"], [["no no no"]]).f1.value == pytest.approx(0.8)
    # Only articles: exact match of two empty texts, but no word in common.
    nothing = score_squad(["the"], [["a"]])
    assert (nothing.exact.value, nothing.f1.value) == (1, 0)
    # Version 2.0 has both right: an answer without words is no answer.
    nothing = score_squad2(["the"], [["a"]]).all
    assert (nothing.exact.value, nothing.f1.value) == (1, 1)
    # Hyphens vanish, so that the words on their sides become one.
    assert score_squad(["well known"], [["well-known"]]).f1.value == 0


def test_best_threshold_worked():
    # By rising null score: +1 (0.1), −1 (0.4), +1 (0.7) on 1 right without answering.
    best = best_null_threshold(
        np.array([1.0, 1.0, 0.0]),
        np.array([0.1, 0.7, 0.4]),
        np.array([True, True, False]),
        np.array([True, True, True]),
    )
    assert best == (pytest.approx(2 / 3), 0.1)
    # Answering never helps: no threshold below, and the official 0.
    none = best_null_threshold(np.array([0.0]), np.array([0.3]), np.array([True]), np.array([True]))
    assert none == (0.0, 0.0)


def test_batches_add_up():
    predicted, answers = random_questions(2, 100, least=1)
    parts = [score_squad(predicted[i : i + 9], answers[i : i + 9]) for i in range(0, 100, 9)]
    total = sum(parts, QAScores())
    whole = score_squad(predicted, answers)
    assert total.exact == whole.exact
    assert total.f1.value == pytest.approx(whole.f1.value)


def test_no_questions_and_wrong_sizes():
    assert score_squad([], []).f1.value == 0
    assert score_squad2([], []).best_f1 == (0, 0)
    with pytest.raises(ValueError, match="wanted a prediction for 2 questions, got 1"):
        score_squad(["a"], [["a"], ["b"]])
    with pytest.raises(ValueError, match="wanted numbers as null scores, got 1 NaN"):
        score_squad2(["a"], [["a"]], null_scores=[float("nan")])
    with pytest.raises(ValueError, match=r"wanted 1 null scores, got shape \(2,\)"):
        score_squad2(["a"], [["a"]], null_scores=[0.1, 0.2])
