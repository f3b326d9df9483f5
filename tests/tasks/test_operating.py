"""Targets of every kind of task: who takes which, what is stored, what abstaining leaves out."""

import json
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from softf1.data.examples import Answer, MrcExample, QAExample, TaggedSentence, TextExample
from softf1.errors import InputError
from softf1.metrics.operating import Target, read_targets
from softf1.metrics.schemes import SCHEMES, encode_spans, find_invalid
from softf1.models.tokenizers import Layout
from softf1.tasks import load_task, make_task, save_task
from softf1.tasks.qa import QA
from softf1.training.predict import abstention

PRECISE = Target.parse("precision>=0.9")


class Words:
    """A tokenizer of one id a word."""

    names, pad_id, unk_id, window, limit = ("input_ids",), 0, 1, 64, 64

    def layout(self, *, pair):  # noqa: ARG002
        return Layout(before=(), between=(), after=(), types=(0,) * 5, cls=0, pad_left=False)

    def pieces(self, words):
        return np.full(len(words), 2, np.int32), np.ones(len(words), np.int64)

    def text_ids(self, texts):
        return [[2] for _ in texts]


def made_up(labels, logits, **options):
    """A task over texts with these labels, its features, and logits as evaluation keeps them."""
    examples = [TextExample(f"t{i}", tuple(own), line=i) for i, own in enumerate(labels)]
    task = make_task("classification", **options)
    features = task.encode(examples, Words())
    rows = np.asarray(logits, np.float32)
    return task.fit(features), features, {"item": np.arange(len(rows)), "logits": rows}, examples


def binary(size=600, seed=0):
    random = np.random.default_rng(seed)
    yes = random.random(size) < 0.4
    z = random.normal(size=size) * 1.5 + np.where(yes, 2.5, -2.5)
    labels = [("yes",) if one else ("no",) for one in yes]
    return made_up(labels, np.stack([np.zeros(size), z], axis=1))


def several(size=600, seed=0):
    random = np.random.default_rng(seed)
    has = random.random((size, 2)) < [0.5, 0.2]
    z = random.normal(size=(size, 2)) * 1.5 + np.where(has, 2, -2)
    labels = [[x for x, one in zip("ab", own, strict=True) if one] for own in has]
    return made_up(labels, z, multi_label=True)


def many(size=900, seed=0):
    random = np.random.default_rng(seed)
    right = random.integers(3, size=size)
    z = random.normal(size=(size, 3)) + 2.0 * np.eye(3)[right]
    return made_up([("abc"[i],) for i in right], z)


def test_f1_is_what_tune_gives_to_the_bit():
    for build in (binary, several, many):
        task, features, logits, examples = build()
        operated, _ = task.operate(logits, features, examples, Target.parse("f1"))
        assert operated == task.tune(logits, features, examples)


def test_f2_gives_more_recall():
    for build in (binary, several):
        task, features, logits, examples = build()
        recall = {}
        for text in ("f0.5", "f2"):
            own, points = task.operate(logits, features, examples, Target.parse(text))
            scores = own.score(own.decode(logits, features), examples)
            recall[text] = scores["recall"]
            for point in points:
                given = scores["labels"][point.label] if point.label else scores
                assert (point.target, point.reached) == (text, None)
                assert point.precision == pytest.approx(given["precision"])
                assert point.recall == pytest.approx(given["recall"])
                assert len(point.curve) > 10
            assert points
        assert recall["f2"] > recall["f0.5"]
    task, features, logits, examples = many()  # biases of several labels have no curve
    assert task.operate(logits, features, examples, Target.parse("f2"))[1] == []


def test_labels_share_the_point_of_one_threshold_or_have_one_each():
    """Labels whose best thresholds are far apart have their own; two that are the same share it."""
    random = np.random.default_rng(0)
    has = np.repeat(random.random((900, 1)) < 0.4, 2, axis=1)
    for shift, names in ((0.0, [""]), (3.0, ["a", "b"])):
        z = random.normal(size=(900, 1)) + np.where(has, 2, -2) + [shift, -shift]
        labels = [[x for x, one in zip("ab", own, strict=True) if one] for own in has]
        task, features, logits, examples = made_up(labels, z, multi_label=True)
        own, points = task.operate(logits, features, examples, Target.parse("f2"))
        assert [point.label for point in points] == names
        assert len(set(own.thresholds)) == len(names)
        scores = own.score(own.decode(logits, features), examples)
        for point in points:
            given = scores["labels"][point.label] if point.label else scores
            assert point.recall == pytest.approx(given["recall"])
            assert point.cross_fitted[1] == pytest.approx(given["recall"], abs=0.05)


