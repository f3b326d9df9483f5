import math

import numpy as np
import pytest
import torch

from softf1.data.examples import MrcExample
from softf1.errors import InputError
from softf1.models.encoders import make_tokenizer
from softf1.tasks.base import join
from softf1.tasks.registry import load_task, make_task, save_task

WORDS = ("Paris", "Ann", "visits", "Paris", "working")
QUERIES = {"PER": "who?", "LOC": "in the north?"}
EXAMPLES = [
    MrcExample("0.1", QUERIES["PER"], "PER", WORDS, ((0, 2),)),
    MrcExample("0.2", QUERIES["LOC"], "LOC", WORDS, ((3, 4),)),
    MrcExample("1.1", QUERIES["PER"], "PER", ("the", "work"), ()),
    MrcExample("1.2", QUERIES["LOC"], "LOC", ("the", "work"), ((0, 2), (0, 1))),
]
LONG = MrcExample(
    "2.1", "who?", "PER", tuple(f"w{i}" for i in range(60)), ((0, 1), (10, 14), (27, 31), (58, 60))
)
KINDS = ["none", "concat", "biaffine"]


@pytest.fixture
def tokenizer(bert):
    return make_tokenizer(bert)


def encoded(tokenizer, examples=EXAMPLES, **options):
    task = make_task("mrc_ner", **options)
    features = task.encode(iter(examples), tokenizer)
    return task.fit(features), features


def perfect(task, features, tokenizer, size=2):
    """Logits of a model that knows the targets and proposes all pairs of gold starts and ends."""
    for first in range(0, len(features), size):
        batch = task.collate(features, range(first, min(first + size, len(features))), tokenizer)
        logits = {key: 10 * target.clamp(min=0) - 5 for key, target in batch.targets.items()}
        if task.match != "none":
            logits["proposed"], logits["match"] = batch.inputs["pairs"], logits["span"]
        yield task.gather(logits, batch)


def spans_of(predictions):
    return [[tuple(span) for span in item["spans"]] for item in predictions]


@pytest.mark.parametrize("match", KINDS)
@pytest.mark.parametrize("answerable", [False, True])
def test_gold_in_gives_gold_out(tokenizer, match, answerable):
    task, features = encoded(tokenizer, EXAMPLES[:3], match=match, answerable=answerable)
    found = join(perfect(task, features, tokenizer))
    predictions = task.decode(found, features, EXAMPLES[:3])
    assert spans_of(predictions) == [[(0, 2)], [(3, 4)], []]
    assert task.score(predictions, EXAMPLES[:3])["f1"] == 1.0


def test_a_repeated_word_is_labelled_where_it_stands(tokenizer):
    task, features = encoded(tokenizer)
    batch = task.collate(features, [1], tokenizer)
    tokens = tokenizer.tokenizer.convert_ids_to_tokens(batch.inputs["input_ids"][0].tolist())
    start = batch.targets["start"][0, :, 0]
    second = [i for i, token in enumerate(tokens) if token == "paris"][1]
    assert (start == 1).nonzero().flatten().tolist() == [second]


@pytest.mark.parametrize("encoder", ["bert", "xlnet"])
def test_query_padding_and_later_pieces_are_in_no_loss(encoder, request):
    tokenizer = make_tokenizer(request.getfixturevalue(encoder))
    task, features = encoded(tokenizer)
    batch = task.collate(features, [0, 2], tokenizer, width=32)
    tokens = [tokenizer.tokenizer.convert_ids_to_tokens(row) for row in batch.inputs["input_ids"]]
    for row, example in zip(range(2), (EXAMPLES[0], EXAMPLES[2]), strict=True):
        for key in ("start", "end"):
            kept = (batch.targets[key][row, :, 0] != -100).nonzero().flatten().tolist()
            assert len(kept) == len(example.words)
            assert (batch.inputs["token_type_ids"][row, kept] == 1).all()
            assert not any(tokens[row][i].startswith(("##", "[")) for i in kept)


def test_nested_and_flat(tokenizer):
    both = EXAMPLES[2:]
    for nested, wanted in ((True, [[], [(0, 1), (0, 2)]]), (False, [[], [(0, 1)]])):
        task, features = encoded(tokenizer, both, nested=nested)
        predictions = task.decode(join(perfect(task, features, tokenizer)), features, both)
        assert spans_of(predictions) == wanted


