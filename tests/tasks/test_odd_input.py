"""Input that nobody expects: it is trained on, decoded and scored like any other."""

import pytest
import torch

from softf1.data.examples import (
    Answer,
    MrcExample,
    PairExample,
    QAExample,
    SpanSentence,
    TaggedSentence,
    TextExample,
)
from softf1.data.problems import Problems
from softf1.errors import InputError
from softf1.losses import make_loss
from softf1.models.encoders import make_tokenizer
from softf1.tasks import join, make_task
from tests.tasks.cases import EXAMPLES

ODD = ["", " ", "\x00", "\u200b", "e\u0301", "👩‍👩‍👧", "\u202e", "﻿", "ß" * 700, "\t\n", "Ann"]


def run(task, examples, encoder):
    """Fit, one step of training, evaluation: predictions and scores."""
    tokenizer = make_tokenizer(encoder, task.texts(examples))
    features = task.encode(iter(examples), tokenizer)
    task = task.fit(features)
    model = task.build_model(encoder, tokenizer)
    batch = task.collate(features, range(len(features)), tokenizer)
    logits = task.logits(model.train()(**batch.inputs), batch)
    loss = make_loss("ce+dice")
    total = sum(loss(logits[key], target) for key, target in batch.targets.items())
    assert total.isfinite()
    total.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    with torch.no_grad():
        found = [
            task.gather(task.logits(model.eval()(**batch.inputs), batch), batch)
            for batch in (task.collate(features, [i], tokenizer) for i in range(len(features)))
        ]
    found = join(found)
    predictions = task.tune(found, features, examples).decode(found, features, examples)
    assert len(predictions) == len(examples)
    return task, predictions, task.score(predictions, examples)


def sentence(words, tags=None):
    return TaggedSentence(tuple(words), tuple(tags or ["O"] * len(words)), line=1)


TAGGED = {
    "empty": [sentence([]), sentence(["Ann"], ["B-PER"]), sentence([])],
    "all O": [sentence(["Ann", "works"]), sentence(["Bob"])] * 3,
    "one tag": [sentence(["Ann", "works"], ["B-X", "I-X"])] * 6,
    "odd words": [sentence(ODD[2:], ["O", "B-A", "I-A", "O", "B-A", "O", "O", "O", "B-B"])] * 6,
    "5,000 words": [sentence(["Ann", "works"] * 2500, ["B-PER", "O"] * 2500), sentence(["Bob"])],
    "one plain tag": [sentence(["Ann", "works"], ["X", "X"])] * 6,
}


TAGGING = [(name, "word", encoder) for name in TAGGED for encoder in ("bert", "xlnet", "bilstm")]
TAGGING += [(name, "character", "bert") for name in ("empty", "all O", "one tag", "odd words")]
TAGGING += [(name, "joint", "bilstm") for name in ("empty", "one tag", "odd words")]


@pytest.mark.parametrize(("name", "unit", "encoder"), TAGGING)
def test_tagging(request, name, unit, encoder):
    folder = encoder if encoder == "bilstm" else request.getfixturevalue(encoder)
    task, predictions, scores = run(make_task("tagging", unit=unit), TAGGED[name], folder)
    for item, example in zip(predictions, TAGGED[name], strict=True):
        assert len(item["tags"]) == len(task.units(example)[0])
    assert 0 <= scores["f1"] <= 1


@pytest.mark.parametrize("options", [{"unit": "character"}, {"scheme": "BIO"}])
def test_plain_tags_make_up_no_spans(options):
    task = make_task("tagging", **options)
    with pytest.raises(InputError, match=r'sentence of line 1: .* got .X.; .*unit "joint"'):
        task.units(sentence(["Ann"], ["X"]))


