"""A share put aside evenly, and texts that two parts share."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from softf1.data import MrcExample, PairExample, QAExample, TaggedSentence, TextExample
from softf1.data.examples import Answer
from softf1.data.splits import TextHashes, deal_folds, find_overlaps, put_aside, text_of


def texts(*labels, text="text {}"):
    return [TextExample(text.format(n), tuple(label), n) for n, label in enumerate(labels)]


def divide(examples, share=0.2, seed=0):
    aside = put_aside(examples, share, seed=seed)
    parts = ([], [])
    for example, chosen in zip(examples, aside.tolist(), strict=True):
        parts[chosen].append(example)
    return parts


@pytest.mark.parametrize("seed", range(3))
def test_a_rare_label_is_in_dev_as_often_as_in_train(seed):
    train, dev = divide(texts(*"a" * 200, *"b" * 40, *"c" * 10), 0.1, seed)
    assert Counter(e.labels for e in dev) == {("a",): 20, ("b",): 4, ("c",): 1}
    assert len(train) == 225


def test_a_label_that_occurs_once_stays_in_train():
    train, dev = divide(texts(*"a" * 20, *"bcdefgh"), 0.3)
    assert {e.labels for e in dev} == {("a",)}
    assert len(train) + len(dev) == 27


def test_a_text_that_comes_twice_is_never_in_both_parts():
    examples = [*texts(*"ab" * 30), *texts(*"ab" * 30, text="text  {} ")]
    train, dev = divide(examples)
    assert len(dev) == 24
    assert not {text_of(e) for e in train} & {text_of(e) for e in dev}


def test_sentences_are_put_aside_by_their_rarest_label():
    tags = {"PER": 50, "LOC": 10, "O": 140}
    examples = [
        TaggedSentence((f"w{label}{n}", "x"), ("O" if label == "O" else f"B-{label}", "O"), n)
        for label, count in tags.items()
        for n in range(count)
    ]
    _, dev = divide(examples)
    assert Counter(e.tags[0] for e in dev) == {"B-PER": 10, "B-LOC": 2, "O": 28}


def test_questions_of_one_article_or_one_context_stay_together():
    answers = (Answer(((0, 1),), ("c",)),)
    examples = [
        QAExample(f"{n}", "?", f"c{n // 2}", answers if n % 3 else (), title=f"t{n // 4}")
        for n in range(80)
    ]
    # A context that stands in two articles joins them.
    examples += [QAExample("x", "?", "c0", answers, title="t19")]
    train, dev = divide(examples)
    assert len(dev) > 8
    for name in ("title", "context"):
        assert not {getattr(e, name) for e in train} & {getattr(e, name) for e in dev}


def test_queries_about_one_sentence_stay_together():
    examples = [
        MrcExample(f"{n}.{q}", f"q{q}", f"L{q}", (f"w{n}",), ((0, 1),) if n % 4 == q else ())
        for n in range(40)
        for q in range(3)
    ]
    train, dev = divide(examples)
    assert not {e.words for e in train} & {e.words for e in dev}
    assert Counter(e.label for e in dev if e.spans) == {"L0": 2, "L1": 2, "L2": 2}


def test_the_seed_decides_and_one_text_cannot_be_split():
    examples = texts(*"ab" * 50)
    assert divide(examples, seed=1) == divide(examples, seed=1) != divide(examples, seed=2)
    assert not put_aside(texts("a", "a", text="same"), 0.5, seed=0).any()
    assert put_aside(texts("a", "b"), 0.1, seed=0).sum() == 1
    assert not put_aside([], 0.1, seed=0).any()


def test_what_a_text_is():
    assert (
        text_of(PairExample("a ", "b", "1", 1))
        == ("a", "b")
        != text_of(PairExample("b", "a", "1", 1))
    )
    assert text_of(QAExample("1", "who?", "Ida  left", ())) == ("who?", "Ida left")
    assert text_of({"of": "another package"})


@pytest.mark.parametrize("in_memory", [1 << 22, 7, 1])
def test_overlaps_are_counted_alike_in_memory_and_on_disk(in_memory):
    random = np.random.default_rng(0)
    rows = {name: random.integers(0, 300, 200).tolist() for name in ("train", "dev", "test")}
    hashes = {
        name: TextHashes((f"text {n}" for n in found), in_memory=in_memory)
        for name, found in rows.items()
    }
    assert bool(hashes["train"].spilled) == (in_memory < 200)
    found = {(o.first, o.second): o for o in find_overlaps(hashes)}
    for first, second in [*pairwise(rows), ("train", "test")]:
        overlap = found[first, second]
        assert overlap.in_first == sum(n in rows[second] for n in rows[first])
        assert overlap.in_second == sum(n in rows[first] for n in rows[second])
        assert str(overlap).startswith(
            f"{second}: {overlap.in_second} of 200 texts are also in {first}"
        )


def test_one_file_given_twice_is_named():
    parts = {name: TextHashes("abc") for name in ("train.csv", "dev.csv")}
    (overlap,) = find_overlaps(parts)
    assert str(overlap) == (
        "dev.csv has the same 3 texts as train.csv, in the same order: is one file given twice?"
    )
    assert not find_overlaps({"a": TextHashes("abc"), "b": TextHashes("de")})
    (other,) = find_overlaps({"a": TextHashes("abc"), "b": TextHashes("acb")})
    assert not other.same


def test_folds_keep_equal_texts_together_and_labels_even():
    labels = ["rare"] * 9 + ["usual"] * 51
    texts = [TextExample(f"text {n % 30}", (label,), n) for n, label in enumerate(labels)]
    fold = deal_folds(texts, 3, seed=0)
    assert all(fold[n] == fold[n + 30] for n in range(30))
    assert np.bincount(fold).tolist() == [20, 20, 20]
    assert np.bincount(fold[:9]).tolist() == [3, 3, 3]
    assert (fold == deal_folds(texts, 3, seed=0)).all()
    assert (fold != deal_folds(texts, 3, seed=1)).any()
