"""What was tuned is part of the saved model: transformers and softf1 give the same answers."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

from softf1.integrations.transformers import decide
from softf1.tasks import load_task
from softf1.training.evaluation import evaluate, predict_logits
from softf1.training.export import export_onnx
from softf1.training.publish import load_model, publish_model
from softf1.training.run import train_run
from tests.models.families import write_encoder
from tests.pages import ROOT, read_blocks
from tests.training.toys import make_data, make_recipe, read_lines

SIZES = {"train": 60, "dev": 80, "test": 40}
TUNED = {
    "classification": ({"kind": "classification", "positive": "none"}, 10, 1e-2),
    "macro": ({"kind": "classification", "metric": "macro_f1"}, 10, 1e-2),
    "pairs": ({"kind": "pairs"}, 6, 3e-3),
    "multi-label": ({"kind": "classification", "multi_label": True}, 14, 1e-2),
    "tagging": ({"kind": "tagging"}, 6, 1e-2),
}
"""Tasks with epochs and a rate at which a tiny BERT still has something to tune."""


def as_pos(data):
    """The toy tags as parts of speech: no O, no spans."""
    names = {"O": "X", "B-PER": "NAME", "B-LOC": "PLACE"}
    return {
        part: [replace(one, tags=tuple(names[tag] for tag in one.tags)) for one in own]
        for part, own in data.items()
    }


@pytest.fixture(scope="module", params=TUNED)
def run(request, tmp_path_factory, bert):
    """A short training of a tiny BERT whose tuned decisions differ from the plain ones."""
    (task, epochs, lr), folder = TUNED[request.param], tmp_path_factory.mktemp(request.param)
    data = make_data(task["kind"], several="multi_label" in task, sizes=SIZES)
    data = as_pos(data) if request.param == "tagging" else data
    if task["kind"] == "pairs":  # a pipeline cuts nothing; 60 letters are 60 pieces at most
        data["test"] = [one for one in data["test"] if len(one.first + one.second) <= 60]
    recipe = make_recipe(
        task,
        encoder={"name": str(bert)},
        train={"epochs": float(epochs), "lr": lr},
        evaluate={"tune": True},
    )
    result = train_run(recipe, folder / "run", data=data, quiet=True)
    return folder / "run", data["test"], result


def labels_of_pipeline(folder, task, examples):
    if task.kind == "tagging":
        tag = transformers.pipeline(
            "token-classification", folder, aggregation_strategy="first", ignore_labels=[]
        )
        return [tags_of_words(example.words, tag(" ".join(example.words))) for example in examples]
    classify = transformers.pipeline("text-classification", folder, top_k=None)
    texts = [
        {"text": one.first, "text_pair": one.second} if task.kind == "pairs" else one.text
        for one in examples
    ]
    # A list of one text and a dict give lists of different depth.
    found = [classify([text] if isinstance(text, str) else text) for text in texts]
    found = [one[0] if isinstance(one[0], list) else one for one in found]
    if task.multi_label:
        return [{one["label"] for one in own if one["score"] >= 0.5} for own in found]
    return [own[0]["label"] for own in found]


def tags_of_words(words, groups):
    tags, at = [], 0
    for word in words:
        tags.append(next(one["entity_group"] for one in groups if one["start"] <= at < one["end"]))
        at += len(word) + 1
    return tags


def labels_of_lines(path):
    for line in read_lines(path):
        found = line.get("tags") or line.get("label") or line["labels"]
        yield set(found) if "labels" in line else found


def test_a_pipeline_of_transformers_gives_the_tuned_answers(run):
    folder, examples, _ = run
    task = load_task(folder / "model")
    tuned = list(labels_of_lines(folder / "predictions.test.tuned.jsonl"))
    assert tuned != list(labels_of_lines(folder / "predictions.test.jsonl"))
    assert labels_of_pipeline(folder / "model", task, examples) == tuned


def test_a_pipeline_gives_the_answers_of_pairs_that_vary(tmp_path, bert):
    """A tiny BERT answers nearly alike to all: here its weights are turned up until it does not.

    The threshold is in the middle of what the model finds, so about half of the pairs are on
    either side of it; a pair in the wrong order, or a threshold that is not there, shows.
    """
    data = make_data("pairs", sizes=SIZES)
    examples = [one for one in data["test"] if len(one.first + one.second) <= 60]
    recipe = make_recipe({"kind": "pairs"}, encoder={"name": str(bert)}, train={"max_steps": 2})
    train_run(recipe, tmp_path / "run", data=data, quiet=True)
    model, task, tokenizer = load_model(tmp_path / "run")
    with torch.no_grad():
        for weight in (*model.bert.encoder.parameters(), model.classifier.weight):
            weight.mul_(20 if weight.ndim == 2 else 1)
        model.classifier.bias.zero_()
    features = task.encode(examples, tokenizer)
    logits = predict_logits(model, task, features, tokenizer, device="cpu")
    found = task.decode(logits, features, examples)
    shares = sorted(one["probabilities"][task.positive_label] for one in found)
    middle = len(shares) // 2
    assert shares[-1] - shares[0] > 0.1
    task = replace(task, thresholds=((shares[middle - 1] + shares[middle]) / 2,))
    wanted = [one["label"] for one in task.decode(logits, features, examples)]
    assert wanted.count(task.positive_label) == len(shares) - middle
    assert wanted != [one["label"] for one in found]
    publish_model(tmp_path / "m", model=model, task=task, tokenizer=tokenizer, recipe="", result={})
    assert labels_of_pipeline(tmp_path / "m", task, examples) == wanted
    turned = [replace(one, first=one.second, second=one.first) for one in examples]
    assert labels_of_pipeline(tmp_path / "m", task, turned) != wanted


def test_the_confidence_of_predict_is_the_score_of_the_pipeline(run):
    folder, examples, _ = run
    task = load_task(folder / "model")
    lines = read_lines(folder / "predictions.test.tuned.jsonl")[:5]
    if task.kind == "tagging":
        tag = transformers.pipeline("token-classification", folder / "model", ignore_labels=[])
        for line in lines:
            firsts = [one for one in tag(" ".join(line["words"])) if one["word"][:2] != "##"]
            assert line["confidence"] == pytest.approx([one["score"] for one in firsts], abs=1e-5)
        return
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "model")
    tokenizer = load_model(folder).tokenizer
    found = predict_logits(
        model.eval(), task, task.encode(examples, tokenizer), tokenizer, device="cpu"
    )
    logits = torch.from_numpy(found["logits"][np.argsort(found["item"])])
    shares = logits.sigmoid() if task.multi_label else logits.softmax(-1)
    for line, own in zip(lines, shares, strict=False):
        given = line["labels"] if task.multi_label else [line["label"]]
        wanted = [float(own[task.labels.index(label)]) for label in given]
        assert np.atleast_1d(line["confidence"]).tolist() == pytest.approx(wanted, abs=1e-5)
        assert sum(line["probabilities"].values()) == pytest.approx(1) or task.multi_label


def test_nothing_is_added_twice_and_the_untuned_answers_can_be_had(run):
    folder, examples, result = run
    model, task, tokenizer = load_model(folder)
    features = task.encode(examples, tokenizer)
    tuned = evaluate(model, task, features, examples, tokenizer, device="cpu")
    assert tuned.scores == result["tuned"]["test"]
    assert any(value.any() for value in task.shifts().values())
    plain = replace(task, biases=(), **({} if task.kind == "tagging" else {"thresholds": ()}))
    assert (
        evaluate(model, plain, features, examples, tokenizer, device="cpu").scores
        == (result["scores"]["test"])
    )
    # A folder that is written from a loaded one is the same: the shift is there once.
    again = folder.parent / "again"
    publish_model(again, model=model, task=task, tokenizer=tokenizer, recipe="", result={})
    saved = [(place / "model.safetensors").read_bytes() for place in (folder / "model", again)]
    assert saved[0] == saved[1]


def test_the_card_says_that_the_bias_has_it(run):
    folder, _, _ = run
    card = (folder / "model" / "README.md").read_text("utf-8")
    assert "transformers pipelines give the tuned predictions" in card
    assert "softf1_decision" not in (folder / "model" / "config.json").read_text("utf-8")
    assert "plain_bias" in json.loads((folder / "model" / "softf1.json").read_text("utf-8"))


@pytest.mark.slow
def test_what_is_exported_has_it_too(run, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    folder, examples, _ = run
    made = export_onnx(folder, tmp_path / "model.onnx")
    model, task, tokenizer = load_model(folder)
    batch = task.collate(task.encode(examples, tokenizer), [0, 1, 2], tokenizer)
    session = runtime.InferenceSession(made.path, providers=["CPUExecutionProvider"])
    (got,) = session.run(["logits"], {k: v.numpy() for k, v in batch.inputs.items()})
    with torch.no_grad():
        plain = model(**batch.inputs).logits.numpy()
    (shift,) = task.shifts().values()
    np.testing.assert_allclose(got, plain + shift, atol=1e-4)


def test_a_head_without_a_bias_has_it_in_its_config(tmp_path):
    """Llama's head of texts has none: the config says it, and `decide` reads it there."""
    data = make_data("pairs", sizes=SIZES)
    recipe = make_recipe(
        {"kind": "pairs"}, encoder={"name": str(write_encoder("llama", tmp_path / "encoder"))}
    )
    train_run(recipe, tmp_path / "run", data=data, quiet=True)
    model, task, tokenizer = load_model(tmp_path / "run")
    task = replace(task, thresholds=(0.3,))
    publish_model(tmp_path / "m", model=model, task=task, tokenizer=tokenizer, recipe="", result={})
    assert "This head has no bias" in (tmp_path / "m" / "README.md").read_text("utf-8")
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "m")
    features = task.encode(data["test"], tokenizer)
    found = predict_logits(plain.eval(), task, features, tokenizer, device="cpu")
    said = decide(found["logits"][np.argsort(found["item"])], plain.config)
    wanted = [one["label"] for one in task.decode(found, features)]
    assert [task.labels[i] for i in said] == wanted
    assert not hasattr(model.config, "softf1_decision")


