from softf1.reports.labels import confusion_shares, label_order
from softf1.reports.reading import NONE, Item, confuse


def item(gold, found, words=()):
    return Item(id="1", words=tuple(words), gold=frozenset(gold), predicted=frozenset(found))


def test_one_label_taken_for_another():
    assert list(confuse(item({"a"}, {"b"}))) == [("a", "b")]
    assert list(confuse(item({"a"}, {"a"}))) == [("a", "a")]


def test_of_several_labels_the_missed_meet_the_extra():
    pairs = list(confuse(item({"a", "b"}, {"a", "c"})))
    assert pairs == [("a", "a"), ("b", "c")]
    assert list(confuse(item({"a", "b"}, {"a"}))) == [("a", "a"), ("b", NONE)]
    assert list(confuse(item(set(), {"a"}))) == [(NONE, "a")]


def test_words_outside_on_both_sides_say_nothing():
    pairs = list(confuse(item({(0, 1, "PER")}, {(0, 2, "PER")}, words=["Ada", "ran", "off"])))
    assert pairs == [("PER", "PER"), ("O", "PER")]


def test_a_span_beyond_the_words_adds_none():
    assert len(list(confuse(item({(0, 9, "PER")}, set(), words=["Ada", "ran"])))) == 2


def test_labels_are_listed_by_frequency_and_cut_with_none_last():
    pairs = {(f"l{n}", f"l{n}"): 100.0 - n for n in range(50)} | {("O", "l0"): 900.0}
    labels = label_order(pairs, limit=10)
    assert labels == [*(f"l{n}" for n in range(9)), "O"]


def test_shares_are_of_all_gold_ones_also_where_labels_are_cut():
    assert confusion_shares({("a", "a"): 1.0, ("a", "rare"): 3.0}, ["a"]) == [[0.25]]
