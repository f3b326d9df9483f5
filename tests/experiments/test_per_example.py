import json
from dataclasses import replace
from types import SimpleNamespace

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
from softf1.experiments import statistics
from softf1.experiments.per_example import calibration_error, count_examples, read_predictions
from softf1.metrics.counts import Mean
from softf1.tasks import make_task

WORDS = ["the", "red", "bell", "rang", "at", "noon", "4", "times"]


def tagging(rng, **options):
    spans = options.pop("spans", "BIO")
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"] if spans else ["NOUN", "VERB", "DET"]
    task = replace(make_task("tagging", **options), labels=tuple(tags), spans=spans)
    for _ in range(60):
        size = int(rng.integers(0, 7))
        gold = tuple(rng.choice(tags, size).tolist())
        given = [t if rng.random() < 0.7 else str(rng.choice(tags)) for t in gold]
        words = tuple(rng.choice(WORDS, size).tolist())
        example = TaggedSentence(words, gold, line=1)
        yield task, example, {"tags": given}, {"words": list(words), "gold": list(gold)}


def texts(rng, *, labels=("a", "b", "c"), pairs=False, **options):
    kind = "pairs" if pairs else "classification"
    task = replace(make_task(kind, **options), labels=tuple(labels))
    for _ in range(80):
        gold = str(rng.choice(labels))
        given = gold if rng.random() < 0.6 else str(rng.choice(labels))
        example = PairExample("x", "y", gold, 1) if pairs else TextExample("x", (gold,), 1)
        shares = dict(zip(labels, rng.dirichlet(np.ones(len(labels))).round(1), strict=True))
        found = {"label": given, "probabilities": shares}
        yield task, example, found, {"text": "x", "gold": [gold]}


def label_sets(rng, **options):
    labels = ("a", "b", "c", "d")
    task = replace(make_task("classification", multi_label=True, **options), labels=labels)
    for _ in range(80):
        gold = tuple(x for x in labels if rng.random() < 0.4)
        given = [x for x in labels if (x in gold) != (rng.random() < 0.2)]
        example = TextExample("x", gold, 1)
        found = {"labels": given, "probabilities": dict(zip(labels, rng.random(4), strict=True))}
        yield task, example, found, {"text": "x", "gold": list(gold)}


def questions(rng, **options):
    task = make_task("qa", **options)
    for number in range(60):
        answers = [tuple(rng.choice(WORDS, 2).tolist()) for _ in range(int(rng.integers(1, 3)))]
        if task.no_answer and rng.random() < 0.4:
            answers = []
        gold = tuple(
            Answer(((0, 1),), text if task.several else (" ".join(text),)) for text in answers
        )
        given = " ".join(rng.choice(WORDS, 2).tolist()) if rng.random() < 0.8 else ""
        prediction = {"answer": given, "text": given, "null_score": float(rng.normal())}
        if task.several:
            prediction["answers"] = given.split()
        context = f"context {number // 3}"
        example = QAExample(str(number), "?", context, gold)
        shown = {"context": context, "gold": [list(answer.texts) for answer in gold]}
        yield task, example, prediction, shown


