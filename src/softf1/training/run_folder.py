"""The folder of a run: what decides its result, whose it is, who works in it, when it is finished.

A folder says what its run was made of (recipe, content of files, versions), in `result.json` and
before the end in the checkpoints. The same command later is about that run only if all of it is
still the same. Files are hashed anew each time (about 1 GiB a second): no time stamp is trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from softf1 import __version__
from softf1.errors import InputError
from softf1.files import (
    NO_LINKS,
    hash_file,
    is_unfinished,
    lock,
    make_folder,
    new_file,
    remove_folder,
    sweep,
)
from softf1.models.encoders import find_encoder, list_encoders
from softf1.recipe import describe_recipe, format_recipe, hash_recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from softf1.recipe import Recipe

RESULT, RECIPE, CHECKPOINTS = "result.json", "recipe.toml", "checkpoints"
RUN, LOCK, ERROR = "run.json", "lock", "error.txt"
SCHEMA = 1

SPLITS = ("train", "dev", "test")
DECISIVE = ("softf1", "torch", "transformers")
"""Packages of which another version may give another result."""

READ = (".json", ".safetensors", ".bin", ".txt", ".model", ".vocab", ".tiktoken")
"""Ends of the names of config, weights and tokenizer in the folder of an encoder."""

SHOWN = 3
"""Changes that are named; of the others it is said how many there are."""

WAYS = "--out names another folder, --force starts afresh"


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
    run = done or begun
    if run is None:
        _refuse_others(folder)
        return None
    if force:
        return None
    changes = list_changes(run, identity)
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
    # Of the recipe as it was asked for: what `auto` chose is not in it.
    result |= {key: identity[key] for key in ("hash", "encoder_files")} | {"finished": now}
    _write(folder / RESULT, result)
    clear(folder)
    return result


def tidy(folder: Path, identity: Mapping[str, Any]) -> None:
    """Removes the checkpoints of a finished run, left by a process that was killed at its end."""
    sweep(folder)  # it may have been killed while it removed them
    if not (folder / CHECKPOINTS).is_dir():
        return
    with suppress(InputError), ExitStack() as held:  # somebody is at work: it is theirs
        _lock(folder / CHECKPOINTS / LOCK, held)
        if look(folder, identity, resume=True) is not None:
            clear(folder)


def clear(folder: Path) -> None:
    """Removes the checkpoints; only who holds the lock may."""
    remove_folder(folder / CHECKPOINTS)


def _empty(folder: Path) -> None:
    """Removes what a run left, the result first; what others put there stays."""
    for name in (RESULT, "headroom.json", "metrics.jsonl", ERROR):
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
        content = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"wanted a result in JSON, got {error}", path=path) from error
    known = isinstance(content, dict) and content.get("schema") == SCHEMA
    if not known or not isinstance(content.get("hash"), str):
        raise InputError("wanted a file of a run of softf1; give another --out", path=path)
    return dict(content)


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


def identify(
    recipe: Recipe,
    given: Mapping[str, Sequence[Any]] | None = None,
    *,
    hash_data: Callable[[str], str | None] | None = None,
    hash_encoder: Callable[[str], dict[str, str]] | None = None,
) -> dict[str, Any]:
    """Returns what decides the result of a run, under the names that `result.json` has.

    Args:
        recipe: What is trained.
        given: Examples of train, dev and test instead of the recipe's files.
        hash_data: Hashes a data file; for many runs over the same files, one that remembers.
        hash_encoder: Hashes the files of an encoder, likewise.
    """
    if given is None:
        paths = {name: path for name in SPLITS if (path := getattr(recipe.task, name))}
        hashes = {name: (hash_data or hash_path)(path) for name, path in paths.items()}
    else:
        hashes = {name: hash_examples(examples) for name, examples in given.items()}
    return {
        "hash": hash_recipe(recipe),
        "data": {name: {"sha256": own} for name, own in hashes.items()},
        "encoder_files": (hash_encoder or hash_encoder_files)(recipe.encoder.name),
        "versions": versions(),
        "recipe": describe_recipe(recipe),
    }


def list_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns what is different now, in words; what either side does not know is not compared.

    >>> before = {"hash": "a", "data": {"train": {"sha256": "1"}}, "versions": {"torch": "2.11"}}
    >>> now = {"hash": "a", "data": {"train": {"sha256": "2"}}, "versions": {"torch": "2.12"},
    ...        "recipe": {"task": {"train": "train.csv"}}}
    >>> list_changes(before, now)
    ['the train file train.csv has changed', 'torch was 2.11 and is 2.12']
    """
    changes = []
    if before.get("hash") != now["hash"]:
        changes += _list_values(before.get("recipe"), now["recipe"]) or ["the recipe is another"]
    old = {name: _of(one).get("sha256") for name, one in _of(before.get("data")).items()}
    for name, one in now["data"].items():
        if _differ(old.get(name), one["sha256"]):
            path = now["recipe"]["task"].get(name)
            changes.append(f"the {name} file {path} has changed" if path else f"{name} has changed")
    files, new = _of(before.get("encoder_files")), now.get("encoder_files") or {}
    if files and new and files != new:
        names = [name for name in sorted({*files, *new}) if files.get(name) != new.get(name)]
        encoder = now["recipe"]["encoder"]["name"]
        changes.append(f"encoder {encoder} has changed ({_shorten(names)})")
    old = _of(before.get("versions"))
    changes += [
        f"{name} was {old[name]} and is {now['versions'][name]}"
        for name in DECISIVE
        if _differ(old.get(name), now["versions"].get(name))
    ]
    return changes


