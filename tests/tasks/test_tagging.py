import dataclasses

import numpy as np
import pytest
import torch

from softf1.data.examples import TaggedSentence
from softf1.errors import InputError
from softf1.models.encoders import make_tokenizer
from softf1.tasks.base import join
from softf1.tasks.registry import load_task, make_task, save_task

SENTENCES = [
    TaggedSentence(("Ann", "visits", "Paris", "."), ("B-PER", "O", "B-LOC", "O"), line=1),
    TaggedSentence(("Bob", "Ann", "working"), ("B-PER", "I-PER", "O"), line=6),
    TaggedSentence(("\x00", "Paris"), ("O", "B-LOC"), line=10),
]
LONG = TaggedSentence(
    tuple(f"{word}{i}" for i in range(30) for word in ("ann", "works")),
    ("B-PER", "O") * 30,
    line=13,
)


def perfect(task, features, tokenizer, *, size=2):
    """What a model that knows the targets would give; words without a target get the last tag."""
    for start in range(0, len(features), size):
        batch = task.collate(features, range(start, min(start + size, len(features))), tokenizer)
        target = batch.targets["tags"].clamp(min=-1) % len(task.labels)
        logits = torch.nn.functional.one_hot(target, len(task.labels)).float()
        yield task.gather({"tags": logits}, batch)


@pytest.fixture
def tokenizer(bert):
    return make_tokenizer(bert)


def fitted(examples, tokenizer, **options):
    task = make_task("tagging", **options)
    features = task.encode(iter(examples), tokenizer)
    return task.fit(features), features


def test_pieces_are_those_of_the_tokenizer(tokenizer):
    task, features = fitted(SENTENCES[:2], tokenizer)
    batch = task.collate(features, [0, 1], tokenizer)
    for row, mask, example in zip(
        batch.inputs["input_ids"], batch.inputs["attention_mask"], SENTENCES, strict=False
    ):
        wanted = tokenizer.tokenizer(list(example.words), is_split_into_words=True)["input_ids"]
        assert row[mask.bool()].tolist() == wanted


def test_targets_stand_at_first_pieces_only(tokenizer):
    task, features = fitted(SENTENCES, tokenizer)
    batch = task.collate(features, [1], tokenizer, width=12)
    ids = batch.inputs["input_ids"][0].tolist()
    tokens = tokenizer.tokenizer.convert_ids_to_tokens(ids)
    assert tokens[:6] == ["[CLS]", "bob", "ann", "work", "##ing", "[SEP]"]
    labelled = [task.labels[t] if t >= 0 else None for t in batch.targets["tags"][0].tolist()]
    assert labelled[:6] == [None, "B-PER", "I-PER", "O", None, None]
    assert batch.inputs["input_ids"].shape == (1, 12)
    assert labelled[6:] == [None] * 6


def test_a_word_without_pieces_is_labelled_and_scored(tokenizer):
    ids, counts = tokenizer.pieces(["\x00"])
    assert (ids.tolist(), counts.tolist()) == ([], [0])
    task, features = fitted(SENTENCES, tokenizer)
    batch = task.collate(features, [2], tokenizer)
    assert (batch.targets["tags"] >= 0).sum() == 2
    predictions = task.decode(join(perfect(task, features, tokenizer)), features)
    assert predictions[2]["tags"] == ["O", "B-LOC"]


@pytest.mark.parametrize("max_length", [6, 7, 9, 16, 33, None])
@pytest.mark.parametrize("overlap", [None, 0, 4, 100])
def test_long_sentences_are_cut_and_merged_without_loss(tokenizer, max_length, overlap):
    examples = [*SENTENCES, LONG, SENTENCES[0]]
    task, features = fitted(examples, tokenizer, max_length=max_length, overlap=overlap)
    assert features["length"].max() <= (max_length or tokenizer.window)
    targets = sum(
        int((task.collate(features, [i], tokenizer).targets["tags"] >= 0).sum())
        for i in range(len(features))
    )
    assert targets == sum(len(example.words) for example in examples), "each word exactly once"
    predictions = task.decode(join(perfect(task, features, tokenizer)), features)
    assert [tuple(p["tags"]) for p in predictions] == [e.tags for e in examples]
    assert task.score(predictions, examples)["f1"] == 1.0


def test_batches_may_come_in_any_order_but_not_go_missing(tokenizer):
    task, features = fitted([*SENTENCES, LONG], tokenizer, max_length=12)
    parts = list(perfect(task, features, tokenizer))
    assert task.decode(join(parts[::-1]), features) == task.decode(join(parts), features)
    with pytest.raises(ValueError, match="wanted logits for"):
        task.decode(join(parts[1:]), features)


