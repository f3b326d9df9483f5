"""Scores of a finished model on data: the test data of its recipe, or any other file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from softf1.data.problems import Problems
from softf1.errors import InputError
from softf1.recipe import read_recipe
from softf1.training.evaluation import evaluate
from softf1.training.material import check_gold, split_dev
from softf1.training.predict import reading_as
from softf1.training.publish import load_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from softf1.recipe import Recipe
    from softf1.tasks.base import Task

SCHEMA = 1


class Rescored(NamedTuple):
    """Scores of one file.

    Attributes:
        data: The file.
        split: Which part of the recipe's data it is, if it is one.
        examples: How many it has.
        headline: The score that decides.
        scores: What the task scores.
        notes: What a user should know, such as labels that training never saw.
    """

    data: str
    split: str | None
    examples: int
    headline: str
    scores: dict[str, Any]
    notes: list[str]


def rescore(
    run: Path | str,
    *,
    data: Path | str | None = None,
    split: str | None = None,
    format: str | None = None,  # noqa: A002 - as in recipes
    options: Mapping[str, Any] | None = None,
    device: Any = "cpu",
    **how: Any,
) -> Rescored:
    """Evaluate the model of a run, thresholds and biases included; the run itself is left alone.

    Args:
        run: A run folder; a model folder needs `data`.
        data: The file; None is the recipe's.
        split: "test" or "dev" of the recipe; None is test, or dev where there is no test.
        format: Another format than that of training.
        options: Of the reader.
        device: Where to compute.
        how: What `find` takes beside it.
    """
    model, task, codec = load_model(run)
    recipe, problems = find_recipe(run), Problems()
    reader = reading_as(task, format=format, options=options)
    if data is not None:
        path, part, examples = str(data), None, list(reader.read(data, problems))
    elif recipe is not None:
        path, part, examples = read_part(recipe, reader, split, problems)
    else:
        raise InputError("wanted --data, since no recipe.toml here names a file", path=run)
    check_gold(task, {"test": examples}, {"test": {"path": path}})
    features = task.encode(examples, codec)
    found = evaluate(model.to(device), task, features, examples, codec, device=device, **how)
    notes = [*problems.notes, *task.notes(features)]
    headline = (recipe.eval.metric if recipe is not None else None) or task.headline
    return Rescored(path, part, len(examples), headline, found.scores, notes)


def find_recipe(run: Path | str) -> Recipe | None:
    """The recipe of a run; a model folder has none."""
    path = Path(run) / "recipe.toml"
    return read_recipe(path) if path.is_file() else None


def read_part(
    recipe: Recipe, task: Task, split: str | None, problems: Problems
) -> tuple[str, str, list[Any]]:
    """File, name and examples of the part of a recipe's data that a run is judged by."""
    name = split or ("test" if recipe.task.test else "dev")
    path = getattr(recipe.task, name) or (recipe.task.train if name == "dev" else None)
    if path is None:
        raise InputError(f"wanted a recipe with a {name} file, or --data; got neither")
    if not path.startswith("hf:") and not Path(path).exists():
        raise InputError(f"the {name} file of the recipe is not there: give --data", path=path)
    examples = list(task.read(path, problems))
    if name == "dev" and recipe.task.dev is None:
        parts, sources = {"train": examples}, {"train": {"path": path}}
        split_dev(parts, sources, recipe.task.dev_share)
        examples = parts["dev"]
    return path, name, examples


def as_json(run: Path | str, found: Rescored) -> dict[str, Any]:
    """What `softf1 evaluate --json` prints."""
    return {
        "schema": SCHEMA,
        "run": str(run),
        "data": found.data,
        "split": found.split,
        "examples": found.examples,
        "headline": found.headline,
        "scores": found.scores,
        "notes": found.notes,
    }
