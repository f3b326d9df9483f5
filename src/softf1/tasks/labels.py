"""Labels of texts: targets, probabilities, thresholds and biases tuned on dev, and scores."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from softf1.data.problems import Problems
from softf1.errors import InputError
from softf1.metrics.biases import tune_biases
from softf1.metrics.classification import (
    accuracy,
    count_classes,
    count_classes_ids,
    count_label_sets,
    subset_accuracy,
)
from softf1.metrics.counts import Average, Counts
from softf1.metrics.operating import (
    F1,
    Point,
    Pool,
    Target,
    Units,
    choose_bars,
    choose_point,
    make_point,
)
from softf1.metrics.ranking import macro_average_precision
from softf1.metrics.thresholds import TunedThresholds, tune_thresholds
from softf1.tasks.base import DIGITS, IGNORE, by_item, describe_counts, to_probabilities
from softf1.tasks.rows import Ints, TextTask, rows, take

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from softf1.tasks.base import Features, LineCounts, Logits, Prediction, Ranked

    Floats = NDArray[np.floating[Any]]

MOST_LABELS = 32
"""Up to this many labels, one bias per label is tried too; its time grows with their square."""

FARTHEST = 700.0
"""The logit of probability 1: no other logit outweighs it, and a float32 bias can hold it."""

MARGIN = 1e-4
"""How far a threshold is put below the score it was tuned to, in logits; far above rounding."""


class LabelTask(TextTask):
    """Decisions about the labels of texts: one label each (softmax), or any number (sigmoids).

    `Classification` explains the attributes.
    """

    multi_label: bool
    positive: str | None
    metric: str | None
    thresholds: tuple[float, ...]
    biases: tuple[float, ...]
    tunes = True

    @property
    def softmax(self) -> bool:
        """Whether each text has exactly one label."""
        return not self.multi_label

    @property
    def primary_metric(self) -> str:
        """The option `metric`, or its default for these labels."""
        several = self.multi_label or len(self.labels) == 2
        return self.metric or ("f1" if several else "macro_f1")

    @property
    def positive_label(self) -> str | None:
        """The label whose F1 is the metric if each text has one of two; otherwise None."""
        binary = len(self.labels) == 2 and not self.multi_label
        return (self.positive or self.labels[-1]) if binary else None

    def read(self, path: Path | str, problems: Problems | None = None) -> Iterator[Any]:
        """Reads labelled texts; a table without a column of labels is an error."""
        return self._read(path, problems or Problems(), labelled=True)

    def read_input(self, path: Path | str, problems: Problems | None = None) -> Iterator[Any]:
        """Reads texts to predict on; they need no labels."""
        return self._read(path, problems or Problems(), labelled=False)

    def _read(self, path: Path | str, problems: Problems, *, labelled: bool) -> Iterator[Any]:
        problems.labelled = labelled  # just before the columns are read: others may read with it
        yield from super().read(path, problems)

    def make_targets(self, features: Features, index: Ints | None = None) -> NDArray[Any]:
        """Returns targets of all texts, or of some: (B,) label ids, or (B, C) of 0 and 1.

        A label that training never saw is −100 in (B,), and left out of (B, C).
        """
        index = np.arange(len(features)) if index is None else index
        flat, count = take(features, "label", index)
        label, row = self.label_ids(features)[flat], rows(count)
        if not self.multi_label:
            target = np.full(len(index), IGNORE, np.int64)
            target[row] = label
            return target
        several = np.zeros((len(index), len(self.labels)), np.float32)
        several[row[label >= 0], label[label >= 0]] = 1
        return several

    def class_counts(self, features: Features) -> dict[str, NDArray[np.int64]]:
        """Counts the texts of each label: (C,), or (C, 2) texts without and with it."""
        target = self.make_targets(features)
        if not self.multi_label:
            return {"labels": np.bincount(target[target >= 0], minlength=len(self.labels))}
        positive = target.sum(0).astype(np.int64)
        return {"labels": np.stack([len(target) - positive, positive], axis=1)}

    def strata(self, features: Features) -> NDArray[np.int64]:
        """Returns the label of each text, −1 if training never saw it; of several, the rarest.

        With `multi_label`, texts without any label form one more stratum.
        """
        target = self.make_targets(features)
        if not self.multi_label:
            return np.where(target < 0, -1, target)
        by_rarity = np.argsort(target.sum(0), kind="stable")
        given = target[:, by_rarity] > 0
        return np.where(given.any(1), by_rarity[given.argmax(1)], len(by_rarity))

    def shift_logits(self) -> NDArray[np.float64]:
        """Returns what is added to the logits (C,) before the decision; 0 if nothing was tuned.

        >>> from softf1.tasks import make_task
        >>> make_task("pairs", labels=("0", "1"), thresholds=(0.2,)).shift_logits().round(3)
        array([0.   , 1.386])
        """
        shift = np.zeros(len(self.labels))
        if self.biases:
            return shift + self.biases
        if self.thresholds:
            positive = self.positive_label
            own = slice(None) if positive is None else [self.labels.index(positive)]
            shift[own] = -log_odds(np.array(self.thresholds))
        return shift

    def shifts(self) -> dict[str, NDArray[np.float64]]:
        """Returns the biases, or thresholds t as biases −logit(t): p ≥ t is a shifted logit ≥ 0."""
        shift = self.shift_logits()
        return {"labels": shift} if shift.any() else {}

    def tune(
        self,
        logits: Logits,
        features: Features,
        examples: Sequence[Any],  # noqa: ARG002 - protocol
    ) -> Self:
        """Returns the task with thresholds or biases, tuned on dev by cross-fitting.

        Any number of labels per text is decided by thresholds, and so is the positive label of two;
        otherwise labels get biases. If each text needs one label, texts without one are left out.
        """
        return self._tune(logits, features, F1)[0]

    def _tune(self, logits: Logits, features: Features, target: Target) -> tuple[Self, list[Point]]:
        """Tunes for any F-beta; also returns the operating points of thresholds."""
        index, rows, scores, gold = self._read_labelled(logits, features)
        labels, beta = self.labels, target.beta
        if self.multi_label:
            average: Average = "macro" if self.primary_metric == "macro_f1" else "micro"
        elif self.positive_label is not None and self.primary_metric == "f1":
            labels, column = (self.positive_label,), [labels.index(self.positive_label)]
            scores, gold, average = scores[:, column], gold[:, column], "micro"
        else:
            right = self.make_targets(features, index)
            biases = tune_classes(rows, right, metric=self.primary_metric, beta=beta)
            return self.changed(thresholds=(), biases=biases, for_target=False), []
        tuned = tune_thresholds(scores, gold, average=average, beta=beta)
        kept = tuned.thresholds if tuned.rule == "default" else _lower(tuned.thresholds)
        points = list_points(tuned, scores, gold, labels=labels, target=target)
        return self.changed(thresholds=kept, biases=(), for_target=False), points

    def _read_labelled(
        self, logits: Logits, features: Features
    ) -> tuple[Ints, Floats, Floats, NDArray[np.bool_]]:
        """Returns the indices of labelled texts, and (texts, C) logits, probabilities, gold."""
        index = np.arange(len(features))
        if not self.multi_label:
            index = np.flatnonzero(np.diff(features["label_at"]))
        rows = by_item(logits, "logits", len(features))[index]
        scores = to_probabilities(rows.astype(np.float64), multi_label=self.multi_label)
        gold = self.make_targets(features, index)
        right = gold > 0 if self.multi_label else gold[:, None] == np.arange(len(self.labels))
        return index, rows, scores, right

    def check_target(self, target: Target | Mapping[str, Target]) -> None:
        """Raises for F-beta if accuracy is the primary metric, and for unknown labels."""
        super().check_target(target)
        accuracy = self.primary_metric == "accuracy"
        if isinstance(target, Target) and target.kind == "f" and accuracy:
            raise InputError(f"wanted another target where accuracy decides, got {target.text!r}")

    def operate(
        self,
        logits: Logits,
        features: Features,
        examples: Sequence[Any],  # noqa: ARG002 - protocol
        target: Target | Mapping[str, Target],
    ) -> tuple[Self, list[Point]]:
        """Returns the task with thresholds, biases or bars for a target, and their points on dev.

        If each label is decided by itself (several labels, or the positive one of two), a target
        sets thresholds. If one label of many is chosen, it sets bars: the label with the largest
        logit is still predicted, and `--abstain` leaves it out below its bar.
        """
        if isinstance(target, Target) and target.kind == "f":
            return self._tune(logits, features, target)
        index, rows, scores, gold = self._read_labelled(logits, features)
        positive = self.positive_label
        alone = isinstance(target, Target) or set(target) == {positive}
        if self.multi_label or (positive is not None and alone):
            thresholds, points = self._choose_thresholds(scores, gold, target)
            return self.changed(thresholds=thresholds, for_target=True), points
        given = self.decide(rows)
        names = features.names["labels"]
        right = [names[features["label"][at]] for at in features["label_at"][index]]
        units = Units(
            item=list(range(len(index))),
            label=[one["label"] for one in given],
            score=[one["confidence"] for one in given],
            right=[one["label"] == label for one, label in zip(given, right, strict=True)],
            gold=[[label] for label in right],
        )
        bars, points = choose_bars(units, target, self.labels)
        return self.changed(bars=bars), points

    def _choose_thresholds(
        self, scores: Floats, gold: NDArray[np.bool_], target: Target | Mapping[str, Target]
    ) -> tuple[tuple[float, ...], list[Point]]:
        if isinstance(target, Target) and target.guarantees and self.multi_label:
            point = choose_point(pool_labels(scores, gold), target)
            return _lower([point.threshold]) * len(self.labels), [point]
        columns = self.labels if self.multi_label else (str(self.positive_label),)
        wanted = dict.fromkeys(columns, target) if isinstance(target, Target) else target
        thresholds, points = [], []
        for label in columns:
            if label not in wanted:
                thresholds.append(0.5)
                continue
            own, column = wanted[label], self.labels.index(label)
            # The threshold that costs least if the probabilities are calibrated.
            usual = own.fp / (own.fp + own.fn) if own.kind == "cost" else 0.5
            pool = pool_labels(scores[:, [column]], gold[:, [column]])
            points.append(choose_point(pool, own, default=usual)._replace(label=label))
            reached = points[-1].threshold
            thresholds.append(reached if reached == usual else _lower([reached])[0])
        return tuple(thresholds), points

    def decode(
        self,
        logits: Logits,
        features: Features,
        examples: Sequence[Any] = (),  # noqa: ARG002 - the arrays have all that is needed
    ) -> list[Prediction]:
        """Returns the label or labels of every text."""
        return self.decide(by_item(logits, "logits", len(features)))

    def decide(self, logits: Floats) -> list[Prediction]:
        """Returns the labels with their confidence, and the probabilities of all labels.

        Decision and confidence come from the shifted logits, as in a saved model, which has the
        shift in its bias. `probabilities` come from the model's own logits, without the shift.
        """
        scores = to_probabilities(logits, multi_label=self.multi_label)
        given = [dict(zip(self.labels, row, strict=True)) for row in scores.tolist()]
        shifted = logits + self.shift_logits()
        sure = to_probabilities(shifted, multi_label=self.multi_label).round(DIGITS)
        chosen: list[Any]
        if self.multi_label:
            key = "labels"
            chosen = [[self.labels[i] for i in np.flatnonzero(row)] for row in shifted >= 0]
            kept = [row[yes].tolist() for row, yes in zip(sure, shifted >= 0, strict=True)]
        else:
            key, kept = "label", sure.max(-1).tolist()
            chosen = [self.labels[i] for i in shifted.argmax(-1).tolist()]
        return [
            {key: labels, "confidence": confidence, "probabilities": own}
            for labels, confidence, own in zip(chosen, kept, given, strict=True)
        ]

    def score(self, predictions: Sequence[Prediction], examples: Iterable[Any]) -> dict[str, Any]:
        """Computes accuracy, F1 of each label, micro and macro, and average precision.

        Average precision is that of the positive label of two, else the mean over the gold labels.
        """
        asked = list(examples)
        gold = [example.labels for example in asked]
        if not self.multi_label and not all(gold):
            line = asked[gold.index(())].line
            raise InputError(f"wanted a label to score against, got none (line {line})")
        ranked, ranking = {}, self._rank(predictions, gold)
        if ranking is not None:
            sound = bool(np.isfinite(ranking[0]).all())  # a model that diverged ranks nothing
            ranked["average_precision"] = macro_average_precision(*ranking) if sound else 0.0
        if self.multi_label:
            given = [item["labels"] for item in predictions]
            scores = describe_counts(count_label_sets(gold, given))
            return scores | {"subset_accuracy": subset_accuracy(gold, given).value} | ranked
        given = [p["label"] for p in predictions]
        if None in given:  # a text without a label
            sets = [() if label is None else (label,) for label in given]
            counts = count_label_sets([labels[:1] for labels in gold], sets)
        else:
            counts = count_classes([labels[0] for labels in gold], given)
        scores = describe_counts(counts)
        if self.positive_label is None:  # the micro scores are all the accuracy
            macro = counts.macro()
            scores |= {"macro_precision": macro.precision, "macro_recall": macro.recall}
        scores |= {"accuracy": accuracy(counts)} | ranked
        if self.positive_label is not None:
            none = {"precision": 0.0, "recall": 0.0, "f1": 0.0}
            own = scores["labels"].get(self.positive_label, none)
            scores |= {name: own[name] for name in none}
        return scores

    def rank_lines(self, lines: Sequence[Mapping[str, Any]]) -> Ranked | None:
        """Returns probabilities (texts, labels) and which are right; None without finite ones."""
        ranked = self._rank(lines, [line["gold"] for line in lines])
        return ranked if ranked is not None and np.isfinite(ranked[0]).all() else None

    def _rank(
        self, predictions: Sequence[Mapping[str, Any]], gold: Sequence[Sequence[str]]
    ) -> Ranked | None:
        """Returns the probabilities (texts, labels) to rank, and which labels are right.

        None if predictions have no probabilities. A label that training never saw has 0.
        """
        given = [item.get("probabilities") for item in predictions]
        labels = [self.positive_label] if self.positive_label else sorted(set().union(*gold))
        if not all(given) or not labels:
            return None
        shape = len(given), len(labels)
        scores = [[own.get(label, 0.0) for label in labels] for own in given if own]
        right = [[label in own for label in labels] for own in gold]
        return np.array(scores, np.float64).reshape(shape), np.array(right, bool).reshape(shape)


def pool_labels(scores: Floats, gold: NDArray[np.bool_]) -> Pool:
    """Pools all labels of all texts as candidates; both arguments are (texts, C)."""
    item = np.repeat(np.arange(len(scores)), scores.shape[1])
    return Pool.of(scores.ravel(), gold.ravel(), item, gold.sum(1))


def list_points(
    tuned: TunedThresholds,
    scores: Floats,
    gold: NDArray[np.bool_],
    *,
    labels: Sequence[str],
    target: Target,
) -> list[Point]:
    """Returns the operating point of the threshold that all labels share, or one per label."""
    if len(labels) > 1 and tuned.rule != "per label":
        return [make_point(pool_labels(scores, gold), target, tuned.thresholds[0], tuned.counts)]
    points = []
    for column, label in enumerate(labels):
        pool = pool_labels(scores[:, [column]], gold[:, [column]])
        honest = Counts((label,), tuned.counts.table[[column]])
        point = make_point(pool, target, tuned.thresholds[column], honest)
        points.append(point._replace(label=label))
    return points


def tune_classes(
    logits: NDArray[Any],
    gold: NDArray[Any],
    *,
    metric: str,
    lengths: NDArray[Any] | None = None,
    beta: float = 1.0,
) -> tuple[float, ...]:
    """Tunes a bias for the most frequent class, or for each; no bias unless it is clearly better.

    Args:
        logits: (items, C).
        gold: (items,), −100 for a label that training never saw.
        metric: What to tune for: "macro_f1"; anything else means accuracy.
        lengths: Items per text, if the items of a text must stay in one fold.
        beta: The beta of F-beta; above 1 favours recall.

    >>> logits = np.log([[0.5, 0.2, 0.3], [0.8, 0.1, 0.1], [0.4, 0.5, 0.1]] * 20)
    >>> biases = tune_classes(logits, np.array([2, 0, 1] * 20), metric="macro_f1")
    >>> (logits[:3] + biases).argmax(-1)
    array([2, 0, 1])
    """
    classes = logits.shape[1]
    if classes < 2 or not (gold >= 0).any():
        return ()
    names = [str(number) for number in range(classes + 1)]  # the last stands for unseen ones
    known = np.where(gold < 0, classes, gold)
    tuned = tune_biases(
        logits,
        known,
        background=int(np.bincount(gold[gold >= 0]).argmax()),
        count=lambda g, p, _: count_classes_ids(g, p, labels=names),
        average="macro" if metric == "macro_f1" else "micro",
        lengths=lengths,
        beta=beta,
        per_class=classes <= MOST_LABELS,
    )
    return tuned.biases if any(tuned.biases) else ()


def log_odds(share: Floats) -> Floats:
    """The logit of a probability; that of 0 and 1 is finite too, ∓`FARTHEST`.

    >>> log_odds(np.array([0.5, 0.0, 1.0]))
    array([   0., -700.,  700.])
    """
    inside = np.clip(share, 0, 1)
    with np.errstate(divide="ignore"):
        out: Floats = np.clip(np.log(inside) - np.log1p(-inside), -FARTHEST, FARTHEST)
    return out


def _lower(thresholds: Sequence[float]) -> tuple[float, ...]:
    """Lowers thresholds a little, so that rounding does not lose the score each was tuned to."""
    lower = log_odds(np.array(thresholds)) - MARGIN
    return tuple(to_probabilities(lower, multi_label=True).tolist())


@lru_cache(maxsize=100_000)  # most predictions are the same from run to run
def count_labels(gold: tuple[str, ...], given: tuple[str, ...], *, multi_label: bool) -> LineCounts:
    """Counts right, wrong and missed labels of one text."""
    if not multi_label:
        return {"counts": count_label_sets([gold[:1]], [given])}
    right = subset_accuracy([gold], [given])
    return {"counts": count_label_sets([gold], [given]), "subset_accuracy": right}


def to_logits(share: NDArray[Any], *, multi_label: bool) -> NDArray[np.float64]:
    """Returns logits whose softmax, or sigmoid, gives these probabilities.

    >>> to_logits(np.array([0.5, 0.5]), multi_label=True)
    array([0., 0.])
    """
    known = np.clip(np.asarray(share, float), 1e-12, 1 - 1e-12)
    logits: NDArray[np.float64] = np.log(known)
    return logits - np.log1p(-known) if multi_label else logits