def test_labels_come_from_train_and_an_unseen_one_is_scored_but_never_predicted(tokenizer):
    task, _ = fitted(SENTENCES, tokenizer)
    dev = [TaggedSentence(("Ann", "visits"), ("B-PER", "B-EVENT"), line=1)]
    features = task.encode(dev, tokenizer)
    assert task.labels == ("O", "B-LOC", "B-PER", "I-PER")
    assert task.collate(features, [0], tokenizer).targets["tags"].tolist() == [
        [-100, 2, -100, -100]
    ]
    predictions = task.decode(join(perfect(task, features, tokenizer)), features)
    scores = task.score(predictions, dev)
    assert scores["labels"]["EVENT"]["support"] == 1
    assert scores["labels"]["EVENT"]["recall"] == 0.0
    assert task.notes(features) == ["B-EVENT not in the training data: scored, never predicted"]
    assert task.notes(task.encode(SENTENCES, tokenizer)) == []


def test_untagged_input_can_be_predicted(tokenizer):
    task, _ = fitted(SENTENCES, tokenizer)
    features = task.encode([TaggedSentence(("Ann", "works"), (), line=1)], tokenizer)
    batch = task.collate(features, [0], tokenizer)
    assert (batch.targets["tags"] == -100).all()
    predictions = task.decode(join(perfect(task, features, tokenizer)), features)
    assert len(predictions[0]["tags"]) == 2
    assert task.notes(features) == []
    with pytest.raises(InputError, match="wanted tags to score against"):
        task.score(predictions, [TaggedSentence(("Ann", "works"), (), line=1)])


def test_joint_segmentation_scores_words_with_their_part_of_speech(tokenizer):
    # 小王 | 在 | 北京 | 工作 : the middle cut is wrong, so 北京 and 工作 are both lost.
    gold = TaggedSentence(("小王", "在", "北京", "工作"), ("PROPN", "ADP", "PROPN", "VERB"), line=1)
    task, features = fitted([gold], tokenizer, unit="joint")
    assert task.spans == "BMES"
    found = join(perfect(task, features, tokenizer))
    perfect_tags = task.decode(found, features)[0]["tags"]
    assert perfect_tags == [
        "B-PROPN", "E-PROPN", "S-ADP", "B-PROPN", "E-PROPN", "B-VERB", "E-VERB"
    ]  # fmt: skip
    wrong = [*perfect_tags[:3], "S-PROPN", "B-VERB", "M-VERB", "E-VERB"]
    scores = task.score([{"tags": wrong}], [gold])
    assert (scores["precision"], scores["recall"]) == (0.5, 0.5)


def test_character_unit_keeps_spans(tokenizer):
    task, _ = fitted([SENTENCES[0]], tokenizer, unit="character", scheme="BIO")
    words, tags = task.units(SENTENCES[0])
    assert "".join(words) == "AnnvisitsParis."
    assert list(tags[:4]) == ["B-PER", "I-PER", "I-PER", "O"]


def test_scheme_is_found_and_converted(tokenizer):
    iob1 = [
        TaggedSentence(("Ann", "Bob", "."), ("I-PER", "B-PER", "O"), line=1),
        TaggedSentence(("Paris", "."), ("I-LOC", "O"), line=5),
    ]
    assert fitted(iob1, tokenizer)[0].spans == "IOB1"
    task, _ = fitted(iob1, tokenizer, scheme="BIOES")
    assert task.spans == "BIOES"
    assert task.labels == ("O", "S-LOC", "S-PER")
    plain = [TaggedSentence(("Ann", "works"), ("NNP", "VBZ"), line=1)]
    assert fitted(plain, tokenizer)[0].spans is None


def test_class_counts_count_every_word_once(tokenizer):
    task, features = fitted([*SENTENCES, LONG], tokenizer, max_length=12)
    counts = dict(zip(task.labels, task.class_counts(features)["tags"].tolist(), strict=True))
    assert counts == {"O": 34, "B-LOC": 2, "B-PER": 32, "I-PER": 1}


def test_model_gives_logits_with_the_keys_of_the_targets(tokenizer, bert):
    task, features = fitted([*SENTENCES, LONG], tokenizer, max_length=12)
    model = task.build_model(bert, tokenizer)
    batch = task.collate(features, [0, 1, 2], tokenizer)
    logits = task.logits(model(**batch.inputs), batch)
    assert logits.keys() == batch.targets.keys()
    assert logits["tags"].shape == (*batch.targets["tags"].shape, len(task.labels))
    assert model.config.id2label == dict(enumerate(task.labels))
    assert model.dtype == torch.float32


@pytest.mark.parametrize("encoder", ["bert", "xlnet", "bilstm"])
def test_what_a_word_gets_does_not_depend_on_its_batch(encoder, request):
    scratch = encoder == "bilstm"
    folder = encoder if scratch else request.getfixturevalue(encoder)
    words = [sentence.words for sentence in SENTENCES]
    tokenizer = make_tokenizer(folder, words)
    task, features = fitted(SENTENCES, tokenizer)
    model = task.build_model(folder, tokenizer).eval()

    def run(batches):
        found = []
        for items in batches:
            batch = task.collate(features, items, tokenizer, width=20 if len(items) > 1 else None)
            found.append(task.gather(task.logits(model(**batch.inputs), batch), batch))
        found = join(found)
        return found["logits"][np.argsort(found["word"])]

    np.testing.assert_allclose(run([[0, 1, 2]]), run([[2], [1], [0]]), atol=1e-5)


