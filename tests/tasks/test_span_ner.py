"""The span classifier: which spans it judges, what it learns from, and what it gives."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from softf1.cli.main import main
from softf1.data.examples import SpanSentence
from softf1.errors import InputError
from softf1.metrics.operating import Target
from softf1.models.encoders import make_tokenizer
from softf1.models.spans import SpanConfig, SpanNer
from softf1.tasks import join, make_task
from softf1.tasks.base import format_line
from tests.tasks.test_nested import write

WORDS = ["Ann", "works", "in", "the", "north", "of", "Paris", "for", "Bob"]


def sentence(*spans, words=WORDS, line=1):
    return SpanSentence(tuple(words), (), line, spans=spans)


def encode(bert, examples, **options):
    task, tokenizer = make_task("span_ner", **options), make_tokenizer(bert)
    features = task.encode(iter(examples), tokenizer)
    return task.fit(features), features, tokenizer


def predict(task, features, tokenizer, examples, *, likely=4.0):
    """What it gives where the logits say what the targets say, window by window."""
    found = []
    for item in reversed(range(len(features))):
        batch = task.collate(features, [item], tokenizer)
        logits = torch.where(batch.targets["spans"] == 1, likely, -likely)
        found.append(task.gather({"spans": logits}, batch))
    return task.decode(join(found), features, examples)


def test_every_span_of_up_to_so_many_words_is_a_target(bert):
    # Three words, at most two in a span: (0,1) (0,2) (1,2) (1,3) (2,3)
    one = sentence((0, 2, "PER"), (1, 2, "LOC"), words=WORDS[:3])
    task, features, tokenizer = encode(bert, [one], max_span=2)
    target = task.collate(features, [0], tokenizer).targets["spans"][0]
    assert task.labels == ("LOC", "PER")
    judged = (target != -100).all(-1)
    assert torch.equal(judged, (target != -100).any(-1))
    assert judged.nonzero().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0]]
    assert (target == 1).nonzero().tolist() == [[0, 1, 1], [1, 0, 0]]
    assert task.class_counts(features)["spans"].tolist() == [[4, 1], [4, 1]]
    assert task.strata(features).tolist() == [1]


def make_sentences(count=20, seed=0):
    """Sentences of many lengths with spans that lie in each other and cross."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        words = draw.choices(WORDS, k=draw.randint(1, 60))
        spans = set()
        for _ in range(draw.randint(0, 8)):
            start = draw.randrange(len(words))
            end = min(len(words), start + draw.randint(1, 4))
            spans.add((start, end, draw.choice(["LOC", "ORG"])))
        made.append(sentence(*sorted(spans), words=words, line=number + 1))
    return made


def test_long_sentences_are_cut_and_every_span_is_judged_once(bert):
    examples = make_sentences()
    sizes = {"max_span": 4, "max_length": 40, "overlap": 16}
    task, features, tokenizer = encode(bert, examples, nested=True, **sizes)
    assert len(features) > 1.5 * len(examples)
    batches = [task.collate(features, [item], tokenizer) for item in range(len(features))]
    targets = [batch.targets["spans"] for batch in batches]
    counts = task.class_counts(features)["spans"]
    for label in range(2):
        own = [int((target[..., label] == value).sum()) for value in (0, 1) for target in targets]
        negative, positive = sum(own[: len(targets)]), sum(own[len(targets) :])
        assert counts[label].tolist() == [negative, positive]
    wanted = sum(len(one.spans) for one in examples)
    assert counts[:, 1].sum() == wanted
    holds = [int((target == 1).any()) for target in targets]
    assert task.strata(features).tolist() == holds
    predictions = predict(task, features, tokenizer, examples)
    assert [[tuple(span) for span in one["spans"]] for one in predictions] == [
        list(one.spans) for one in examples
    ]
    assert task.score(predictions, examples)["f1"] == 1.0


def test_flat_spans_are_the_best_that_do_not_overlap(bert):
    one = sentence((0, 3, "ORG"), (2, 3, "LOC"), (4, 5, "LOC"))
    task, features, tokenizer = encode(bert, [one])
    batch = task.collate(features, [0], tokenizer)
    logits = torch.full_like(batch.targets["spans"], -1.0)
    logits[0, 0, 2, 1], logits[0, 2, 0, 0], logits[0, 4, 0, 0] = 1.0, 2.0, 0.5
    found = task.gather({"spans": logits}, batch)
    (flat,) = task.decode(found, features, [one])
    assert flat["spans"] == [[2, 3, "LOC"], [4, 5, "LOC"]]
    assert flat["confidence"] == pytest.approx([0.880797, 0.622459])
    both = make_task("span_ner", nested=True, labels=task.labels)
    (nested,) = both.decode(found, features, [one])
    assert nested["spans"] == [[0, 3, "ORG"], [2, 3, "LOC"], [4, 5, "LOC"]]


