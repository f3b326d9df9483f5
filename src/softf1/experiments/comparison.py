"""Makes `comparison.json` from the runs of a grid: variants with intervals, labels, verdicts."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from softf1.errors import InputError
from softf1.experiments.grid import FILE, Grid, split_of
from softf1.experiments.per_example import (
    ExampleCounts,
    RunScores,
    calibration_error,
    count_run,
    read_predictions,
)
from softf1.experiments.search import BASELINE, DIRECTION, MATCHED, RANDOM, TUNED
from softf1.experiments.statistics import Difference, correct_holm, estimate_difference, narrowest
from softf1.experiments.verdicts import (
    find_best,
    find_verdict,
    judge_control,
    list_caveats,
    name_collapse,
    say_no_verdict,
    say_reference,
    say_which_help,
)
from softf1.files import finite, read_json, write_json, write_text
from softf1.metrics.schemes import OUTSIDE, SCHEMES, split_tag
from softf1.tasks.registry import load_task

GROUPS = ("head", "mid", "tail")
SURE = ("helps", "hurts", "significantly above", "significantly below")
COLUMNS = (
    *("loss", "n", "mean", "sd", "difference", "low", "high", "p", "p_holm", "probability"),
    *("verdict", "precision", "recall", "sd_seeds", "sd_examples", "df", "narrowest"),
    *("calibration_error", "calibration_error_tuned", "role"),
)


def write_comparison(grid: Grid, *, gain: float = 0.005, **more: Any) -> dict[str, Any]:
    """Writes `comparison.json` and `comparison.csv` of a grid.

    Args:
        grid: The grid, with the runs done so far.
        gain: The smallest gain that matters, as a fraction.
        more: Other entries of the file.

    Returns:
        The content of `comparison.json`, and `failed`: errors by run.
    """
    comparison = {**summarize(grid.folder, gain=gain), **more}
    write_json(grid.folder / "comparison.json", finite(comparison))
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(finite(comparison["rows"]))
    write_text(grid.folder / "comparison.csv", table.getvalue())
    return {**comparison, "failed": grid.errors}


def summarize(folder: Path, *, gain: float = 0.005) -> dict[str, Any]:
    """Returns the content of `comparison.json` from the finished runs."""
    grid = read_json(folder / FILE)
    variants = Variants(folder, grid)
    differences = variants.differences()
    losses = [variant for variant in differences if variants.role(variant) == "loss"]
    # Controls and references answer another question, so they do not count in the correction.
    p_holm = {variant: difference.p for variant, difference in differences.items()}
    p_holm |= zip(losses, correct_holm([p_holm[variant] for variant in losses]), strict=True)
    judged = {variant: (own, p_holm[variant]) for variant, own in differences.items()}
    compared = {variant: judged[variant] for variant in losses}
    return {
        "schema": 1,
        "kind": grid["kind"],
        "headline": variants.metric,
        "baseline": grid["baseline"],
        "split": variants.split,
        "examples": variants.counted.lines if variants.counted else 0,
        "units": len(variants.counted) if variants.counted else 0,
        "gain": gain,
        "rows": [
            _row(name, variants, judged.get(name), losses=len(losses), gain=gain)
            for name in variants.ordered()
        ],
        "verdict": _conclude(variants, compared),
        "best": find_best(compared),
        "notes": list(dict.fromkeys([*variants.notes, *_list_notes(variants, differences)])),
        **describe_labels(variants),
    }


def find_differences(folder: Path) -> dict[str, Difference]:
    """Returns the difference of every variant of a grid to the baseline."""
    return Variants(folder, read_json(folder / FILE)).differences()


class Variants:
    """The runs of a grid by variant and seed."""

    def __init__(self, folder: Path, grid: Mapping[str, Any]) -> None:
        self.folder, self.grid = folder, grid
        self.runs: dict[str, dict[int, RunScores]] = {}
        self.notes: list[str] = []
        self.results: list[dict[str, Any]] = []
        self.split, self.metric = "test", ""
        self.task: Any = None
        self.counted: ExampleCounts | None = None
        self.references: dict[str, RunScores] = {}
        for entry in grid["cells"]:
            if entry["state"] == "done":
                self._add(entry)
        for variant, run in self.references.items():  # paired with every baseline seed
            self.runs[variant] = dict.fromkeys(self.runs.get(grid["baseline"], {0: run}), run)

    def _add(self, entry: Mapping[str, Any]) -> None:
        folder = self.folder / entry["folder"]
        result = read_json(folder / "result.json")
        self.results.append(result)
        self.split, self.metric = split_of(result), result["headline"]
        variant, seed = entry["label"], entry["seed"]
        own = self._read(folder, result["scores"], "")
        if seed is None:
            self.references[variant] = replace(own, collapsed=False)
            return
        own = replace(own, collapsed=own.collapsed or bool(result.get("collapsed")))
        asked = variant + TUNED in self.grid["losses"]
        if result.get("tuned"):
            tuned = self._read(folder, result["tuned"], ".tuned")
            own = replace(own, calibration_error_tuned=tuned.calibration_error)
            if asked:
                self.runs.setdefault(variant + TUNED, {})[seed] = tuned
        elif asked:
            self.notes.append(f"nothing was tuned in the runs of {variant}: no {variant}{TUNED}")
        self.runs.setdefault(variant, {})[seed] = own

    def _read(self, folder: Path, parts: Mapping[str, Mapping[str, Any]], kind: str) -> RunScores:
        scores, name = parts[self.split], f"predictions.{self.split}{kind}.jsonl"
        score = float(scores[self.metric])
        counted, pseudo, error = None, None, None
        try:
            self.task = load_task(folder / "model")
            lines = read_predictions(folder / name)
            error = calibration_error(lines)
            how: dict[str, Any] = {"metric": self.metric, "score": score, "lines": lines}
            counted = count_run(self.task, folder / name, **how)
            pseudo = counted.pseudo_values(self.metric)
            self.counted = counted
        except InputError as problem:
            self.notes.append(f"the intervals do not cover the test examples: {problem}")
        labels = scores.get("labels") or (counted.by_label() if counted else {})
        dev = parts.get("dev", {})
        return RunScores(
            score=score,
            pseudo=pseudo,
            scores=scores,
            dev=dev,
            labels=labels,
            collapsed=dev.get(self.metric) == 0,
            calibration_error=error,
        )

    def ordered(self) -> list[str]:
        """The variants, in the order of the command line."""
        asked = [*self.grid["losses"], *self.runs]
        return [variant for variant in dict.fromkeys(asked) if variant in self.runs]

    def trained(self) -> dict[str, dict[int, RunScores]]:
        """The runs of all variants but references."""
        return {name: own for name, own in self.runs.items() if name not in self.references}

    def role(self, variant: str) -> str:
        """The role of a variant: baseline, loss, control, or untrained reference."""
        if variant == self.grid["baseline"]:
            return "baseline"
        if variant in self.references:
            return "reference"
        pair = (BASELINE, MATCHED) if MATCHED in self.runs else ()
        noise = variant.endswith(RANDOM) or f"{DIRECTION}=random" in variant
        # A variant that nobody asked for is here only because its `+tuned` row uses its runs.
        return (
            "control" if noise or variant in pair or variant not in self.grid["losses"] else "loss"
        )

    @property
    def collapsed(self) -> bool:
        """Whether every run of the baseline collapsed: a difference to it then means nothing."""
        own = self.runs.get(self.grid["baseline"], {}).values()
        return bool(own) and all(run.collapsed for run in own)

    def differences(self) -> dict[str, Difference]:
        """Differences to the baseline, for variants that share seeds with it."""
        base = self.runs.get(self.grid["baseline"], {})
        others = [variant for variant in self.ordered() if variant != self.grid["baseline"]]
        return {
            variant: compare_runs(self.runs[variant], base)
            for variant in others
            if self.runs[variant].keys() & base.keys()
        }


def _conclude(variants: Variants, losses: Mapping[str, tuple[Difference, float]]) -> str:
    runs = [run for own in variants.trained().values() for run in own.values()]
    if runs and all(run.collapsed for run in runs):
        return "Every run collapsed: there is nothing to compare."
    baseline, metric = variants.grid["baseline"], variants.metric
    if variants.collapsed:
        tuned = BASELINE + TUNED
        more = f" or add the row {tuned}" if baseline == BASELINE and tuned not in losses else ""
        said = say_no_verdict(baseline, advice=f"train longer{more}")
    else:
        noun = "setting" if variants.grid["kind"] == "sweep" else "loss"
        said = say_which_help(losses, baseline=baseline, metric=metric, noun=noun)
    scores = {name: own.score for name, own in variants.references.items()}
    top = max(scores, key=lambda name: scores[name], default=None)
    trained = [list(variants.runs.get(name, {}).values()) for name in (baseline, *losses)]
    if top is None or any(np.mean([r.score for r in own]) >= scores[top] for own in trained if own):
        return said
    return f"{said} {say_reference(top, scores[top], metric)}"


def _list_notes(variants: Variants, differences: Mapping[str, Difference]) -> Iterator[str]:
    """Lists notes for the reader, the most important first."""
    grid, baseline = variants.grid, variants.grid["baseline"]
    yield from grid.get("notes", ())
    if baseline not in variants.runs:
        yield f"no run of {baseline} is done: nothing to compare with"
    if MATCHED in variants.runs and grid.get("matched"):
        yield _say_matched(grid["matched"], baseline)
    for variant in variants.references:
        if variant in differences and differences[variant].low > 0:
            yield (
                f"the row {variant}, which trains no encoder, is significantly ahead of {baseline}"
            )
    if variants.split == "dev":
        yield (
            "there is no test file: all scores are from dev, which chose the settings, and too high"
        )
    if any(_may_differ(result) for result in variants.results):
        yield (
            "these runs may not repeat exactly: on a GPU, without train.deterministic = true or "
            'with train.compile = "inductor", the same seed may give another score'
        )
    yield from list_caveats(variants.trained(), grid.get("tuning", []))
    about_data = [result["notes"] for result in variants.results if "notes" in result]
    for note in about_data[0] if about_data else ():
        if all(note in others for others in about_data):  # in every run, so about the data
            yield note


def _may_differ(result: Mapping[str, Any]) -> bool:
    """Whether the same recipe and seed may give another score when run again."""
    on_gpu = not str(result.get("device", "cpu")).endswith("cpu")
    asked = result.get("recipe", {}).get("train", {}).get("deterministic", False)
    return on_gpu and not result.get("deterministic", asked)


def _say_matched(matched: Mapping[str, Any], baseline: str) -> str:
    longer = f"{matched['ratio']:g} times the epochs let ce train for as long as {matched['row']}"
    if baseline == MATCHED:
        return f"{longer}; that is better on dev, and so it is the baseline"
    return f"{longer}; that is not better on dev, and so ce is the baseline"


def compare_runs(ours: Mapping[int, RunScores], theirs: Mapping[int, RunScores]) -> Difference:
    """Estimates the paired difference over the seeds that both variants have.

    Two scores from 0 to 1 differ by 1 at most, so their interval ends there.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    differences = [ours[seed].score - theirs[seed].score for seed in seeds]
    pairs = [(ours[seed].pseudo, theirs[seed].pseudo) for seed in seeds]
    known = [(mine, other) for mine, other in pairs if mine is not None and other is not None]
    sizes = {values.shape for pair in known for values in pair}
    whole = len(known) == len(seeds) and len(sizes) == 1
    pseudo = np.array([mine - other for mine, other in known]) if whole else None
    found = estimate_difference(differences, pseudo)
    if all(0 <= runs[seed].score <= 1 for runs in (ours, theirs) for seed in seeds):
        low, high = (float(np.clip(end, -1, 1)) for end in (found.low, found.high))
        return replace(found, low=low, high=high)
    return found