def test_the_threshold_of_no_answer_is_in_the_config(tmp_path):
    data = make_data("qa", sizes=SIZES)
    encoder = write_encoder("bert", tmp_path / "encoder")
    recipe = make_recipe(
        {"kind": "qa", "no_answer": True},
        encoder={"name": str(encoder)},
        train={"max_steps": 2},
        evaluate={"tune": True},
    )
    train_run(recipe, tmp_path / "run", data=data, quiet=True)
    config = transformers.AutoConfig.from_pretrained(tmp_path / "run" / "model")
    task = load_task(tmp_path / "run" / "model")
    assert config.softf1_decision == {"null_threshold": task.null_threshold}
    with pytest.raises(ValueError, match="wanted thresholds or biases of labels"):
        decide([[0.0, 1.0]], config)


def test_the_lines_of_the_page_apply_the_threshold_of_no_answer(tmp_path):
    """The block of docs/predict.md, as it stands there, on what plain transformers gives."""
    text = (ROOT / "docs" / "predict.md").read_text("utf-8")
    (lines,) = [b.code for b in read_blocks(text) if "null_threshold" in b.code]
    data = make_data("qa", sizes=SIZES)
    encoder = write_encoder("bert", tmp_path / "encoder")
    section = {"kind": "qa", "no_answer": True, "n_best": 100, "max_answer": 100}
    recipe = make_recipe(section, encoder={"name": str(encoder)}, train={"max_steps": 2})
    train_run(recipe, tmp_path / "run", data=data, quiet=True)
    model, task, tokenizer = load_model(tmp_path / "run")
    examples = data["test"]
    features = task.encode(examples, tokenizer)
    logits = predict_logits(model, task, features, tokenizer, device="cpu")
    scores = sorted(one["null_score"] for one in task.decode(logits, features, examples))
    task = replace(task, null_threshold=sum(scores[len(scores) // 2 - 1 :][:2]) / 2)
    publish_model(tmp_path / "m", model=model, task=task, tokenizer=tokenizer, recipe="", result={})
    predictions = task.decode(logits, features, examples)
    assert {one["answer"] == "" for one in predictions} == {True, False}

    plain = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "m").eval()
    tokenize = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    for example, prediction in zip(examples, predictions, strict=True):
        row = tokenize(example.question, example.context, return_tensors="pt")
        with torch.no_grad():
            found = plain(**row)
        start, end = found.start_logits[0], found.end_logits[0]
        inside = [i for i, part in enumerate(row.sequence_ids(0)) if part == 1]
        best = max(start[i] + end[j] for i in inside for j in inside if i <= j)
        names = {"start": start, "end": end, "best": best, "model": plain, "answer": "a span"}
        exec(lines, names)
        assert (names["answer"] == "") == (prediction["answer"] == "")


def test_a_task_of_another_package_without_shifts_is_saved_as_it_is(tmp_path):
    data = make_data(sizes=SIZES)
    train_run(make_recipe(train={"max_steps": 2}), tmp_path / "run", data=data, quiet=True)
    model, task, tokenizer = load_model(tmp_path / "run")

    class Other(type(task)):
        shifts = property()  # hasattr is False, as of a class that never heard of it

    before = model.classifier.bias.detach().clone()
    publish_model(
        tmp_path / "m",
        model=model,
        task=Other(labels=task.labels, spans=task.spans, biases=(1.0, 0.0, 0.0)),
        tokenizer=tokenizer,
        recipe="",
        result={},
    )
    assert torch.equal(load_model(tmp_path / "m").model.classifier.bias, before)


def test_the_card_of_another_package_s_task_says_nothing_that_it_does_not_know(tmp_path):
    data = make_data(sizes=SIZES)
    train_run(make_recipe(train={"max_steps": 2}), tmp_path / "run", data=data, quiet=True)
    model, task, tokenizer = load_model(tmp_path / "run")

    class Other(type(task)):
        kind = "other"
        card = property()

    other = Other(labels=task.labels, spans=task.spans)
    publish_model(
        tmp_path / "m", model=model, task=other, tokenizer=tokenizer, recipe="", result={}
    )
    card = (tmp_path / "m" / "README.md").read_text("utf-8")
    assert "The task `other` decides, as `softf1 predict` does." in card
    assert "every head" not in card
    assert "pipeline_tag" not in card
    assert "A label that is not in the training data is never predicted." in card


def test_a_bias_of_the_wrong_size_is_a_damaged_folder(tmp_path):
    data = make_data(sizes=SIZES)
    train_run(make_recipe(train={"max_steps": 2}), tmp_path / "run", data=data, quiet=True)
    path = tmp_path / "run" / "model" / "softf1.json"
    content = json.loads(path.read_text("utf-8")) | {"plain_bias": {"tags": [0.0]}}
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(Exception, match="wanted a whole model, got a bias of 3 for tags, got 1"):
        load_model(tmp_path / "run")
