"""Gold labels in, perfect scores out, on the real corpora where they are present."""

import numpy as np
import pytest
import torch

from softf1.models.encoders import make_tokenizer
from softf1.tasks.base import join
from softf1.tasks.registry import make_task
from softf1.tasks.sentences import golds_inside


def tags_of_gold(task, features, tokenizer):
    for start in range(0, len(features), 64):
        batch = task.collate(features, range(start, min(start + 64, len(features))), tokenizer)
        classes = len(task.labels)
        target = batch.targets["tags"].clamp(min=0)
        yield task.gather({"tags": torch.nn.functional.one_hot(target, classes).float()}, batch)


@pytest.mark.parametrize(
    ("path", "encoder", "options"),
    [
        ("conll2003_en/eng.testb", "en-minilm-l6", {"format": "conll"}),
        ("conll2003_en/eng.testb", "en-minilm-l6", {"format": "conll", "scheme": "BIO"}),
        ("resume_ner/test.char.bmes", "zh-minibert-6l", {"format": "chars"}),
        ("msra_ner/msra_test_bio", "zh-minibert-6l", {"format": "chars", "max_length": 64}),
        ("ud_zh_1.4/zh-ud-test.conllu", "zh-minibert-6l", {"format": "conllu", "unit": "joint"}),
        ("ritter_twitter_pos/pos.txt", "en-minilm-l6", {"format": "conll"}),
    ],
)
def test_tagging(shared, path, encoder, options):
    task = make_task("tagging", **options)
    tokenizer = make_tokenizer(shared / "encoders" / encoder)
    examples = list(task.read(shared / "data" / path))
    features = task.encode(examples, tokenizer)
    task = task.fit(features)
    predictions = task.decode(join(tags_of_gold(task, features, tokenizer)), features)
    assert task.score(predictions, examples)["f1"] == 1.0


def one_hot(batch, key, positions):
    target, shape = batch.targets[key], batch.inputs["input_ids"].shape
    if positions == "sigmoid":
        return 10.0 * target[..., 0].clamp(min=0) - 5.0
    return 10.0 * torch.nn.functional.one_hot(target.clamp(min=0), shape[1])


def answers_of_gold(task, features, tokenizer):
    for start in range(0, len(features), 64):
        batch = task.collate(features, range(start, min(start + 64, len(features))), tokenizer)
        logits = {key: one_hot(batch, key, task.positions) for key in batch.targets}
        yield task.gather(logits, batch)


def reason_for_loss(task, features, number, example):
    """Why even the gold logits cannot give this answer; None if they should."""
    at = features["gold_at"][number : number + 2]
    gold = [tuple(span) for span in features["gold"][slice(*at)].tolist()]
    if any(end - start > task.longest for start, end in gold):
        return "longer than max_answer"
    mine = np.flatnonzero(features["source"] == number)
    _, start, end = golds_inside(features, mine)
    if not set(gold) <= set(zip(start.tolist(), end.tolist(), strict=True)):
        return "in no window as a whole"
    chars = [(features["char_start"][a], features["char_end"][b - 1]) for a, b in gold]
    return None if chars == list(example.answers[0].spans) else "tokens end elsewhere"


@pytest.mark.parametrize(
    ("path", "encoder", "options"),
    [
        ("squad_dev/dev-v1.1.rebuilt.json", "en-minilm-l6", {}),
        ("squad_dev/dev-v2.0.rebuilt.json", "en-minilm-l6", {"no_answer": True}),
        (
            "quoref_dev/quoref-dev-v0.1.json",
            "en-minilm-l6",
            {"several": True, "positions": "sigmoid", "format": "quoref"},
        ),
        ("cmrc2018/cmrc2018_trial.json", "zh-minibert-6l", {"rules": "cmrc"}),
    ],
)
def test_qa_loses_nothing_without_a_reason(shared, path, encoder, options):
    reader = {"offsets": "nearest"}
    task = make_task("qa", **{"format": "squad", "reader": reader} | options)
    tokenizer = make_tokenizer(shared / "encoders" / encoder)
    examples = list(task.read(shared / "data" / path))[:2500]
    features = task.encode(examples, tokenizer)
    task = task.fit(features)
    assert task.longest > 60 if "cmrc" in path else task.longest <= 40
    predictions = task.decode(join(answers_of_gold(task, features, tokenizer)), features, examples)
    lost = [
        reason_for_loss(task, features, number, example)
        for number, (item, example) in enumerate(zip(predictions, examples, strict=True))
        if task.score([item], [example])["f1"] < 1
    ]
    assert None not in lost
    assert len(lost) <= 0.02 * len(examples)


@pytest.mark.parametrize(
    ("kind", "path", "options"),
    [
        ("pairs", "mrpc/dev.tsv", {"format": "mrpc"}),
        ("pairs", "mrpc/msr_paraphrase_test.txt", {"format": "mrpc"}),
        ("classification", "sst5/stsa.fine.dev", {"format": "lines"}),
        ("classification", "tnews/test.json", {"format": "jsonl"}),
    ],
)
def test_classification(shared, kind, path, options):
    task = make_task(kind, **options)
    encoder = "zh-minibert-6l" if "tnews" in path else "en-minilm-l6"
    tokenizer = make_tokenizer(shared / "encoders" / encoder)
    examples = list(task.read(shared / "data" / path))
    features = task.encode(examples, tokenizer)
    task = task.fit(features)
    batch = task.collate(features, range(len(features)), tokenizer)
    logits = torch.nn.functional.one_hot(batch.targets["labels"], len(task.labels)).float()
    predictions = task.decode(task.gather({"labels": logits}, batch), features)
    assert task.score(predictions, examples)[task.primary_metric] == 1.0


def test_mrc_ner(shared):
    queries = shared / "data" / "bertmrc_queries" / "en_conll03.json"
    task = make_task("mrc_ner", queries=str(queries), format="conll", match="none")
    tokenizer = make_tokenizer(shared / "encoders" / "en-minilm-l6")
    examples = list(task.read(shared / "data" / "conll2003_en" / "eng.testb"))
    features = task.encode(examples, tokenizer)
    found = []
    for start in range(0, len(features), 64):
        batch = task.collate(features, range(start, min(start + 64, len(features))), tokenizer)
        logits = {key: target.clamp(min=-1) - 0.5 for key, target in batch.targets.items()}
        found.append(task.gather(logits, batch))
    predictions = task.decode(join(found), features, examples)
    assert task.score(predictions, examples)["f1"] == 1.0