def test_overlaps_are_said_where_only_flat_spans_are_given(tokenizer):
    """Of one label, and of two that ask about one sentence."""
    across = [EXAMPLES[0], MrcExample("0.2", QUERIES["LOC"], "LOC", WORDS, ((0, 1), (3, 4)))]
    for examples, count in ((EXAMPLES, 1), (across, 1), (EXAMPLES[:3], 0)):
        task, features = encoded(tokenizer, examples)
        said = f"{count} spans overlap another one; predictions never do: set task.nested = true"
        assert task.notes(features) == [said] * count
        task, features = encoded(tokenizer, examples, nested=True)
        assert task.notes(features) == []


def test_numbers_that_are_not_finite_are_seen(tokenizer):
    task, features = encoded(tokenizer, EXAMPLES[:2], match="none")
    batch = task.collate(features, [0, 1], tokenizer)
    logits = {key: target.clamp(min=0) - 0.5 for key, target in batch.targets.items()}
    assert task.gather(logits, batch)["sound"].tolist() == [0, 0]
    logits["end"][1, 3] = float("nan")
    assert np.isfinite(task.gather(logits, batch)["sound"]).tolist() == [True, False]


def test_flat_looks_at_all_labels_of_a_sentence(tokenizer):
    task, features = encoded(tokenizer, EXAMPLES[:2])
    found = {
        "seen": np.arange(2),
        "item": np.array([0, 1, 1]),
        "start": np.array([0, 1, 3]),
        "end": np.array([2, 3, 4]),
        "score": np.array([1.0, 2.0, 0.5]),
        "confidence": np.array([0.6, 0.9, 0.5]),
    }
    assert spans_of(task.decode(found, features, EXAMPLES[:2])) == [[], [(1, 3), (3, 4)]]


def test_two_equal_sentences_are_two_sentences(tokenizer):
    twice = [EXAMPLES[0], EXAMPLES[0]]
    task, features = encoded(tokenizer, twice)
    predictions = task.decode(join(perfect(task, features, tokenizer)), features, twice)
    assert spans_of(predictions) == [[(0, 2)], [(0, 2)]]


@pytest.mark.parametrize("match", KINDS)
def test_long_contexts_are_cut_and_merged(tokenizer, match):
    examples = [EXAMPLES[0], LONG]
    options = {"match": match, "max_length": 30, "overlap": 12, "answerable": True}
    task, features = encoded(tokenizer, examples, **options)
    assert features["length"].max() <= 30
    assert len(features) > 5
    predictions = task.decode(join(perfect(task, features, tokenizer)), features, examples)
    assert spans_of(predictions) == [[(0, 2)], list(LONG.spans)]
    counts = task.class_counts(features)
    for item in range(len(features)):
        batch = task.collate(features, [item], tokenizer)
        for key, target in batch.targets.items():
            counts[key] = counts[key] - [int((target == 0).sum()), int((target == 1).sum())]
    assert all((left == 0).all() for left in counts.values())


def test_a_span_cut_by_the_window_is_no_negative(tokenizer):
    task, features = encoded(tokenizer, [LONG], max_length=30, overlap=0, match="none")
    for item in range(len(features)):
        first, end = int(features["first"][item]), int(features["end"][item])
        batch = task.collate(features, [item], tokenizer)
        columns = (batch.places["word"][0] >= 0).nonzero().flatten()
        for start, stop in LONG.spans:
            if first <= start < end < stop:
                assert batch.targets["start"][0, columns[start - first]] == -100
            if start < first < stop <= end:
                assert batch.targets["end"][0, columns[stop - 1 - first]] == -100


