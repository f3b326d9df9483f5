import dataclasses
import math

import numpy as np
import pytest
import torch

from softf1.data.examples import Answer, QAExample
from softf1.models.encoders import make_tokenizer
from softf1.tasks.base import join
from softf1.tasks.registry import load_task, make_task, save_task


def ask(name, question, context, *answers):
    """Each answer is a list of (text, number of the occurrence)."""
    found = []
    for answer in answers:
        spans = []
        for text, occurrence in answer:
            start = -1
            for _ in range(occurrence):
                start = context.index(text, start + 1)
            spans.append((start, start + len(text)))
        found.append(Answer(tuple(spans), tuple(text for text, _ in answer)))
    return QAExample(name, question, context, tuple(found))


LONG = " ".join(f"w{i} {'paris' if i in (3, 40) else 'the'}." for i in range(60))
QUESTIONS = [
    ask("a", "who works?", "Ann (Bob's boss) works in Paris.", [("Ann", 1)]),
    ask("b", "where is the 2nd paris", LONG, [("paris", 2)], [("paris", 1)]),
    ask("c", "who?", "Paris is in the north."),
    ask("d", "who and who?", "Ann and Bob work, Ann visits.", [("Ann", 2), ("Bob", 1)]),
]


def perfect(task, features, tokenizer, size=3):
    for start in range(0, len(features), size):
        batch = task.collate(features, range(start, min(start + size, len(features))), tokenizer)
        shape = batch.inputs["input_ids"].shape
        logits = {}
        for key, target in batch.targets.items():
            if task.positions == "softmax":
                hot = torch.nn.functional.one_hot(target.clamp(min=0), shape[1]).float()
                hot[target < 0] = 0
            else:
                hot = target[..., 0].clamp(min=0)
            logits[key] = 10 * hot - 5
        raw = type("Output", (), {f"{key}_logits": value for key, value in logits.items()})
        yield task.gather(task.logits(raw, batch), batch)


@pytest.fixture
def tokenizer(bert):
    return make_tokenizer(bert)


def encoded(tokenizer, examples=QUESTIONS, **options):
    task = make_task("qa", **{"max_length": 40, "overlap": 8} | options)
    return task, task.encode(iter(examples), tokenizer)


@pytest.mark.parametrize("positions", ["softmax", "sigmoid"])
def test_gold_in_gives_gold_out(tokenizer, positions):
    task, features = encoded(tokenizer, positions=positions, no_answer=True)
    predictions = task.decode(join(perfect(task, features, tokenizer)), features, QUESTIONS)
    assert [p["answer"] for p in predictions[:3]] == ["Ann", "paris", ""]
    assert predictions[1]["start"] == QUESTIONS[1].answers[0].spans[0][0], "the second paris"
    assert predictions[2]["id"] == "c"
    assert task.score(predictions[:3], QUESTIONS[:3])["f1"] == 1.0


def test_several_spans_are_all_trained_on_and_found(tokenizer):
    task, features = encoded(tokenizer, positions="sigmoid", several=True)
    row = int(np.flatnonzero(features["source"] == 3)[0])
    batch = task.collate(features, [row], tokenizer)
    assert (batch.targets["start"] == 1).sum() == 2
    predictions = task.decode(join(perfect(task, features, tokenizer)), features, QUESTIONS)
    assert sorted(predictions[3]["answers"]) == ["Ann", "Bob"]
    answered = [0, 1, 3]
    scores = task.score([predictions[i] for i in answered], [QUESTIONS[i] for i in answered])
    assert scores["f1"] == 1.0


def test_windows_overlap_and_cover_the_context(tokenizer):
    _, features = encoded(tokenizer)
    assert features["length"].max() <= 40
    mine = np.flatnonzero(features["source"] == 1)
    first, end = features["first"][mine], features["end"][mine]
    assert len(mine) > 3
    assert (end[:-1] - first[1:] == 8).all()
    low, high = features["context_at"][1:3]
    assert (first[0], end[-1]) == (low, high)


def test_a_window_without_the_answer_points_at_cls(tokenizer):
    task, features = encoded(tokenizer)
    batch = task.collate(features, range(len(features)), tokenizer)
    for row, start, end in zip(
        range(len(features)), batch.targets["start"], batch.targets["end"], strict=True
    ):
        tokens = batch.inputs["input_ids"][row]
        if start == 0:
            assert end == 0
            assert tokens[0] == tokenizer.tokenizer.cls_token_id
        else:
            text = tokenizer.tokenizer.decode(tokens[start : end + 1])
            assert text.replace(" ", "") in ("ann", "paris")


