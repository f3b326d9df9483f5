"""The corpus with label errors, and how rankings of them are judged."""

import random

import numpy as np
import pytest

from softf1.metrics.schemes import decode_lenient
from softf1.tasks.suspects import Mark

pytest.importorskip("sklearn")
from benchmarks import suspects


def test_what_is_not_listed_counts_as_missed():
    wrong = np.array([True, False, True, False, True, False])
    ranks = {
        "all": np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4]),
        "listed": np.array([0.9, 0.8, 0.7, *[suspects.UNLISTED] * 3]),
    }
    whole, listed, chance = suspects.score(ranks, wrong)
    assert whole["average_precision"] == pytest.approx((1 + 2 / 3 + 3 / 5) / 3)
    assert listed["average_precision"] == pytest.approx((1 + 2 / 3) / 3)
    assert (listed["listed"], listed["found"], listed["errors"]) == (3, 2, 3)
    assert whole["precision"] == listed["precision"] == pytest.approx(2 / 3)
    assert chance["average_precision"] == 0.5


def test_the_changed_words_are_those_whose_tags_differ(tmp_path):
    lines = ["Ann B-PER", "Lee I-PER", "went O", "to O", "Rome B-LOC", ""] * suspects.SENTENCES
    path = tmp_path / "train.txt"
    path.write_text("\n".join(lines), "utf-8")
    words, tags, wrong = suspects.change_spans(path, random.Random(0))
    assert len(words) == len(tags) == len(wrong) == suspects.SENTENCES
    whole = ["B-PER", "I-PER", "O", "O", "B-LOC"]
    changed = [[a != b for a, b in zip(own, whole, strict=True)] for own in tags]
    assert changed == wrong
    spans = 2 * suspects.SENTENCES
    kept = sum(len(set(decode_lenient(whole)) & set(decode_lenient(own))) for own in tags)
    extra = sum(map(len, map(decode_lenient, tags))) - kept
    assert 0.03 * spans < spans - kept < 0.05 * spans  # a word more leaves its span as it is
    assert extra > 0


def test_words_and_sentences_are_ranked_by_their_suspects():
    given, suggested = [Mark("PER", 0, 1)], [Mark("PER", 0, 2)]
    assert suspects.find_changed(given, suggested, 3).tolist() == [False, True, False]
    labels = ("B-PER", "I-PER", "O")
    sure = np.array([[0.9, 0.05, 0.05], [0.1, 0.7, 0.2], [0.0, 0.0, 1.0]])
    judged = suspects.Judged([sure, sure], [np.array([0, 2, 2]), np.array([0, 1, 2])], labels)
    ranks = suspects.rank_words(judged)
    none = suspects.UNLISTED
    assert ranks["word"]["softf1"] == pytest.approx([none, 0.8, none, none, none, none])
    assert ranks["sentence"]["softf1"] == pytest.approx([0.8, none])
    assert ranks["word"][suspects.OF_ALL] == pytest.approx([0.1, 0.8, 0.0, 0.1, 0.3, 0.0])
    assert ranks["sentence"][suspects.OF_ALL] == pytest.approx([0.8, 0.3])
    texts = suspects.Judged([sure[:1], sure[1:2]], [np.array([1]), np.array([1])], labels)
    assert suspects.rank_texts(texts)["softf1"] == pytest.approx([0.95, none])


def test_folds_judge_what_they_have_not_seen():
    texts = [["good", "fine"], ["bad", "sad"]] * 30
    judged = suspects.fit_folds(texts, ["1", "0"] * 29 + ["0", "1"])  # the last two are wrong
    listed = suspects.rank_texts(judged)["softf1"]
    assert np.flatnonzero(listed > 0.5).tolist() == [58, 59]
    tags = [["O", "B-PER"]] * 29 + [["B-PER", "O"]]
    judged = suspects.fit_folds([["hello", "Ann"]] * 30, tags)
    assert judged.labels == ("B-PER", "O")
    assert np.flatnonzero(suspects.rank_words(judged)["sentence"]["softf1"] > 0.5).tolist() == [29]
