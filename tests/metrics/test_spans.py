from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from softf1.metrics.counts import Counts
from softf1.metrics.schemes import SCHEMES, decode_lenient, decode_strict
from softf1.metrics.spans import (
    count_lenient,
    count_lenient_ids,
    count_span_sets,
    count_strict,
    count_strict_ids,
)

from .seqeval_figures import AVERAGES, random_pairs, read_figures


def as_ids(gold, predicted):
    tags = sorted({tag for sentence in gold + predicted for tag in sentence})
    number = {tag: index for index, tag in enumerate(tags)}
    streams = ([number[tag] for sentence in side for tag in sentence] for side in (gold, predicted))
    return *streams, [len(sentence) for sentence in gold], tags


def assert_same_scores(count, figures, gold, predicted):
    """Per label on all sentences, every average on the first tenth."""
    counts = count(gold, predicted)
    mine = [counts[label] for label in sorted(counts)]
    np.testing.assert_allclose(np.transpose(mine), figures["labels"], rtol=0, atol=1e-12)
    part = slice(len(gold) // 10)
    counts = count(gold[part], predicted[part])
    for name in AVERAGES:
        np.testing.assert_allclose(counts.average(name), figures[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_scores_are_those_of_seqeval_on_random_sequences(scheme):
    pairs, figures = random_pairs(scheme), read_figures()[scheme]
    assert_same_scores(partial(count_strict, scheme=scheme), figures["strict_scores"], *pairs)
    assert_same_scores(count_lenient, figures["lenient_scores"], *pairs)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_arrays_strings_and_span_sets_agree_on_every_batch(scheme):
    gold, predicted = random_pairs(scheme, 3_000, seed=1, shortest=0)
    for first in range(0, len(gold), 30):
        batch = gold[first : first + 30], predicted[first : first + 30]
        *streams, lengths, tags = as_ids(*batch)
        strict = count_span_sets(*[[decode_strict(t, scheme) for t in side] for side in batch])
        assert count_strict(*batch, scheme=scheme) == strict
        by_id = count_strict_ids(*streams, lengths=lengths, tags=tags, scheme=scheme)
        assert by_id == strict
        lenient = count_span_sets(*[[decode_lenient(t) for t in side] for side in batch])
        assert count_lenient(*batch) == lenient
        assert count_lenient_ids(*streams, lengths=lengths, tags=tags) == lenient


def test_batches_add_up_to_the_whole():
    gold, predicted = random_pairs("BIO", 500, seed=2)
    parts = [count_lenient(gold[i : i + 7], predicted[i : i + 7]) for i in range(0, 500, 7)]
    assert sum(parts) == count_lenient(gold, predicted)


def test_worked_case():
    # gold: PER (0, 2), LOC (3, 4); predicted: PER (0, 2), PER (3, 4).
    gold, predicted = [["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "B-PER"]]
    counts = count_strict(gold, predicted, scheme="BIO")
    assert counts.to_dict() == {"LOC": [0, 0, 1], "PER": [1, 1, 0]}
    assert counts.micro() == (0.5, 0.5, 0.5, 2)
    assert counts.macro() == (0.25, 0.5, pytest.approx(1 / 3), 2)


def test_a_span_never_crosses_sentences():
    gold = [["B-X"], ["I-X", "O"], [], ["B-X"]]
    assert count_lenient(gold, gold).to_dict() == {"X": [3, 0, 0]}
    assert count_strict(gold, gold, scheme="BIO").to_dict() == {"X": [2, 0, 0]}
    # E and S wanted at the end of the first sentence, whatever the second begins with.
    gold = [["B-X", "I-X"], ["E-X"]]
    assert count_strict(gold, gold, scheme="BIOES").to_dict() == {}


def test_joint_segmentation_and_pos():
    # Characters of three words, all in spans: NOUN (0, 2), VERB (2, 3), NOUN (3, 5).
    gold = [["B-NOUN", "I-NOUN", "B-VERB", "B-NOUN", "I-NOUN"]]
    # The last word is cut in two: 2 of 4 predicted words are right, 2 of 3 gold words found.
    predicted = [["B-NOUN", "I-NOUN", "B-VERB", "B-NOUN", "B-NOUN"]]
    precision, recall, f, support = count_strict(gold, predicted, scheme="BIO").micro()
    assert (precision, recall, support) == (0.5, pytest.approx(2 / 3), 3)
    assert f == pytest.approx(4 / 7)
    bmes = [["B-NOUN", "E-NOUN", "S-VERB", "B-NOUN", "E-NOUN"]]
    cut = [["B-NOUN", "E-NOUN", "S-VERB", "S-NOUN", "S-NOUN"]]
    assert count_strict(bmes, cut, scheme="BMES") == count_strict(gold, predicted, scheme="BIO")


def test_nested_and_repeated_spans():
    gold = [[(0, 4, "ORG"), (1, 2, "LOC"), (1, 2, "PER")], []]
    predicted = [[(0, 4, "ORG"), (0, 4, "ORG"), (1, 2, "LOC")], [(0, 1, "LOC")]]
    counts = count_span_sets(gold, predicted)
    assert counts.to_dict() == {"LOC": [1, 1, 0], "ORG": [1, 0, 0], "PER": [0, 0, 1]}


@pytest.mark.parametrize("gold", [[], [[]], [["O"]], [[], ["O", "O"], []]])
def test_nothing_to_find(gold):
    for counts in (count_lenient(gold, gold), count_strict(gold, gold, scheme="BIO")):
        assert counts == Counts.from_dict({})
        assert counts.micro() == counts.macro() == counts.weighted() == (0, 0, 0, 0)
    by_id = count_lenient_ids([], [], lengths=[], tags=[])
    assert by_id.micro().f == 0


def test_tag_lists_without_o_and_with_o_anywhere():
    options = {"lengths": [2, 1], "scheme": "BIO"}
    without = count_strict_ids([0, 1, 0], [0, 1, 0], tags=["B-X", "I-X"], **options)
    within = count_strict_ids([0, 2, 0], [0, 2, 1], tags=["B-X", "O", "I-X"], **options)
    assert without.to_dict() == {"X": [2, 0, 0]}
    assert within.to_dict() == {"X": [1, 0, 1]}


def test_errors_name_place_and_sizes():
    with pytest.raises(ValueError, match="as many predicted as gold sentences, 2, got 1"):
        count_lenient([["O"], ["O"]], [["O"]])
    with pytest.raises(ValueError, match="as many predicted as gold tags in sentence 1, 2, got 1"):
        count_lenient([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(ValueError, match=r"gold sentence 1, tag 1: wanted O or .*BIO.*'E-X'"):
        count_strict([["O"], ["O", "E-X"]], [["O"], ["O", "O"]], scheme="BIO")
    with pytest.raises(ValueError, match=r"predicted sentence 0, tag 0: .* got 'NOUN'"):
        count_lenient([["O"]], [["NOUN"]])
    options = {"lengths": [2], "tags": ["O", "B-X"]}
    with pytest.raises(ValueError, match=r"wanted \(2,\) ids, the sum of lengths, got \(3,\)"):
        count_lenient_ids([0, 0], [0, 0, 0], **options)
    with pytest.raises(ValueError, match="wanted ids from 0 to 1, got -100 to 1"):
        count_lenient_ids([0, 1], [1, -100], **options)
    with pytest.raises(ValueError, match=r"wanted O or a tag of BIO .* got 'S-X'"):
        count_strict_ids([0], [0], lengths=[1], tags=["S-X"], scheme="BIO")
