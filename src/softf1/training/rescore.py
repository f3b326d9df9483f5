"""Scores of a finished model on data: the test data of its recipe, or any other file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from softf1.data.problems import Problems
from softf1.errors import InputError
from softf1.training.evaluation import evaluate
from softf1.training.predict import with_reader
from softf1.training.publish import load_model
from softf1.training.recipe import read_recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from softf1.tasks.base import Task

SCHEMA = 1


class Data(NamedTuple):
    """A file to score on, and which part of the recipe's data it is, if it is one."""

    path: str
    split: str | None = None


class Rescored(NamedTuple):
    """Scores of one file.

    Attributes:
        data: The file.
        examples: How many it has.
        headline: The score that decides.
        scores: What the task scores.
        notes: What a user should know, such as labels that training never saw.
    """

    data: Data
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
    loaded = load_model(run)
    chosen = Data(str(data)) if data is not None else find_data(run, split)
    task, problems = loaded.task, Problems()
    reader = task
    if format is not None or options:
        same = {} if format is not None else task.reader
        reader = with_reader(task, format or task.format, {**same, **(options or {})})
    examples = list(reader.read(chosen.path, problems))
    features = task.encode(examples, loaded.codec)
    found = evaluate(
        loaded.model.to(device), task, features, examples, loaded.codec, device=device, **how
    )
    notes = [*problems.notes, *task.notes(features)]
    return Rescored(chosen, len(examples), headline(run, task), found.scores, notes)


def find_data(run: Path | str, split: str | None) -> Data:
    """The file of the recipe that a run is judged by."""
    path = Path(run) / "recipe.toml"
    if not path.is_file():
        raise InputError("wanted --data, since there is no recipe that names a file", path=path)
    task = read_recipe(path).task
    files = {name: getattr(task, name) for name in ("test", "dev")}
    names = [split] if split else [name for name, file in files.items() if file]
    if not names or not files[names[0]]:
        wanted = split or "test or dev"
        raise InputError(f"wanted a recipe with a {wanted} file, or --data; got neither", path=path)
    file = str(files[names[0]])
    if not file.startswith("hf:") and not Path(file).exists():
        raise InputError(
            f"the {names[0]} file of the recipe is not there; name it with --data", path=file
        )
    return Data(file, names[0])


def headline(run: Path | str, task: Task) -> str:
    """The score that the run was judged by."""
    path = Path(run) / "recipe.toml"
    metric = read_recipe(path).eval.metric if path.is_file() else None
    return metric or task.headline


def as_json(run: Path | str, found: Rescored) -> dict[str, Any]:
    """What `softf1 evaluate --json` prints."""
    return {
        "schema": SCHEMA,
        "run": str(run),
        "data": found.data.path,
        "split": found.data.split,
        "examples": found.examples,
        "headline": found.headline,
        "scores": found.scores,
        "notes": found.notes,
    }
