"""Per-example counts of a predictions file: what each test example adds to a score.

Every score here but average precision is a ratio of sums over examples. `softf1.metrics` counts one
example at a time, so there is no second evaluator: `ExampleCounts.score` over all examples equals
`task.score`. Questions about one context, and queries about one sentence, are not independent:
their counts are summed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from softf1.errors import InputError
from softf1.experiments.statistics import jackknife
from softf1.metrics.calibration import bin_confidence
from softf1.metrics.counts import Counts, Mean, divide, ratios_of
from softf1.metrics.headroom import macro_f
from softf1.metrics.ranking import leave_one_out, macro_average_precision
from softf1.metrics.squad import normalize_answer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from softf1.tasks.base import LineCounts, Ranked, Task

    Line = dict[str, Any]
    Floats = NDArray[np.float64]

PRECISION, RECALL, F1 = 0, 1, 2
RANKED = "average_precision"
MICRO = {"precision": PRECISION, "recall": RECALL, "f1": F1}


@dataclass(frozen=True, slots=True)
class ExampleCounts:
    """Counts of each independent example.

    Attributes:
        parts: Arrays by name: (N, labels, 3) of tp, fp, fn, or (N, 2) of total and count of a mean.
        labels: The labels of each part that has labels.
        positive: The positive label of precision, recall and F1, if there is one.
        lines: The number of predictions behind these N examples.
        ranked: Scores (N, labels) for average precision and which are right; None if not ranked.
    """

    parts: Mapping[str, NDArray[Any]]
    labels: Mapping[str, tuple[str, ...]]
    positive: str | None = None
    lines: int = 0
    ranked: Ranked | None = None

    def __len__(self) -> int:
        """The number of independent examples."""
        return len(next(iter(self.parts.values())))

    def score(self, name: str) -> float:
        """Computes a score over all examples, by its name in `task.score`."""
        if name == RANKED and self.ranked is not None:
            return macro_average_precision(*self.ranked)
        part, ratio = self._ratio(name)
        return float(ratio(self.parts[part].sum(axis=0, dtype=float)))

    def pseudo_values(self, name: str) -> Floats:
        """Computes the jackknife pseudo-values of a score, (N,)."""
        if name == RANKED and self.ranked is not None:
            size = len(self)
            return size * self.score(name) - (size - 1) * leave_one_out(*self.ranked)
        part, ratio = self._ratio(name)
        return jackknife(self.parts[part], ratio)

    def by_label(self) -> dict[str, dict[str, float]]:
        """Computes precision, recall, F1 and support of each label; empty without labels."""
        if "counts" not in self.parts:
            return {}
        counts = Counts(self.labels["counts"], self.parts["counts"].sum(axis=0))
        return {
            label: {"precision": s.precision, "recall": s.recall, "f1": s.f, "support": s.support}
            for label, s in counts.items()
        }

    def _ratio(self, name: str) -> tuple[str, Callable[[Floats], Floats]]:
        """Returns the part that a score is made of, and its ratio of sums."""
        names = self.labels.get("counts", ())
        positive = [row for row, label in enumerate(names) if label == self.positive]
        rows = slice(None) if self.positive is None else positive
        ways: dict[str, tuple[str, Callable[[Floats], Floats]]] = {
            **{n: ("counts", partial(_micro, column=c, rows=rows)) for n, c in MICRO.items()},
            "macro_f1": ("counts", macro_f),
            "accuracy": ("counts", partial(_micro, column=RECALL)),
            "conlleval_f1": ("lenient", partial(_micro, column=F1)),
            **{part: (part, _mean) for part in self.parts if part not in self.labels},
        }
        way = ways.get(name)
        if way is None or way[0] not in self.parts:
            raise InputError(f"wanted a score that examples can be left out of, got {name!r}")
        return way


def _micro(sums: Floats, *, column: int, rows: slice | list[int] = slice(None)) -> Floats:
    ratio: Floats = ratios_of(sums[..., rows, :].sum(axis=-2))[..., column]
    return ratio


def _mean(sums: Floats) -> Floats:
    return divide(sums[..., 0], sums[..., 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScores:
    """One run, as a comparison needs it.

    Attributes:
        score: The primary metric.
        pseudo: Its jackknife pseudo-values by example; None if it has none.
        scores: All scores on the split that is judged.
        dev: All scores on dev.
        labels: Scores by label.
        collapsed: Whether it predicts nothing, or a single class, on dev.
        calibration_error: Calibration error of its confidences; None if predictions have none.
        calibration_error_tuned: The same with tuned decisions; None if nothing was tuned.
    """

    score: float
    pseudo: NDArray[np.float64] | None
    scores: Mapping[str, Any]
    dev: Mapping[str, Any]
    labels: Mapping[str, Mapping[str, float]]
    collapsed: bool = False
    calibration_error: float | None = None
    calibration_error_tuned: float | None = None


def read_predictions(path: Path | str) -> list[Line]:
    """Reads the lines of a predictions file."""
    lines = []
    try:
        with Path(path).open("rb") as file:
            for number, text in enumerate(file, 1):
                lines.append(_parse(text, path, number))
    except FileNotFoundError as error:
        raise InputError("wanted a predictions file, found none", path=path) from error
    return lines


def _parse(text: bytes, path: Path | str, number: int) -> Line:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"wanted JSON, got {error}", path=path, line=number) from error
    if not isinstance(line, dict) or line.get("schema") != 1 or "gold" not in line:
        raise InputError("wanted a prediction of schema 1", path=path, line=number)
    return line


def count_run(
    task: Task, path: Path, *, metric: str, score: float, lines: Sequence[Line] | None = None
) -> ExampleCounts:
    """Counts a predictions file of a run and checks that the counts give the run's score.

    Args:
        task: The task, which counts.
        path: The file.
        metric: The primary metric.
        score: The score of the run.
        lines: The content of the file, if it was read already.
    """
    counted = count_examples(task, read_predictions(path) if lines is None else lines)
    if abs(counted.score(metric) - score) > 1e-6:
        raise InputError(f"{path.name} does not add up to {metric}", path=path.parent)
    return counted


def count_examples(task: Task, lines: Sequence[Line]) -> ExampleCounts:
    """Counts every example of a predictions file, by the rules of its task.

    The counts of lines that belong to one group, such as questions about one context, are summed.
    """
    count, find_group = getattr(task, "count_line", None), getattr(task, "line_group", None)
    if count is None:
        raise InputError(f"wanted a task whose examples can be counted one by one, got {task.kind}")
    if not lines:
        raise InputError("wanted predictions to count, got none")
    numbers: dict[Any, int] = {}
    groups = map(find_group, lines) if find_group else range(len(lines))
    units = [numbers.setdefault(group, len(numbers)) for group in groups]
    counted: list[LineCounts] = list(map(count, lines))
    tables: dict[str, NDArray[Any]] = {}
    labels = {}
    for name, first in counted[0].items():
        own: list[Any] = [part[name] for part in counted]
        if isinstance(first, Mean):
            tables[name] = np.zeros((len(numbers), 2))
            np.add.at(tables[name], units, [[one.total, one.count] for one in own])
        else:
            labels[name] = tuple(sorted({label for one in own for label in one.labels}))
            tables[name] = _sum_counts(own, units, labels[name])
    rank = getattr(task, "rank_lines", None)
    positive = getattr(task, "positive_label", None)
    return ExampleCounts(tables, labels, positive, len(lines), rank(lines) if rank else None)


def _sum_counts(
    counts: Sequence[Counts], units: Sequence[int], labels: Sequence[str]
) -> NDArray[np.int32]:
    """Returns the counts of each unit as an array (units, labels, 3)."""
    index = {label: row for row, label in enumerate(labels)}
    table = np.zeros((max(units) + 1, len(labels), 3), np.int32)
    for unit, one in zip(units, counts, strict=True):
        table[unit, [index[label] for label in one.labels]] += one.table
    return table


def calibration_error(lines: Sequence[Line]) -> float | None:
    """Computes the expected calibration error of a predictions file; None without confidences.

    The confidence is that of the predicted label, tag, span or answer, tuned or not; for texts with
    several labels, the probability of each label.

    >>> line = {"label": "a", "gold": ["a"], "probabilities": {"a": 0.75, "b": 0.25}}
    >>> calibration_error([line])  # surely right, said with 0.75
    0.25
    """
    pairs = list(chain.from_iterable(map(_confidences, lines)))
    if not pairs:
        return None
    confidence, right = zip(*pairs, strict=True)
    return bin_confidence(confidence, right).error


def _confidences(line: Line) -> list[tuple[float, bool]]:
    """Returns the confidence of each prediction on a line, and whether it was right."""
    gold, given = line["gold"], line.get("probabilities") or {}
    if "labels" in line:
        return [(share, label in gold) for label, share in given.items()]
    sure = line.get("confidence", given.get(line.get("label")))
    if sure is None or line.get("abstained"):
        return []
    if "tags" in line:
        right = [tag == other for tag, other in zip(line["tags"], gold, strict=True)]
        return list(zip(sure, right, strict=True))
    if "spans" in line:
        return [(one, span in gold) for one, span in zip(sure, line["spans"], strict=True)]
    if "answer" in line:
        return [(sure, _is_right(line["answer"], gold))]
    return [(sure, line["label"] in gold)] if gold else []


def _is_right(answer: str, gold: Sequence[Sequence[str]]) -> bool:
    texts = [" ".join(one) for one in gold] or [""]
    return normalize_answer(answer) in map(normalize_answer, texts)
