"""From the cells of a grid to the comparison: rows with intervals, labels, verdicts."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from softf1.errors import InputError
from softf1.experiments.cells import plain, read_json
from softf1.experiments.doubts import say_doubts
from softf1.experiments.grid import FILE, split_of
from softf1.experiments.labels import group_labels, train_support
from softf1.experiments.search import TUNED
from softf1.experiments.statistics import Difference, correct_holm, estimate_difference
from softf1.experiments.tallies import tally_run
from softf1.experiments.verdicts import conclude, judge, name_collapse
from softf1.files import new_file
from softf1.tasks.registry import load_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from softf1.experiments.tallies import Tally

COLUMNS = (
    "loss",
    "n",
    "mean",
    "sd",
    "difference",
    "low",
    "high",
    "p",
    "p_holm",
    "probability",
    "verdict",
    "precision",
    "recall",
    "sd_seeds",
    "sd_examples",
    "df",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a comparison needs of one run.

    Attributes:
        score: The headline.
        pseudo: Its jackknife pseudo-values by example; None where it is no ratio over examples.
        scores: All scores of the judged part.
        dev: Those of dev.
        labels: Scores by label.
        collapsed: Whether it finds nothing, or one class alone, on dev.
    """

    score: float
    pseudo: NDArray[np.float64] | None
    scores: Mapping[str, Any]
    dev: Mapping[str, Any]
    labels: Mapping[str, Mapping[str, float]]
    collapsed: bool = False


class Rows:
    """The runs of a grid by row and seed."""

    def __init__(self, folder: Path, grid: Mapping[str, Any]) -> None:
        self.folder, self.grid = folder, grid
        self.runs: dict[str, dict[int, Run]] = {}
        self.notes: list[str] = []
        self.results: list[dict[str, Any]] = []
        self.split, self.headline = "test", ""
        self.tasks: list[Any] = []
        self.tally: Tally | None = None
        for cell in grid["cells"]:
            if cell["state"] == "done":
                self._add(cell)

    def _add(self, cell: Mapping[str, Any]) -> None:
        folder = self.folder / cell["folder"]
        result = read_json(folder / "result.json")
        self.results.append(result)
        self.split, self.headline = split_of(result), result["headline"]
        row, seed = cell["label"], cell["seed"]
        own = self._read(folder, result["scores"], "")
        own = replace(own, collapsed=own.collapsed or bool(result.get("collapsed")))
        self.runs.setdefault(row, {})[seed] = own
        if "tuned" in result and row + TUNED in self.grid["losses"]:
            tuned = self._read(folder, result["tuned"], ".tuned")
            self.runs.setdefault(row + TUNED, {})[seed] = tuned

    def _read(self, folder: Path, parts: Mapping[str, Mapping[str, Any]], kind: str) -> Run:
        scores, name = parts[self.split], f"predictions.{self.split}{kind}.jsonl"
        score = float(scores[self.headline])
        tally, pseudo = None, None
        try:
            self.tasks.append(load_task(folder / "model"))
            tally = tally_run(self.tasks[-1], folder / name, headline=self.headline, score=score)
            pseudo = tally.pseudo_values(self.headline)
            self.tally = tally
        except InputError as error:
            self.note(f"intervals know nothing of the test examples: {error}")
        labels = scores.get("labels") or (tally.by_label() if tally else {})
        dev = parts.get("dev", {})
        return Run(
            score=score,
            pseudo=pseudo,
            scores=scores,
            dev=dev,
            labels=labels,
            collapsed=dev.get(self.headline) == 0,
        )

    def note(self, text: str) -> None:
        """Something the reader should know, said once."""
        if text not in self.notes:
            self.notes.append(text)

    def ordered(self) -> list[str]:
        """The rows in the order they were asked for."""
        asked = [*self.grid["losses"], *self.runs]
        return [row for row in dict.fromkeys(asked) if row in self.runs]


def summarize(folder: Path, *, gain: float = 0.005) -> dict[str, Any]:
    """The content of `comparison.json`, from the cells that are done."""
    grid = read_json(folder / FILE)
    rows = Rows(folder, grid)
    baseline = grid["baseline"]
    differences = {
        row: compare_runs(rows.runs[row], rows.runs[baseline])
        for row in rows.ordered()
        if row != baseline and rows.runs[row].keys() & rows.runs.get(baseline, {}).keys()
    }
    corrected = correct_holm([found.p for found in differences.values()])
    p_holm = dict(zip(differences, corrected, strict=True))
    if baseline not in rows.runs:
        rows.note(f"no run of {baseline} is done: nothing to compare with")
    if rows.split == "dev":
        rows.note("there is no test file: dev, which chose settings and checkpoints, flatters all")
    for doubt in say_doubts(rows.runs, grid.get("tuning", [])):
        rows.note(doubt)
    judged = {row: (found, p_holm[row]) for row, found in differences.items()}
    return {
        "schema": 1,
        "kind": grid["kind"],
        "headline": rows.headline,
        "baseline": baseline,
        "split": rows.split,
        "examples": rows.tally.lines if rows.tally else 0,
        "units": len(rows.tally) if rows.tally else 0,
        "gain": gain,
        "rows": [
            _row(name, rows.runs[name], judged, split=rows.split, gain=gain)
            for name in rows.ordered()
        ],
        "verdict": _conclude(rows, judged),
        "notes": rows.notes,
        **describe_labels(rows),
    }


