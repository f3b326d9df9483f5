"""The folder of a run: whose it is, who works in it, and that it is finished."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.training.files import new_file
from softf1.training.recipe import format_recipe, hash_recipe

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from softf1.training.recipe import Recipe

RESULT, RECIPE, CHECKPOINTS = "result.json", "recipe.toml", "checkpoints"


def look(folder: Path, recipe: Recipe, *, resume: bool) -> dict[str, Any] | None:
    """The result of a finished run, None where there is something to do; changes nothing.

    Raises:
        InputError: Another recipe was trained here, or this one was begun and `resume` is not said.
    """
    done = read_result(folder, recipe)
    mark = folder / CHECKPOINTS / "hash"
    if done is not None or not mark.is_file():
        return done
    if mark.read_text("utf-8") != hash_recipe(recipe):
        raise InputError("the checkpoints here are of another recipe; give --out", path=folder)
    if not resume:
        raise InputError("a run was begun here: --resume goes on, --out names another", path=folder)
    return None


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


def claim(folder: Path, recipe: Recipe, held: ExitStack) -> None:
    """Makes the folder this run's, and this process the only one in it while `held` is open."""
    checkpoints = folder / CHECKPOINTS
    checkpoints.mkdir(parents=True, exist_ok=True)
    _lock(checkpoints / "lock", held)
    with new_file(folder / RECIPE) as file:
        file.write(format_recipe(recipe).encode())
    with new_file(checkpoints / "hash") as file:
        file.write(hash_recipe(recipe).encode())


def finish(folder: Path, result: dict[str, Any]) -> dict[str, Any]:
    """Writes the result, which makes the run finished, and removes what only going on needs."""
    with new_file(folder / RESULT) as file:
        file.write(json.dumps(result, ensure_ascii=False, indent=1).encode() + b"\n")
    clear(folder)
    return result


def clear(folder: Path) -> None:
    """Removes the checkpoints of a finished run, and what a killed process left of it."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def _lock(path: Path, held: ExitStack) -> None:
    """Takes the lock, which ends with the process however that ends."""
    with suppress(ImportError):  # Windows has no such thing
        import fcntl

        file = held.enter_context(path.open("ab"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                "another process trains in this folder", path=path.parents[1]
            ) from None
        except OSError:  # a file system without locks
            return
