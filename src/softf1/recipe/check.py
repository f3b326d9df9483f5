"""What a recipe asks of task, reader, encoder and loss, checked before any data is read."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from typing import TYPE_CHECKING

from softf1.errors import InputError
from softf1.recipe.check_loss import check_loss
from softf1.recipe.fields import RecipeError, named, nearest

if TYPE_CHECKING:
    from softf1.recipe.recipe import EncoderSection, Recipe
    from softf1.tasks.base import Task

HEADS = {"tagging": "tokens", "classification": "text", "pairs": "text", "qa": "span"}
"""The head that our own tasks want of an encoder from scratch; BERT-MRC wants none that has one."""


def check_parts(recipe: Recipe) -> None:
    """Ask task, reader, encoder and loss about their options.

    Raises:
        RecipeError: Names the key.
    """
    task = _check_task(recipe)
    _check_reader(task)
    _check_encoder(recipe.encoder, recipe.task.kind)
    check_loss(recipe.loss, softmax=_has_classes(task), whole=recipe.train.accumulate == 1)


def _check_task(recipe: Recipe) -> Task:
    from softf1.tasks import list_tasks, make_task

    kind, options = recipe.task.kind, recipe.task.options
    if kind not in list_tasks():
        known = ", ".join(list_tasks())
        message = f"unknown task {kind!r}{nearest(kind, list_tasks())}; known: {known}"
        raise RecipeError("task.kind", message)
    try:
        task = make_task(kind, **options)
    except InputError as error:
        if error.path is not None:  # a file of queries
            raise
        raise RecipeError(named("task", options, str(error)), str(error)) from error
    for field in dataclasses.fields(task):  # type: ignore[arg-type]  # every task is a dataclass
        if field.metadata.get("learned") and field.name in options:
            raise RecipeError(f"task.{field.name}", "comes from the training data, not the recipe")
    return task


def _check_reader(task: Task) -> None:
    """Format and options of the reader; nothing is read."""
    from softf1.data.problems import Problems
    from softf1.data.registry import choose

    if task.format is None:  # the file will tell
        return
    queries = getattr(task, "queries", None)
    kind = "tagging" if task.kind == "mrc_ner" and queries else task.kind
    options = dict(task.reader)
    try:
        choose("", format=task.format, task=kind, problems=Problems(), options=options)
    except InputError as error:
        key = "task.reader" if any(name in str(error) for name in options) else "task.format"
        raise RecipeError(key, str(error)) from error


def _check_encoder(encoder: EncoderSection, kind: str) -> None:
    from softf1.models.encoders import SCRATCH

    if encoder.name not in SCRATCH:
        for name in encoder.options:
            known = " or ".join(SCRATCH)
            raise RecipeError(f"encoder.{name}", f"wanted options for {known} only, got one here")
        return
    model, _, head = SCRATCH[encoder.name]
    wanted = HEADS.get(kind, "none" if kind == "mrc_ner" else head)
    if wanted != head:
        message = f"{encoder.name} has a head for {head}, task {kind} wants {wanted}"
        raise RecipeError("encoder.name", message)
    _check_sizes(encoder, model)


def _check_sizes(encoder: EncoderSection, model: str) -> None:
    module = importlib.import_module(f"softf1.models.{encoder.name}")
    parameters = inspect.signature(getattr(module, f"{model}Config").__init__).parameters
    sizes = [name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    known = [name for name in sizes if name not in ("self", "dropout") and "vocab" not in name]
    for name, value in encoder.options.items():
        if name not in known:
            message = f"unknown size{nearest(name, known)}; known: {', '.join(known)}"
            raise RecipeError(f"encoder.{name}", message)
        numbers = value if isinstance(value, list) else [value]
        listed = isinstance(parameters[name].default, tuple)
        if listed != isinstance(value, list) or not all(map(_is_size, numbers)) or not numbers:
            wanted = "a list of whole numbers" if listed else "a whole number"
            raise RecipeError(f"encoder.{name}", f"wanted {wanted} from 1, got {value!r}")
        if (encoder.name, name, value) == ("bilstm", "hidden_size", 1):
            raise RecipeError("encoder.hidden_size", "wanted 2 or more, half for each way, got 1")


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _has_classes(task: Task) -> bool:
    """Whether targets are one of several classes; otherwise yes or no at every place."""
    several = getattr(task, "multi_label", False) or getattr(task, "positions", "") == "sigmoid"
    return task.kind != "mrc_ner" and not several