@pytest.mark.parametrize("text", ["precision>=0.9", "recall>=0.9", "cost:fp=1,fn=10"])
def test_the_positive_label_of_two_gets_a_threshold(text, tmp_path):
    task, features, logits, examples = binary()
    operated, (point,) = task.operate(logits, features, examples, Target.parse(text))
    save_task(operated, tmp_path)
    own = load_task(tmp_path)
    assert own == operated
    assert (point.label, own.biases, own.bars) == ("yes", (), {})
    decided = own.decode(logits, features)
    scores = own.score(decided, examples)
    assert scores["labels"]["yes"]["precision"] == pytest.approx(point.precision)
    assert scores["labels"]["yes"]["recall"] == pytest.approx(point.recall)
    # The same is decided by whoever has the shift in a bias and takes the largest logit.
    best = (logits["logits"] + own.shifts()["labels"]).argmax(-1)
    assert [own.labels[i] for i in best] == [one["label"] for one in decided]
    left = [own.abstain(one) for one in decided]
    assert {one["label"] for one in left} == {"yes", None}
    assert all(one.get("abstained", False) == (one["label"] is None) for one in left)
    assert own.abstains
    assert not own.tune(logits, features, examples).abstains
    same, _ = task.operate(logits, features, examples, {"yes": Target.parse(text)})
    assert same == own


def test_a_tuned_threshold_is_not_one_to_abstain_by(tmp_path):
    task, features, logits, examples = binary()
    tuned = task.tune(logits, features, examples)
    for one in (tuned, replace(tuned, thresholds=(0.3,))):
        assert one.thresholds
        save_task(one, tmp_path)
        assert not load_task(tmp_path).abstains
        with pytest.raises(InputError, match="wanted a model with confidence thresholds"):
            abstention(load_task(tmp_path))
    saved = json.loads((tmp_path / "softf1.json").read_text("utf-8"))
    del saved["for_target"]  # written by version 0.2.0
    (tmp_path / "softf1.json").write_text(json.dumps(saved), "utf-8")
    assert load_task(tmp_path).thresholds == (0.3,)
    assert load_task(tmp_path).abstains  # a target may have chosen it


def test_cost_of_a_missed_one_lowers_the_threshold():
    task, features, logits, examples = binary()
    low, high = (
        task.operate(logits, features, examples, Target.parse(text))[0].thresholds[0]
        for text in ("cost:fp=1,fn=10", "cost:fp=10,fn=1")
    )
    assert low < 0.5 < high


def test_several_labels_share_a_threshold_or_have_their_own():
    task, features, logits, examples = several()
    shared, (point,) = task.operate(logits, features, examples, PRECISE)
    assert point.reached
    assert len(set(shared.thresholds)) == 1
    assert shared.score(shared.decode(logits, features), examples)["precision"] >= 0.9
    own, points = task.operate(logits, features, examples, {"b": PRECISE})
    assert own.thresholds[0] == 0.5  # not named, as it was
    assert [one.label for one in points] == ["b"]
    each, points = task.operate(logits, features, examples, Target.parse("cost:fp=5,fn=1"))
    assert [one.label for one in points] == ["a", "b"]
    assert min(each.thresholds) > 0.5
    none = {"labels": [], "confidence": [], "probabilities": {}}
    assert own.abstain(none)["abstained"]
    assert own.abstain({"labels": ["a"], "confidence": [1.0]}) == {
        "labels": ["a"],
        "confidence": [1.0],
    }


@pytest.mark.parametrize("target", [PRECISE, {"a": PRECISE, "c": Target.parse("precision>=0.8")}])
def test_one_label_of_many_gets_a_bar(target, tmp_path):
    task, features, logits, examples = many()
    operated, points = task.operate(logits, features, examples, target)
    save_task(operated, tmp_path)
    own = load_task(tmp_path)
    assert own == operated
    assert own.shifts() == {}
    assert all(point.reached for point in points)
    plain = own.decode(logits, features)
    assert plain == task.decode(logits, features)  # bars are for abstaining alone
    left = [own.abstain(one) for one in plain]
    for one, before in zip(left, plain, strict=True):
        bar = own.bars.get(before["label"], 0.0)
        assert one["label"] == (before["label"] if before["confidence"] >= bar else None)
    scores = own.score(left, examples)
    assert scores["accuracy"] < own.score(plain, examples)["accuracy"]
    for point in points:
        given = scores["labels"][point.label] if point.label else scores
        assert given["precision"] == pytest.approx(point.precision)
        assert given["recall"] == pytest.approx(point.recall)
    line = {"gold": ["a"], "label": None}
    assert own.count_line(line)["counts"].to_dict() == {"a": [0, 0, 1]}