def _row(
    name: str,
    variants: Variants,
    judged: tuple[Difference, float] | None,
    *,
    losses: int,
    gain: float,
) -> dict[str, Any]:
    role, runs = variants.role(name), variants.runs[name]
    if role == "reference":
        runs = {0: variants.references[name]}
    own = list(runs.values())
    scores = [run.score for run in own]
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"loss": name, "n": len(scores), "mean": float(np.mean(scores)), "role": role}
    row["sd"] = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
    for key in ("calibration_error", "calibration_error_tuned"):
        row[key] = _mean(getattr(run, key) for run in own)
    row["means"] = {"dev": mean_scores([run.dev for run in own])}
    means = row["means"][variants.split] = mean_scores([run.scores for run in own])
    kind = "macro_" if variants.metric == "macro_f1" else ""  # those that belong to the score
    row |= {key: means.get(f"{kind}{key}") for key in ("precision", "recall")}
    row["scores"] = {str(seed): run.score for seed, run in sorted(runs.items())}
    dead = name_collapse({seed: (run.score, run.collapsed) for seed, run in runs.items()})
    if judged is None:
        return row | {"verdict": "; ".join(["baseline", *dead])}
    difference, p_holm = judged
    row |= {"difference": difference.mean, "p_holm": p_holm, "narrowest": narrowest(difference)}
    keys = ("low", "high", "p", "probability", "df", "sd_seeds", "sd_examples")
    row |= {key: getattr(difference, key) for key in keys}
    if variants.collapsed:
        judgement = f"no verdict; {variants.grid['baseline']} collapsed with every seed"
    elif role == "loss":
        judgement = find_verdict(difference, p_holm, losses=losses, gain=gain)
    else:
        judgement = judge_control(difference)
    # The number of seeds needed means nothing if a seed collapsed.
    sure = [judgement] if not dead or judgement in SURE else []
    return row | {"verdict": "; ".join([*sure, *dead])}


