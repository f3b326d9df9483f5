"""CMRC 2018's rules restated plainly, character by character as the official script goes."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softf1.metrics.cmrc import common_run, score_cmrc, segment, split_words

MARKS = [
    *("-", ":", "_", "*", "^", "/", "\\", "~", "`", "+", "="),
    *("，", "。", "：", "？", "！", "“", "”", "；", "’", "《", "》", "……", "·", "、"),
    *("「", "」", "（", "）", "\uff0d", "\uff5e", "『", "』"),
]
HAN = ["中", "国", "北京", "年", "月", "龥"]
# Not Chinese for the evaluator: past its range, other scripts, full width, marks not listed.
OTHER = ["龦", "\u3007", "㐀", "ア", "\uff11", "\uff05", "…", "‘", "【", "】"]
LATIN = ["1998", "3.5", "1,000", "50%", "NBA", "nba", "iPhone 4S", "U.S.", "a,b", "(x)", " ", "  "]
PIECES = [*MARKS, *HAN, *OTHER, *LATIN, ""]


def plain_segments(text):
    segments, other = [], ""
    for char in text.lower().strip():
        if char in MARKS:
            continue
        if re.search("[\u4e00-\u9fa5]", char):
            if other:
                segments.extend(split_words(other))
                other = ""
            segments.append(char)
        else:
            other += char
    if other:
        segments.extend(split_words(other))
    return segments


def plain_run(first, second):
    runs = {tuple(first[i:j]) for i in range(len(first)) for j in range(i + 1, len(first) + 1)}
    other = {tuple(second[i:j]) for i in range(len(second)) for j in range(i + 1, len(second) + 1)}
    return max(map(len, runs & other), default=0)


def plain_f1(predicted, answer):
    got, wanted = plain_segments(predicted), plain_segments(answer)
    run = plain_run(got, wanted)
    if run == 0:
        return 0
    precision, recall = run / len(got), run / len(wanted)
    return 2 * precision * recall / (precision + recall)


def plain_exact(predicted, answer):
    first, second = (
        "".join(c for c in text.lower().strip() if c not in MARKS) for text in (predicted, answer)
    )
    return int(first == second)


def random_text(rng):
    return "".join(rng.choices(PIECES, k=rng.randint(0, 8)))


def test_random_and_adversarial_texts():
    rng = random.Random(0)
    for _ in range(2_000):
        answers = [random_text(rng) for _ in range(rng.randint(1, 3))]
        part = answers[0][rng.randint(0, 3) : rng.randint(3, 12)]
        predicted = rng.choice([random_text(rng), part, answers[0] + random_text(rng)])
        scores = score_cmrc([predicted], [answers])
        assert scores.exact.total == max(plain_exact(predicted, a) for a in answers)
        assert scores.f1.total == pytest.approx(max(plain_f1(predicted, a) for a in answers))
        assert segment(predicted) == plain_segments(predicted)


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=15), st.text("".join(MARKS) + "中文ab1. ,", max_size=15))
def test_any_texts(first, second):
    scores = score_cmrc([first + second], [[second]])
    assert scores.exact.total == plain_exact(first + second, second)
    assert scores.f1.total == pytest.approx(plain_f1(first + second, second))


def test_worked_cases():
    # 在 1998 年 and 1998 年 share a run of 2: precision 2/3, recall 1, F1 0.8.
    assert score_cmrc(["在1998年"], [["1998年"]]).f1.value == pytest.approx(0.8)
    # Contiguous, not a bag: 甲乙丙丁 and 乙甲丁丙 share no run longer than 1: F1 1/4.
    assert score_cmrc(["甲乙丙丁"], [["乙甲丁丙"]]).f1.value == pytest.approx(0.25)
    # Listed punctuation and case do not count, … and ‘ are not listed.
    assert score_cmrc(["《NBA》，"], [["nba"]]).exact.value == 1
    assert score_cmrc(["好…"], [["好"]]).exact.value == 0
    # Punctuation that goes leaves no gap: one word.
    assert segment("A-B，C") == ["abc"]


def test_words_of_other_scripts():
    assert split_words("It cost $5.00, ok... (yes)!") == [
        *("It", "cost", "$", "5.00", ",", "ok", "...", "(", "yes", ")", "!")
    ]
    assert split_words("e.g. u.s.") == ["e.g", ".", "u.s", "."]
    assert segment("abc 中 d", words=list) == ["a", "b", "c", " ", "中", " ", "d"]


def test_nothing():
    assert common_run([], ["a"]) == common_run(["a"], []) == 0
    assert score_cmrc([""], [["中"]]).f1.value == 0
    with pytest.raises(ValueError, match="wanted a prediction for 1 questions, got 0"):
        score_cmrc([], [["中"]])
