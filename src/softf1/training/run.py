"""A run: a recipe in, a folder with model, predictions and result out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.training.engine import CHECKPOINTS, Engine
from softf1.training.files import new_file
from softf1.training.material import load_material
from softf1.training.processes import Processes
from softf1.training.progress import choose_display
from softf1.training.quiet import quiet_transformers
from softf1.training.recipe import format_recipe, hash_recipe
from softf1.training.results import conclude

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from softf1.training.recipe import Recipe

RESULT = "result.json"


def train_run(
    recipe: Recipe,
    folder: Path | str,
    *,
    resume: bool = False,
    quiet: bool = False,
    data: Mapping[str, Sequence[Any]] | None = None,
) -> dict[str, Any]:
    """Trains as the recipe says; gives the content of `result.json`.

    Args:
        recipe: What to train.
        folder: The run folder. One that is finished gives its result at once.
        resume: Go on from the last checkpoint, where there is one.
        quiet: Show nothing.
        data: Examples of train, dev and test instead of the recipe's files.
    """
    folder = Path(folder)
    done = read_result(folder, recipe)
    if done is not None:
        return done
    processes = Processes(trackers=recipe.train.trackers, folder=folder)
    if processes.main:
        claim(folder, recipe, resume=resume)
    processes.wait()
    display = choose_display(quiet=quiet, main=processes.main)
    try:
        with quiet_transformers():
            material = load_material(recipe, data)
            engine = Engine(recipe=recipe, folder=folder, material=material, processes=processes)
        for note in material.notes:
            display.say(f"note: {note}")
        engine.train(display)
        result = conclude(engine)
    finally:
        display.stop()
        processes.end()
    if processes.main:
        with new_file(folder / RESULT) as file:
            file.write(json.dumps(result, ensure_ascii=False, indent=1).encode() + b"\n")
        shutil.rmtree(folder / CHECKPOINTS)
    shared: dict[str, Any] = processes.share(result)
    return shared


def read_result(folder: Path, recipe: Recipe) -> dict[str, Any] | None:
    """The result of a finished run; a folder of another recipe is refused."""
    path = folder / RESULT
    if not path.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise InputError(f"wanted a result in JSON, got {error}", path=path) from error
    if found.get("hash") != hash_recipe(recipe):
        raise InputError("this folder holds the result of another recipe; give --out", path=folder)
    return found


def claim(folder: Path, recipe: Recipe, *, resume: bool) -> None:
    """Makes the folder; what another recipe began there is refused."""
    checkpoints = folder / CHECKPOINTS
    mark, own = checkpoints / "hash", hash_recipe(recipe)
    if mark.is_file() and not resume:
        raise InputError("a run was begun here: --resume goes on, --out names another", path=folder)
    if mark.is_file() and mark.read_text("utf-8") != own:
        raise InputError("the checkpoints here are of another recipe; give --out", path=folder)
    checkpoints.mkdir(parents=True, exist_ok=True)
    with new_file(folder / "recipe.toml") as file:
        file.write(format_recipe(recipe).encode())
    with new_file(mark) as file:
        file.write(own.encode())
