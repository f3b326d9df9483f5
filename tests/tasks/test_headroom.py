"""The parts that each task answers with, worked by hand from lines of predictions."""

import numpy as np
import pytest

from softf1.tasks import make_task
from softf1.tasks.base import Features
from softf1.tasks.headroom import Gain, Headroom


def by_title(found, start):
    return next(part for part in found.parts if part.title.startswith(start))


def wins(found):
    return {part.wins: part.gain for part in found.parts if part.wins}


def text_line(number, gold, given, **probabilities):
    key = "labels" if isinstance(given, list) else "label"
    known = {"id": str(number), "text": f"text {number}", "gold": gold}
    return known | {key: given, "probabilities": probabilities}


def test_two_labels():
    task = make_task("classification", labels=("no", "yes"))
    shares, golds = (0.9, 0.6, 0.4, 0.3, 0.1), ("yes", "no", "yes", "no", "no")
    lines = [
        text_line(i, [gold], "yes" if p > 0.5 else "no", no=1 - p, yes=p)
        for i, (p, gold) in enumerate(zip(shares, golds, strict=True))
    ]
    found = task.headroom(lines)
    # tp 1, fp 1, fn 1; from 0.4 on tp 2, fp 1: 4/5.
    assert (found.metric, found.decided) == ("f1", 0.5)
    assert wins(found) == pytest.approx({"a better decision": 0.3, "a better ranking": 0.2})
    part = by_title(found, "One threshold, best")
    assert part.counts == {"mended": 1, "broken": 0, "at": pytest.approx(0.35)}
    assert part.examples == [{"id": "2", "text": "text 2", "found": "no", "gold": "yes"}]
    assert found.average_precision == pytest.approx((1 + 2 / 3) / 2)
    assert found.summary() == "a better decision wins at most 30.0, a better ranking 20.0"


def test_several_labels_and_one_that_training_never_saw():
    task = make_task("classification", multi_label=True, labels=("a", "b"))
    lines = [
        text_line(0, ["a"], ["a"], a=0.8, b=0.3),
        text_line(1, ["b", "new"], [], a=0.4, b=0.35),
        text_line(2, [], [], a=0.36, b=0.1),
    ]
    found = task.headroom(lines)
    # As decided tp 1, fn 2. A threshold for each label gives a and b wherever they are right.
    assert found.decided == pytest.approx(2 / 4)
    assert by_title(found, "A threshold for each label").score == pytest.approx(4 / 5)
    # One threshold of 0.35 gives b of 1 with a of 1 and 2: tp 2, fp 2, fn 1 is 4/7.
    assert by_title(found, "One threshold, best").score == pytest.approx(4 / 7)
    assert wins(found) == pytest.approx({"a better decision": 0.3, "a better ranking": 0.2})


def test_macro_f1_of_several_labels():
    task = make_task("classification", multi_label=True, metric="macro_f1", labels=("a", "b"))
    lines = [text_line(0, ["a"], ["b"], a=0.2, b=0.6), text_line(1, ["b"], ["b"], a=0.1, b=0.9)]
    found = task.headroom(lines)
    assert (found.metric, found.decided) == ("macro_f1", pytest.approx((0 + 2 / 3) / 2))
    assert by_title(found, "A threshold for each label").score == 1


def test_three_labels_have_a_bias_and_a_second_guess():
    task = make_task("classification", labels=("a", "b", "c"), metric="accuracy")
    shares = [(0.6, 0.3, 0.1), (0.5, 0.4, 0.1), (0.4, 0.35, 0.25), (0.1, 0.2, 0.7)]
    golds = ["a", "b", "c", "c"]
    lines = [
        text_line(i, [gold], "abc"[int(np.argmax(row))], **dict(zip("abc", row, strict=True)))
        for i, (row, gold) in enumerate(zip(shares, golds, strict=True))
    ]
    found = task.headroom(lines)
    assert found.decided == 0.5
    # The most frequent label is c: at twice its share or so, 2 becomes right and nothing wrong.
    assert by_title(found, "One bias, for c, best").score == 0.75
    assert by_title(found, "The right one of the two").score == 0.75  # 1 becomes right, not 2
    assert by_title(found, "The right one of the two").counts == {"mended": 1}


