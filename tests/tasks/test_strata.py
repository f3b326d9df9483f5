"""Strata of every task: what samplers balance by."""

import dataclasses

import numpy as np
import pytest

from softf1.data.examples import (
    Answer,
    MrcExample,
    PairExample,
    QAExample,
    TaggedSentence,
    TextExample,
)
from softf1.errors import InputError
from softf1.models.encoders import make_tokenizer
from softf1.tasks import make_task
from softf1.training.batching import find_strata


def strata_of(task, examples, folder, train=None):
    tokenizer = make_tokenizer(folder, task.texts(train or examples))
    task = task.fit(task.encode(iter(train or examples), tokenizer))
    features = task.encode(iter(examples), tokenizer)
    return task, features, find_strata(task, features)


def test_one_label_each_is_its_own_stratum(bert):
    texts = [TextExample("a", (label,), line=1) for label in ("no", "yes", "no", "maybe")]
    task, _, strata = strata_of(make_task("classification"), texts, bert)
    assert [task.labels[i] for i in strata] == ["no", "yes", "no", "maybe"]


def test_a_pair_whose_label_training_never_saw_is_in_none(bert):
    pairs = [PairExample("a", "b", label, line=1) for label in ("1", "0", "2")]
    _, _, strata = strata_of(make_task("pairs"), pairs, bert, train=pairs[:2])
    assert strata.tolist() == [1, 0, -1]


def test_of_several_labels_the_rarest_counts(bert):
    labels = [("news",), ("news", "sport"), ("news", "sport", "chess"), (), ("sport",)]
    texts = [TextExample("a", own, line=1) for own in labels]
    task, _, strata = strata_of(make_task("classification", multi_label=True), texts, bert)
    names = [*task.labels, "none"]
    # news and sport are equally frequent: the first in order
    assert [names[i] for i in strata] == ["news", "news", "chess", "none", "sport"]


def test_a_sentence_counts_by_whether_it_has_more_than_the_usual_tag(bert):
    rows = [("O", "O"), ("B-PER", "O"), ("O",), ("O", "B-LOC")]
    sentences = [TaggedSentence(("ann",) * len(tags), tags, line=1) for tags in rows]
    bare = TaggedSentence(("ann",), (), line=9)
    _, _, strata = strata_of(make_task("tagging"), [*sentences, bare], bert, train=sentences)
    assert strata.tolist() == [0, 1, 0, 1, -1]


def test_a_window_counts_the_tags_of_the_words_that_it_owns(bert):
    tags = ("O",) * 39 + ("B-PER",)
    sentence = TaggedSentence(("ann",) * 40, tags, line=1)
    _, features, strata = strata_of(make_task("tagging", max_length=18), [sentence], bert)
    assert len(strata) == len(features) > 2
    assert strata.tolist() == [0] * (len(features) - 1) + [1]


def test_a_question_counts_by_whether_its_window_has_the_answer(bert):
    context = "ann works. " * 12 + "bob visits"
    known = QAExample("a", "who?", context, (Answer(((0, 3),), ("ann",)),))
    none = QAExample("b", "who?", "ann works", ())
    lost = QAExample("c", "who?", "ann works", (Answer((), ("bob",)),))
    task = make_task("qa", no_answer=True, max_length=24, overlap=4)
    _, features, strata = strata_of(task, [known, none, lost], bert)
    windows = int((features["source"] == 0).sum())
    assert windows > 2
    assert strata.tolist() == [1] + [0] * (windows - 1) + [0, -1]


def test_a_query_counts_by_whether_its_window_has_a_span(bert):
    words = ("the",) * 38 + ("ann", "bob")
    examples = [
        MrcExample("0.1", "who?", "PER", words, ((38, 40),)),
        MrcExample("0.2", "where?", "LOC", words, ()),
        MrcExample("1.1", "who?", "PER", ("ann", "works"), ((0, 1),)),
    ]
    task = make_task("mrc_ner", max_length=24)
    _, features, strata = strata_of(task, examples, bert)
    windows = int((features["source"] == 0).sum())
    assert windows > 2
    assert strata.tolist() == [0] * (windows - 1) + [1] + [0] * windows + [1]


def test_a_task_of_another_package_brings_its_own_or_is_refused():
    @dataclasses.dataclass
    class Other:
        kind: str = "other"

    with pytest.raises(InputError, match="task other has no strata"):
        find_strata(Other(), None)
    Other.strata = lambda _self, _features: [1, 0]
    assert find_strata(Other(), None).tolist() == [1, 0]
    assert find_strata(Other(), None).dtype == np.int64
