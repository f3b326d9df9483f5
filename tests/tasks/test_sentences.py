from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softf1.tasks import sentences
from softf1.tasks.sentences import WordTable, cut_windows, windows


class Spelled:
    """A tokenizer whose pieces are letters; counts how often it is asked."""

    unk_id = 99

    def __init__(self):
        self.asked = []

    def pieces(self, found):
        self.asked.extend(found)
        kept = [[ord(c) - ord("a") for c in word if c.isalpha()] for word in found]
        return np.array([*chain(*kept)], np.int32), np.array([len(own) for own in kept])


def test_each_distinct_word_is_encoded_once():
    table = WordTable(tokenizer := Spelled(), limit=4)
    pieces, counts = table.encode(["ab", "c", "ab"])
    assert pieces.tolist() == [0, 1, 2, 0, 1]
    assert counts.tolist() == [2, 1, 2]
    table.encode(["c", "d"])
    assert tokenizer.asked == ["ab", "c", "d"]


def test_no_pieces_become_unknown_and_too_many_are_cut():
    pieces, counts = WordTable(Spelled(), limit=2).encode(["!", "abc", "?", "d", "."])
    assert pieces.tolist() == [99, 0, 1, 99, 3, 99]
    assert counts.tolist() == [1, 2, 1, 1, 1]


def test_the_table_starts_anew_when_full(monkeypatch):
    monkeypatch.setattr(sentences, "MOST_WORDS", 2)
    table = WordTable(Spelled(), limit=4)
    for word in "abcdefg":
        assert table.encode([word, "a"])[0].tolist() == [ord(word) - ord("a"), 0]
        assert len(table.number) <= 4


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=40),
    st.integers(5, 12),
    st.integers(0, 6),
)
def test_windows_fit_and_own_every_word_once(counts, capacity, overlap):
    found = cut_windows(np.array(counts), capacity=capacity, overlap=overlap)
    owned = [word for _, _, first, end in found for word in range(first, end)]
    assert owned == list(range(len(counts)))
    for first, end, own_first, own_end in found:
        assert first <= own_first <= own_end <= end
        assert sum(counts[first:end]) <= capacity
    assert (np.diff(found[:, 1]) > 0).all(), "each window reaches further"


def test_overlap_is_as_asked_where_words_allow():
    found = cut_windows(np.ones(30, int), capacity=10, overlap=4)
    shared = found[:-1, 1] - found[1:, 0]
    assert shared.tolist() == [4] * len(shared)


@pytest.mark.parametrize("lengths", [[3, 9, 2], [9], [1, 1], [12, 12]])
def test_windows_of_many_sentences_keep_their_order(lengths):
    lengths = np.array(lengths)
    spans, source = windows(np.ones(lengths.sum(), int), lengths, capacity=4, overlap=1)
    assert (np.diff(source) >= 0).all()
    assert set(source) == set(range(len(lengths)))
    starts = np.concatenate([[0], lengths.cumsum()])
    assert (starts[source] <= spans[:, 0]).all()
    assert (spans[:, 1] <= starts[source + 1]).all()
