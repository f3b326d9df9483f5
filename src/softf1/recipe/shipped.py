"""Finds recipes: by path, or by the name of a shipped one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import softf1
from softf1.errors import InputError
from softf1.models.encoders import MINILM, list_encoders
from softf1.options import nearest

if TYPE_CHECKING:
    from softf1.recipe.sections import Recipe


_HEADER = re.compile(r"# (Run|Paper|Files|From): +(.+)")


class Header(NamedTuple):
    """The comments at the top of a recipe; fields are empty if not given.

    Attributes:
        title: The first line.
        run: The command.
        paper: The figure to compare with.
    """

    title: str
    run: str
    paper: str


def recipe_folder() -> Path:
    """The folder of shipped recipes: in the installed package, or beside `src` in a checkout."""
    package = Path(softf1.__file__).parent
    inside = package / "recipes"
    return inside if inside.is_dir() else package.parents[1] / "recipes"


def list_recipes() -> dict[str, Path]:
    """Lists the shipped recipes by name."""
    return dict(sorted((path.stem, path) for path in recipe_folder().glob("*.toml")))


def read_header(path: Path) -> Header:
    """Reads the comments at the top of a recipe."""
    lines = path.read_text("utf-8").splitlines()
    found = {match[1]: match[2] for line in lines if (match := _HEADER.match(line))}
    title = lines[0].removeprefix("# ") if lines and lines[0].startswith("# ") else ""
    return Header(title, found.get("Run", ""), found.get("Paper", ""))


def find_recipe(path_or_name: Path | str) -> Path:
    """Returns the file of a recipe given by path or by name."""
    path = Path(path_or_name)
    if _exists(path) and not path.is_dir():
        return path
    shipped = list_recipes()
    name = str(path_or_name)
    if _exists(path) and name not in shipped:
        inside = path / "recipe.toml"
        hint = f"; its recipe is {inside}" if _exists(inside) else ""
        raise InputError(f"wanted a recipe, a TOML file; got a folder{hint}", path=path)
    if name in shipped:
        return shipped[name]
    if path.suffix == ".toml" or path.name != name:
        raise InputError("wanted a recipe, found no such file", path=path)
    raise InputError(
        f"wanted a recipe file or one of the shipped recipes, got {name!r}"
        f"{nearest(name, shipped)}; known: {', '.join(shipped)}"
    )


def resolve_paths(recipe: Recipe, folder: Path) -> Recipe:
    """Resolves data files that are not in the current folder relative to the recipe's folder."""
    task, encoder, options = recipe.task, recipe.encoder, recipe.task.options
    if isinstance(queries := options.get("queries"), str):
        options = options | {"queries": _resolve(queries, folder)}
    named = {MINILM, *list_encoders()}  # a folder of the same name, such as a run, does not count
    if encoder.name not in named and _exists(folder / encoder.name / "config.json"):
        encoder = replace(encoder, name=_resolve(encoder.name, folder))
    task = replace(
        task,
        train=_resolve(task.train, folder),
        dev=task.dev and _resolve(task.dev, folder),
        test=task.test and _resolve(task.test, folder),
        options=options,
    )
    return replace(recipe, task=task, encoder=encoder)


def _resolve(name: str, folder: Path) -> str:
    here, beside = Path(name), folder / name
    return str(beside) if _exists(beside) and not _exists(here) else name


def _exists(path: Path) -> bool:
    """Whether a path exists; False for an impossible file name."""
    try:
        return path.exists()
    except OSError:  # too long for a file name
        return False
