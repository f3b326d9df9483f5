"""Quoref's exact match and F1 for answers of several spans, which are DROP's rules.

Spans are split into words at spaces and hyphens; each word is put in lower case, loses its
punctuation (unless it is a number, which is written as a float) and is dropped if it is an article.
Predicted and gold spans are paired so that the sum of the F1 of their sets of words is largest, and
that sum is divided by the larger number of spans. A gold span with numbers matches only a
predicted one that has one of them.

    >>> score_quoref([["Anna", "Ben Li"]], [[["Ben", "Anna"]]])
    QAScores(exact=Mean(total=0.0, count=1), f1=Mean(total=0.83, count=1))
"""

from __future__ import annotations

import math
import re
import string
from typing import TYPE_CHECKING

import numpy as np

from softf1.metrics.squad import QAScores, check_questions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from softf1.metrics.counts import Floats

_SPLIT = re.compile("[ -]")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score_quoref(
    predicted: Sequence[Sequence[str]], answers: Sequence[Sequence[Sequence[str]]]
) -> QAScores:
    """Scores of questions whose gold answers (usually one) are each a list of spans.

    Args:
        predicted: The predicted spans of each question.
        answers: For each question the acceptable answers, each the texts of its spans.
    """
    check_questions(predicted, answers)
    best = np.zeros((2, len(predicted)))
    for row, (got, golds) in enumerate(zip(predicted, answers, strict=True)):
        best[:, row] = np.max([(0.0, 0.0), *(score_spans(got, gold) for gold in golds)], axis=0)
    return QAScores.from_arrays(*best)


def score_spans(predicted: Sequence[str], gold: Sequence[str]) -> tuple[float, float]:
    """Exact match and F1 of two lists of spans; F1 is rounded to two digits, as officially.

    >>> score_spans(["the Red-Brick house"], ["red brick house"])
    (1.0, 1.0)
    >>> score_spans(["4 men"], ["5 men"])  # the numbers differ
    (0.0, 0.0)
    """
    got, wanted = list(map(normalize_span, predicted)), list(map(normalize_span, gold))
    exact = float(set(got) == set(wanted) and len(got) == len(wanted))
    if not got or not wanted:
        return exact, exact
    bags = [set(text.split()) for text in wanted], [set(text.split()) for text in got]
    table = np.array([[_set_f1(mine, other) for other in bags[1]] for mine in bags[0]])
    total = math.fsum(table[row, column] for row, column in assign(table))
    return exact, round(total / max(table.shape), 2)


def normalize_span(text: str) -> str:
    """The words of a span, normalised one by one.

    >>> normalize_span("The 1,000-mile  run of 7 (a)")
    '1000.0 mile run of 7.0'
    """
    words = (_normalize_word(word) for word in _SPLIT.split(text))
    return " ".join(word for word in words if word)


def assign(table: Floats) -> list[tuple[int, int]]:
    """The pairs (row, column), each row and column used at most once, with the largest sum.

    The Hungarian method: rows enter one by one, each along the cheapest path that moves earlier
    rows to other columns, with prices of rows and columns that keep reduced costs at 0 or above.

    >>> assign(np.array([[0.9, 0.8], [0.7, 0.0]]))
    [(0, 1), (1, 0)]
    """
    if table.shape[0] > table.shape[1]:
        return sorted((row, column) for column, row in assign(table.T))
    # Rows and columns count from 1; column 0 is where the row that enters starts.
    cost = np.pad(-table, ((1, 0), (1, 0)))
    of_row, of_column = (np.zeros(size) for size in cost.shape)
    row_of, before = np.zeros((2, cost.shape[1]), dtype=int)
    for row in range(1, len(cost)):
        row_of[0], here = row, 0
        distance, done = np.full(cost.shape[1], np.inf), np.zeros(cost.shape[1], dtype=bool)
        while row_of[here]:
            done[here] = True
            reduced = cost[row_of[here]] - of_row[row_of[here]] - of_column
            nearer = ~done & (reduced < distance)
            distance[nearer], before[nearer] = reduced[nearer], here
            here = int(np.argmin(np.where(done, np.inf, distance)))
            step = distance[here]
            of_row[row_of[done]] += step
            of_column[done] -= step
            distance[~done] -= step
        while here:  # back along the path, each column takes the row of the one before it
            row_of[here], here = row_of[before[here]], before[here]
    return sorted((int(row) - 1, column) for column, row in enumerate(row_of[1:]) if row)


def _normalize_word(word: str) -> str:
    text = word.lower()
    if not _is_number(text):
        text = text.translate(_PUNCTUATION)
    if _is_number(text):
        text = str(float(text))
    return " ".join(_ARTICLES.sub(" ", text).split())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _set_f1(gold: set[str], predicted: set[str]) -> float:
    numbers = set(filter(_is_number, gold))
    if numbers and not numbers & predicted:
        return 0.0
    # A span without words has precision or recall 1, but F1 is 0 unless both have none.
    common = len(gold & predicted)
    precision = common / len(predicted) if predicted else 1.0
    recall = common / len(gold) if gold else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