@pytest.mark.parametrize("positions", ["softmax", "sigmoid"])
def test_question_and_padding_are_in_no_loss(tokenizer, bert, positions):
    task, features = encoded(tokenizer, positions=positions)
    model = task.build_model(bert, tokenizer).eval()
    batch = task.collate(features, [0, 1, 2], tokenizer, width=48)
    logits = task.logits(model(**batch.inputs), batch)
    assert logits.keys() == batch.targets.keys()
    for row in range(3):
        kind = batch.inputs["token_type_ids"][row].bool() & (
            batch.inputs["input_ids"][row] != tokenizer.tokenizer.sep_token_id
        )
        wanted = kind.clone()
        wanted[0] = True  # [CLS]
        for key, values in logits.items():
            if positions == "softmax":
                assert values.shape == (3, 48)
                assert (values[row].isfinite() == wanted).all()
                assert values[row, batch.targets[key][row]].isfinite()
            else:
                assert values.shape == batch.targets[key].shape == (3, 48, 1)
                assert ((batch.targets[key][row, :, 0] != -100) == wanted).all()


def test_answers_are_exact_parts_of_the_context(tokenizer, bert):
    task, features = encoded(tokenizer, listed=5)
    model = task.build_model(bert, tokenizer).eval()
    batches = [task.collate(features, [i], tokenizer) for i in range(len(features))]
    found = join(task.gather(task.logits(model(**b.inputs), b), b) for b in batches)
    for example, item in zip(QUESTIONS, task.decode(found, features, QUESTIONS), strict=True):
        assert item["answer"]
        assert item["answer"] == example.context[item["start"] : item["end"]]
        assert len(item["candidates"]) == 5
        for candidate in item["candidates"]:
            assert candidate["text"] == example.context[candidate["start"] : candidate["end"]]


def test_the_no_answer_threshold_is_tuned_stored_and_used(tokenizer, tmp_path):
    examples = [q for q in QUESTIONS[:3] for _ in range(3)]
    task, features = encoded(tokenizer, examples, no_answer=True)
    found = join(perfect(task, features, tokenizer))
    # Every answer is held back: no answer looks better by a constant.
    shifted = found | {"null_start": found["null_start"] + 25}
    assert task.score(task.decode(shifted, features, examples), examples)["has_answer_f1"] == 0
    save_task(task.tune(shifted, features, examples), tmp_path)
    tuned = load_task(tmp_path)
    assert tuned.null_threshold > 0
    assert tuned.score(tuned.decode(shifted, features, examples), examples)["f1"] == 1.0
    assert make_task("qa").tune(found, features, examples) == make_task("qa")


@pytest.mark.parametrize("rules", ["squad", "squad2", "cmrc", "quoref"])
def test_a_threshold_is_tuned_by_the_rules_that_score(tokenizer, rules):
    examples = [q for q in QUESTIONS[:3] for _ in range(3)]
    task, features = encoded(tokenizer, examples, no_answer=True, rules=rules)
    found = join(perfect(task, features, tokenizer))
    shifted = found | {"null_start": found["null_start"] + 25}
    tuned = task.tune(shifted, features, examples)
    before, after = (
        one.score(one.decode(shifted, features, examples), examples)["f1"] for one in (task, tuned)
    )
    assert after > before
    assert math.isfinite(tuned.null_threshold)


def test_where_no_answer_is_best_the_threshold_gives_none(tokenizer):
    """Every null score is below the usual threshold of 0, and every answer is wrong."""
    nowhere = [dataclasses.replace(q, answers=()) for q in QUESTIONS[:3] for _ in range(3)]
    _, features = encoded(tokenizer, [q for q in QUESTIONS[:3] for _ in range(3)])
    task = make_task("qa", no_answer=True).fit(features)
    found = join(perfect(task, features, tokenizer))
    assert task.score(task.decode(found, features, nowhere), nowhere)["f1"] < 1
    tuned = task.tune(found, features, nowhere)
    assert tuned.score(tuned.decode(found, features, nowhere), nowhere)["f1"] == 1.0


def test_a_threshold_that_only_fits_its_own_fold_is_not_taken(tokenizer):
    """One context: no other fold can confirm what is best."""
    examples = [QUESTIONS[0]] * 4
    task, features = encoded(tokenizer, examples, no_answer=True)
    found = join(perfect(task, features, tokenizer))
    shifted = found | {"null_start": found["null_start"] + 25}
    assert task.tune(shifted, features, examples) == task


def test_an_answer_without_a_place_is_scored_but_not_learned(tokenizer):
    lost = QAExample("x", "who?", "Ann works", (Answer((), ("Ann W.",)),))
    for positions in ("softmax", "sigmoid"):
        task, features = encoded(tokenizer, [lost], positions=positions)
        batch = task.collate(features, [0], tokenizer)
        assert (batch.targets["start"] == -100).all()
        assert task.score([{"answer": "ann w"}], [lost])["f1"] == 1.0


