"""Labels of texts: targets, probabilities, decisions, biases tuned on dev, and scores."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from softf1.errors import InputError
from softf1.metrics.biases import tune_biases
from softf1.metrics.classification import (
    accuracy,
    count_classes,
    count_classes_ids,
    count_label_sets,
    subset_accuracy,
)
from softf1.metrics.operating import Pool, Target, Units, choose_bars, choose_point
from softf1.metrics.ranking import macro_average_precision
from softf1.metrics.thresholds import tune_thresholds
from softf1.tasks.base import DIGITS, IGNORE, check_named, describe_counts, to_probabilities
from softf1.tasks.rows import rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from softf1.metrics.counts import Average
    from softf1.metrics.operating import Point
    from softf1.metrics.thresholds import TunedThresholds
    from softf1.tasks.base import Features, LineCounts, Prediction, Ranked

    Floats = NDArray[np.floating[Any]]


MOST_LABELS = 32
"""Up to so many labels a bias for each is tried too; its time grows with their square."""


class Labelled(Protocol):
    """The attributes of a task that the functions here read; `Classification` explains them."""

    @property
    def multi_label(self) -> bool:
        """Whether a text has any number of labels."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that can be predicted."""

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The lowest probability with which each label is predicted."""

    @property
    def biases(self) -> tuple[float, ...]:
        """Added to the logits."""

    @property
    def primary_metric(self) -> str:
        """The primary metric."""

    @property
    def positive_label(self) -> str | None:
        """The label whose F1 counts, where there are two."""


def tune_classes(
    logits: NDArray[Any],
    gold: NDArray[Any],
    *,
    metric: str,
    lengths: NDArray[Any] | None = None,
    beta: float = 1.0,
) -> tuple[float, ...]:
    """A bias for the most frequent class, or for each, where it is clearly better than none.

    Args:
        logits: (items, C).
        gold: (items,), −100 for a label that training never saw.
        metric: "macro_f1" is tuned for; any other by the share of right items.
        lengths: Items of each text, where they come in texts that stay whole.
        beta: Of the F, above 1 for recall.

    >>> logits = np.log([[0.5, 0.2, 0.3], [0.8, 0.1, 0.1], [0.4, 0.5, 0.1]] * 20)
    >>> biases = tune_classes(logits, np.array([2, 0, 1] * 20), metric="macro_f1")
    >>> (logits[:3] + biases).argmax(-1)
    array([2, 0, 1])
    """
    classes = logits.shape[1]
    if classes < 2 or not (gold >= 0).any():
        return ()
    names = [str(number) for number in range(classes + 1)]  # the last is all that are unseen
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


FARTHEST = 700.0
"""A logit that no other outweighs, and that a bias in float32 can hold."""

MARGIN = 1e-4
"""How far below a score its threshold is, in logits: far more than float32 rounds."""


def make_targets(
    features: Features, index: NDArray[np.int64], labels: Sequence[str], *, multi_label: bool
) -> NDArray[Any]:
    """Targets of some texts: (B,) label ids, or (B, C) of 0 and 1.

    A label that training never saw is no target: −100 alone, nothing among several.
    """
    ids = {label: number for number, label in enumerate(labels)}
    known = np.array([ids.get(name, IGNORE) for name in features.names["labels"]] or [IGNORE])
    at = features["label_at"]
    count = at[index + 1] - at[index]
    if not multi_label:
        first = np.minimum(at[index], max(len(features["label"]) - 1, 0))
        label = features["label"][first] if len(features["label"]) else np.zeros(len(index), int)
        return np.where(count > 0, known[label], IGNORE).astype(np.int64)
    target = np.zeros((len(index), len(labels)), np.float32)
    for row, start, size in zip(range(len(index)), at[index], count, strict=True):
        own = known[features["label"][start : start + size]]
        target[row, own[own >= 0]] = 1
    return target


def count_label_targets(
    features: Features, labels: Sequence[str], *, multi_label: bool
) -> NDArray[np.int64]:
    """Texts of each label (C,); with several labels a text, (without, with) it (C, 2)."""
    target = make_targets(features, np.arange(len(features)), labels, multi_label=multi_label)
    if not multi_label:
        return np.bincount(target[target >= 0], minlength=len(labels))
    positive = target.sum(0).astype(np.int64)
    return np.stack([len(target) - positive, positive], axis=1)


def find_label_strata(features: Features, task: Labelled) -> NDArray[np.int64]:
    """The label of each text, −1 where training never saw it; of several the rarest one.

    Texts without any of several labels are one stratum more.
    """
    everything = np.arange(len(features))
    if not task.multi_label:
        target = make_targets(features, everything, task.labels, multi_label=False)
        labels: NDArray[np.int64] = np.maximum(target, -1)
        return labels
    positive = count_label_targets(features, task.labels, multi_label=True)[:, 1]
    by_rarity = np.argsort(positive, kind="stable")
    place = dict(zip((task.labels[i] for i in by_rarity), range(len(by_rarity)), strict=True))
    none = len(by_rarity)
    rarity = np.array([place.get(name, none) for name in features.names["labels"]], np.int64)
    rarest = np.full(len(features), none)
    np.minimum.at(rarest, rows(np.diff(features["label_at"])), rarity[features["label"]])
    out: NDArray[np.int64] = np.append(by_rarity, none)[rarest]
    return out


def shift_logits(task: Labelled) -> NDArray[np.float64]:
    """Returns what is added to the logits (C,) before the decision; 0 if nothing was tuned.

    >>> from softf1.tasks import make_task
    >>> shift_logits(make_task("pairs", labels=("0", "1"), thresholds=(0.2,))).round(3)
    array([0.   , 1.386])
    """
    shift = np.zeros(len(task.labels))
    if task.biases:
        return shift + task.biases
    if task.thresholds:
        positive = task.positive_label
        own = slice(None) if positive is None else [task.labels.index(positive)]
        shift[own] = -log_odds(np.array(task.thresholds))
    return shift


def log_odds(share: Floats) -> Floats:
    """The logit of a probability; of 0 and 1, which no model reaches or all do, a number too.

    >>> log_odds(np.array([0.5, 0.0, 1.0]))
    array([   0., -700.,  700.])
    """
    inside = np.clip(share, 0, 1)
    with np.errstate(divide="ignore"):
        out: Floats = np.clip(np.log(inside) - np.log1p(-inside), -FARTHEST, FARTHEST)
    return out


def tune_labels(
    logits: Floats, features: Features, task: Labelled, *, beta: float = 1.0
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What the task learns on dev: (thresholds, biases), one of them empty.

    Several labels have thresholds, and so has the positive one of two; any other choice of one
    label gets biases. A text without a label says nothing about where one label each is wanted.
    """
    index, scores, gold = _labelled(logits, features, task)
    if task.multi_label:
        average: Average = "macro" if task.primary_metric == "macro_f1" else "micro"
        return _loosen(tune_thresholds(scores, gold, average=average, beta=beta)), ()
    if task.positive_label is not None and task.primary_metric == "f1":
        column = [task.labels.index(task.positive_label)]
        tuned = tune_thresholds(scores[:, column], gold[:, column], average="micro", beta=beta)
        return _loosen(tuned), ()
    right = make_targets(features, index, task.labels, multi_label=False)
    return (), tune_classes(logits[index], right, metric=task.primary_metric, beta=beta)


