"""The folder of a run: whose it is, who works in it, and that it is finished."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.files import NO_LINKS, is_unfinished, lock, make_folder, new_file, remove_folder
from softf1.recipe import format_recipe
from softf1.training.identity import list_changes, say_changes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from softf1.recipe import Recipe

RESULT, RECIPE, CHECKPOINTS = "result.json", "recipe.toml", "checkpoints"
RUN, LOCK, ERROR = "run.json", "lock", "error.txt"
SCHEMA = 1


def look(
    folder: Path, identity: Mapping[str, Any], *, resume: bool = False, force: bool = False
) -> dict[str, Any] | None:
    """The result of a finished run, None where there is something to do; changes nothing.

    Args:
        folder: The run folder.
        identity: What the run is made of, as `identify` gives it.
        resume: Go on with what was begun.
        force: Start afresh whatever run this is.

    Raises:
        InputError: The folder is no run of ours, it is one of other inputs, or it was begun and
            neither `resume` nor `force` is said.
    """
    done, begun = read_result(folder), _read(folder / CHECKPOINTS / RUN)
    found = done or begun
    if found is None:
        _refuse_others(folder)
        return None
    if force:
        return None
    changes = list_changes(found, identity)
    if changes:
        what = "a finished run" if done else "a run that was begun"
        raise InputError(f"holds {what}, but {say_changes(changes)}", path=folder)
    if done is None and not resume:
        raise InputError(
            "a run was begun here: --resume goes on, --force starts afresh, --out names another "
            "folder",
            path=folder,
        )
    return done


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run, None where there is none."""
    return _read(folder / RESULT)


def finished_on(folder: Path, result: Mapping[str, Any]) -> str:
    """When a run was finished, in words."""
    try:
        moment = datetime.fromisoformat(str(result["finished"]))
    except (KeyError, ValueError):  # written before results said it
        moment = datetime.fromtimestamp((folder / RESULT).stat().st_mtime, UTC)
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def claim(
    folder: Path,
    recipe: Recipe,
    identity: Mapping[str, Any],
    held: ExitStack,
    *,
    resume: bool = False,
    force: bool = False,
) -> dict[str, Any] | None:
    """Makes the folder this run's, and this process the only one in it while `held` is open.

    Another process may have been here since the first look, so there is a second one.

    Returns:
        The result where that process has finished the same run; None where it is to be trained.
    """
    _lock(folder / CHECKPOINTS / LOCK, held)
    done = look(folder, identity, resume=resume, force=force)
    if done is not None:
        clear(folder)
        return done
    _write(folder / CHECKPOINTS / RUN, {"schema": SCHEMA, **identity})
    if force:
        _empty(folder)
    with new_file(folder / RECIPE) as file:
        file.write(format_recipe(recipe).encode())
    return None


def finish(folder: Path, result: dict[str, Any], identity: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the result, which makes the run finished, and removes what only going on needs."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    result |= {"encoder_files": identity["encoder_files"], "finished": now}
    _write(folder / RESULT, result)
    clear(folder)
    return result


def tidy(folder: Path, identity: Mapping[str, Any]) -> None:
    """Removes the checkpoints of a finished run, left by a process that was killed at its end."""
    if not (folder / CHECKPOINTS).is_dir():
        return
    from contextlib import ExitStack

    with suppress(InputError), ExitStack() as held:  # somebody is at work: it is theirs
        _lock(folder / CHECKPOINTS / LOCK, held)
        if look(folder, identity, resume=True) is not None:
            clear(folder)


def clear(folder: Path) -> None:
    """Removes the checkpoints; only who holds the lock may."""
    remove_folder(folder / CHECKPOINTS)


def _empty(folder: Path) -> None:
    """Removes what a run left, the result first; what others put there stays."""
    for name in (RESULT, "metrics.jsonl", ERROR):
        (folder / name).unlink(missing_ok=True)
    for path in folder.glob("predictions.*.jsonl"):
        path.unlink()
    for path in (folder / "model", *(folder / CHECKPOINTS).glob("*step-*")):
        remove_folder(path)


def _refuse_others(folder: Path) -> None:
    """Refuses a folder with anything in it that no run of ours has left there."""
    if folder.exists() and not folder.is_dir():
        raise InputError("wanted a folder, got a file; give another --out", path=folder)
    for path in folder.iterdir() if folder.is_dir() else ():
        own = path.name == ERROR or is_unfinished(path)
        if path.name == CHECKPOINTS and path.is_dir():  # killed before anything was written
            own = all(one.name == LOCK or is_unfinished(one) for one in path.iterdir())
        if not own:
            raise InputError(
                f"wanted an empty folder or a run of softf1, found {path.name}; give another --out",
                path=folder,
            )


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"wanted a result in JSON, got {error}", path=path) from error
    known = isinstance(found, dict) and found.get("schema") == SCHEMA
    if not known or not isinstance(found.get("hash"), str):
        raise InputError("wanted a file of a run of softf1; give another --out", path=path)
    return dict(found)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with new_file(path) as file:
        file.write(json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n")


def _lock(path: Path, held: ExitStack) -> None:
    """Takes the lock, which ends with the process however that ends."""
    while True:
        make_folder(path.parent)
        with suppress(FileNotFoundError):  # another process has just finished here
            number = os.open(path, os.O_WRONLY | os.O_CREAT | NO_LINKS, 0o666)
            if lock(number) is False:
                os.close(number)
                raise InputError("another process trains in this folder", path=path.parents[1])
            if path.exists() and os.path.samestat(path.stat(), os.fstat(number)):
                held.callback(os.close, number)
                return
            os.close(number)