def test_long_and_unseen_spans_are_scored_and_said(bert):
    train = [sentence((0, 1, "PER"))]
    task, _, tokenizer = encode(bert, train, max_span=2)
    dev = [sentence((0, 4, "PER"), (6, 7, "LOC"), (8, 9, "PER"))]
    features = task.encode(dev, tokenizer)
    assert task.notes(features) == [
        "LOC not in the training data: scored, never predicted",
        "1 spans have more than 2 words (task.max_span): never found",
    ]
    predictions = predict(task, features, tokenizer, dev)
    assert predictions[0]["spans"] == [[8, 9, "PER"]]
    assert task.score(predictions, dev)["recall"] == pytest.approx(1 / 3)


def test_spans_that_windows_cut_are_said(bert):
    # Windows of 6 words share 2 (words 0 to 6, 4 to 10), so that none holds words 3 to 7.
    words = [*"abcdefghij"]
    one = sentence((3, 7, "PER"), (4, 6, "PER"), (5, 9, "LOC"), words=words)
    task, features, tokenizer = encode(bert, [one], max_length=8, overlap=2, nested=True)
    assert list(zip(features["first"], features["end"], strict=True)) == [(0, 6), (4, 10)]
    (note,) = task.notes(features)
    assert note == (
        "1 spans fit into no window of their sentence: never found; "
        "try a larger task.overlap or task.max_length"
    )
    assert predict(task, features, tokenizer, [one])[0]["spans"] == [[4, 6, "PER"], [5, 9, "LOC"]]
    _, features, _ = encode(bert, [one], max_length=12)
    assert task.notes(features) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_span": 4}, "wanted a span classifier with max_span = 4, got max_span = 3"),
        ({"labels": ("A", "B")}, "wanted a span classifier with classes = 2, got classes = 1"),
    ],
)
def test_a_saved_model_of_other_sizes_is_refused(bert, tmp_path, options, said):
    tokenizer = make_tokenizer(bert)
    sizes = {"max_span": 3, "labels": ("PER",)}
    make_task("span_ner", **sizes).build_model(bert, tokenizer).save_pretrained(tmp_path)
    saved = make_task("span_ner", **sizes).build_model(tmp_path, tokenizer)
    assert (saved.config.max_span, saved.config.classes) == (3, 1)
    with pytest.raises(InputError, match=said):
        make_task("span_ner", **sizes | options).build_model(tmp_path, tokenizer)


def test_labels_of_other_names_get_a_new_last_layer(bert, tmp_path):
    tokenizer = make_tokenizer(bert)
    made = make_task("span_ner", labels=("LOC", "PER")).build_model(bert, tokenizer)
    made.save_pretrained(tmp_path)
    same = make_task("span_ner", labels=("LOC", "PER")).build_model(tmp_path, tokenizer)
    assert torch.equal(same.out.weight, made.out.weight)
    task = make_task("span_ner", labels=("DRUG", "GENE"))
    other = task.build_model(tmp_path, tokenizer)
    assert not torch.equal(other.out.weight, made.out.weight)
    assert torch.equal(other.start.weight, made.start.weight)  # what labels share stays
    other.save_pretrained(tmp_path / "other")
    again = task.build_model(tmp_path / "other", tokenizer)
    assert torch.equal(again.out.weight, other.out.weight)


def test_a_model_saved_without_names_keeps_its_last_layer(bert, tmp_path):
    tokenizer = make_tokenizer(bert)
    task = make_task("span_ner", labels=("LOC", "PER"))
    made = task.build_model(bert, tokenizer)
    made.config.labels = None
    made.save_pretrained(tmp_path)
    assert torch.equal(task.build_model(tmp_path, tokenizer).out.weight, made.out.weight)


def test_numbers_that_are_not_finite_are_seen(bert):
    """As for tags: a run then says that nothing was tuned; no span is predicted."""
    one = sentence((0, 1, "PER"))
    task, features, tokenizer = encode(bert, [one, one])
    batch = task.collate(features, [0, 1], tokenizer)
    logits = torch.full(batch.targets["spans"].shape, -1.0)
    assert np.isfinite(task.gather({"spans": logits}, batch)["score"]).all()
    logits[1, 2, 0, 0] = float("nan")
    found = task.gather({"spans": logits}, batch)
    assert not np.isfinite(found["score"]).all()
    assert task.decode(found, features, [one, one])[1]["spans"] == []


def test_overlapping_spans_are_said_where_only_flat_ones_are_given(bert):
    nested = [sentence((0, 4, "PER"), (2, 3, "LOC"), (2, 3, "PER")), sentence((2, 3, "PER"))]
    task, features, _ = encode(bert, nested)
    (note,) = task.notes(features)
    assert note == "2 spans overlap another one; predictions never do: set task.nested = true"
    task, features, _ = encode(bert, nested, nested=True)
    assert task.notes(features) == []