def _labelled(
    logits: Floats, features: Features, task: Labelled
) -> tuple[NDArray[Any], Floats, NDArray[np.bool_]]:
    """Returns the texts that have labels, their probabilities, and which labels are right."""
    index = np.arange(len(features))
    if not task.multi_label:
        index = np.flatnonzero(np.diff(features["label_at"]))
    scores = to_probabilities(logits[index].astype(np.float64), multi_label=task.multi_label)
    return index, scores, make_targets(features, index, task.labels, multi_label=True) > 0


def _loosen(tuned: TunedThresholds) -> tuple[float, ...]:
    """Thresholds a little below the score that each was tuned to, which rounding may not lose."""
    return tuned.thresholds if tuned.rule == "default" else _lower(tuned.thresholds)


def _lower(thresholds: Sequence[float]) -> tuple[float, ...]:
    lower = log_odds(np.array(thresholds)) - MARGIN
    return tuple(to_probabilities(lower, multi_label=True).tolist())


def check_label_target(target: Target | Mapping[str, Target], task: Labelled) -> None:
    """Raises for a target that does not apply to labels."""
    check_named(target, task.labels)
    accuracy = task.primary_metric == "accuracy"
    if isinstance(target, Target) and target.kind == "f" and accuracy:
        raise InputError(f"wanted another target where accuracy decides, got {target.text!r}")