def test_a_label_that_was_left_out_is_none():
    task = make_task("classification", labels=("no", "yes"))
    lines = [
        text_line(0, ["yes"], "yes", no=0.1, yes=0.9),
        text_line(1, ["yes"], None, no=0.4, yes=0.6),  # below its bar
        text_line(2, ["no"], None, no=0.6, yes=0.4),
    ]
    found = task.headroom(lines)
    assert found.decided == pytest.approx(2 / 3)  # tp 1, fn 1
    assert wins(found)["a better decision"] == pytest.approx(1 / 3)
    assert by_title(found, "One threshold, best").examples[0]["found"] == "–"


@pytest.mark.parametrize(("metric", "decided"), [("accuracy", 1 / 4), ("macro_f1", 1 / 3)])
def test_of_three_labels_one_that_was_left_out_is_none(metric, decided):
    task = make_task("classification", labels=("a", "b", "c"), metric=metric)
    rows, golds = np.eye(3)[[0, 1, 2, 2]] * 0.7 + 0.1, ["a", "b", "c", "c"]
    shares = [dict(zip("abc", row, strict=True)) for row in rows.tolist()]
    given = ["a", None, None, None]
    made = enumerate(zip(golds, given, shares, strict=True))
    lines = [text_line(i, [gold], label, **own) for i, (gold, label, own) in made]
    found = task.headroom(lines)
    assert found.decided == pytest.approx(decided)
    assert by_title(found, "One bias, for c, best").score == 1
    assert by_title(found, "One bias, for c, best").examples[0]["found"] == "–"
    assert by_title(found, "The right one of the two").counts == {"mended": 3}


def tag_line(number, words, gold, tags, confidence=None):
    sure = confidence or [0.9] * len(tags.split())
    return {
        "id": str(number),
        "words": words.split(),
        "gold": gold.split(),
        "tags": tags.split(),
        "confidence": sure,
    }


TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
LINES = [
    tag_line(0, "Ann saw Oslo", "B-PER O B-LOC", "B-PER O B-PER"),  # one label is wrong
    tag_line(1, "New York", "B-LOC I-LOC", "O B-LOC"),  # one limit is wrong
    tag_line(2, "Bob ran", "B-PER O", "O O"),  # one is missed
]


def test_spans_with_perfect_labels_and_limits():
    found = make_task("tagging", labels=TAGS, spans="BIO").headroom(LINES)
    # 1 right of 3 found and 4 gold.
    assert found.decided == pytest.approx(2 / 7)
    gains = {"right labels": 2 / 7, "right boundaries": 2 / 7}
    assert wins(found) == pytest.approx(gains)
    assert by_title(found, "Both").score == pytest.approx(6 / 7)
    labels = by_title(found, "Right labels")
    assert labels.counts == {"spans": 1, "found": 3, "gold": 4}
    assert labels.examples[0]["found"] == "Oslo (PER)"
    assert labels.examples[0]["gold"] == "Oslo (LOC)"
    assert by_title(found, "Right boundaries").examples[0]["gold"] == "New York (LOC)"
    assert "logits" in found.unknown


def test_a_bias_for_o_finds_what_was_missed():
    task = make_task("tagging", labels=TAGS, spans="BIO")
    tags = [tag for line in LINES for tag in line["tags"]]
    rows = np.full((len(tags), len(TAGS)), -9.0)
    rows[np.arange(len(tags)), [TAGS.index(tag) for tag in tags]] = 2.0
    rows[5] = (2.0, -9, -9, 1.5, -9)  # Bob is nearly found
    features = Features({"tag": np.zeros(len(tags)), "length": np.zeros(3)}, {})
    logits = {"word": np.arange(len(tags)), "logits": rows.astype(np.float32)}
    found = task.headroom(LINES, logits, features)
    # 2 right of 4 found and 4 gold.
    assert wins(found)["a better decision"] == pytest.approx(4 / 8 - 2 / 7)
    assert wins(found)["a better ranking"] == pytest.approx(1 / 2)
    best = by_title(found, "One bias, for O, best")
    assert (best.counts["sentences"], best.counts["more_right_spans"]) == (1, 1)
    assert best.examples[0]["text"] == "Bob ran"
    assert [step.score for step in found.steps] == pytest.approx([2 / 7, 1 / 2, 3 / 4, 1, 1])


