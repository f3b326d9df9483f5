from random import Random

import pytest

from softf1.data import PairExample
from softf1.data.augment import edit, embedding_synonyms
from softf1.data.rebalance import check_leak, plan, rebalance
from softf1.errors import InputError

SYNONYMS = {"quickly": ["fast"], "learn": ["study"], "cook": ["prepare"], "best": ["finest"]}
VERBS = ["learn", "cook", "paint", "sing", "write"]
NOUNS = ["rice", "songs", "letters", "walls", "maps", "soup", "poems"]


def synonyms(word):
    return SYNONYMS.get(word, [])


@pytest.fixture
def pairs():
    made = []
    for number in range(100):
        verb, noun = VERBS[number % 5], NOUNS[number % 7]
        first = f"What is the best way to {verb} {noun} in {number} days?"
        second = f"How do I {verb} {noun} quickly in the {number} days that are left?"
        label = "1" if number % 100 < 37 else "0"
        made.append(PairExample(first, second, label, number + 1))
    return made


def count(pairs):
    positives = sum(pair.label == "1" for pair in pairs)
    return positives, len(pairs) - positives


@pytest.mark.parametrize(
    ("variant", "wanted"),
    [
        ("+positive", (63, 63)),
        ("+negative", (37, 139)),
        ("-negative", (37, 37)),
        ("+both", (88, 88)),
    ],
)
def test_variants_reach_the_ratios_of_the_paper(pairs, variant, wanted):
    made = rebalance(pairs, variant, seed=1, synonyms=synonyms)
    assert count(made) == wanted
    assert len({(pair.first, pair.second) for pair in made}) == len(made)
    if variant != "-negative":
        assert made[: len(pairs)] == pairs


def test_plus_variants_can_end_at_one_size(pairs):
    made = [rebalance(pairs, v, seed=1, size=140) for v in ("+positive", "+negative", "+both")]
    assert [count(one) for one in made] == [(77, 63), (37, 103), (70, 70)]


def test_the_same_seed_gives_the_same_rows(pairs):
    one, two, other = (
        rebalance(pairs, "+both", seed=seed, synonyms=synonyms) for seed in (3, 3, 4)
    )
    assert one == two
    assert one != other
    removed = [rebalance(pairs, "-negative", seed=seed) for seed in (3, 3, 4)]
    assert removed[0] == removed[1] != removed[2]


def test_added_rows_differ_from_their_source_in_one_text_and_keep_its_label(pairs):
    by_line = {pair.line: pair for pair in pairs}
    for pair in rebalance(pairs, "+both", seed=5)[len(pairs) :]:
        source = by_line[pair.line]
        assert pair.label == source.label
        assert (pair.first == source.first) != (pair.second == source.second)
        assert str(pair.line - 1) in pair.first
        assert str(pair.line - 1) in pair.second
        assert pair.id.startswith(f"{pair.line}+")


def test_a_row_of_dev_or_test_is_refused(pairs):
    made = rebalance(pairs, "+positive", seed=1)
    added = made[-1]
    dev = PairExample(added.second.upper(), f"  {added.first}", "1", 44)
    check_leak(made, [PairExample("something", "else", "0", 1)])
    with pytest.raises(InputError, match=r"wanted no row of dev or test in training.*line 44"):
        check_leak(made, [dev])
    check_leak(rebalance(pairs, "+positive", seed=1, held_out=[dev]), [dev])


@pytest.mark.parametrize(
    ("variant", "options", "message"),
    [
        (
            "+positive",
            {"share": 0.2},
            "cannot lead from 37 positives and 63 negatives to 16 and 63",
        ),
        ("-negative", {"share": 0.2}, "cannot lead"),
        ("+negative", {"size": 50}, "cannot lead"),
        ("+negative", {"share": 0.21, "size": 126}, "got a size that makes it 0.29"),
        ("+both", {"share": 1.5}, "between 0 and 1"),
        ("more", {}, "wanted a variant of"),
    ],
)
def test_impossible_plans(variant, options, message):
    with pytest.raises(InputError, match=message):
        plan(variant, 37, 63, **options)


def test_texts_too_short_to_edit(pairs):
    short = [PairExample(f"Q{n}", f"P{n}", label, n) for n, label in enumerate("1000")]
    with pytest.raises(InputError, match="wanted 2 new rows, got 0"):
        rebalance(short, "+positive", seed=1)
    with pytest.raises(InputError, match="wanted labelled pairs"):
        rebalance([PairExample("a", "b", None, 7)], "+positive", seed=1)
    with pytest.raises(InputError, match="wanted positives"):
        rebalance(pairs[:3], "+positive", seed=1, positive="yes")


def test_numbers_names_and_negations_are_never_touched(random):
    text = "Anna did not eat 7 apples and never liked Graz"
    for _ in range(200):
        changed = edit(text, random, lambda word: [f"{word}x"])
        for word in ("Anna", "not", "7", "never", "Graz"):
            assert f" {word} " in f" {changed} "


def test_light_edits_move_or_drop_stop_words_only(random):
    text = "the mill is on the hill"
    for _ in range(100):
        changed = edit(text, random)
        assert changed != text
        assert {"mill", "hill"} <= set(changed.split()) <= set(text.split())


@pytest.fixture
def random():
    return Random(0)


def test_neighbours_leave_out_pieces_and_forms_of_the_word():
    words = ["cat", "cats", "##cat", "dog", "Dog", "of", "zebra"]
    matrix = [[1, 0], [1, 0.01], [1, 0], [1, 0.1], [1, 0.1], [1, 0], [0, 1]]
    assert embedding_synonyms(words, matrix)("cat") == ("dog",)
    with pytest.raises(
        InputError, match=r"wanted a matrix of 7 rows, one per token, got shape \(2, 2\)"
    ):
        embedding_synonyms(words, matrix[:2])