def operate_labels(
    logits: Floats, features: Features, task: Labelled, target: Target | Mapping[str, Target]
) -> tuple[dict[str, Any], list[Point]]:
    """Thresholds, biases or bars for a target, and the points they come from.

    Where labels are given or not, each by itself (several labels, the positive one of two), a
    target is a threshold. Where one label of many is given, it is a bar: the label with the largest
    logit stays the best one, and `--abstain` leaves it out below.
    """
    if isinstance(target, Target) and target.kind == "f":
        thresholds, biases = tune_labels(logits, features, task, beta=target.beta)
        return {"thresholds": thresholds, "biases": biases}, []
    positive = task.positive_label
    alone = isinstance(target, Target) or set(target) == {positive}
    if task.multi_label or (positive is not None and alone):
        return _operate_thresholds(logits, features, task, target)
    index = _labelled(logits, features, task)[0]
    given = decide_labels(logits[index], task)
    names = features.names["labels"]
    gold = [names[features["label"][at]] for at in features["label_at"][index]]
    units = Units(
        item=list(range(len(index))),
        label=[one["label"] for one in given],
        score=[one["confidence"] for one in given],
        right=[one["label"] == right for one, right in zip(given, gold, strict=True)],
        gold=[[label] for label in gold],
    )
    bars, points = choose_bars(units, target, task.labels)
    return {"bars": bars}, points


def _operate_thresholds(
    logits: Floats, features: Features, task: Labelled, target: Target | Mapping[str, Target]
) -> tuple[dict[str, Any], list[Point]]:
    _, scores, gold = _labelled(logits, features, task)
    texts = np.arange(len(scores))
    if isinstance(target, Target) and target.guarantees and task.multi_label:
        item = np.repeat(texts, scores.shape[1])
        point = choose_point(Pool.of(scores.ravel(), gold.ravel(), item, gold.sum(1)), target)
        return {"thresholds": _lower([point.threshold]) * len(task.labels)}, [point]
    columns = task.labels if task.multi_label else (str(task.positive_label),)
    wanted = dict.fromkeys(columns, target) if isinstance(target, Target) else target
    thresholds, points = [], []
    for label in columns:
        if label not in wanted:
            thresholds.append(0.5)
            continue
        own, column = wanted[label], task.labels.index(label)
        # What costs least where probabilities are what they say.
        usual = own.fp / (own.fp + own.fn) if own.kind == "cost" else 0.5
        pool = Pool.of(scores[:, column], gold[:, column], texts, gold[:, column])
        points.append(choose_point(pool, own, default=usual)._replace(label=label))
        reached = points[-1].threshold
        thresholds.append(reached if reached == usual else _lower([reached])[0])
    return {"thresholds": tuple(thresholds)}, points


