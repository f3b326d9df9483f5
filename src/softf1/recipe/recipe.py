"""Recipes: one TOML file says what is trained on what, how, and how it is judged."""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from softf1.recipe.fields import RecipeError, nearest
from softf1.recipe.keys import change, locate
from softf1.recipe.sections import (
    SECTIONS,
    EncoderSection,
    EvalSection,
    LossSection,
    TaskSection,
    TrainSection,
)
from softf1.recipe.toml import format_toml, load_toml, parse_override

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = [
    "EncoderSection",
    "EvalSection",
    "LossSection",
    "Recipe",
    "RecipeError",
    "TaskSection",
    "TrainSection",
    "build_recipe",
    "check_recipe",
    "describe_recipe",
    "format_recipe",
    "hash_recipe",
    "read_recipe",
    "with_values",
]

_NO_RESULT = ("train.checkpoint_seconds", "train.trackers")
"""Keys that change no result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """All that decides a run.

    Attributes:
        name: What the run is called; by default the name of the file.
        task: What is learned from which files.
        encoder: The network below the head.
        loss: What is minimised.
        train: How it is minimised.
        eval: How it is judged.
    """

    name: str
    task: TaskSection
    encoder: EncoderSection
    loss: LossSection
    train: TrainSection
    eval: EvalSection


def read_recipe(path_or_name: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of a file or of a shipped name, changed by words such as `train.lr=3e-5`.

    Types, ranges and names of keys are checked here; `check_recipe` also asks the task and the
    loss about their options, for which it must load them.

    Raises:
        InputError: Names the file and the line of the key.
    """
    from softf1.recipe.shipped import find_recipe, resolve_paths

    path = find_recipe(path_or_name)
    values, lines = load_toml(path)
    given = dict(parse_override(word) for word in overrides)
    try:
        recipe = build_recipe(change({"name": path.stem} | values, given))
    except RecipeError as error:
        raise locate(error, path, lines, given) from error
    return resolve_paths(recipe, path.parent)


def check_recipe(
    recipe: Recipe, *, path: Path | str | None = None, overrides: Sequence[str] = ()
) -> None:
    """Ask task, reader, encoder and loss about their options; loads torch.

    What only data can tell is not checked here: labels, files, `eval.metric`, `loss.keys`.

    Args:
        recipe: As read.
        path: The path or name that it was read from; errors then say the line.
        overrides: The words that it was read with.

    Raises:
        InputError: Names the key.
    """
    from softf1.recipe.check import check_parts
    from softf1.recipe.shipped import find_recipe

    try:
        check_parts(recipe)
    except RecipeError as error:
        if path is None:
            raise
        file = find_recipe(path)
        given = dict(parse_override(word) for word in overrides)
        raise locate(error, file, load_toml(file)[1], given) from error


def with_values(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with other values of dotted keys; None is the default.

    Another `loss.name` drops the options and the class weights of the loss before.

    >>> old = build_recipe({"name": "a", "task": {"kind": "tagging", "train": "train.conll"},
    ...                     "encoder": {"name": "bilstm"}, "loss": {"name": "focal", "gamma": 3}})
    >>> new = with_values(old, {"train.lr": 1e-3, "loss.name": "dice", "loss.over": "batch"})
    >>> new.train.lr, new.loss.name, new.loss.options
    (0.001, 'dice', {'over': 'batch'})
    """
    return build_recipe(change(describe_recipe(recipe), values))


def build_recipe(values: Mapping[str, Any]) -> Recipe:
    """A recipe from nested tables, as a file has them."""
    for key in values:
        if key != "name" and key not in SECTIONS:
            raise RecipeError(key, f"unknown section{nearest(key, SECTIONS)}; {_known(SECTIONS)}")
    name = values.get("name")
    if not isinstance(name, str) or not name:
        raise RecipeError("name", f"wanted a text that is not empty, got {name!r}")
    if any(mark in name for mark in "/\\\0"):  # runs go into a folder of this name
        raise RecipeError("name", f"wanted a name, not a path, got {name!r}")
    parts = {key: _build_section(key, values.get(key, {})) for key in SECTIONS}
    return Recipe(name=name, **parts)


def describe_recipe(recipe: Recipe) -> dict[str, Any]:
    """The recipe as nested tables, every default written out; `build_recipe` takes it back."""
    return {"name": recipe.name} | {key: _describe(getattr(recipe, key)) for key in SECTIONS}


def format_recipe(recipe: Recipe) -> str:
    """The recipe as TOML, which `read_recipe` reads back to an equal one."""
    return format_toml(describe_recipe(recipe))


def hash_recipe(recipe: Recipe) -> str:
    """A hash of everything that decides the result."""
    values = describe_recipe(recipe)
    del values["name"]
    for key in _NO_RESULT:
        section, _, name = key.partition(".")
        del values[section][name]
    text = json.dumps(values, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _build_section(section: str, values: Any) -> Any:
    if not isinstance(values, dict):
        raise RecipeError(section, f"wanted a section [{section}], got {values!r}")
    cls = SECTIONS[section]
    known = {field.name: field for field in fields(cls)}
    free = known.pop("options", None) is not None
    options = {key: value for key, value in values.items() if key not in known}
    if options and not free:
        key = next(iter(options))
        raise RecipeError(f"{section}.{key}", f"unknown key{nearest(key, known)}; {_known(known)}")
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            near = get_close_matches(name, options, n=1)
            if near:
                message = f"unknown key (did you mean {name}?); {_known(known)}"
                raise RecipeError(f"{section}.{near[0]}", message)
            raise RecipeError(f"{section}.{name}", f"wanted this key in [{section}], got none")
    typed = {key: value for key, value in values.items() if key in known}
    return cls(**typed, **({"options": options} if free else {}))


def _describe(section: Any) -> dict[str, Any]:
    found = {field.name: getattr(section, field.name) for field in fields(section)}
    found |= found.pop("options", {})
    return {
        key: list(value) if isinstance(value, tuple) else deepcopy(value)
        for key, value in found.items()
        if value is not None
    }


def _known(names: Any) -> str:
    return f"known: {', '.join(names)}"