def _conclude(rows: Rows, judged: Mapping[str, tuple[Difference, float]]) -> str:
    runs = [run for own in rows.runs.values() for run in own.values()]
    if runs and all(run.collapsed for run in runs):
        return "Every run collapsed: there is nothing to compare."
    return conclude(judged, baseline=rows.grid["baseline"], headline=rows.headline)


def compare_runs(ours: Mapping[int, Run], theirs: Mapping[int, Run]) -> Difference:
    """The paired difference over the seeds that both have."""
    seeds = sorted(ours.keys() & theirs.keys())
    differences = [ours[seed].score - theirs[seed].score for seed in seeds]
    pairs = [(ours[seed].pseudo, theirs[seed].pseudo) for seed in seeds]
    pseudo = [mine - other for mine, other in pairs if mine is not None and other is not None]
    whole = len(pseudo) == len(seeds) and len({values.shape for values in pseudo}) == 1
    return estimate_difference(differences, np.array(pseudo) if whole else None)


def _row(
    name: str,
    runs: Mapping[int, Run],
    judged: Mapping[str, tuple[Difference, float]],
    *,
    split: str,
    gain: float,
) -> dict[str, Any]:
    scores = [run.score for run in runs.values()]
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"loss": name, "n": len(scores), "mean": float(np.mean(scores))}
    row["sd"] = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
    for key in ("precision", "recall"):
        row[key] = _mean(run.scores.get(key) for run in runs.values())
    row["means"] = {"dev": mean_scores([run.dev for run in runs.values()])}
    row["means"][split] = mean_scores([run.scores for run in runs.values()])
    row["scores"] = {str(seed): run.score for seed, run in sorted(runs.items())}
    dead = name_collapse({seed: (run.score, run.collapsed) for seed, run in runs.items()})
    if name not in judged:
        return row | {"verdict": "; ".join(["baseline", *dead])}
    found, p_holm = judged[name]
    row |= {"difference": found.mean, "p_holm": p_holm}
    row |= {key: getattr(found, key) for key in ("low", "high", "p", "probability", "df")}
    row |= {"sd_seeds": found.sd_seeds, "sd_examples": found.sd_examples}
    judgement = judge(found, p_holm, losses=len(judged), gain=gain)
    # How many seeds a gain needs says nothing where one of them is dead.
    sure = [judgement] if not dead or judgement in ("helps", "hurts") else []
    return row | {"verdict": "; ".join([*sure, *dead])}


def mean_scores(found: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over runs of every number in their scores, and of precision and recall over labels.

    >>> mean_scores([{"f1": 0.5, "labels": {}}, {"f1": 1.0, "labels": {}}])
    {'f1': 0.75}
    """
    own = [{**scores, **_macro(scores.get("labels") or {})} for scores in found]
    names = [name for name, value in own[0].items() if isinstance(value, (int, float))]
    return {name: _mean(one.get(name) for one in own) or 0.0 for name in names}


def _macro(labels: Mapping[str, Mapping[str, float]]) -> dict[str, float | None]:
    names = ("precision", "recall") if labels else ()
    return {f"macro_{name}": _mean(one[name] for one in labels.values()) for name in names}


def describe_labels(rows: Rows) -> dict[str, Any]:
    """Each label's scores by row, means over seeds, with its frequency; and groups of labels."""
    names = sorted(
        {label for runs in rows.runs.values() for r in runs.values() for label in r.labels}
    )
    if not names:
        return {"labels": [], "groups": []}
    train = train_support(rows.results[0].get("class_counts", {}), rows.tasks[-1:], names)
    test = {label: _support(rows, label) for label in names}
    group = group_labels({n: train.get(n) or 0 for n in names} if any(train.values()) else test)
    labels = [
        {
            "label": label,
            "support_train": train.get(label),
            "support_test": test[label],
            "group": group[label],
            "scores": {row: _label_scores(rows.runs[row], label) for row in rows.ordered()},
        }
        for label in sorted(names, key=lambda label: (-(train.get(label) or 0), label))
    ]
    return {"labels": labels, "groups": _groups(labels, rows.ordered())}


def _label_scores(runs: Mapping[int, Run], label: str) -> dict[str, float]:
    """Means over seeds; a label that a run neither has nor predicts scores 0 there."""
    found = [run.labels.get(label, {}) for run in runs.values()]
    return {
        key: _mean(one.get(key, 0.0) for one in found) or 0.0
        for key in ("precision", "recall", "f1")
    }


def _support(rows: Rows, label: str) -> int:
    found = (run.labels.get(label) for runs in rows.runs.values() for run in runs.values())
    return max((int(one["support"]) for one in found if one), default=0)


def _groups(labels: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Mean F1 of head, mid and tail labels."""
    groups = []
    for group in ("head", "mid", "tail"):
        own = [one for one in labels if one["group"] == group and one["support_test"]]
        if own:
            scores = {row: {"f1": _mean(one["scores"][row]["f1"] for one in own)} for row in names}
            groups.append(
                {"group": group, "labels": [one["label"] for one in own], "scores": scores}
            )
    return groups


def _mean(values: Iterable[float | None]) -> float | None:
    kept = [value for value in values if value is not None]
    return math.fsum(kept) / len(kept) if kept else None


def write_comparison(folder: Path, found: Mapping[str, Any]) -> None:
    """Write `comparison.json` and `comparison.csv`."""
    with new_file(folder / "comparison.json") as file:
        text = json.dumps(plain(dict(found)), ensure_ascii=False, indent=1)
        file.write(text.encode() + b"\n")
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain(list(found["rows"])))
    with new_file(folder / "comparison.csv") as file:
        file.write(table.getvalue().encode())
