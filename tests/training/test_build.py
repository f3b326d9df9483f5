"""How a model starts: the seed, the bias of its head, dropout."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from softf1.data.examples import TextExample
from softf1.recipe import with_values
from softf1.recipe.auto import Choice
from softf1.training.build import make_model, note_consistency, resolve_auto, set_dropout
from softf1.training.datasets import load_datasets
from softf1.training.processes import Processes
from softf1.training.run import train_run
from softf1.training.trainer import make_trainer
from tests.training.test_run import case
from tests.training.toys import make_data, make_recipe


def build(name, bert, **values):
    recipe, data = case(name, bert)
    datasets = load_datasets(recipe, data)
    return make_model(with_values(recipe, values), datasets), datasets, data


def test_the_bias_of_a_softmax_is_the_log_prior():
    recipe = make_recipe()
    datasets = load_datasets(recipe, make_data())
    bias = make_model(recipe, datasets).classifier.bias
    tags = [tag for example in make_data()["train"] for tag in example.tags]
    # log((n_c + 1) / (n + C)) with the counts of the file
    wanted = [math.log((tags.count(t) + 1) / (len(tags) + 3)) for t in datasets.task.labels]
    torch.testing.assert_close(bias.detach(), torch.tensor(wanted))


def test_the_bias_of_sigmoids_is_the_log_odds(bert):
    model, datasets, data = build("multi-label", bert)
    texts = len(data["train"])
    for label, bias in zip(datasets.task.labels, model.classifier.bias.tolist(), strict=True):
        positive = sum(label in example.labels for example in data["train"])
        assert bias == pytest.approx(math.log((positive + 1) / (texts - positive + 1)), rel=1e-5)


def test_starts_and_ends_have_their_own(bert):
    model, datasets, data = build("mrc_ner", bert)
    words = sum(len(example.words) for example in data["train"])
    spans = sum(len(example.spans) for example in data["train"])
    wanted = math.log((spans + 1) / (words - spans + 1))
    assert model.start.bias.item() == pytest.approx(wanted, rel=1e-5)
    assert model.end.bias.item() == pytest.approx(wanted, rel=1e-5)
    found = datasets.task.class_counts(datasets.features["train"])["span"][0]
    assert model.match.out.bias.item() == pytest.approx(math.log((found[1] + 1) / (found[0] + 1)))


def test_positions_have_no_prior(bert):
    model, _, _ = build("qa", bert)
    assert model.qa_outputs.bias.tolist() == [0, 0]


def test_zero_is_zero(bert):
    for name in ("tagging", "multi-label", "qa-sigmoid"):
        model, datasets, _ = build(name, bert, **{"train.head_bias": "zero"})
        for head in datasets.task.heads(model).values():
            assert head.layer.bias.abs().sum() == 0


def test_a_head_without_a_bias_starts_without(bert):
    recipe, data = case("tagging", bert)
    datasets = load_datasets(recipe, data)
    old = type(datasets.task).build_model

    def build(task, *args, **options):
        model = old(task, *args, **options)
        model.classifier = nn.Linear(16, 3, bias=False)
        return model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(datasets.task), "build_model", build)
        assert make_model(recipe, datasets).classifier.bias is None


def test_the_seed_makes_the_weights(bert):
    def weights(seed):
        model, _, _ = build("tagging-batch", bert, **{"train.seed": seed})
        return model.classifier.weight.detach()

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_dropout_is_that_of_the_recipe_everywhere(bert):
    model, _, _ = build("tagging-batch", bert, **{"encoder.dropout": 0.4})
    found = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    assert len(found) > 3
    assert set(found) == {0.4}
    assert model.config.hidden_dropout_prob == model.config.attention_probs_dropout_prob == 0.4


def test_dropout_that_is_kept_as_a_number_changes_too():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_dropout, self.use_dropout, self.dropouts = 0.1, True, [0.1]

    model = nn.ModuleList([Attention(), nn.LSTM(2, 2, num_layers=2, dropout=0.3)])
    set_dropout(model, 0.0)
    attention, lstm = model
    assert (attention.attention_dropout, lstm.dropout) == (0.0, 0.0)
    assert (attention.use_dropout, attention.dropouts) == (True, [0.1])


def test_without_a_word_about_dropout_the_encoder_says(bert):
    model, _, _ = build("tagging-batch", bert)
    assert model.bert.embeddings.dropout.p == 0.1


def test_a_rate_for_pretrained_weights_is_noted_where_there_are_none(bert):
    recipe = make_recipe()
    datasets = load_datasets(recipe, make_data())
    low = with_values(recipe, {"train.lr": 1e-4})
    low_note = "note: train.lr = 0.0001 is low for bilstm, which trains from scratch"
    low_note += "; 0.001 is usual"
    assert resolve_auto(low, datasets)[2] == [low_note]
    assert resolve_auto(with_values(low, {"loss.name": "auto"}), datasets)[2][1:] == [low_note]
    assert resolve_auto(with_values(recipe, {"train.lr": 1e-3}), datasets)[2] == []
    assert resolve_auto(with_values(low, {"encoder.name": str(bert)}), datasets)[2] == []


@pytest.mark.parametrize(("positive", "loss"), [("bad", "wce"), ("good", "ce"), (None, "wce")])
def test_auto_asks_which_of_two_labels_is_positive(positive, loss):
    task = {"kind": "classification"} | ({"positive": positive} if positive else {})
    recipe = make_recipe(task, encoder={"name": "textcnn"}, loss={"name": "auto"})
    texts = [TextExample(f"a text {n}", ("good" if n % 10 else "bad",), line=n) for n in range(80)]
    chosen, _, _ = resolve_auto(recipe, load_datasets(recipe, {"train": texts, "dev": texts}))
    assert chosen.loss.name == loss


def test_a_task_that_auto_changes_keeps_its_positive_label(monkeypatch):
    shorter = Choice({"loss.name": "ce", "task.max_length": 9}, "shorter", {})
    monkeypatch.setattr("softf1.training.build.choose_values", lambda *_, **__: shorter)
    recipe = make_recipe(
        {"kind": "classification"}, encoder={"name": "textcnn"}, loss={"name": "auto"}
    )
    texts = [TextExample(f"a text {n}", ("good" if n % 2 else "bad",), line=n) for n in range(9)]
    datasets = load_datasets(recipe, {"train": texts, "dev": texts})
    # 4 of all texts are good and 5 bad, but 2 of these are good and 1 is bad.
    few = datasets.task.encode(texts[1:4], datasets.tokenizer)
    task = resolve_auto(recipe, replace(datasets, features={"train": few}))[1].task
    assert (task.max_length, task.positive_label) == (9, "good")


@pytest.mark.parametrize(
    ("dropout", "consistency", "noted"), [(0, 1, True), (0.1, 1, False), (0, 0, False)]
)
def test_consistency_without_dropout_is_noted(dropout, consistency, noted, tmp_path, capsys):
    values = {"encoder.dropout": float(dropout), "train.consistency": float(consistency)}
    recipe = with_values(make_recipe(train={"max_steps": 1}), values)
    train_run(recipe, tmp_path / "run", data=make_data())
    shown = capsys.readouterr()
    said = "note: train.consistency = 1 only costs time here: the model has no dropout"
    assert (said in shown.out + shown.err) == noted


@pytest.mark.parametrize(
    ("asked", "found", "noted"), [(True, False, True), (True, True, False), (None, False, False)]
)
def test_what_is_asked_to_repeat_and_does_not_is_noted(asked, found, noted, tmp_path, monkeypatch):
    monkeypatch.setattr("softf1.training.trainer.is_deterministic", lambda *_: found)
    recipe = make_recipe(train={} if asked is None else {"deterministic": asked})
    _, notes = make_trainer(recipe, tmp_path, Processes(), lambda r: load_datasets(r, make_data()))
    said = 'does not cover what train.compile = "inductor" compiles on a GPU'
    assert any(said in note for note in notes) == noted


def test_dropout_is_found_where_set_dropout_sets_it(bert):
    model, _, _ = build("tagging-batch", bert)
    assert note_consistency(model, 1.0) == []
    set_dropout(model, 0.0)
    assert note_consistency(model, 1.0)
    assert note_consistency(model, None) == []
    model.add_module("planes", torch.nn.Dropout2d(0.1))
    assert note_consistency(model, 1.0) == []
