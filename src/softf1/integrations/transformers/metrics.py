"""Functions for the Trainer's `compute_metrics`, from softf1.metrics.

The callback `Tune` also tunes their thresholds or biases on every evaluation and stores them in the
model's config.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import TrainerCallback

from softf1.integrations.transformers.targets import IGNORE
from softf1.metrics.biases import tune_biases
from softf1.metrics.classification import accuracy, count_classes_ids, count_label_matrix
from softf1.metrics.schemes import OUTSIDE
from softf1.metrics.spans import count_lenient_ids, count_strict_ids
from softf1.metrics.thresholds import tune_thresholds
from softf1.tasks.card import DECISION

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from softf1.metrics.counts import Average, Counts

Decision = dict[str, Any]
"""A tuned decision for JSON: `rule`, cross-fitted (`honest`) scores, `biases` or `thresholds`."""


@dataclass(frozen=True, kw_only=True)
class TagMetrics:
    """Span scores of token classification; tokens labelled −100 are left out.

    Attributes:
        labels: The tag of each class.
        scheme: Count only spans that follow this scheme strictly, such as "BIO"; None uses
            conlleval's rules.

    >>> metrics = TagMetrics(labels=["O", "B-X", "I-X"])
    >>> logits = np.eye(3)[[[0, 1, 2], [1, 0, 0]]]  # as if sure
    >>> scores = metrics((logits, np.array([[-100, 1, 2], [0, 0, -100]])))
    >>> scores["precision"], scores["recall"], scores["f1"]
    (0.5, 1.0, 0.666...)
    """

    labels: Sequence[str]
    scheme: str | None = None

    def __call__(self, prediction: Any) -> dict[str, float]:
        """Returns micro precision, recall and F1 of spans, and their macro F1."""
        logits, gold, lengths = take_labelled(prediction)
        return _describe(self._count(gold, logits.argmax(-1), lengths))

    def tune(self, prediction: Any) -> Decision:
        """Returns a bias for O, if it is clearly better than none."""
        logits, gold, lengths = take_labelled(prediction)
        outside = list(self.labels).index(OUTSIDE)
        tuned = tune_biases(
            logits, gold, background=outside, count=self._count, average="micro", lengths=lengths
        )
        return _decision(tuned, biases=tuned.biases)

    def _count(self, gold: Any, chosen: Any, lengths: Any) -> Counts:
        where = {"lengths": lengths, "tags": self.labels}
        if self.scheme is None:
            return count_lenient_ids(gold, chosen, **where)
        return count_strict_ids(gold, chosen, scheme=self.scheme, **where)


@dataclass(frozen=True, kw_only=True)
class ClassMetrics:
    """Scores of texts with one label each.

    Attributes:
        labels: The name of each class.
        positive: The class whose precision, recall and F1 are given; None gives macro F1 only.

    >>> metrics = ClassMetrics(labels=["no", "yes"], positive="yes")
    >>> metrics((np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([1, 1])))["f1"]
    0.666...
    """

    labels: Sequence[str]
    positive: str | None = None

    def __call__(self, prediction: Any) -> dict[str, float]:
        """Returns accuracy, macro F1 and the scores of the positive class."""
        logits, gold, _ = take_labelled(prediction)
        counts = count_classes_ids(gold, logits.argmax(-1), labels=self.labels)
        scores = {"accuracy": accuracy(counts), "macro_f1": counts.macro().f}
        if self.positive is not None:
            one = counts[self.positive]
            scores |= {"precision": one.precision, "recall": one.recall, "f1": one.f}
        return scores

    def tune(self, prediction: Any) -> Decision:
        """Returns a bias for the most frequent class, if it is clearly better than none."""
        logits, gold, _ = take_labelled(prediction)
        tuned = tune_biases(
            logits,
            gold,
            background=int(np.bincount(gold).argmax()),
            count=self._count,
            average="macro" if self.positive is None else "micro",
        )
        return _decision(tuned, biases=tuned.biases)

    def _count(self, gold: Any, chosen: Any, _: Any) -> Counts:
        counts = count_classes_ids(gold, chosen, labels=self.labels)
        return counts if self.positive is None else counts.only([self.positive])


@dataclass(frozen=True, kw_only=True)
class LabelSetMetrics:
    """Scores of multi-label texts; a label is predicted at a probability of 0.5 or more.

    Attributes:
        labels: The name of each label.
        average: The average of the F1 that `tune` maximises.

    >>> metrics = LabelSetMetrics(labels=["a", "b"])
    >>> metrics((np.array([[3.0, -3.0], [3.0, 3.0]]), np.array([[1, 0], [0, 1]])))["f1"]
    0.8
    """

    labels: Sequence[str]
    average: Average = "micro"

    def __call__(self, prediction: Any) -> dict[str, float]:
        """Returns micro precision, recall and F1, macro F1, and subset accuracy."""
        logits, gold = unpack(prediction)
        chosen, right = logits >= 0, gold > 0
        scores = _describe(count_label_matrix(right, chosen, labels=self.labels))
        return scores | {"subset_accuracy": float((chosen == right).all(-1).mean())}

    def tune(self, prediction: Any) -> Decision:
        """Returns probability thresholds: the default, one for all labels, or one per label."""
        logits, gold = unpack(prediction)
        scores = np.exp(-np.logaddexp(0, -logits.astype(np.float64)))
        tuned = tune_thresholds(scores, gold > 0, average=self.average)
        return _decision(tuned, thresholds=tuned.thresholds)


def unpack(prediction: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns logits and labels; of several model outputs, the first is the logits."""
    logits, labels = prediction[0], prediction[1]
    return np.asarray(logits[0] if isinstance(logits, tuple) else logits), np.asarray(labels)