def say_changes(changes: Sequence[str]) -> str:
    """Returns the changes as one sentence that ends with what can be done."""
    return f"{_shorten(changes, '; ')}: {WAYS}"


def hash_path(path: str) -> str | None:
    """Returns the hash of a data file; None of what is no file on this machine (`hf:NAME`)."""
    is_file = os.path.isfile(path)  # noqa: PTH113 - False of a name that is too long, too
    return hash_file(path) if is_file else None


def hash_examples(examples: Iterable[Any]) -> str:
    """Returns the hash of examples that were never in a file."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(example).encode() + b"\n")
    return digest.hexdigest()


def hash_encoder_files(name: str) -> dict[str, str]:
    """Returns hashes of an encoder's files, or of a Hub name the commit that is in the cache.

    It is empty where nothing is known: an encoder from scratch, or one not downloaded yet.
    """
    if name in list_encoders():
        return {}
    path = Path(find_encoder(name))
    if path.is_dir():
        files = (file for file in sorted(path.iterdir()) if file.suffix in READ and file.is_file())
        return {file.name: hash_file(file) for file in files}
    commit = _find_commit(name)
    return {"commit": commit} if commit else {}


def versions() -> dict[str, str]:
    """Returns the versions of what a result depends on."""
    return {
        "softf1": __version__,
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "python": platform.python_version(),
    }


def _find_commit(name: str) -> str | None:
    from huggingface_hub import try_to_load_from_cache

    try:
        config = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no name of the Hub; loading it says so
        return None
    return Path(config).parent.name if isinstance(config, str) else None


def _list_values(before: Any, now: Mapping[str, Any]) -> list[str]:
    old, new = _flatten(_of(before)), _flatten(now)
    if not old:
        return []
    keys = [key for key in (*new, *(set(old) - set(new))) if key != "name"]
    return [
        f"{key} was {old.get(key)!r} and is {new.get(key)!r}"
        for key in keys
        if old.get(key) != new.get(key)
    ]


def _flatten(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{before}{key}.")
        else:
            flat[before + key] = value
    return flat


def _shorten(parts: Sequence[str], between: str = ", ") -> str:
    more = len(parts) - SHOWN
    return between.join(parts[:SHOWN]) + (f"{between}and {more} more" if more > 0 else "")


def _differ(before: Any, now: Any) -> bool:
    return before is not None and now is not None and before != now


def _of(value: Any) -> dict[str, Any]:
    """The object, and an empty one for anything else: files may have been changed by hand."""
    return value if isinstance(value, dict) else {}
