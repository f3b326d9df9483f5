"""Scores for the Trainer, against scikit-learn and seqeval; decisions in the model's config."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score
from transformers import AutoConfig, AutoModelForTokenClassification, EvalPrediction, Trainer

from softf1.integrations.transformers import (
    ClassMetrics,
    LabelSetMetrics,
    TagMetrics,
    Tune,
    decide,
)
from tests.integrations.transformers import cases

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
LABELS = ["a", "b", "c"]
SEQEVAL = {  # what it says of `tagged`
    "precision": 0.43670886075949367,
    "recall": 0.6388888888888888,
    "f1": 0.5187969924812029,
    "macro_f1": 0.5212585034013606,
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def tagged(rng):
    gold = rng.choice(4, p=[0.7, 0.1, 0.1, 0.1], size=(40, 12))
    gold[rng.random((40, 12)) < 0.3] = -100
    logits = rng.normal(size=(40, 12, 4)) + 1.5 * np.eye(4)[gold.clip(0)]
    return EvalPrediction(predictions=logits, label_ids=gold)


def words(prediction):
    """Gold and predicted tags of each sentence."""
    kept = prediction.label_ids != -100
    chosen = prediction.predictions.argmax(-1)
    sides = (prediction.label_ids, chosen)
    return [
        [[TAGS[i] for i in row[own]] for row, own in zip(side, kept, strict=True)] for side in sides
    ]


def test_spans_are_seqevals(tagged):
    found = TagMetrics(labels=TAGS)(tagged)
    assert {name: found[name] for name in SEQEVAL} == pytest.approx(SEQEVAL, abs=1e-12)
    assert TagMetrics(labels=TAGS, scheme="BIO")(tagged)["f1"] != found["f1"]


@pytest.mark.needs_tool
def test_the_figures_of_spans_are_what_seqeval_says(tagged):
    seqeval = pytest.importorskip("seqeval.metrics", reason="seqeval is not installed")
    gold, predicted = words(tagged)
    assert {
        "precision": seqeval.precision_score(gold, predicted),
        "recall": seqeval.recall_score(gold, predicted),
        "f1": seqeval.f1_score(gold, predicted),
        "macro_f1": seqeval.f1_score(gold, predicted, average="macro"),
    } == pytest.approx(SEQEVAL, abs=1e-12)


def test_classes_are_scikit_learns(rng):
    gold = rng.integers(0, 3, 50)
    logits = rng.normal(size=(50, 3)) + np.eye(3)[gold]
    found = ClassMetrics(labels=LABELS, positive="b")((logits, gold))
    chosen = logits.argmax(-1)
    assert found["accuracy"] == pytest.approx(accuracy_score(gold, chosen))
    assert found["macro_f1"] == pytest.approx(f1_score(gold, chosen, average="macro"))
    assert found["f1"] == pytest.approx(f1_score(gold == 1, chosen == 1))
    assert "f1" not in ClassMetrics(labels=LABELS)((logits, gold))


def test_label_sets_are_scikit_learns(rng):
    gold = rng.integers(0, 2, (50, 3))
    logits = rng.normal(size=(50, 3)) + gold
    hidden = (logits, np.zeros(3))  # a model that gives more than logits
    found = LabelSetMetrics(labels=LABELS)((hidden, gold.astype(float)))
    assert found["f1"] == pytest.approx(f1_score(gold, logits >= 0, average="micro"))
    assert found["macro_f1"] == pytest.approx(f1_score(gold, logits >= 0, average="macro"))
    assert found["subset_accuracy"] == pytest.approx(accuracy_score(gold, logits >= 0))


def test_tuned_thresholds_find_labels_below_a_half(rng):
    gold = rng.integers(0, 2, (200, 3))
    logits = rng.normal(size=(200, 3)) + 4 * gold - 5  # a model that never says yes
    metrics = LabelSetMetrics(labels=LABELS)
    config = AutoConfig.for_model("bert")
    config.softf1_decision = metrics.tune((logits, gold))
    assert config.softf1_decision["rule"] != "default"
    tuned = f1_score(gold, decide(logits, config), average="micro")
    assert tuned > metrics((logits, gold))["f1"] + 0.3


@pytest.mark.parametrize("positive", ["a", None])
def test_tuned_biases_find_rare_classes(rng, positive):
    gold = rng.choice(3, p=[0.1, 0.1, 0.8], size=300)
    logits = rng.normal(size=(300, 3)) + 3 * np.eye(3)[gold] + [0, 0, 4]
    metrics = ClassMetrics(labels=LABELS, positive=positive)
    config = AutoConfig.for_model("bert")
    config.softf1_decision = metrics.tune((logits, gold))
    name = "macro_f1" if positive is None else "f1"
    moved = logits + config.softf1_decision["biases"]
    np.testing.assert_array_equal(decide(logits, config), moved.argmax(-1))
    assert metrics((moved, gold))[name] > metrics((logits, gold))[name] + 0.1


def test_without_a_decision_nothing_is_guessed():
    with pytest.raises(ValueError, match="softf1_decision"):
        decide(np.zeros((2, 3)), AutoConfig.for_model("bert"))


class Scripted(Trainer):
    """Gives these scores of evaluation one after the other, so that the first model is best."""

    scores = (0.9, 0.1)

    def evaluate(self, *args, **kwargs):
        metrics = super().evaluate(*args, **kwargs)
        metrics["eval_chosen"] = self.scores[self.state.global_step - 1]
        return metrics


@pytest.mark.parametrize("best", [True, False])
def test_the_decision_is_saved_with_the_model(best, tmp_path):
    tune = Tune(TagMetrics(labels=TAGS))
    made = cases.make_trainer(
        cases.FUNCTION[0],
        tmp_path,
        size=8,
        accumulate=1,
        trainer=Scripted,
        given={
            "eval_dataset": cases.make_items("tags"),
            "compute_metrics": tune,
            "callbacks": [tune],
        },
        save_strategy="steps",
        save_steps=1,
        eval_strategy="steps",
        eval_steps=1,
        load_best_model_at_end=best,
        metric_for_best_model="chosen",
    )
    made.train()
    decisions = [
        AutoConfig.from_pretrained(tmp_path / f"checkpoint-{step}").softf1_decision
        for step in (1, 2)
    ]
    assert decisions[0]["honest"] != decisions[1]["honest"]
    assert made.model.config.softf1_decision == decisions[0 if best else 1]
    logged = [entry["eval_tuned_f1"] for entry in made.state.log_history if "eval_loss" in entry]
    wanted = [decision["honest"][decision["rule"]] for decision in decisions]
    assert logged[:2] == pytest.approx(wanted)

    made.save_model(tmp_path / "saved")
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "saved")
    batch = cases.collate(made.eval_dataset)
    del batch["labels"]
    with torch.no_grad():
        logits = model(**batch).logits.numpy()
    assert decide(logits, model.config).shape == logits.shape[:-1]


def test_a_callback_that_sees_no_predictions_says_so(tmp_path):
    made = cases.make_trainer(cases.FUNCTION[0], tmp_path, size=8, accumulate=1)
    made.add_callback(Tune(TagMetrics(labels=TAGS)))
    with pytest.raises(ValueError, match="compute_metrics too"):
        made.evaluate(cases.make_items("tags"))