def take_labelled(prediction: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns logits and labels of the rows that are not −100, and how many each example has."""
    logits, labels = unpack(prediction)
    kept = labels != IGNORE
    return logits[kept], labels[kept], kept.sum(-1)


def _decision(tuned: Any, **numbers: Sequence[float]) -> Decision:
    found = {name: list(own) for name, own in numbers.items()}
    return {"rule": tuned.rule, **found, "honest": dict(tuned.honest)}


def _describe(counts: Counts) -> dict[str, float]:
    micro = counts.micro()
    scores = {"precision": micro.precision, "recall": micro.recall, "f1": micro.f}
    return scores | {"macro_f1": counts.macro().f}


class Tune(TrainerCallback):
    """Tunes thresholds or biases on the dev set; give it as callback and as `compute_metrics`.

        tune = Tune(TagMetrics(labels=labels))
        Trainer(…, compute_metrics=tune, callbacks=[tune])

    The decision is in `model.config.softf1_decision` after each evaluation, and so in each later
    checkpoint. With `load_best_model_at_end` it is that of the best model. Use it with
    `decide(logits, model.config)`.

    The metrics also have `tuned_f1`, cross-fitted: each item is judged by a decision that was tuned
    on other items.
    """

    def __init__(self, metrics: TagMetrics | ClassMetrics | LabelSetMetrics) -> None:
        self.metrics = metrics
        self._latest: Decision | None = None
        self._by_step: dict[int, Decision] = {}

    def __call__(self, prediction: Any) -> dict[str, float]:
        """Returns the metrics, and keeps the decision for `on_evaluate`."""
        self._latest = self.metrics.tune(prediction)
        honest: float = self._latest["honest"][self._latest["rule"]]
        return self.metrics(prediction) | {"tuned_f1": honest}

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Stores the decision of this evaluation."""
        if self._latest is None:
            raise ValueError("wanted this callback as compute_metrics too, got no predictions")
        self._by_step[state.global_step] = self._latest
        setattr(kwargs["model"].config, DECISION, self._latest)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Restores the decision of the best model, if it was loaded."""
        best = self._by_step.get(state.best_global_step)
        if args.load_best_model_at_end and best is not None:
            setattr(kwargs["model"].config, DECISION, best)


def decide(logits: ArrayLike, config: Any) -> NDArray[Any]:
    """Predicts with the decision in a model's config.

    Args:
        logits: (..., C).
        config: `model.config`, after training or from `from_pretrained`.

    Returns:
        Classes (...), or for several labels a bool for each, (..., C).

    >>> from types import SimpleNamespace
    >>> config = SimpleNamespace(softf1_decision={"biases": [0.0, 1.5]})
    >>> decide([[1.0, 0.0], [3.0, 0.0]], config)
    array([1, 0])
    """
    decision = getattr(config, DECISION, None)
    if decision is None:
        raise ValueError(
            f"wanted a config with {DECISION!r}, which the callback Tune stores, got none"
        )
    if not decision.keys() & {"thresholds", "biases"}:
        raise ValueError(f"wanted thresholds or biases of labels, got {', '.join(decision)}")
    scores = np.asarray(logits, dtype=np.float64)
    if "thresholds" in decision:
        chosen: NDArray[Any] = np.exp(-np.logaddexp(0, -scores)) >= np.array(decision["thresholds"])
        return chosen
    best: NDArray[Any] = (scores + np.array(decision["biases"])).argmax(-1)
    return best