def decide_labels(logits: Floats, task: Labelled) -> list[Prediction]:
    """Returns the labels with their confidence, and the probabilities of all labels.

    The decision is taken on shifted logits, as by whoever loads the model with the shift in it, and
    the confidence is the probability there. What was tuned does not change `probabilities`.
    """
    scores = to_probabilities(logits, multi_label=task.multi_label)
    given = [dict(zip(task.labels, row, strict=True)) for row in scores.tolist()]
    shifted = logits + shift_logits(task)
    sure = to_probabilities(shifted, multi_label=task.multi_label).round(DIGITS)
    if task.multi_label:
        chosen = [[task.labels[i] for i in np.flatnonzero(row)] for row in shifted >= 0]
        kept = [row[yes].tolist() for row, yes in zip(sure, shifted >= 0, strict=True)]
        return [
            {"labels": labels, "confidence": confidence, "probabilities": own}
            for labels, confidence, own in zip(chosen, kept, given, strict=True)
        ]
    best = shifted.argmax(-1)
    return [
        {"label": task.labels[i], "confidence": confidence, "probabilities": own}
        for i, confidence, own in zip(best.tolist(), sure.max(-1).tolist(), given, strict=True)
    ]


def score_labels(
    predictions: Sequence[Prediction], gold: Sequence[tuple[str, ...]], task: Labelled
) -> dict[str, Any]:
    """Scores of one label each, with those of the positive one of two, or of sets of labels."""
    ranked = _score_ranking(predictions, gold, task)
    if task.multi_label:
        given = [item["labels"] for item in predictions]
        scores = describe_counts(count_label_sets(gold, given))
        return scores | {"subset_accuracy": subset_accuracy(gold, given).value} | ranked
    given = [p["label"] for p in predictions]
    if None in given:  # a text without a label
        sets = [() if label is None else (label,) for label in given]
        counts = count_label_sets([labels[:1] for labels in gold], sets)
    else:
        counts = count_classes([labels[0] for labels in gold], given)
    scores = describe_counts(counts) | {"accuracy": accuracy(counts)} | ranked
    if task.positive_label is not None:
        one = scores["labels"].get(
            task.positive_label, {"precision": 0.0, "recall": 0.0, "f1": 0.0}
        )
        scores |= {name: one[name] for name in ("precision", "recall", "f1")}
    return scores


def _score_ranking(
    predictions: Sequence[Prediction], gold: Sequence[tuple[str, ...]], task: Labelled
) -> dict[str, float]:
    """Average precision of the positive label of two, else the mean over the labels of the gold."""
    ranked = rank_labels(predictions, gold, task)
    if ranked is None:
        return {}
    sound = bool(np.isfinite(ranked[0]).all())  # a model that diverged ranks nothing
    return {"average_precision": macro_average_precision(*ranked) if sound else 0.0}


def rank_labels(
    predictions: Sequence[Mapping[str, Any]], gold: Sequence[Sequence[str]], task: Labelled
) -> Ranked | None:
    """Probabilities of the labels that are ranked, and which of them are right, (texts, labels).

    None where predictions have no probabilities. A label that training never saw has 0.
    """
    given = [item.get("probabilities") for item in predictions]
    labels = [task.positive_label] if task.positive_label else sorted(set().union(*gold))
    if not all(given) or not labels:
        return None
    shape = len(given), len(labels)
    scores = [[own.get(label, 0.0) for label in labels] for own in given if own]
    right = [[label in own for label in labels] for own in gold]
    return np.array(scores, np.float64).reshape(shape), np.array(right, bool).reshape(shape)


@lru_cache(maxsize=100_000)  # most predictions are the same from run to run
def count_labels(gold: tuple[str, ...], given: tuple[str, ...], *, multi_label: bool) -> LineCounts:
    """The counts behind the scores of one text."""
    if not multi_label:
        return {"counts": count_label_sets([gold[:1]], [given])}
    right = subset_accuracy([gold], [given])
    return {"counts": count_label_sets([gold], [given]), "subset_accuracy": right}


def to_logits(share: NDArray[Any], *, multi_label: bool) -> NDArray[np.float64]:
    """Logits whose softmax, or sigmoid, are these probabilities.

    >>> to_logits(np.array([0.5, 0.5]), multi_label=True)
    array([0., 0.])
    """
    known = np.clip(np.asarray(share, float), 1e-12, 1 - 1e-12)
    logits: NDArray[np.float64] = np.log(known)
    return logits - np.log1p(-known) if multi_label else logits