def queries(rng):
    task = make_task("mrc_ner")
    for number in range(40):
        label = ["PER", "LOC"][number % 2]
        words = (str(number // 2), "went")
        spans = [(0, 1), (1, 2), (0, 2)]
        gold = [span for span in spans if rng.random() < 0.5]
        given = [span for span in spans if (span in gold) != (rng.random() < 0.3)]
        example = MrcExample(str(number), "?", label, words, tuple(gold))
        prediction = {"label": label, "spans": given}
        yield task, example, prediction, {"words": list(words), "label": label, "gold": gold}


CASES = {
    "spans": (tagging, {}, ("f1", "precision", "recall", "macro_f1", "conlleval_f1")),
    "bmes": (tagging, {"spans": "BIOES"}, ("f1", "macro_f1", "conlleval_f1")),
    "tags": (tagging, {"spans": None}, ("f1", "macro_f1", "accuracy")),
    "classes": (texts, {}, ("f1", "macro_f1", "accuracy", "average_precision")),
    "binary": (
        texts,
        {"labels": ("no", "yes")},
        ("f1", "precision", "recall", "accuracy", "average_precision"),
    ),
    "pairs": (texts, {"labels": ("0", "1"), "pairs": True, "positive": "0"}, ("f1", "macro_f1")),
    "sets": (label_sets, {}, ("f1", "macro_f1", "subset_accuracy", "average_precision")),
    "squad": (questions, {}, ("exact", "f1")),
    "squad2": (
        questions,
        {"no_answer": True},
        ("exact", "f1", "has_answer_f1", "no_answer_f1"),
    ),
    "quoref": (questions, {"several": True, "positions": "sigmoid"}, ("exact", "f1")),
    "cmrc": (questions, {"rules": "cmrc"}, ("exact", "f1")),
    "mrc_ner": (queries, {}, ("f1", "precision", "macro_f1")),
}
every_case = pytest.mark.parametrize("case", CASES)


def make(case, seed=0):
    """Task, examples, predictions, and lines as they come back from a file."""
    maker, options, names = CASES[case]
    rows = list(maker(np.random.default_rng(seed), **options))
    lines = [{"schema": 1, "id": "", **shown, **found} for _, _, found, shown in rows]
    examples, predictions = [row[1] for row in rows], [row[2] for row in rows]
    return rows[0][0], examples, predictions, json.loads(json.dumps(lines)), names


@every_case
@pytest.mark.parametrize("seed", range(3))
def test_sums_are_the_scores_of_the_task(case, seed):
    task, examples, predictions, lines, names = make(case, seed)
    scores = task.score(predictions, examples)
    counted = count_examples(task, lines)
    assert counted.lines == len(lines)
    for name in names:
        assert counted.score(name) == pytest.approx(scores[name], abs=1e-12), name
    for label, found in counted.by_label().items():
        assert found == pytest.approx(scores["labels"][label])


@every_case
def test_pseudo_values_leave_out_one_example(case):
    task, _, _, lines, names = make(case)
    groups = {"qa": "context", "mrc_ner": "words"}.get(task.kind)
    rows = groups and [str(line[groups]) for line in lines]
    left = [x for i, x in enumerate(lines) if (rows[i] != rows[0] if groups else i != 0)]
    counted, without = count_examples(task, lines), count_examples(task, left)
    assert len(without) == len(counted) - 1
    for name in names:
        wanted = len(counted) * counted.score(name) - (len(counted) - 1) * without.score(name)
        assert counted.pseudo_values(name)[0] == pytest.approx(wanted, abs=1e-9), name


def test_questions_of_one_context_are_one_example():
    task, _, _, lines, _ = make("squad")
    assert len(count_examples(task, lines)) == 20  # 60 questions, 3 a context
    task, _, _, lines, _ = make("mrc_ner")
    assert len(count_examples(task, lines)) == 20  # 40 queries, 2 a sentence


def test_blocks_change_nothing(monkeypatch):
    task, _, _, lines, _ = make("classes")
    counted = count_examples(task, lines)
    whole = counted.pseudo_values("macro_f1")
    monkeypatch.setattr(statistics, "BLOCK", 50)
    np.testing.assert_array_equal(counted.pseudo_values("macro_f1"), whole)


def test_a_score_that_is_no_ratio_is_refused():
    task, _, _, lines, _ = make("squad2")
    counted = count_examples(task, lines)
    with pytest.raises(InputError, match="left out of, got 'best_f1'"):
        counted.score("best_f1")


def test_a_positive_label_that_never_occurs_scores_0():
    task = replace(make_task("classification"), labels=("no", "yes"))
    counted = count_examples(task, [{"schema": 1, "gold": ["no"], "label": "no"}] * 3)
    assert counted.score("f1") == 0
    assert counted.pseudo_values("f1").tolist() == [0, 0, 0]


class Ranking:
    """A task of another package: hits among the first answers, several a list."""

    kind = "ranking"

    def count_line(self, line):
        return {"hit": Mean(float(line["gold"] in line["first"]), 1)}

    def line_group(self, line):
        return line["list"]


def test_a_task_of_another_package_counts_its_own_lines():
    lines = [
        {"gold": "a", "first": ["a"], "list": 1},
        {"gold": "b", "first": ["a"], "list": 1},
        {"gold": "c", "first": ["c"], "list": 2},
    ]
    counted = count_examples(Ranking(), lines)
    assert (len(counted), counted.lines) == (2, 3)
    assert counted.score("hit") == pytest.approx(2 / 3)
    with pytest.raises(InputError, match="counted one by one, got silent"):
        count_examples(SimpleNamespace(kind="silent"), lines)


def test_bad_files_are_named(tmp_path):
    with pytest.raises(InputError, match="predictions file, found none"):
        read_predictions(tmp_path / "none.jsonl")
    path = tmp_path / "x.jsonl"
    path.write_text('{"schema": 1, "gold": []}\n{"schema": 2, "gold": []}\n', "utf-8")
    with pytest.raises(InputError, match=r"x\.jsonl:2: wanted a prediction of schema 1"):
        read_predictions(path)
    path.write_text("{\n", "utf-8")
    with pytest.raises(InputError, match=r"x\.jsonl:1: wanted JSON"):
        read_predictions(path)
    with pytest.raises(InputError, match="predictions to count, got none"):
        count_examples(make_task("tagging"), [])


def test_confidences_of_every_task_are_counted():
    def error(**line):
        return calibration_error([line])

    assert error(tags=["O", "B"], gold=["O", "O"], confidence=[0.9, 0.7]) == pytest.approx(0.4)
    assert error(spans=[[0, 1]], gold=[[0, 1]], confidence=[0.6]) == pytest.approx(0.4)
    assert error(answer="The Rhine", gold=[["rhine"]], confidence=0.8) == pytest.approx(0.2)
    assert error(answer="", gold=[], confidence=0.8) == pytest.approx(0.2)
    assert error(label="a", gold=["b"], confidence=0.8) == pytest.approx(0.8)
    shares = {"a": 0.9, "b": 0.2}
    assert error(labels=["a"], gold=["a"], probabilities=shares) == pytest.approx(0.15)
    assert error(tags=["O"], gold=["O"]) is None
    assert error(label="a", gold=[], probabilities=shares) is None