def test_a_crf_has_a_bias_for_o_too():
    """Neighbours hold each other up, so that a bias changes whole spans: I-PER needs B-PER."""
    labels = ("O", "B-PER", "I-PER")
    lines = [
        tag_line(0, "Ann Lee ran", "B-PER I-PER O", "O O O"),
        tag_line(1, "so it is", "O O O", "O O O"),
    ]
    emissions = np.array([[2, 1, 0], [2, 0, 1], *[[9, 0, 0]] * 4], np.float32)
    moves = np.zeros((4, 4), np.float32)
    moves[0, 2] = moves[3, 2] = -100.0
    at = np.array([0, 3, 6])
    features = Features({"tag": np.zeros(6), "sentence": at, "length": np.zeros(2)}, {})
    logits = {"word": np.arange(6), "logits": emissions, "transitions": moves[None]}
    task = make_task("tagging", labels=labels, spans="BIO", decoder="crf")
    found = task.headroom(lines, logits, features)
    # Below a bias of -1, B-PER (1) and I-PER (1) beat O O (4 - 2).
    assert wins(found)["a better decision"] == 1
    assert wins(found)["a better ranking"] == 0
    best = by_title(found, "One bias, for O, best")
    assert -9 < best.counts["at"] < -1
    assert by_title(found, "One bias, for O, cross-fitted").score == 0  # one sentence has spans
    assert found.summary().startswith("a better decision wins at most 100.0")
    plain = make_task("tagging", labels=labels, decoder="crf").headroom(lines, logits, features)
    assert {"a better decision", "a better ranking"} == set(wins(plain))


def test_segmentation_has_no_o_to_move():
    task = make_task("tagging", unit="joint", labels=("B-N", "E-N", "S-N"), spans="BMES")
    lines = [tag_line(0, "a b", "B-N E-N", "S-N S-N")]
    features = Features({"tag": np.zeros(2), "length": np.zeros(1)}, {})
    found = task.headroom(lines, {"word": np.arange(2), "logits": np.eye(2, 3)}, features)
    assert found.missing == ["no bias: every word is in a span, none is O"]
    assert wins(found)["right boundaries"] == pytest.approx(2 / 3)