def test_the_other_label_of_two_gets_a_bar_too():
    task, features, logits, examples = binary()
    own, points = task.operate(logits, features, examples, {"no": PRECISE, "yes": PRECISE})
    assert set(own.bars) == {"no", "yes"}
    assert own.thresholds == ()
    assert {point.label for point in points} == {"no", "yes"}


def tagged(size=300, seed=0):
    """One word in three is a name; how sure the model is says how often it is right."""
    random = np.random.default_rng(seed)
    examples, rows = [], []
    for line in range(size):
        tags = random.choice(["O", "O", "B-PER", "B-LOC"], 6).tolist()
        examples.append(TaggedSentence(tuple("abcdef"), tuple(tags), line=line))
        for tag in tags:
            row = random.normal(size=3) * 1.5
            row[["O", "B-LOC", "B-PER"].index(tag)] += 3.0
            rows.append(row)
    task = make_task("tagging")
    features = task.encode(examples, Words())
    logits = {"word": np.arange(len(rows)), "logits": np.array(rows, np.float32)}
    return task.fit(features), features, logits, examples


def test_spans_get_bars_for_a_promise_and_a_bias_for_cost(tmp_path):
    task, features, logits, examples = tagged()
    assert task.labels == ("O", "B-LOC", "B-PER")
    own, (point,) = task.operate(logits, features, examples, PRECISE)
    save_task(own, tmp_path)
    assert load_task(tmp_path) == own
    plain = own.decode(logits, features)
    left = [own.abstain(one) for one in plain]
    scores = own.score(left, examples)
    assert point.reached
    assert scores["precision"] == pytest.approx(point.precision)
    assert scores["recall"] == pytest.approx(point.recall)
    assert own.score(plain, examples)["precision"] < 0.9 < scores["precision"]
    for one, before in zip(left, plain, strict=True):
        kept = [x for x in own.details(before)["entities"] if x["confidence"] >= point.threshold]
        assert own.details(one)["entities"] == kept
    only, _ = task.operate(logits, features, examples, {"PER": PRECISE})
    assert set(only.bars) == {"PER"}
    locations = [
        sum(tag == "B-LOC" for one in given for tag in one["tags"])
        for given in (plain, map(only.abstain, plain))
    ]
    assert locations[0] == locations[1]
    dear, (point,) = task.operate(logits, features, examples, Target.parse("cost:fp=1,fn=10"))
    found = dear.score(dear.decode(logits, features), examples)
    assert (point.what, point.threshold, point.reached) == ("bias of O", dear.biases[0], None)
    assert point.precision == pytest.approx(found["precision"])
    assert point.recall == pytest.approx(found["recall"])
    assert (point.threshold, point.precision, point.recall) in point.curve
    recalls = [recall for _, _, recall in point.curve]
    assert recalls[0] < point.recall < recalls[-1] == max(recalls)
    assert all(
        share == pytest.approx(own, abs=0.1)
        for share, own in zip(point.cross_fitted, (point.precision, point.recall), strict=True)
    )
    assert found["recall"] > own.score(plain, examples)["recall"]
    f1, _ = task.operate(logits, features, examples, Target.parse("f1"))
    assert f1 == task.tune(logits, features, examples)


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_abstaining_keeps_the_confident_spans_in_every_scheme(scheme):
    """Also a span that touched the one left out, whose first tag IOB1 writes in another way."""
    letters = [letter for letter in SCHEMES[scheme].prefixes if letter != "O"]
    labels = ("O", *(f"{letter}-{name}" for name in ("LOC", "PER") for letter in letters))
    task = make_task("tagging", labels=labels, spans=scheme, bars={"PER": 0.7})
    random = np.random.default_rng(0)
    for _ in range(200):
        ends = sorted(random.choice(np.arange(1, 9), 4, replace=False).tolist())
        spans = [
            (start, end, str(random.choice(["PER", "PER", "LOC"])))
            for start, end in pairwise([0, *ends])
            if random.random() < 0.8
        ]
        tags = encode_spans(spans, length=9, scheme=scheme)
        sure = [1.0] * 9
        for start, _, _ in spans:
            sure[start] = float(random.choice([0.5, 0.9]))
        left = task.abstain({"tags": tags, "confidence": sure})
        kept = [one for one in spans if one[2] == "LOC" or sure[one[0]] == 0.9]
        found = [(x["start"], x["end"], x["label"]) for x in task.details(left)["entities"]]
        assert found == kept
        assert not find_invalid(left["tags"], scheme)