def test_a_saved_task_is_the_same_task(tokenizer, tmp_path):
    task, _ = fitted(SENTENCES, tokenizer, max_length=12)
    task = dataclasses.replace(task, biases=(-0.5, 0.0, 0.0, 0.0))
    save_task(task, tmp_path)
    assert load_task(tmp_path) == task


def test_the_outside_bias_is_tuned_and_used(tokenizer):
    examples = [SENTENCES[0]] * 10
    task, features = fitted(examples, tokenizer)
    found = join(perfect(task, features, tokenizer))
    timid = found | {"logits": found["logits"] * 0.5 + np.array([0.7, 0, 0])}
    assert task.score(task.decode(timid, features), examples)["f1"] == 0.0
    tuned = task.tune(timid, features, examples)
    assert tuned.biases[0] < 0
    assert tuned.score(tuned.decode(timid, features), examples)["f1"] == 1.0
    assert task.tune(found, features, examples) == task


def test_biases_of_plain_tags_are_tuned_and_used(tokenizer):
    examples = [TaggedSentence(("Ann", "works", "."), ("NNP", "VBZ", "."), line=1)] * 10
    task, features = fitted(examples, tokenizer)
    found = join(perfect(task, features, tokenizer))
    timid = found | {"logits": found["logits"] * 0.5 + np.array([0.0, 0.7, 0.0])}  # all NNP
    assert task.score(task.decode(timid, features), examples)["accuracy"] == pytest.approx(1 / 3)
    tuned = task.tune(timid, features, examples)
    assert tuned.score(tuned.decode(timid, features), examples)["accuracy"] == 1.0
    assert task.tune(found, features, examples) == task


def test_the_confidence_of_a_tag_is_its_probability_with_the_bias(tokenizer):
    task, features = fitted(SENTENCES[:1], tokenizer)  # Ann visits Paris .
    found = join(perfect(task, features, tokenizer))  # a logit of 1 at the right tag, 0 elsewhere
    (plain,) = task.decode(found, features)
    # e / (e + 2) of three labels
    right = np.e / (np.e + 2)
    assert plain["confidence"] == pytest.approx([right] * 4, abs=1e-6)
    (tuned,) = dataclasses.replace(task, biases=(0.5, 0.0, 0.0)).decode(found, features)
    # O has e^1.5 of e^1.5 + 2; the others e of e + e^0.5 + 1
    outside, inside = np.exp(1.5) / (np.exp(1.5) + 2), np.e / (np.e + np.exp(0.5) + 1)
    assert tuned["confidence"] == pytest.approx([inside, outside, inside, outside], abs=1e-6)


def test_the_confidence_of_an_entity_is_the_product_of_its_tags(tokenizer):
    task, features = fitted(SENTENCES[1:2], tokenizer)  # Bob Ann working: B-PER I-PER O
    (found,) = task.decode(join(perfect(task, features, tokenizer)), features)
    (entity,) = task.details(found)["entities"]
    both = found["confidence"][0] * found["confidence"][1]
    assert (entity["label"], entity["start"], entity["end"]) == ("PER", 0, 2)
    assert entity["confidence"] == pytest.approx(both, abs=1e-6)
    assert dataclasses.replace(task, spans=None).details(found) == {}


LONE = TaggedSentence(("Ann", "Bob", "ran"), ("I-PER", "I-PER", "O"), line=20)


def test_a_span_without_a_beginning_is_noted(tokenizer):
    """Strict scores leave it out of the gold spans, so you should know."""
    examples = [*SENTENCES, LONE, dataclasses.replace(LONE, tags=("O", "I-LOC", "I-PER"))]
    task, features = fitted(examples, tokenizer)
    found = task.notes(features)
    assert len(found) == 1
    assert found[0].startswith("3 tags cannot follow the tag before in BIO, such as I-LOC after O")
    task, features = fitted(examples, tokenizer, scheme="BIO")  # what the note says to do
    assert task.notes(features) == []
    own = task.notes(task.encode([LONE], tokenizer))
    assert own == []


def test_a_span_without_an_end_is_noted(tokenizer):
    examples = [
        TaggedSentence(("Ann", "Bob", "ran"), ("B-PER", "E-PER", "O"), line=1),
        TaggedSentence(("Ann", "Bob", "Ann"), ("S-PER", "B-PER", "I-PER"), line=5),
    ]
    task, features = fitted(examples, tokenizer)
    assert task.spans == "BIOES"
    (found,) = task.notes(features)
    assert found.startswith("1 tag cannot follow the tag before in BIOES, such as O after I-PER")


def test_tags_as_their_scheme_has_them_need_no_note(tokenizer):
    task, features = fitted(SENTENCES, tokenizer)
    assert task.notes(features) == []
    unlabelled = [TaggedSentence(("Ann", "ran"), (), line=1)]
    assert task.notes(task.encode(unlabelled, tokenizer)) == []