def test_class_counts_are_those_of_the_targets(tokenizer):
    task, features = encoded(tokenizer, positions="sigmoid")
    counts = task.class_counts(features)
    batch = task.collate(features, range(len(features)), tokenizer)
    for key, target in batch.targets.items():
        assert counts[key].tolist() == [[int((target == 0).sum()), int((target == 1).sum())]]
    assert encoded(tokenizer)[0].class_counts(features) == {}


@pytest.mark.parametrize("positions", ["softmax", "sigmoid"])
def test_xlnet_with_padding_left_and_cls_last(xlnet, positions):
    tokenizer = make_tokenizer(xlnet)
    task, features = encoded(tokenizer, positions=positions, no_answer=True)
    model = task.build_model(xlnet, tokenizer).eval()
    batch = task.collate(features, [0, 1], tokenizer, width=44)
    assert (batch.places["cls"] == 43).all()
    assert batch.inputs["input_ids"][0, 0] == tokenizer.pad_id
    wide = task.logits(model(**batch.inputs), batch)["start"]
    alone = task.collate(features, [1], tokenizer)
    narrow = task.logits(model(**alone.inputs), alone)["start"]
    width = narrow.shape[1]
    torch.testing.assert_close(wide[1:, -width:], narrow, atol=1e-5, rtol=1e-4)
    predictions = task.decode(join(perfect(task, features, tokenizer)), features, QUESTIONS)
    assert [p["answer"] for p in predictions[:3]] == ["Ann", "paris", ""]


def test_a_lost_window_is_noticed(tokenizer):
    task, features = encoded(tokenizer)
    parts = list(perfect(task, features, tokenizer))
    with pytest.raises(ValueError, match="each once"):
        task.decode(join(parts[1:]), features, QUESTIONS)


def test_scores_of_a_prediction_are_finite_json(tokenizer):
    import json

    task, features = encoded(tokenizer)
    for item in task.decode(join(perfect(task, features, tokenizer)), features, QUESTIONS):
        assert not math.isnan(json.loads(json.dumps(item))["null_score"])


def test_the_head_has_a_row_for_each_key(tokenizer, bert):
    task, _ = encoded(tokenizer)
    heads = task.heads(task.build_model(bert, tokenizer))
    assert heads["start"].layer is heads["end"].layer
    assert heads["end"].layer.bias[heads["end"].rows].shape == (1,)


def test_answers_may_be_as_long_as_those_of_training(tokenizer):
    long = ask("l", "what?", "x " + "the " * 44 + "x", [("the " * 40 + "the", 1)])
    task, features = encoded(tokenizer, [long] * 2, max_length=64)
    assert task.fit(features).longest == 41
    assert task.fit(encoded(tokenizer)[1]).longest == 30
    found = join(perfect(task, features, tokenizer))
    short = make_task("qa", max_length=64, max_answer=7).fit(features)
    assert short.notes(features) == [
        "2 of 2 answers have more than max_answer = 7 tokens: scored, never found"
    ]
    assert task.fit(features).notes(features) == []
    best = task.fit(features).decode(found, features, [long] * 2)[0]
    assert best["answer"] == "the " * 40 + "the"
    assert len(short.decode(found, features, [long] * 2)[0]["answer"]) < 30


def test_an_answer_without_a_place_is_noted(tokenizer):
    lost = QAExample("x", "who?", "Ann works", (Answer((), ("Ann W.",)),))
    task, features = encoded(tokenizer, [lost])
    (note,) = task.notes(features)
    assert note == "1 of 1 answers were not found in their text: scored, never found"


def test_the_confidence_of_an_answer_is_its_share_of_the_spans_and_no_answer(tokenizer):
    task, features = encoded(tokenizer, QUESTIONS[:1], no_answer=True, listed=99, n_best=3)
    found = join(perfect(task, features, tokenizer))
    (item,) = task.decode(found, features, QUESTIONS[:1])
    assert item["answer"] == "Ann"
    best = item["candidates"][0]["score"]
    scores = [one["score"] for one in item["candidates"]] + [item["null_score"] + best]
    assert len(scores) > 2
    share = math.exp(best) / sum(map(math.exp, scores))
    assert item["confidence"] == pytest.approx(share, abs=1e-6)
    # With the tuned threshold taken off, no answer wins, by as much as it is over.
    above = item["null_score"]
    strict = dataclasses.replace(task, null_threshold=above - 1)
    (none,) = strict.decode(found, features, QUESTIONS[:1])
    assert none["answer"] == ""
    scores[-1] = best + 1
    share = math.exp(scores[-1]) / sum(map(math.exp, scores))
    assert none["confidence"] == pytest.approx(share, abs=1e-6)


def test_with_sigmoids_the_confidence_is_that_of_start_and_end(tokenizer):
    task, features = encoded(tokenizer, QUESTIONS[:1], positions="sigmoid")
    (item,) = task.decode(join(perfect(task, features, tokenizer)), features, QUESTIONS[:1])
    assert item["confidence"] == pytest.approx((1 / (1 + math.exp(-5))) ** 2, abs=1e-6)