def test_parts_of_speech_take_f1_alone_and_the_error_says_what_it_got():
    task = make_task("tagging", labels=("NOUN", "VERB"))
    with pytest.raises(InputError, match=r"wanted f1 where every word has a tag.*, got f2$"):
        task.check_target(Target.parse("f2"))
    with pytest.raises(InputError, match=r", got precision>=0.9, recall>=0.5$"):
        task.check_target({"NOUN": PRECISE, "VERB": Target.parse("recall>=0.5")})


def test_queries_get_bars():
    random = np.random.default_rng(0)
    examples, found = [], {"item": [], "start": [], "confidence": []}
    for line in range(400):
        for label in ("PER", "LOC"):
            sure = random.random()
            right = random.random() < sure**0.3
            spans = ((0, 1),) if right else ((1, 2),)
            examples.append(MrcExample(f"{line}", "q", label, (f"w{line}", "x"), spans))
            found["item"].append(len(examples) - 1)
            found["start"].append(0)
            found["confidence"].append(round(sure, 6))
    task = make_task("mrc_ner", nested=True)
    features = task.encode(examples, Words())
    task = task.fit(features)
    logits = {name: np.array(values) for name, values in found.items()}
    logits |= {"end": logits["start"] + 1, "score": logits["confidence"]}
    logits |= {"seen": np.arange(len(features))}
    own, points = task.operate(logits, features, examples, {"PER": PRECISE})
    assert set(own.bars) == {"PER"}
    assert points[0].gold == 400
    plain = own.decode(logits, features, examples)
    left = [own.abstain(one) for one in plain]
    scores = own.score(left, examples)
    assert points[0].reached
    assert scores["labels"]["PER"]["precision"] == pytest.approx(points[0].precision)
    assert [one for one in left if one["label"] == "LOC"] == [
        one for one in plain if one["label"] == "LOC"
    ]
    assert all(len(one["spans"]) == len(one["confidence"]) for one in left)


@dataclass(frozen=True)
class Decoded(QA):
    """Answers that were found before."""

    predictions: tuple = ()

    def decode(self, *_):
        return list(self.predictions)


def test_answers_get_one_bar():
    random = np.random.default_rng(0)
    predictions, examples = [], []
    for number in range(600):
        sure = round(random.random(), 6)
        text = "Oslo" if random.random() < sure**0.3 else "Rome"
        gold = (Answer(((0, 4),), ("Oslo",)),)
        examples.append(QAExample(str(number), "where?", f"Oslo {number}", gold))
        predictions.append({"id": str(number), "answer": text, "confidence": sure})
    task = Decoded(predictions=tuple(predictions))
    own, (point,) = task.operate({}, None, examples, PRECISE)
    assert point.reached
    left = [own.abstain(one) for one in predictions]
    given = [one for one in left if one["answer"]]
    assert sum(one["answer"] == "Oslo" for one in given) / len(given) == point.precision > 0.9
    assert all(one["confidence"] < own.bars["answer"] for one in left if one.get("abstained"))
    assert own.abstain({"answer": "x", "answers": ["x"], "confidence": 0.0})["answers"] == []


@pytest.mark.parametrize(
    ("task", "target", "wanted"),
    [
        (make_task("qa"), "f2", "for answers, got f2"),
        (make_task("qa"), {"x": "precision>=0.9"}, "answers have no labels"),
        (
            replace(make_task("tagging"), labels=("NOUN", "VERB")),
            "precision>=0.9",
            "every word has a tag",
        ),
        (
            replace(make_task("tagging"), labels=("O", "B-PER"), spans="BIO"),
            {"LOC": "f1"},
            "wanted labels of the training data, PER; got LOC",
        ),
        (make_task("classification", metric="accuracy"), "f2", "where accuracy decides"),
        (replace(make_task("mrc_ner"), labels=("PER",)), {"LOC": "f1"}, "got LOC"),
        (replace(make_task("pairs"), labels=("0", "1")), {"2": "f1"}, "0, 1; got 2"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(task, target, wanted):
    with pytest.raises(InputError, match=wanted):
        task.check_target(read_targets(target))


def test_the_others_are_not():
    for kind in ("qa", "tagging", "classification", "pairs", "mrc_ner", "span_ner"):
        make_task(kind).check_target(PRECISE)
    make_task("classification", multi_label=True).check_target({"any": PRECISE})