@pytest.mark.parametrize("candidates", ["all", "gold", "gold_random"])
def test_candidates(tokenizer, candidates):
    task, features = encoded(tokenizer, candidates=candidates)
    batch = task.collate(features, [0, 3], tokenizer)
    target = batch.targets["span"][..., 0]
    positives, negatives = (target == 1).sum(1).tolist(), (target == 0).sum(1).tolist()
    assert positives == [1, 2]
    if candidates == "gold":
        assert negatives == [0, 0]
    elif candidates == "all":
        assert negatives == [5 * 6 // 2 - 1, 3 - 2]
    again = task.collate(features, [3, 0], tokenizer)
    size = int((target[1] != -100).sum())
    assert again.inputs["pairs"][0, :size].equal(batch.inputs["pairs"][1, :size])


def test_random_candidates_follow_the_seed(tokenizer):
    long = [LONG]
    one, features = encoded(tokenizer, long, max_length=64)
    other, _ = encoded(tokenizer, long, max_length=64, seed=1)
    pairs = [task.collate(features, [0], tokenizer).inputs["pairs"] for task in (one, one, other)]
    assert pairs[0].equal(pairs[1])
    assert pairs[0].shape != pairs[2].shape or not pairs[0].equal(pairs[2])
    later = one.collate(features, [0], tokenizer, epoch=1)
    assert not later.inputs["pairs"].equal(pairs[0])
    gold = int((later.targets["span"] == 1).sum())
    assert later.inputs["pairs"][0, :gold].equal(pairs[0][0, :gold])


@pytest.mark.parametrize("encoder", ["bert", "xlnet"])
@pytest.mark.parametrize("match", KINDS)
def test_the_model_trains_saves_and_loads(encoder, match, request, tmp_path):
    from softf1.models.mrc import MrcNer

    folder = request.getfixturevalue(encoder)
    tokenizer = make_tokenizer(folder)
    task, features = encoded(tokenizer, match=match, answerable=True)
    model = task.build_model(folder, tokenizer)
    batch = task.collate(features, range(4), tokenizer)
    logits = task.logits(model.train()(**batch.inputs), batch)
    assert logits.keys() == batch.targets.keys() == task.heads(model).keys()
    for key, target in batch.targets.items():
        assert logits[key].shape == target.shape, key
    sum(values.sum() for values in logits.values()).backward()
    assert all(p.grad is not None for p in model.start.parameters())
    model.save_pretrained(tmp_path)
    save_task(task, tmp_path)
    loaded = MrcNer.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        one, other = model.eval()(**batch.inputs), loaded(**batch.inputs)
    for key, value in one.items():
        torch.testing.assert_close(other[key], value)
    again = load_task(tmp_path)
    assert again == task
    found = again.gather(again.logits(other, batch), batch)
    assert len(again.decode(found, features, EXAMPLES)) == len(EXAMPLES)


def test_tags_that_the_scheme_does_not_allow_are_repaired_when_asked(tmp_path):
    path = tmp_path / "train.conll"
    path.write_text("Ann I-PER\nBo B-PER\nsat O\n\nOslo I-LOC\n\nRome B-LOC\n")  # no O B- in IOB1
    with pytest.raises(InputError, match=":7: wanted a tag that can follow 'O' in IOB1"):
        list(make_task("mrc_ner", queries=QUERIES, format="conll").read(path))
    task = make_task("mrc_ner", queries=QUERIES, format="conll", repair=True)
    found = [(item.label, item.spans) for item in task.read(path) if item.spans]
    assert found == [("PER", ((0, 1), (1, 2))), ("LOC", ((0, 1),)), ("LOC", ((0, 1),))]


def test_queries_make_items_of_a_tagging_file(tmp_path):
    import json

    (tmp_path / "queries.json").write_text(json.dumps(QUERIES))
    (tmp_path / "train.txt").write_text("Ann B-PER\nvisits O\nParis B-LOC\n")
    task = make_task("mrc_ner", queries=str(tmp_path / "queries.json"), format="conll")
    assert task.queries == QUERIES
    items = list(task.read(tmp_path / "train.txt"))
    assert [(item.label, item.spans) for item in items] == [("PER", ((0, 1),)), ("LOC", ((2, 3),))]


def test_no_answer_silences_the_other_heads(tokenizer):
    task, features = encoded(tokenizer, EXAMPLES[:1], match="none", answerable=True)
    batch = task.collate(features, [0], tokenizer)
    logits = {key: 10 * target.clamp(min=0) - 5 for key, target in batch.targets.items()}
    assert len(task.gather(logits, batch)["item"]) == 1
    assert len(task.gather(logits | {"answerable": torch.tensor([[-1.0]])}, batch)["item"]) == 0


def test_a_model_that_finds_every_token_likely_proposes_a_bounded_number():
    from softf1.models.mrc import MOST_LIKELY, propose

    logits = torch.rand(2, 300, 1) + 0.1
    pairs = propose(logits, logits, torch.ones(2, 300))
    assert pairs.shape == (2, MOST_LIKELY**2, 2)
    assert int(logits[0, :, 0].argmax()) in pairs[0, :, 0]


def test_the_confidence_of_a_span_is_the_product_of_all_heads(tokenizer):
    asked = EXAMPLES[:3]
    task, features = encoded(tokenizer, asked, match="concat", answerable=True)
    predictions = task.decode(join(perfect(task, features, tokenizer)), features, asked)
    likely = 1 / (1 + math.exp(-5))  # every head has a logit of 5
    assert [len(item["confidence"]) for item in predictions] == [1, 1, 0]
    assert predictions[0]["confidence"] == pytest.approx([likely**4], abs=1e-6)
    task, features = encoded(tokenizer, asked, match="none")
    predictions = task.decode(join(perfect(task, features, tokenizer)), features, asked)
    assert predictions[0]["confidence"] == pytest.approx([likely**2], abs=1e-6)
