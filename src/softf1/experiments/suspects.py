"""`softf1 suspects`: labels of a corpus that models trained on the rest of it find unlikely.

The examples are split into folds. For each fold a model is trained on the other folds and predicts
the labels of this one, so no model predicts a text that it was trained on. The suspects of all
folds (`tasks/suspects.py`) are ranked together and written to a file for review.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from softf1.data.problems import Problems
from softf1.errors import InputError, RunError
from softf1.experiments.grid import Execute, Grid, RunSpec, lock_grid
from softf1.experiments.meter import Meter
from softf1.files import finite, write_json, write_text
from softf1.recipe import Recipe, with_values
from softf1.tasks.registry import make_task
from softf1.training.datasets import check_gold, find_folds, load_datasets
from softf1.training.evaluation import predict_logits
from softf1.training.publish import load_model
from softf1.training.run_folder import SPLITS

if TYPE_CHECKING:
    from softf1.tasks.base import Task
    from softf1.tasks.suspects import Mark, Suspect

FEW = 1000
"""Up to this many examples, all folds are checked before the first is trained on."""

SCHEMA = 1
FILE, REVIEW = "suspects.json", "suspects.csv"
COLUMNS = ("file", "line", "kind", "given", "suggested", "score", "text", "decision")
"""Columns of the review file; the reviewer fills in `decision`: keep or fix."""

RISKY = ("=", "+", "-", "@", "\t", "\r")
"""First characters that make a spreadsheet read a cell as a formula."""


def find_suspects(
    recipe: Recipe,
    folder: Path,
    *,
    execute: Execute,
    folds: int = 5,
    top: int = 1000,
    force: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Trains the missing folds, predicts every example, and writes the suspects.

    Args:
        recipe: The files, and how to train on them.
        folder: The folder of the folds; `suspects.json` and `suspects.csv` go there.
        execute: Executes the runs.
        folds: How many models to train; each leaves out the examples of its own fold.
        top: How many suspects to write, the likeliest errors first.
        force: Delete the folds that an earlier command left in the folder, and start again.
        quiet: Show no progress.

    Returns:
        The content of `suspects.json`.
    """
    whole = with_values(recipe, {"task.folds": folds, "task.fold": 0})
    examples = list_examples(whole)
    grid = Grid(folder, recipe, execute)
    with lock_grid(folder, force=force):
        runs = train_folds(grid, folds, quiet=quiet)
        found, unknown = judge_folds(grid, runs, whole, [example for _, example in examples])
        content = make_content(grid, runs, examples, found[:top])
        content |= {"folds": folds, "found": len(found), "unknown": unknown}
        content["kinds"] = dict(Counter(suspect.kind for suspect in found).most_common())
        write_json(folder / FILE, finite(content))
        write_review(folder / REVIEW, content["suspects"])
    return content


def list_examples(recipe: Recipe) -> list[tuple[str, Any]]:
    """Returns all examples with their files, in the order in which they are cut into folds.

    Raises:
        InputError: A file cannot be read, an example has no label, the task has no labels, there
            are fewer texts than folds, or a fold of few examples leaves nothing to train on.
    """
    task = make_task(recipe.task.kind, **recipe.task.options)
    if not hasattr(task, "find_suspects"):
        raise InputError(
            f"wanted a task that labels texts or words, got {task.kind}: its answers have no "
            "label that could be wrong (for entities, use --task tagging, or span_ner if nested)"
        )
    paths = {name: path for name in SPLITS if (path := getattr(recipe.task, name))}
    examples = {name: list(task.read(path, Problems())) for name, path in paths.items()}
    check_gold(task, examples, {name: {"path": path} for name, path in paths.items()})
    everything = [(paths[name], one) for name, own in examples.items() for one in own]
    find_folds([one for _, one in everything], recipe.task, recipe.task.train)
    if len(everything) <= FEW:
        check_folds(recipe, examples)
    return everything


def check_folds(recipe: Recipe, examples: dict[str, list[Any]]) -> None:
    """Loads the datasets of every fold; raises before any training if one cannot be used."""
    folds = recipe.task.folds or 1
    for number in range(folds):
        try:
            load_datasets(with_values(recipe, {"task.fold": number}), examples)
        except InputError as error:
            message = f"to train without fold {number} of {folds}: {error}"
            raise InputError(message, path=recipe.task.train) from None


def train_folds(grid: Grid, folds: int, *, quiet: bool) -> list[RunSpec]:
    """Trains the folds that are not finished yet."""
    recipe = grid.recipe
    runs = [
        RunSpec(
            id=f"fold-{number}",
            label=f"fold {number}",
            loss=recipe.loss.name,
            seed=recipe.train.seed,
            values={"task.folds": folds, "task.fold": number},
        )
        for number in range(folds)
    ]
    grid.open(kind="suspects", baseline=runs[0].label, losses=[run.label for run in runs])
    with Meter(len(runs), len(runs), quiet=quiet) as meter:
        grid.run(runs, meter)
    if grid.errors:
        name, error = next(iter(grid.errors.items()))
        raise RunError(f"{len(grid.errors)} of {folds} folds failed; {name}: {error}")
    return runs


