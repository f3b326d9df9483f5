"""SQuAD's exact match and F1, versions 1.1 and 2.0, by the rules of the official evaluators.

Texts are compared in lower case without punctuation and without the words a, an, the. F1 is over
the bags of their words. The best of a question's gold answers counts.

    >>> score_squad(["in the Summer of 1969!"], [["summer of 1969", "1969"]])
    QAScores(exact=Mean(total=0.0, count=1), f1=Mean(total=0.857..., count=1))
"""

from __future__ import annotations

import re
import string
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from softf1.metrics.counts import Floats, Mask, Mean, check_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class QAScores:
    """Exact match and F1 over questions; add those of batches, then take `.f1.value`."""

    exact: Mean = field(default_factory=Mean)
    f1: Mean = field(default_factory=Mean)

    def __add__(self, other: QAScores) -> QAScores:
        """The scores over both sets of questions."""
        return QAScores(self.exact + other.exact, self.f1 + other.f1)

    @classmethod
    def from_arrays(cls, exact: Floats, f1: Floats) -> QAScores:
        """The scores of questions one by one, summed."""
        return cls(Mean(float(exact.sum()), exact.size), Mean(float(f1.sum()), f1.size))


class BestThreshold(NamedTuple):
    """The best mean score that a no-answer threshold reaches, and that threshold."""

    score: float
    threshold: float


@dataclass(frozen=True, slots=True)
class Squad2Scores:
    """SQuAD 2.0: all questions, those with and those without an answer, and the best thresholds.

    The `best_*` are chosen on the very questions they are reported for, as in the official
    evaluator: use their threshold, found on a dev set, but do not report their score.
    """

    all: QAScores
    has_answer: QAScores
    no_answer: QAScores
    best_exact: BestThreshold
    best_f1: BestThreshold


def normalize_answer(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces.

    >>> normalize_answer("The  U.S.-based (an) answer")
    'usbased answer'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(predicted: str, answer: str) -> float:
    """1 if the normalised texts are equal, else 0."""
    return float(normalize_answer(predicted) == normalize_answer(answer))


def token_f1(predicted: str, answer: str) -> float:
    """Returns F1 of the bags of words; 0 if they share none, as in version 1.1.

    >>> token_f1("on 4 July 1776", "the 4 July")
    0.666...
    """
    got, wanted = normalize_answer(predicted).split(), normalize_answer(answer).split()
    common = (Counter(got) & Counter(wanted)).total()
    if not common:
        return 0.0
    # Not 2·common / (len + len): the last digit decides ties when a threshold is chosen.
    precision, recall = common / len(got), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def token_f1_v2(predicted: str, answer: str) -> float:
    """`token_f1`, but two texts without words are equal, as in version 2.0."""
    if not normalize_answer(predicted) or not normalize_answer(answer):
        return exact_match(predicted, answer)
    return token_f1(predicted, answer)


def score_squad(predicted: Sequence[str], answers: Sequence[Sequence[str]]) -> QAScores:
    """Scores answers by SQuAD 1.1, each against the gold answer that fits best."""
    exact = score_each(exact_match, predicted, answers)
    return QAScores.from_arrays(exact, score_each(token_f1, predicted, answers))


def score_squad2(
    predicted: Sequence[str],
    answers: Sequence[Sequence[str]],
    *,
    null_scores: ArrayLike | None = None,
    threshold: float = 1.0,
) -> Squad2Scores:
    """Scores answers by SQuAD 2.0: without gold answers, the empty text is right.

    Args:
        predicted: The answer to each question; empty for none.
        answers: The gold answers of each question; none if it cannot be answered.
        null_scores: How much each question looks unanswerable. All 0 if not given.
        threshold: A prediction whose null score is greater counts as empty. The official
            default of 1 suits probabilities; with differences of logits pass a tuned one.
    """
    check_questions(predicted, answers)
    golds = [[a for a in texts if normalize_answer(a)] or [""] for texts in answers]
    has_answer = np.array([bool(texts) for texts in answers], dtype=bool)
    null = np.zeros(len(predicted)) if null_scores is None else np.asarray(null_scores, float)
    if null.shape != has_answer.shape:
        raise ValueError(f"wanted {has_answer.size} null scores, got shape {null.shape}")
    check_numbers(null, "null scores")
    raw = [score_each(score, predicted, golds) for score in (exact_match, token_f1_v2)]
    exact, f1 = (np.where(null > threshold, ~has_answer, scores) for scores in raw)
    answered = np.array([bool(text) for text in predicted], dtype=bool)
    best = [best_null_threshold(scores, null, has_answer, answered) for scores in raw]
    groups = (slice(None), has_answer, ~has_answer)
    whole, has, none = (QAScores.from_arrays(exact[own], f1[own]) for own in groups)
    return Squad2Scores(whole, has, none, *best)


def best_null_threshold(
    scores: Floats, null_scores: Floats, has_answer: Mask, answered: Mask
) -> BestThreshold:
    """Returns the no-answer threshold with the best mean score, by the official algorithm.

    Start with no question answered, which is right where there is no answer. Then answer one after
    the other, most certain first: each gains its score, or loses 1 if it has no answer. The first
    best point wins; if nothing is better than answering none, the threshold is 0.

    >>> best_null_threshold(np.array([1., 1., 0.]), np.array([.1, .7, .4]),
    ...                np.array([True, True, False]), np.array([True, True, True]))
    BestThreshold(score=0.666..., threshold=0.1)
    """
    order = np.argsort(null_scores, kind="stable")
    gain = np.where(has_answer, scores, np.where(answered, -1.0, 0.0))[order]
    reached = np.cumsum(np.concatenate([[float((~has_answer).sum())], gain]))
    best = int(np.argmax(reached))
    threshold = float(null_scores[order[best - 1]]) if best else 0.0
    return BestThreshold(float(reached[best]) / max(len(scores), 1), threshold)


def check_questions(predicted: Sequence[object], answers: Sequence[object]) -> None:
    """Raises if the lists have different lengths."""
    if len(predicted) != len(answers):
        raise ValueError(f"wanted a prediction for {len(answers)} questions, got {len(predicted)}")


def score_each(
    score: Callable[[str, str], float], predicted: Sequence[str], answers: Sequence[Sequence[str]]
) -> Floats:
    """Returns for each question the score with the gold answer that fits best; 0 without one."""
    check_questions(predicted, answers)
    best = [
        max((score(text, answer) for answer in golds), default=0.0)
        for text, golds in zip(predicted, answers, strict=True)
    ]
    return np.array(best, dtype=float)