def mean_scores(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Averages every score over runs; also precision and recall over labels.

    >>> mean_scores([{"f1": 0.5, "labels": {}}, {"f1": 1.0, "labels": {}}])
    {'f1': 0.75}
    """
    own = [{**scores, **_macro(scores.get("labels") or {})} for scores in runs]
    names = [name for name, value in own[0].items() if isinstance(value, (int, float))]
    return {name: _mean(one.get(name) for one in own) or 0.0 for name in names}


def _macro(labels: Mapping[str, Mapping[str, float]]) -> dict[str, float | None]:
    names = ("precision", "recall") if labels else ()
    return {f"macro_{name}": _mean(one[name] for one in labels.values()) for name in names}


def describe_labels(variants: Variants) -> dict[str, Any]:
    """Returns each label's frequency, group, and scores by variant, averaged over seeds."""
    names = sorted(
        {label for runs in variants.runs.values() for r in runs.values() for label in r.labels}
    )
    if not names:
        return {"labels": [], "groups": []}
    train = train_support(variants.results[0].get("class_counts", {}), variants.task, names)
    test = {label: _support(variants, label) for label in names}
    group = group_labels({n: train.get(n) or 0 for n in names} if any(train.values()) else test)
    labels = [
        {
            "label": label,
            "support_train": train.get(label),
            "support_test": test[label],
            "group": group[label],
            "scores": {
                variant: _label_scores(variants.runs[variant], label)
                for variant in variants.ordered()
            },
        }
        for label in sorted(names, key=lambda label: (-(train.get(label) or 0), label))
    ]
    return {"labels": labels, "groups": _groups(labels, variants.ordered())}


def _label_scores(runs: Mapping[int, RunScores], label: str) -> dict[str, float]:
    """Returns means over seeds; a label that is missing in a run scores 0 there."""
    scores = [run.labels.get(label, {}) for run in runs.values()]
    return {
        key: _mean(one.get(key, 0.0) for one in scores) or 0.0
        for key in ("precision", "recall", "f1")
    }


def _support(variants: Variants, label: str) -> int:
    scores = (run.labels.get(label) for runs in variants.runs.values() for run in runs.values())
    return max((int(one["support"]) for one in scores if one), default=0)


def _groups(labels: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the mean F1 of the head, mid and tail labels, by variant."""
    groups = []
    for group in GROUPS:
        own = [one for one in labels if one["group"] == group and one["support_test"]]
        if own:
            scores = {
                variant: {"f1": _mean(one["scores"][variant]["f1"] for one in own)}
                for variant in names
            }
            groups.append(
                {"group": group, "labels": [one["label"] for one in own], "scores": scores}
            )
    return groups


def _mean(values: Iterable[float | None]) -> float | None:
    kept = [value for value in values if value is not None]
    return math.fsum(kept) / len(kept) if kept else None


def train_support(
    class_counts: Mapping[str, Any], task: Any, labels: Sequence[str]
) -> dict[str, int | None]:
    """Counts each label in the training data, from the class counts of a result.

    Spans are counted by their first tags; if the scheme does not mark them (IOB1), by tokens. None
    for a task whose outputs are not its labels (BERT-MRC has one query per label).

    >>> counts = {"tags": {"O": 90, "B-PER": 4, "I-PER": 6}}
    >>> train_support(counts, None, ["PER"])  # the scheme is not known: tokens
    {'PER': 10}
    """
    counts = next((c for c in class_counts.values() if isinstance(c, dict)), {})
    # A count may be a pair: negative and positive.
    plain = {name: int(n[1] if isinstance(n, list) else n) for name, n in counts.items()}
    if set(labels) <= set(plain):
        return {label: plain[label] for label in labels}
    letters = _first_letters(getattr(task, "spans", None))
    support: dict[str, int | None] = dict.fromkeys(labels)
    for tag, count in plain.items():
        letter, label = split_tag(tag)
        if label in support and letter != OUTSIDE and (letters is None or letter in letters):
            support[label] = (support[label] or 0) + count
    return support


def _first_letters(scheme: str | None) -> set[str] | None:
    """Returns the tag prefixes that only a span's first token has; None if there are none."""
    known = SCHEMES.get(scheme or "")
    if known is None:
        return None
    return set(known.starting) - set(known.inside + known.end) - set(known.split) or None


def group_labels(support: Mapping[str, int]) -> dict[str, str]:
    """Splits the labels into thirds by frequency: head, mid and tail; two into head and tail.

    >>> group_labels({"a": 9, "b": 1, "c": 4, "d": 7})
    {'a': 'head', 'd': 'head', 'c': 'mid', 'b': 'tail'}
    """
    ranked = sorted(support, key=lambda label: (-support[label], label))
    names = GROUPS if len(ranked) > 2 else ("head", "tail")
    parts = np.array_split(np.array(ranked, dtype=object), len(names))
    return {label: name for name, part in zip(names, parts, strict=True) for label in part}