def judge_folds(
    grid: Grid, runs: Sequence[RunSpec], recipe: Recipe, examples: Sequence[Any]
) -> tuple[list[Suspect], int]:
    """Predicts each fold with the model that was not trained on it; ranks the suspects of all.

    Returns:
        The suspects, likeliest errors first, whose `example` is the index into `examples`; and how
        many examples have labels that the model of their fold does not know.
    """
    fold = find_folds(examples, recipe.task, recipe.task.train)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found: list[Suspect] = []
    unknown = 0
    for number, run in enumerate(runs):
        model, task, tokenizer = load_model(grid.folder / run.folder)
        index = np.flatnonzero(fold == number).tolist()
        features = task.encode([examples[i] for i in index], tokenizer)
        how: dict[str, Any] = {"device": device, "batch_tokens": recipe.eval.batch_tokens}
        logits = predict_logits(model.to(device), task, features, tokenizer, **how)
        suspects, new = task.find_suspects(logits, features)  # type: ignore[attr-defined]
        found += [replace(one, example=index[one.example]) for one in suspects]
        unknown += new
    return sorted(found, key=lambda one: (-one.score, one.example)), unknown


def make_content(
    grid: Grid,
    runs: Sequence[RunSpec],
    examples: Sequence[tuple[str, Any]],
    found: Sequence[Suspect],
) -> dict[str, Any]:
    """The content of `suspects.json`: the folds and each suspect."""
    results = [grid.results[run.id] for run in runs]
    metric = find_metric(grid.recipe, [example for _, example in examples])
    scores = [result["scores"]["test"][metric] for result in results]
    task = make_task(grid.recipe.task.kind, **grid.recipe.task.options)
    return {
        "schema": SCHEMA,
        "kind": "suspects",
        "name": grid.recipe.name,
        "task": grid.recipe.task.kind,
        "encoder": grid.recipe.encoder.name,
        "loss": grid.recipe.loss.name,
        "seed": grid.recipe.train.seed,
        "versions": results[0]["versions"],
        "files": sorted({path for path, _ in examples}),
        "examples": len(examples),
        "headline": metric,
        "score": float(np.mean(scores)),
        "collapsed": sum(bool(result.get("collapsed")) for result in results),
        "suspects": [describe_suspect(*examples[one.example], one, task) for one in found],
    }


def find_metric(recipe: Recipe, examples: Sequence[Any]) -> str:
    """Returns the primary metric for all labels: the training data of a fold may lack some."""
    task: Any = make_task(recipe.task.kind, **recipe.task.options)
    labels = {label for example in examples for label in getattr(example, "labels", ())}
    if labels:
        task = task.changed(labels=tuple(sorted(labels)))
    return recipe.eval.metric or str(task.primary_metric)


def describe_suspect(path: str, example: Any, suspect: Suspect, task: Task) -> dict[str, Any]:
    """One suspect: its place in the file, the given labels and the suggested ones."""
    shown = task.show(example)
    words = shown.get("words", [])
    texts = [shown[key] for key in ("text", "first", "second") if key in shown]
    return {
        "file": path,
        "line": example.line,
        "id": example.id,
        "kind": suspect.kind,
        "given": [describe_mark(mark, words) for mark in suspect.given],
        "suggested": [describe_mark(mark, words) for mark in suspect.suggested],
        "score": suspect.score,
        "pieces": cut_words(words, suspect) if words else [" ⇄ ".join(texts), "", ""],
    }


def describe_mark(mark: Mark, words: Sequence[str]) -> dict[str, Any]:
    """A label and the words it covers."""
    if mark.start is None:
        return {"label": mark.label}
    return {**mark._asdict(), "text": join_words(words[mark.start : mark.end])}


def cut_words(words: Sequence[str], suspect: Suspect) -> list[str]:
    """The sentence in three pieces: before, at and after the suspect words."""
    marks = (*suspect.given, *suspect.suggested)
    start, end = min(mark.start or 0 for mark in marks), max(mark.end or 0 for mark in marks)
    return [join_words(part) for part in (words[:start], words[start:end], words[end:])]


def write_review(path: Path, suspects: Sequence[dict[str, Any]]) -> None:
    """Writes the review file: one row per suspect, with an empty `decision`."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in suspects:
        given, suggested = (say_marks(one[key]) for key in ("given", "suggested"))
        text = " ".join(filter(None, one["pieces"]))
        row = [one["file"], one["line"], one["kind"], given, suggested, f"{one['score']:.6f}"]
        writer.writerow([defuse(str(cell)) for cell in (*row, text, "")])
    write_text(path, table.getvalue(), errors="replace")


def say_marks(marks: Sequence[dict[str, Any]]) -> str:
    """Labels in words, each with the text it covers.

    >>> say_marks([{"label": "PER", "start": 1, "end": 3, "text": "Ann Lee"}])
    'PER: Ann Lee'
    >>> say_marks([])
    'nothing'
    """
    parts = [": ".join(filter(None, (mark["label"], mark.get("text")))) for mark in marks]
    return "; ".join(parts) or "nothing"


def join_words(words: Sequence[str]) -> str:
    """Joins words with spaces, but the characters of a script without spaces directly.

    >>> join_words(["Ann", "Lee"]), join_words(["李", "安"])
    ('Ann Lee', '李安')
    """
    characters = all(len(word) == 1 for word in words) and not all(map(str.isascii, words))
    return ("" if characters else " ").join(words)


def defuse(cell: str) -> str:
    """Puts an apostrophe before a text that a spreadsheet would run as a formula.

    >>> defuse("=1+1"), defuse("PER")
    ("'=1+1", 'PER')
    """
    return f"'{cell}" if cell.startswith(RISKY) else cell