def test_plain_tags():
    task = make_task("tagging", labels=("A", "B"))
    lines = [tag_line(0, "x y", "A B", "A A"), tag_line(1, "z", "B", "B")]
    alone = task.headroom(lines)
    assert wins(alone) == pytest.approx({"right labels": 1 / 3})
    assert "logits" in alone.summary()
    features = Features({"tag": np.zeros(3), "length": np.zeros(2)}, {})
    rows = np.array([[3.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = task.headroom(lines, {"word": np.arange(3), "logits": rows}, features)
    assert found.decided == pytest.approx(2 / 3)
    assert by_title(found, "One bias, for B, best").score == 1


def answer_line(number, gold, text, *, null=-1.0, answer=None, candidates=()):
    return {
        "id": str(number),
        "question": f"question {number}",
        "context": f"context {number}",
        "gold": [[one] for one in gold],
        "answer": text if answer is None else answer,
        "text": text,
        "null_score": null,
        "candidates": [{"text": one} for one in candidates],
    }


def test_answers():
    lines = [
        answer_line(0, ["red house"], "red house", candidates=["red house", "dog"]),
        answer_line(1, ["big dog"], "dog", candidates=["dog", "big dog"]),
        answer_line(2, ["cat"], "tree", candidates=["tree", "cat"]),
        answer_line(3, ["cat"], "tree", candidates=["tree", "leaf"]),
    ]
    found = make_task("qa").headroom(lines)
    assert found.decided == pytest.approx((1 + 2 / 3) / 4)
    gains = {"a better ranking": (1 / 3 + 1) / 4, "right boundaries": 1 / 3 / 4}
    assert wins(found) == pytest.approx(gains)
    best = by_title(found, "The best of the 2")
    assert best.counts == {"mended": 2, "questions": 4}
    assert [step.score for step in found.steps][-2:] == [0.75, 1]
    bare = make_task("qa").headroom([line | {"candidates": []} for line in lines])
    assert bare.missing == ["the n best answers: the predictions list none"]


def test_no_answer():
    lines = [
        answer_line(0, ["cat"], "cat", null=3.0, answer=""),  # held back, though right
        answer_line(1, [], "dog", null=2.0, answer=""),
        answer_line(2, [], "dog", null=None, answer=""),  # no candidate: infinitely sure
        answer_line(3, [], "dog", null=-1.0),
        answer_line(4, ["cat"], "cat", null=-5.0),
    ]
    found = make_task("qa", no_answer=True).headroom(lines)
    assert found.decided == pytest.approx(3 / 5)
    # Any threshold below -1 loses nothing but question 0; one above 3 has 1 and 3 wrong.
    assert by_title(found, "One no-answer threshold, best").score == pytest.approx(4 / 5)
    assert wins(found)["a better decision"] == pytest.approx(2 / 5)
    assert found.average_precision == pytest.approx((1 + 2 / 4) / 2)


def test_answers_of_several_spans_have_no_list():
    line = answer_line(0, ["cat"], "cat") | {"answers": ["cat"], "gold": [["cat", "dog"]]}
    found = make_task("qa", several=True, positions="sigmoid").headroom([line])
    assert found.missing == ["the n best answers: answers of several spans have none"]
    assert found.decided == pytest.approx(0.5)
    assert wins(found) == pytest.approx({"right boundaries": 0.5})


def test_an_answer_of_several_spans_that_is_given_is_one_of_the_choices():
    """A perfect choice loses nothing of a right answer, and no threshold does."""
    both = {"answers": ["cat", "dog"], "gold": [["cat", "dog"]]}
    lines = [
        answer_line(0, [], "cat", null=-3.0) | both,
        answer_line(1, ["tree"], "tree", null=1.0, answer="") | {"answers": []},  # held back
    ]
    how = {"several": True, "no_answer": True, "rules": "quoref", "positions": "sigmoid"}
    found = make_task("qa", **how).headroom(lines)
    assert found.decided == 0.5
    assert wins(found)["a better decision"] == 0.5
    assert by_title(found, "One no-answer threshold, best").score == 1
    alone = make_task("qa", **how).headroom(lines[:1])
    assert wins(alone)["a better decision"] == 0


def test_queries_about_one_sentence_are_one():
    def line(words, label, gold, spans, confidence):
        known = {"id": "1", "words": words.split(), "label": label, "gold": gold}
        return known | {"spans": spans, "confidence": confidence}

    lines = [
        line("Ann saw New York", "PER", [[0, 1]], [[0, 1], [3, 4]], [0.9, 0.3]),
        line("Ann saw New York", "LOC", [[2, 4]], [], []),
        line("Oslo", "PER", [], [[0, 1]], [0.8]),
        line("Oslo", "LOC", [[0, 1]], [], []),
    ]
    found = make_task("mrc_ner").headroom(lines)
    # 1 right of 3 found and 3 gold; without the least sure, of 2; without all but it, of 1.
    assert found.decided == pytest.approx(2 / 6)
    assert by_title(found, "A stricter threshold for found spans, best").score == pytest.approx(
        2 / 4
    )
    assert wins(found)["right labels"] == pytest.approx(2 / 6)  # Oslo
    assert wins(found)["right boundaries"] == 0
    assert by_title(found, "Both").score == 1
    assert found.unknown == "spans that a head refuses are not kept"
    assert "a better decision" not in wins(found)


def test_where_there_is_nothing_to_find_nothing_is_won():
    nothing = "there is nothing to find in these examples"
    found = [
        make_task("tagging", labels=TAGS, spans="BIO").headroom(
            [tag_line(0, "so it is", "O O O", "O B-PER O")]
        ),
        make_task("classification", labels=("no", "yes")).headroom(
            [text_line(0, ["no"], "yes", no=0.2, yes=0.8)]
        ),
        make_task("classification", multi_label=True, labels=("a", "b")).headroom(
            [text_line(0, [], ["a"], a=0.6, b=0.1)]
        ),
    ]
    for one in found:
        assert (one.decided, one.summary(), wins(one)) == (0, nothing, {})
        assert one.average_precision is None
        assert [step.score for step in one.steps] == [0]


def test_no_predictions_at_all():
    found = make_task("classification", labels=("no", "yes")).headroom([])
    assert found.decided == 0
    assert make_task("qa").headroom([]).decided == 0


def test_it_is_ready_for_json():
    part = Gain(title="x", score=1.0, gain=0.5, wins="a bit of luck")
    content = Headroom(metric="f1", decided=0.5, parts=[part], steps=[]).to_json()
    assert content["schema"] == 1
    assert content["summary"] == "a bit of luck wins at most 50.0"
    assert content["parts"][0]["title"] == "x"
