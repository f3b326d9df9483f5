from itertools import combinations
from math import comb
from random import Random

import pytest

from softf1.data import (
    Answer,
    Corpus,
    MrcExample,
    PairExample,
    Problems,
    QAExample,
    TaggedSentence,
    TextExample,
    read,
)
from softf1.data.counts import _count_edges
from softf1.data.stats import describe, describe_new_labels, share_without
from softf1.errors import InputError


def corpus(task, *examples, path="x"):
    return Corpus(path, "made", task, list(examples), Problems())


def tagged(tags):
    return TaggedSentence(tuple(tags.split()), tuple(tags.split()), 1)


def pairs(labels):
    return [PairExample("a", "b", label, 1) for label in labels]


def texts(*rows):
    return [TextExample("a", tuple(row), 1) for row in rows]


def figures(stats):
    return stats.negatives, stats.positives, stats.ratio


def test_tagging_counts_words_and_joins_the_parts_of_a_label():
    stats = describe(corpus("tagging", tagged("B-PER I-PER O O"), tagged("O O O B-LOC")))
    assert figures(stats) == (5, 3, 5 / 3)
    assert {label.label: label.count for label in stats.labels} == {"O": 5, "PER": 2, "LOC": 1}
    assert stats.spread == 5


def test_document_marks_are_no_words(write):
    stats = describe(read(write("-DOCSTART- -X- O O\n\nEve NN I-NP I-PER\nran VB I-VP O\n")))
    assert figures(stats) == (1, 1, 1.0)


def test_parts_of_speech_have_no_o():
    stats = describe(corpus("tagging", tagged("NOUN NOUN VERB")))
    assert figures(stats) == (2, 1, 2.0)
    assert stats.negative == "the most frequent tag NOUN"
    assert stats.plain_labels == (
        "3 words with 2 labels and no background: NOUN, the most frequent, has 66.7%"
    )
    assert describe(corpus("tagging", tagged("O O B-PER"))).plain_labels == ""


def test_a_stray_o_among_parts_of_speech_is_no_background():
    stats = describe(corpus("tagging", tagged("NOUN NOUN VERB O")))
    assert (figures(stats), stats.negative) == ((2, 2, 1.0), "the most frequent tag NOUN")


def test_plain_names_with_much_background():
    stats = describe(corpus("tagging", tagged("O O PERSON")))
    assert (figures(stats), stats.negative) == ((2, 1, 2.0), "tag O")


def question(context, *answers):
    gold = tuple(Answer(tuple(spans), ("",) * len(spans)) for spans in answers)
    return QAExample("q", "?", context, gold)


@pytest.mark.parametrize(
    ("example", "wanted"),
    [
        # "Ada Lind" in six words: two positives, four others.
        (question("Ada Lind went to Oslo today", [(0, 8)]), (4, 2)),
        # One word is both start and end: two positions, five other words.
        (question("Ada Lind went to Oslo today", [(17, 21)]), (5, 2)),
        # Of two alternatives the first counts.
        (question("Ada Lind went to Oslo today", [(17, 21)], [(0, 8)]), (5, 2)),
        # Of one answer with two spans both count.
        (question("Ada Lind went to Oslo today", [(0, 8), (17, 21)]), (3, 4)),
        (question("Ada Lind went to Oslo today"), (6, 0)),
        # Chinese words are characters: 2 + 4 others, numbers are one word.
        (question("他在1998年去了", [(2, 6)]), (5, 2)),
    ],
)
def test_questions_count_start_and_end_words(example, wanted):
    stats = describe(corpus("qa", example))
    assert (stats.negatives, stats.positives) == wanted


def test_questions_without_answer_are_a_label():
    stats = describe(corpus("qa", question("a b", [(0, 1)]), question("a b")))
    assert {label.label: label.count for label in stats.labels} == {
        "start": 1,
        "end": 1,
        "no answer": 1,
    }
    # Of two questions one has no answer; the start is one of five positions.
    shares = {label.label: label.share for label in stats.labels}
    assert (shares["no answer"], shares["start"]) == (0.5, 0.2)


def test_queries_count_for_every_label():
    words = ("a", "b", "c")
    items = [MrcExample("1", "q", "X", words, ((0, 2),)), MrcExample("2", "q", "Y", words)]
    stats = describe(corpus("mrc_ner", *items))
    assert figures(stats) == (4, 2, 2.0)
    assert {label.label: label.examples for label in stats.labels} == {"X": 1, "Y": 0}


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [("1110", (1, 3)), ("1000", (3, 1)), (["yes", "no", "no"], (2, 1)), ("aab", (2, 1))],
)
def test_pairs_know_the_positive_label(labels, wanted):
    stats = describe(corpus("pairs", *pairs(labels)))
    assert (stats.negatives, stats.positives) == wanted


def test_classes_are_the_most_frequent_against_the_rest():
    stats = describe(corpus("classification", *texts("a", "a", "a", "b", "b", "c")))
    assert figures(stats) == (3, 3, 1.0)
    assert stats.negative == "label a"


def test_several_labels_count_every_row_with_every_label():
    stats = describe(corpus("classification", *texts("ab", "a", "")))
    # Three rows × two labels, of which three are there.
    assert figures(stats) == (3, 3, 1.0)


def test_no_labels_is_an_error():
    for made in (corpus("pairs", *pairs([None])), corpus("tagging", TaggedSentence(("a",), (), 1))):
        with pytest.raises(InputError, match=r"^x: wanted"):
            describe(made)


@pytest.mark.parametrize("examples", [1, 5, 9])
def test_share_of_batches_without_is_that_of_all_batches(examples):
    for having in range(examples + 1):
        for batch in range(1, examples + 1):
            batches = list(combinations(range(examples), batch))
            without = sum(all(member >= having for member in one) for one in batches)
            assert share_without(examples, having, batch) == pytest.approx(without / len(batches))


def test_share_without_of_many_examples():
    exact = comb(53_360 - 257, 32) / comb(53_360, 32)
    assert share_without(53_360, 257, 32) == pytest.approx(exact, rel=1e-12)
    assert share_without(10, 3, 1000) == 0.0
    assert share_without(10, 0, 4) == 1.0


def test_batch_figures():
    stats = describe(corpus("pairs", *pairs("1000")), batch_size=2)
    one = next(label for label in stats.labels if label.label == "1")
    assert (one.per_batch, one.share_without, one.share) == (0.5, 0.5, 0.25)
    with pytest.raises(InputError, match="batch size"):
        describe(corpus("pairs", *pairs("10")), batch_size=0)


def test_labels_that_only_dev_has_are_said_once():
    train = corpus("tagging", tagged("B-PER O"), path="train")
    dev = corpus("tagging", tagged("I-PER B-ORG O"), tagged("B-ORG B-LOC"), path="dev")
    assert (
        describe_new_labels(train, dev) == "dev: LOC, ORG are not in train: scored, never predicted"
    )
    assert describe_new_labels(dev, train) is None
    assert describe_new_labels(train, corpus("pairs", *pairs("10"))) is None


def test_edges_of_answers_are_counted_alike_in_any_script():
    """Contexts of ASCII alone are counted faster; a letter of another script changes nothing."""
    rng = Random(0)
    for _ in range(300):
        context = "".join(rng.choices("ab \t\n", k=12))
        start = rng.randrange(12)
        span = (start, rng.randint(start + 1, 12))
        assert _count_edges(context, [span]) == _count_edges(context.replace("b", "é"), [span])
