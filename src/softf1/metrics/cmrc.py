"""CMRC 2018's exact match and F1 for Chinese answers, by the rules of the official evaluator.

A Chinese character is a token, other text is split into words, and the punctuation that the
evaluator lists is left out. F1 counts the longest *contiguous* run of tokens that both texts share.

    >>> score_cmrc(["在1998年"], [["1998年", "九八年"]])
    QAScores(exact=Mean(total=0.0, count=1), f1=Mean(total=0.8, count=1))
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from softf1.metrics.squad import QAScores, score_each

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The evaluator's list. It also has "……", which never equals a single character, so … is kept.
PUNCTUATION = "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）\uff0d\uff5e『』"
_DROP = str.maketrans("", "", PUNCTUATION)
_HAN = re.compile("([\u4e00-\u9fa5])")

_MARK = r"""\.\.\.|[;@#$%&?!()<>{}\[\]"]|,(?!\d)|\.(?=\s|$)"""
_WORD = re.compile(rf"{_MARK}|(?:(?!{_MARK})\S)+")


def split_words(text: str) -> list[str]:
    """Words and marks of text that is not Chinese: a plain form of NLTK's `word_tokenize`.

    The official evaluator calls NLTK here. The two agree on words, numbers and the usual marks;
    NLTK also splits English contractions (`it's`), which this does not.

    >>> split_words("approx. 1,000 km (3.5%), ok?")
    ['approx', '.', '1,000', 'km', '(', '3.5', '%', ')', ',', 'ok', '?']
    """
    return _WORD.findall(text)


def segment(text: str, *, words: Callable[[str], list[str]] = split_words) -> list[str]:
    """Tokens in lower case without the listed punctuation: Chinese characters and words.

    >>> segment("《红楼梦》 by Cao Xueqin，1791年")
    ['红', '楼', '梦', 'by', 'cao', 'xueqin1791', '年']
    """
    parts = _HAN.split(text.lower().strip().translate(_DROP))
    # A split by a group puts what the group matched, the Chinese characters, at odd places.
    tokens = ([part] if place % 2 else words(part) for place, part in enumerate(parts) if part)
    return [token for group in tokens for token in group]


def common_run(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest contiguous run of tokens that is in both.

    >>> common_run(list("xabcy"), list("abxbcy"))
    3
    """
    return SequenceMatcher(None, first, second, autojunk=False).find_longest_match().size


def score_cmrc(
    predicted: Sequence[str],
    answers: Sequence[Sequence[str]],
    *,
    words: Callable[[str], list[str]] = split_words,
) -> QAScores:
    """Scores Chinese answers, each against the gold answer that fits best.

    Args:
        predicted: The answer to each question; the empty text for a missing one.
        answers: The gold answers of each question.
        words: Splits text that is not Chinese; `nltk.word_tokenize` gives the official figure
            to the last digit.
    """

    def run_f1(text: str, answer: str) -> float:
        got, wanted = segment(text, words=words), segment(answer, words=words)
        run = common_run(got, wanted)
        return 2 * run / (len(got) + len(wanted)) if run else 0.0

    exact = score_each(_exact_match, predicted, answers)
    return QAScores.from_arrays(exact, score_each(run_f1, predicted, answers))


def _exact_match(predicted: str, answer: str) -> float:
    first, second = (text.lower().strip().translate(_DROP) for text in (predicted, answer))
    return float(first == second)