def test_suspects_are_spans_that_the_model_finds_unlikely_or_misses(bert):
    """Nested spans stay apart; spans of unknown labels are no suspects, nor what is found there."""
    examples = [
        sentence((0, 3, "ORG"), (2, 3, "LOC")),
        sentence((0, 1, "PER"), (4, 6, "ORG"), (8, 9, "PER")),
        sentence((6, 7, "DRUG")),
    ]
    train = make_task("span_ner", nested=True, labels=("LOC", "ORG", "PER"))
    tokenizer = make_tokenizer(bert)
    features = train.encode(examples, tokenizer)
    batch = train.collate(features, [0, 1, 2], tokenizer)
    logits = torch.where(batch.targets["spans"] == 1, 3.0, -3.0)
    logits[0, 2, 0, 0] = -2.0  # the inner LOC of the first is unlikely
    logits[1, 0, 0, 2], logits[1, 0, 0, 0] = -4.0, 4.0  # PER is rather LOC
    logits[1, 4, 1, 1], logits[1, 4, 2, 1] = -1.0, 1.0  # ORG is rather a word longer
    logits[1, 6, 0, 0] = 5.0  # LOC is missing
    logits[2, 6, 0, 0] = 5.0  # given as DRUG, which was not in the training data
    found, unknown = train.find_suspects(train.gather({"spans": logits}, batch), features)
    assert unknown == 1
    sigmoid = {x: 1 / (1 + np.exp(-x)) for x in (1, 2, 4, 5)}
    assert [(one.example, one.kind, one.given, one.suggested) for one in found] == [
        (0, "extra span", (("LOC", 2, 3),), ()),
        (1, "wrong label", (("PER", 0, 1),), (("LOC", 0, 1),)),
        (1, "wrong boundary", (("ORG", 4, 6),), (("ORG", 4, 7),)),
        (1, "missing span", (), (("LOC", 6, 7),)),
    ]
    wanted = [sigmoid[2], sigmoid[4], sigmoid[1], sigmoid[5]]
    assert [one.score for one in found] == pytest.approx(wanted, abs=1e-5)


def test_the_head_is_one_layer_over_both_words_and_the_length(bert):
    torch.manual_seed(0)
    task, features, tokenizer = encode(bert, [sentence((0, 1, "PER"))], max_span=3)
    model = task.build_model(bert, tokenizer).eval()
    torch.nn.init.normal_(model.length)
    batch = task.collate(features, [0], tokenizer)
    inputs = dict(batch.inputs)
    words = inputs.pop("words")
    with torch.no_grad():
        found = model(**batch.inputs)["spans"]
        hidden = model.encoder(**inputs).last_hidden_state[0, words[0]]
        first, last = model.start(hidden[2]), model.end(hidden[4])  # words 2, 3 and 4
        wanted = model.out(torch.nn.functional.gelu(first + last + model.length[2]))
    torch.testing.assert_close(found[0, 2, 2], wanted)
    assert isinstance(model, SpanNer)
    assert model.config.model_type == SpanConfig.model_type


def test_bars_leave_out_what_is_below(bert):
    examples = [sentence((0, 1, "PER")) for _ in range(100)]
    task, features, tokenizer = encode(bert, examples)
    found = []
    for item in range(len(examples)):
        batch = task.collate(features, [item], tokenizer)
        logits = torch.full_like(batch.targets["spans"], -1.0)
        logits[0, 0, 0, 0] = 3.0
        logits[0, 8, 0, 0] = 0.5  # wrong
        found.append(task.gather({"spans": logits}, batch))
    task.check_target({"PER": Target.parse("precision>=0.9")})
    with pytest.raises(InputError, match="LOC"):
        task.check_target({"LOC": Target.parse("f1")})
    task, (point,) = task.operate(
        join(found), features, examples, {"PER": Target.parse("precision>=0.9")}
    )
    assert (point.reached, point.right, point.given) == (True, 100, 100)
    assert task.abstains
    (prediction, *_) = task.decode(join(found), features, examples)
    assert len(prediction["spans"]) == 2
    assert task.abstain(prediction)["spans"] == [[0, 1, "PER"]]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_headroom_tries_more_lenient_thresholds_too(bert, seed, nested):
    """The best threshold is that of trying them all; adding to every logit is the same thing."""
    examples = make_sentences(6, seed)
    task, features, tokenizer = encode(bert, examples, nested=nested, max_span=4)
    batches = [task.collate(features, [item], tokenizer) for item in range(len(features))]
    random = torch.Generator().manual_seed(seed)
    rows = []
    for batch in batches:
        target = batch.targets["spans"]
        noise = torch.randn(target.shape, generator=random)
        rows.append(noise + torch.where(target == 1, 1.5, -4.0))

    def gather(shift=0.0):
        pairs = zip(rows, batches, strict=True)
        return join([task.gather({"spans": row + shift}, batch) for row, batch in pairs])

    def score(shift):
        return task.score(task.decode(gather(shift), features, examples), examples)["f1"]

    logits = gather()
    predictions = task.decode(logits, features, examples)
    pairs = zip(examples, predictions, strict=True)
    lines = [json.loads(format_line(task, *pair)) for pair in pairs]
    found = task.headroom(lines, logits, features, examples)
    gains = {part.wins: part.gain for part in found.parts if part.wins}
    tried = [score(-float(x) + 1e-4) for x in logits["score"]]
    assert found.decided == pytest.approx(score(0.0))
    assert gains["a better decision"] == pytest.approx(max(tried) - found.decided)
    assert gains["a better decision"] > 0
    (best,) = [
        part for part in found.parts if part.title == "One threshold for spans, best in hindsight"
    ]
    assert 0 < best.counts["at"] < 0.5  # below the usual bar
    assert gains["a better ranking"] == pytest.approx(1 - max(tried))


