from collections import Counter

import numpy as np
import pytest
import torch

from softf1.cli.show import format_scores
from softf1.data.counts import negative_label
from softf1.data.examples import PairExample, TextExample
from softf1.data.problems import Problems
from softf1.errors import InputError
from softf1.models.encoders import build_model, make_tokenizer
from softf1.tasks.base import join
from softf1.tasks.registry import load_task, make_task, save_task

TEXTS = [
    TextExample("Ann visits Paris.", ("travel",), line=1),
    TextExample("Bob works", ("work",), line=2),
    TextExample("the work, the work!", ("work",), line=3),
]
SEVERAL = [
    TextExample("Ann works in Paris", ("travel", "work"), line=1),
    TextExample("who?", (), line=2),
    TextExample("Bob works", ("work",), line=3),
]
PAIRS = [
    PairExample("Ann works", "Ann is working", "1", line=1),
    PairExample("Ann works", "Bob visits the Paris of the north", "0", line=2),
    PairExample("who", "who is the who", "0", line=3),
]


def perfect(task, features, tokenizer, size=2):
    for start in range(0, len(features), size):
        batch = task.collate(features, range(start, min(start + size, len(features))), tokenizer)
        target = batch.targets["labels"]
        if not task.multi_label:
            target = torch.nn.functional.one_hot(target.clamp(min=0), len(task.labels))
        yield task.gather({"labels": 10 * target.float() - 5}, batch)


def fitted(examples, tokenizer, kind="classification", **options):
    task = make_task(kind, **options)
    features = task.encode(iter(examples), tokenizer)
    return task.fit(features), features


@pytest.fixture
def tokenizer(bert):
    return make_tokenizer(bert)


def test_rows_are_those_of_the_tokenizer(tokenizer):
    task, features = fitted(TEXTS, tokenizer)
    batch = task.collate(features, [0, 1, 2], tokenizer)
    wanted = tokenizer.tokenizer([e.text for e in TEXTS], padding=True, return_tensors="pt")
    for name, tensor in wanted.items():
        assert batch.inputs[name].equal(tensor), name


@pytest.mark.parametrize("encoder", ["bert", "xlnet"])
def test_pair_rows_are_those_of_the_tokenizer(encoder, request):
    tokenizer = make_tokenizer(request.getfixturevalue(encoder))
    task, features = fitted(PAIRS, tokenizer, "pairs")
    batch = task.collate(features, [0, 1, 2], tokenizer)
    texts = [e.first for e in PAIRS], [e.second for e in PAIRS]
    wanted = tokenizer.tokenizer(*texts, padding=True, return_tensors="pt")
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert batch.inputs[name].equal(wanted[name]), name


def test_long_pairs_lose_the_end_of_the_longer_text(tokenizer):
    task, features = fitted(PAIRS, tokenizer, "pairs", max_length=10)
    assert features["length"].max() == 10
    batch = task.collate(features, [1], tokenizer)
    wanted = tokenizer.tokenizer(
        PAIRS[1].first, PAIRS[1].second, truncation="longest_first", max_length=10
    )
    tokenizer.backend.no_truncation()
    assert batch.inputs["input_ids"][0].tolist() == wanted["input_ids"]


def test_one_label_each(tokenizer):
    task, features = fitted(TEXTS, tokenizer)
    assert task.labels == ("travel", "work")
    assert task.collate(features, [0, 2], tokenizer).targets["labels"].tolist() == [0, 1]
    assert task.class_counts(features)["labels"].tolist() == [1, 2]
    found = join(perfect(task, features, tokenizer))
    predictions = task.decode(found, features)
    assert [p["label"] for p in predictions] == ["travel", "work", "work"]
    assert task.score(predictions, TEXTS)[task.primary_metric] == 1.0


def test_one_label_of_many_has_macro_precision_and_recall():
    task = make_task("classification", labels=("a", "b", "c"))
    gold = [TextExample(text="t", labels=(label,), line=1) for label in "aabc"]
    scores = task.score([{"label": label} for label in "aabb"], gold)
    # precision of a, b, c: 1, 1/2, 0; recall: 1, 1, 0
    assert (scores["macro_precision"], scores["macro_recall"]) == (0.5, pytest.approx(2 / 3))
    shown = format_scores({"headline": "macro_f1", "scores": {"test": scores}}).split()[:4]
    assert shown == ["macro_f1", "macro_precision", "macro_recall", "accuracy"]


def test_several_labels_each(tokenizer):
    task, features = fitted(SEVERAL, tokenizer, multi_label=True)
    batch = task.collate(features, [0, 1, 2], tokenizer)
    assert batch.targets["labels"].tolist() == [[1, 1], [0, 0], [0, 1]]
    assert task.class_counts(features)["labels"].tolist() == [[2, 1], [1, 2]]
    predictions = task.decode(join(perfect(task, features, tokenizer)), features)
    assert [p["labels"] for p in predictions] == [["travel", "work"], [], ["work"]]
    scores = task.score(predictions, SEVERAL)
    assert scores[task.primary_metric] == scores["subset_accuracy"] == 1.0