@pytest.mark.parametrize("options", [{"unit": "character"}, {"scheme": "BIO"}, {"scheme": "BMES"}])
def test_a_typo_in_a_tag_is_named_with_its_place(options, tmp_path):
    path = tmp_path / "typo.conll"
    path.write_text("Ann B-PER\nLee I-PER\n\nIn O\nOslo B_LOC\n\nIt O\n", "utf-8")
    task = make_task("tagging", **options)
    with pytest.raises(InputError) as error:
        list(task.read(path))
    said = f"{path}:4: wanted O or a tag of conlleval (B-, I-, M-, E-, L-, S-, U-, W-), got 'B_LOC'"
    assert str(error.value).startswith(f"{said} for the word 'Oslo'; tags that make up no spans")
    problems = Problems("skip")
    assert [one.line for one in task.read(path, problems)] == [1, 7]
    assert problems.counts == {"invalid tags": 1}
    assert len(list(make_task("tagging", unit="joint").read(path))) == 3


def test_characters_of_a_word_stay_together():
    task = make_task("tagging", unit="character")
    assert "".join(task.units(sentence(["e\u0301", "👩‍👩‍👧"]))[0]) == "e\u0301👩‍👩‍👧"


def test_an_entity_at_the_edge_of_a_window_is_whole(bert):
    # Windows of 6 pieces share 2; wherever the entity stands, all its words have their tags.
    tokenizer = make_tokenizer(bert)
    for start in range(16):
        tags = ["B-PER" if i == start else "I-PER" if start < i < start + 4 else "O"
                for i in range(20)]  # fmt: skip
        examples = [sentence(["the"] * 20, tags)]
        task = make_task("tagging", max_length=8, overlap=2)
        features = task.encode(examples, tokenizer)
        task = task.fit(features)
        batch = task.collate(features, range(len(features)), tokenizer)
        hot = torch.nn.functional.one_hot(batch.targets["tags"].clamp(min=0), len(task.labels))
        predictions = task.decode(task.gather({"tags": hot.float()}, batch), features)
        assert predictions[0]["tags"] == tags


@pytest.mark.parametrize("encoder", ["bert", "xlnet", "textcnn"])
@pytest.mark.parametrize("several", [False, True])
def test_classification(request, encoder, several):
    folder = encoder if encoder == "textcnn" else request.getfixturevalue(encoder)
    labels = [("a",), ("b",), ("c",), ("a",)] if not several else [(), ("a", "b"), ("a",), ("c",)]
    examples = [TextExample(text, labels[i % 4], line=i) for i, text in enumerate(ODD * 2)]
    run(make_task("classification", multi_label=several), examples, folder)


def test_one_label_is_a_choice_only_where_there_may_be_none(bert):
    examples = [TextExample("Ann works", ("work",), line=i) for i in range(6)]
    run(make_task("classification", multi_label=True), examples, bert)
    with pytest.raises(InputError, match="wanted 2 labels or more in the training data, got work"):
        run(make_task("classification"), examples, bert)


@pytest.mark.parametrize("encoder", ["bert", "xlnet", "textcnn"])
def test_pairs(request, encoder):
    folder = encoder if encoder == "textcnn" else request.getfixturevalue(encoder)
    examples = [
        PairExample(a, b, str((i + j) % 2), line=1)
        for i, a in enumerate(ODD)
        for j, b in enumerate(ODD[::5])
    ]
    run(make_task("pairs"), examples, folder)


def test_a_second_label_needs_multi_label(bert):
    two = [TextExample("Ann", ("a", "b"), line=7)]
    with pytest.raises(InputError, match=r"wanted one label .*multi_label.*, got a, b .line 7."):
        make_task("classification").encode(two, make_tokenizer(bert))


def test_scoring_wants_labels(bert):
    examples = [PairExample("a", "b", label, line=3) for label in ("0", "1", None)]
    task = make_task("pairs")
    task = task.fit(task.encode(examples, make_tokenizer(bert)))
    with pytest.raises(InputError, match=r"wanted a label to score against, got none .line 3."):
        task.score([{"label": "0"}] * 3, examples)