def test_headroom_from_predictions_alone_says_what_it_cannot_know(bert):
    examples = [sentence((0, 1, "PER"), (8, 9, "PER"))]
    task, features, tokenizer = encode(bert, examples)
    batch = task.collate(features, [0], tokenizer)
    logits = torch.full_like(batch.targets["spans"], -9.0)
    logits[0, 0, 0, 0], logits[0, 8, 0, 0] = 3.0, -0.5  # the second is nearly found
    gathered = task.gather({"spans": logits}, batch)
    (prediction,) = task.decode(gathered, features, examples)
    line = json.loads(format_line(task, examples[0], prediction))
    known = task.headroom([line], gathered, features, examples)
    assert known.summary().startswith("a better decision wins at most 33.3, a better ranking 0.0")
    alone = task.headroom([line])
    assert alone.summary().endswith(
        "what a better decision or ranking wins is not known: "
        "spans that are less likely than not are not in the predictions"
    )
    assert not {"a better decision", "a better ranking"} & {part.wins for part in alone.parts}


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ('{"words": ["a", "b"]}\n', "train.jsonl:1: wanted spans of this sentence, or tags"),
        ('{"words": ["a"], "entities": []}\n', "train.jsonl: wanted spans to learn from"),
    ],
)
def test_data_without_labels_is_refused(train, said, tmp_path, monkeypatch, capsys, bert):
    monkeypatch.chdir(tmp_path)
    Path("train.jsonl").write_text(train)
    Path("r.toml").write_text(
        '[task]\nkind = "span_ner"\nformat = "spans"\ntrain = "train.jsonl"\ndev = "train.jsonl"\n'
        f"[encoder]\nname = {json.dumps(str(bert))}\n"
    )
    assert main(["train", "r.toml", "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_span_has_a_word():
    with pytest.raises(
        InputError, match="max_span of task span_ner: wanted a number from 1, got 0"
    ):
        make_task("span_ner", max_span=0)


def test_from_a_file_to_a_report(bert, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    files = [write(f"{name}.jsonl") for name in ("train", "dev", "test")]
    main(["new", *files, "--task", "span_ner", "--out", "r.toml", "--encoder", str(bert)])
    assert "nested = true" in Path("r.toml").read_text()
    values = ["train.epochs=40", "train.lr=0.005", "loss.name=ce", "task.max_span=6"]
    assert main(["train", "r.toml", *values, "train.eval_every=20", "--out", "run"]) == 0
    capsys.readouterr()
    result = json.loads(Path("run/result.json").read_text())
    assert result["scores"]["test"]["f1"] > 0.9  # it saw these sentences
    lines = [json.loads(one) for one in Path("run/predictions.test.jsonl").read_text().splitlines()]
    assert lines[0]["gold"] == [[4, 7, "ORG"], [6, 7, "LOC"]]
    assert main(["headroom", "run"]) == 0
    assert "Right boundaries" in capsys.readouterr().out
    assert main(["predict", "run", "test.jsonl", "--out", "found.jsonl"]) == 0
    found = [json.loads(line) for line in Path("found.jsonl").read_text().splitlines()]
    assert [one["spans"] for one in found] == [one["spans"] for one in lines]
    assert np.mean([len(one["spans"]) for one in found]) > 1
    assert main(["report", "run", "--out", "run.html"]) == 0
    page = Path("run.html").read_text()
    assert "ORG" in page
    assert main(["export", "run", "--onnx", "--out", "onnx"]) == 2
    assert "has no ONNX form" in capsys.readouterr().err
