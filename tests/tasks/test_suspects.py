"""Labels that may be wrong: the right kind, the right place, the right score."""

import numpy as np
import pytest

from softf1.tasks.suspects import (
    Mark,
    find_suspect_label_sets,
    find_suspect_labels,
    find_suspect_tags,
)

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]


def sure(*tags, chance=0.9):
    """Probabilities of a model that is rather sure of these tags; the others share the rest."""
    rows = np.full((len(tags), len(TAGS)), (1 - chance) / (len(TAGS) - 1))
    rows[np.arange(len(tags)), [TAGS.index(tag) for tag in tags]] = chance
    return rows


def suspects_of(given, predicted, **options):
    gold = np.array([TAGS.index(tag) if tag in TAGS else -100 for tag in given])
    at = np.array([0, len(given)])
    return find_suspect_tags(sure(*predicted, **options), gold, at, TAGS, spans=True)


@pytest.mark.parametrize(
    ("given", "predicted", "kind"),
    [
        ("O O O", "O B-PER I-PER", "missing span"),
        ("B-LOC O O", "O O O", "extra span"),
        ("B-LOC O O", "B-PER O O", "wrong label"),
        ("B-PER O O", "B-PER I-PER O", "wrong boundary"),
        ("B-PER I-PER O", "B-PER B-LOC O", "wrong boundary"),
    ],
)
def test_a_difference_of_spans_has_its_kind(given, predicted, kind):
    result = suspects_of(given.split(), predicted.split())
    assert [one.kind for one in result.suspects] == [kind]


def test_a_suspect_says_both_readings_and_how_unlikely_the_given_one_is():
    (one,) = suspects_of(["B-PER", "O", "O"], ["B-PER", "I-PER", "O"], chance=0.7).suspects
    assert one.given == (Mark("PER", 0, 1),)
    assert one.suggested == (Mark("PER", 0, 2),)
    # O of the second word has 0.1; the tag of the first stays, so that its 0.7 does not count
    assert one.score == pytest.approx(0.9)


def test_all_words_that_change_make_up_the_score_of_a_span():
    # two words are made a PER: O has 0.1 at one of them and 0.4 at the other
    chance = np.array([[0.1, 0.9, 0.0], [0.4, 0.0, 0.6], [1.0, 0.0, 0.0]])
    gold, labels = np.array([0, 0, 0]), ["O", "B-PER", "I-PER"]
    (one,) = find_suspect_tags(chance, gold, np.array([0, 3]), labels, spans=True).suspects
    assert one.suggested == (Mark("PER", 0, 2),)
    assert one.score == pytest.approx(1 - (0.1 + 0.4) / 2)


def test_spans_apart_are_suspects_of_their_own_and_equal_ones_are_none():
    result = suspects_of(["B-PER", "O", "B-LOC", "O"], ["B-LOC", "O", "B-LOC", "B-PER"])
    assert [(one.kind, one.suggested[0].start) for one in result.suspects] == [
        ("wrong label", 0),
        ("missing span", 3),
    ]


def test_a_tag_that_training_never_saw_is_no_suspect():
    result = suspects_of(["B-GPE", "O", "O"], ["B-LOC", "O", "B-PER"])
    assert [one.kind for one in result.suspects] == ["missing span"]
    assert result.unknown == 1


def test_the_example_is_numbered_by_its_sentence():
    gold, at = np.array([0, 0, 0]), np.array([0, 2, 3])
    result = find_suspect_tags(sure("O", "O", "B-LOC"), gold, at, TAGS, spans=True)
    assert [(one.example, one.suggested) for one in result.suspects] == [(1, (Mark("LOC", 0, 1),))]


def test_plain_tags_are_suspects_word_by_word():
    chance = np.array([[0.9, 0.1], [0.2, 0.8]])
    result = find_suspect_tags(chance, np.array([1, 0]), np.array([0, 2]), ["N", "V"], spans=False)
    assert [(one.kind, one.given, one.suggested) for one in result.suspects] == [
        ("wrong label", (Mark("V", 0, 1),), (Mark("N", 0, 1),)),
        ("wrong label", (Mark("N", 1, 2),), (Mark("V", 1, 2),)),
    ]
    assert [one.score for one in result.suspects] == pytest.approx([0.9, 0.8])


def test_one_label_is_a_suspect_where_another_is_likelier():
    chance = np.array([[0.6, 0.2, 0.2], [0.1, 0.2, 0.7], [0.1, 0.1, 0.8]])
    result = find_suspect_labels(chance, np.array([0, 1, -100]), ["a", "b", "c"])
    (one,) = result.suspects
    assert (one.example, one.given, one.suggested) == (1, (Mark("b"),), (Mark("c"),))
    assert one.score == pytest.approx(0.8)
    assert result.unknown == 1


def test_of_several_labels_each_is_a_suspect_alone():
    chance, gold = np.array([[0.9, 0.3, 0.2]]), np.array([[0, 1, 0]])
    found = find_suspect_label_sets(chance, gold, ["a", "b", "c"]).suspects
    assert [(one.kind, one.given, one.suggested) for one in found] == [
        ("missing label", (), (Mark("a"),)),
        ("extra label", (Mark("b"),), ()),
    ]
    assert [one.score for one in found] == pytest.approx([0.9, 0.7])