@pytest.mark.parametrize(
    ("labels", "positive"),
    [
        ("a z z", "a"),  # the rarer one, wherever it is in the alphabet
        ("a a z", "z"),
        ("1 1 0", "1"),  # a name that means yes
        ("no yes yes", "yes"),
        ("a b c", None),
    ],
)
def test_the_positive_label_is_the_one_that_softf1_stats_counts(tokenizer, labels, positive):
    examples = [TextExample("Ann", (label,), line=1) for label in labels.split()]
    task, _ = fitted(examples, tokenizer)
    assert task.positive_label == positive
    if positive is not None:
        assert negative_label(Counter(labels.split())) != positive


def test_a_model_from_before_keeps_its_positive_label():
    assert make_task("classification", labels=("a", "z")).positive_label == "z"


def test_labels_are_optional_in_a_file_to_predict_on_whatever_was_read_before(tmp_path):
    task, problems = make_task("classification"), Problems()
    for name, content in (("gold", "text,label\nAnn,work\n"), ("bare", "text\nAnn\n")):
        (tmp_path / f"{name}.csv").write_text(content, "utf-8")
    to_predict = task.read_input(tmp_path / "bare.csv", problems)
    assert [one.labels for one in task.read(tmp_path / "gold.csv", problems)] == [("work",)]
    assert [one.labels for one in to_predict] == [()]
    with pytest.raises(InputError, match="wanted a column for the label"):
        list(task.read(tmp_path / "bare.csv", problems))


def test_the_positive_label_of_two_is_the_headline(tokenizer):
    task, _ = fitted(PAIRS, tokenizer, "pairs")
    # 1 of 2 predicted positives is right, the only gold one is found: P 1/2, R 1, F 2/3.
    predictions = [{"label": label} for label in ("1", "1", "0")]
    scores = task.score(predictions, PAIRS)
    assert (scores["precision"], scores["recall"]) == (0.5, 1.0)
    assert scores[task.primary_metric] == pytest.approx(2 / 3)
    assert scores["accuracy"] == pytest.approx(2 / 3)
    other, _ = fitted(PAIRS, tokenizer, "pairs", positive="0")
    assert other.score(predictions, PAIRS)["recall"] == 0.5
    assert fitted(PAIRS, tokenizer, "pairs", metric="accuracy")[0].primary_metric == "accuracy"


def test_an_unseen_label_is_no_target_but_is_scored(tokenizer):
    task, _ = fitted(TEXTS, tokenizer)
    dev = [TextExample("Ann", ("music",), line=1)]
    features = task.encode(dev, tokenizer)
    assert task.collate(features, [0], tokenizer).targets["labels"].tolist() == [-100]
    scores = task.score([{"label": "work"}], dev)
    assert scores["labels"]["music"]["support"] == 1
    assert scores["accuracy"] == 0.0
    assert task.notes(features) == ["music not in the training data: scored, never predicted"]


def test_unlabelled_pairs_can_be_predicted(tokenizer):
    task, _ = fitted(PAIRS, tokenizer, "pairs")
    features = task.encode([PairExample("Ann", "Bob", None, line=1)], tokenizer)
    batch = task.collate(features, [0], tokenizer)
    assert batch.targets["labels"].tolist() == [-100]
    logits = {"labels": torch.tensor([[0.0, 3.0]])}
    assert task.decode(task.gather(logits, batch), features)[0]["label"] == "1"


@pytest.mark.parametrize("multi_label", [False, True])
def test_thresholds_are_tuned_stored_and_used(tokenizer, tmp_path, multi_label):
    # Every positive has probability 0.3, every negative 0.1: nothing is found at 0.5.
    examples = TEXTS * 10
    positive = None if multi_label else "work"
    task, features = fitted(examples, tokenizer, multi_label=multi_label, positive=positive)
    gold = np.array([e.labels[0] == "work" for e in examples], float)
    p = 0.1 + 0.2 * gold
    logits = np.log(p / (1 - p))
    columns = np.stack([-logits if not multi_label else 0 * logits - 9, logits], 1) / (
        1 if multi_label else 2
    )
    found = {"item": np.arange(len(examples)), "logits": columns}
    assert task.score(task.decode(found, features), examples)["f1"] == 0.0
    save_task(task.tune(found, features, examples), tmp_path)
    tuned = load_task(tmp_path)
    assert tuned.score(tuned.decode(found, features), examples)["labels"]["work"]["f1"] == 1.0


