"""`headroom.json`: how many points a run could still win, and where."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softf1.errors import InputError
from softf1.files import load_json
from softf1.options import convert_value
from softf1.tasks.registry import load_task
from softf1.training.evaluation import HEADROOM, measure_headroom, predict_logits, write_headroom
from softf1.training.predict import find_recipe, read_labelled
from softf1.training.publish import find_model, load_model
from softf1.training.run_folder import RESULT, read_result

SCHEMA = 1
SHAPE: dict[str, Any] = {
    "metric": str,
    "split": str | None,
    "examples": int,
    "parts": Sequence[dict[str, Any]],
    "average_precision": float | None,
    "summary": str,
    "missing": Sequence[str],
}
"""Types of the values that are read from the file; `PART` has those of each part."""
PART: dict[str, Any] = {
    "title": str,
    "score": float,
    "gain": float,
    "counts": dict[str, float | None],
    "examples": Sequence[dict[str, Any]],
}


def read_headroom(folder: Path) -> dict[str, Any] | None:
    """Reads `headroom.json` of a run; None if there is none."""
    path = folder / HEADROOM
    if not path.is_file():
        return None
    content = load_json(path, "the headroom of a run in JSON")
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise InputError(f'wanted the headroom of a run, "schema": {SCHEMA}', path=path)
    try:
        _check(content, SHAPE)
        for part in content["parts"]:
            _check(part, PART)
    except InputError as error:
        raise InputError(f"wanted the headroom of a run, got {error}", path=path) from error
    return content


def _check(content: dict[str, Any], shape: dict[str, Any]) -> None:
    """Raises for a value of another type than `softf1 headroom` can show."""
    for key, hint in shape.items():
        convert_value(content.get(key), hint, key=key)


def find_headroom(
    run: Path | str,
    *,
    data: Path | str | None = None,
    split: str | None = None,
    format: str | None = None,  # noqa: A002 - as in recipes
    options: Any = None,
    **how: Any,
) -> dict[str, Any]:
    """Finds the headroom of a run: from its file, else from model and data, else from predictions.

    A new result for the split that the run is judged by is saved in its folder.

    Args:
        run: A run folder; a model folder needs `data`.
        data: Another labelled file than the recipe's.
        split: "test" or "dev" of the recipe; None is test, or dev if there is no test.
        format: Another format than that of training.
        options: Options of the reader.
        how: The device and other arguments of `predict_logits`.

    Raises:
        InputError: There is no run, its task does not support headroom, or neither model and data
            nor predictions exist.
    """
    folder, own = Path(run), data is None and format is None and not options
    known = read_headroom(folder) if own else None
    if known is not None and split in (None, known.get("split")):
        return known
    task = load_task(find_model(folder))
    if not hasattr(task, "headroom"):
        raise InputError(f"task {task.kind} has no method headroom to measure it with", path=folder)
    try:
        measured = _compute(run, data=data, split=split, format=format, options=options, **how)
    except InputError as error:
        if not own:
            raise
        return _from_predictions(folder, task, split, error)
    judged = own and measured["split"] == _judged(folder) and (folder / RESULT).is_file()
    if judged and os.access(folder, os.W_OK):  # the run may be read-only
        write_headroom(folder, measured)
    return measured


def _compute(run: Path | str, *, device: Any = "cpu", **which: Any) -> dict[str, Any]:
    how = {key: which.pop(key) for key in ("autocast", "batch_tokens") if key in which}
    model, task, tokenizer = load_model(run)
    _, part, examples, _ = read_labelled(run, task, **which)
    features = task.encode(examples, tokenizer)
    logits = predict_logits(model.to(device), task, features, tokenizer, device=device, **how)
    primary = _primary_metric(Path(run), task)
    return measure_headroom(task, logits, features, examples, split=part, primary=primary)


def _primary_metric(folder: Path, task: Any) -> str:
    recipe = find_recipe(folder)
    return str((recipe and recipe.eval.metric) or task.primary_metric)


def _judged(folder: Path) -> str:
    recipe = find_recipe(folder)
    return "test" if recipe is not None and recipe.task.test else "dev"


def _from_predictions(
    folder: Path, task: Any, split: str | None, error: InputError
) -> dict[str, Any]:
    """Measures headroom from a predictions file alone; `error` is why there are no logits."""
    part = split or _judged(folder)
    result = read_result(folder) or {}
    kind = ".tuned" if part in (result.get("tuned") or {}) else ""
    path = folder / f"predictions.{part}{kind}.jsonl"
    if not path.is_file():
        raise InputError(f"{error}; and there is no {path.name} to use instead") from error
    lines = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                lines.append(json.loads(line))
            except (ValueError, RecursionError) as wrong:
                raise InputError(f"wanted JSON, got: {wrong}", path=path, line=number) from None
    if not lines:
        raise InputError(f"{error}; and {path.name} has no predictions") from error
    try:
        measured = task.headroom(lines).to_json()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as wrong:
        reason = f"{type(wrong).__name__}: {wrong}"
        raise InputError(
            f"wanted predictions of task {task.kind}, got {reason}", path=path
        ) from wrong
    missing = [*measured["missing"], f"from {path.name} alone, since {error}"]
    known = {"split": part, "examples": len(lines), "missing": missing}
    return {**measured, **known, "primary_metric": _primary_metric(folder, task)}