CONTEXT = "  Ann\u200b e\u0301 visits 👩‍👩‍👧 in Paris."


@pytest.mark.parametrize("encoder", ["bert", "xlnet"])
@pytest.mark.parametrize("positions", ["softmax", "sigmoid"])
def test_qa(request, encoder, positions):
    def ask(text):
        start = CONTEXT.index(text)
        return QAExample("x", "who?", CONTEXT, (Answer(((start, start + len(text)),), (text,)),))

    examples = [
        ask("Ann"),
        ask("Paris."),
        ask("👩‍👩‍👧"),
        ask("e\u0301"),
        ask(CONTEXT[0]),
        QAExample("empty", "", "", ()),
        QAExample("blank", "   ", " \t ", ()),
        QAExample("long", "why " * 500, "the " * 500 + "end", (Answer(((2000, 2003),), ("end",)),)),
    ]
    task = make_task("qa", positions=positions, no_answer=True, max_question=20)
    folder = request.getfixturevalue(encoder)
    _, predictions, _ = run(task, examples, folder)
    for item, example in zip(predictions, examples, strict=True):
        assert item["answer"] in example.context


@pytest.mark.parametrize("positions", ["softmax", "sigmoid"])
def test_questions_that_are_all_impossible(bert, positions):
    examples = [QAExample(str(i), "who?", "the work", ()) for i in range(3)]
    _, predictions, scores = run(
        make_task("qa", positions=positions, no_answer=True), examples, bert
    )
    assert scores["f1"] == 1.0 or {item["answer"] for item in predictions} != {""}


@pytest.mark.parametrize("match", ["none", "concat"])
def test_mrc_ner(bert, match):
    words = tuple(ODD[2:])
    examples = [
        MrcExample("0", "who?", "PER", words, ((0, 1), (len(words) - 1, len(words)))),
        MrcExample("1", "who?", "PER", (), ()),
        MrcExample("2", "", "LOC", ("Ann",), ((0, 1),)),
        MrcExample("3", "who?", "PER", ("the",) * 5000, ((4999, 5000),)),
    ]
    run(make_task("mrc_ner", match=match, answerable=True), examples, bert)


def test_span_ner(bert):
    words = tuple(ODD[2:])
    last = (len(words) - 1, len(words), "PER")
    examples = [
        SpanSentence(words, (), 1, spans=((0, 1, "PER"), (0, len(words), "ORG"), last)),
        SpanSentence((), (), 2),
        SpanSentence(("Ann",), (), 3, spans=((0, 1, "LOC"),)),
        SpanSentence(("the",) * 5000, (), 4, spans=((4990, 5000, "LOC"),)),
    ]
    run(make_task("span_ner", nested=True), examples, bert)


@pytest.mark.parametrize(
    ("kind", "options"),
    [(kind, {}) for kind in ("tagging", "classification", "pairs", "qa", "mrc_ner", "span_ner")],
)
def test_no_examples(bert, kind, options):
    task = make_task(kind, **options)
    features = task.encode([], make_tokenizer(bert))
    assert len(features) == 0
    assert task.notes(features) == []


@pytest.mark.parametrize(
    "kind", ["tagging", "classification", "pairs", "qa", "mrc_ner", "span_ner"]
)
def test_rows_without_room_for_text(bert, kind):
    with pytest.raises(InputError, match=r"wanted task.max_length of \d ids or more, got 3"):
        make_task(kind, max_length=3).encode(EXAMPLES[kind], make_tokenizer(bert))


def test_rows_may_be_as_long_as_the_encoder_can():
    tokenizer = make_tokenizer("bilstm", [["ann"]])
    words = [sentence(["ann"] * 3000)]
    assert len(make_task("tagging").encode(words, tokenizer)) > 1
    assert len(make_task("tagging", max_length=3000).encode(words, tokenizer)) == 1