@pytest.mark.parametrize("encoder", ["bert", "xlnet", "textcnn"])
def test_what_a_text_gets_does_not_depend_on_its_batch(encoder, request):
    folder = encoder if encoder == "textcnn" else request.getfixturevalue(encoder)
    task = make_task("classification")
    tokenizer = make_tokenizer(folder, task.texts(TEXTS))
    task, features = fitted(TEXTS, tokenizer)
    model = task.build_model(folder, tokenizer).eval()

    def run(batches, width):
        parts = []
        for items in batches:
            batch = task.collate(features, items, tokenizer, width=width)
            parts.append(task.gather(task.logits(model(**batch.inputs), batch), batch))
        found = join(parts)
        return found["logits"][np.argsort(found["item"])]

    np.testing.assert_allclose(run([[0, 1, 2]], 40), run([[2], [0], [1]], None), atol=1e-5)


def test_xlnet_reads_its_summary_from_the_last_token(xlnet):
    tokenizer = make_tokenizer(xlnet)
    task, features = fitted(TEXTS, tokenizer)
    batch = task.collate(features, [0, 1, 2], tokenizer, width=24)
    cls = tokenizer.tokenizer.cls_token_id
    assert (batch.inputs["input_ids"][:, -1] == cls).all()
    assert (batch.inputs["token_type_ids"][:, -1] == 2).all()
    assert (batch.inputs["attention_mask"][:, 0] == 0).all()


@pytest.mark.parametrize("multi_label", [False, True])
def test_a_saved_model_loads_in_plain_transformers(bert, tokenizer, tmp_path, multi_label):
    from transformers import pipeline

    task, features = fitted(TEXTS, tokenizer, multi_label=multi_label)
    model = task.build_model(bert, tokenizer).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    batch = task.collate(features, [0], tokenizer)
    predicted = task.decode(
        task.gather(task.logits(model(**batch.inputs), batch), batch),
        task.encode(TEXTS[:1], tokenizer),
    )[0]
    found = pipeline("text-classification", str(tmp_path), top_k=None)([TEXTS[0].text])[0]
    for item in found:
        assert item["score"] == pytest.approx(predicted["probabilities"][item["label"]], abs=1e-4)


def test_the_head_is_found(bert, xlnet, tokenizer):
    task, _ = fitted(TEXTS, tokenizer)
    for folder in (bert, xlnet):
        model = task.build_model(folder, make_tokenizer(folder))
        layer, rows = task.heads(model)["labels"]
        assert layer.bias[rows].shape == (2,)
        assert layer.weight is list(model.parameters())[-2]


def test_bilstm_refuses_running_text():
    tokenizer = make_tokenizer("bilstm", [["Ann"]])
    with pytest.raises(ValueError, match="takes words"):
        make_task("classification").encode(TEXTS, tokenizer)
    with pytest.raises(ValueError, match="has a head for tokens"):
        build_model("bilstm", head="text", labels=("a",), tokenizer=tokenizer)


@pytest.mark.parametrize("metric", ["macro_f1", "accuracy"])
def test_biases_of_many_labels_are_tuned_stored_and_used(tokenizer, tmp_path, metric):
    examples = [
        TextExample("Ann", (label,), line=i)
        for i, label in enumerate(["a", "a", "b", "c", "d"] * 12)
    ]
    task, _ = fitted(examples, tokenizer, metric=metric)
    # "a" wins everywhere by a little; "unseen" and unlabelled texts may not get in the way.
    dev = [*examples, TextExample("Bob", ("unseen",), line=99), TextExample("Bob", (), line=100)]
    features = task.encode(dev, tokenizer)
    gold = np.array([task.labels.index(e.labels[0]) for e in examples] + [0, 0])
    logits = np.eye(4)[gold] + np.array([1.5, 0, 0, 0])
    found = {"item": np.arange(len(dev)), "logits": logits}
    assert task.score(task.decode(found, features)[:60], examples)["accuracy"] == 0.4
    save_task(task.tune(found, features, dev), tmp_path)
    tuned = load_task(tmp_path)
    assert tuned.score(tuned.decode(found, features)[:60], examples)[task.primary_metric] == 1.0
    assert sum(tuned.decode(found, features)[0]["probabilities"].values()) == pytest.approx(1)


def test_average_precision_is_that_of_the_positive_label_or_the_mean_over_labels():
    def given(**shares):
        return {"label": "b", "labels": [], "probabilities": shares}

    texts = [
        TextExample("x", ("b",), line=1),
        TextExample("y", ("a",), line=2),
        TextExample("z", ("b",), line=3),
    ]
    task = make_task("classification", labels=("a", "b"))
    found = [given(a=0.1, b=0.9), given(a=0.4, b=0.6), given(a=0.7, b=0.3)]
    # b: + − + is (1/1 + 2/3) / 2; as labels of their own, a is − + − from the top: 1/2
    assert task.score(found, texts)["average_precision"] == pytest.approx(5 / 6)
    several = make_task("classification", multi_label=True, labels=("a", "b"))
    wanted = pytest.approx((5 / 6 + 1 / 2) / 2)
    assert several.score(found, texts)["average_precision"] == wanted
    assert "average_precision" not in task.score([{"label": "b"}] * 3, texts)
