"""The folder of a run: its identity, its lock, and whether it is finished.

A run is identified by its recipe, the content of its files and the versions of its packages. The
identity is in `result.json`, and before that in the checkpoints; the same command continues or
returns that run only if the identity is unchanged. Files are hashed every time (about 1 GiB per
second), since time stamps cannot be trusted.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from softf1 import __version__
from softf1.errors import InputError
from softf1.files import (
    NO_LINKS,
    check_folder,
    flatten,
    hash_file,
    is_unfinished,
    load_json,
    lock_file,
    make_folder,
    remove_folder,
    remove_unfinished,
    write_json,
    write_text,
)
from softf1.models.encoders import find_encoder, list_encoders
from softf1.recipe import Recipe, describe_recipe, format_recipe, hash_recipe
from softf1.recipe.auto import AUTO, read_rules

RESULT, RECIPE, CHECKPOINTS = "result.json", "recipe.toml", "checkpoints"
RUN, LOCK, ERROR = "run.json", "lock", "error.txt"
SCHEMA = 1

SPLITS = ("train", "dev", "test")
DECISIVE = ("softf1", "torch", "transformers")
"""Packages whose version may change the result."""

READ = (".json", ".safetensors", ".bin", ".txt", ".model", ".vocab", ".tiktoken")
"""Suffixes of config, weights and tokenizer files in the folder of an encoder."""

SHOWN = 3
"""How many changes a message lists; it only counts the others."""

WAYS = "use --out for another folder, or --force to start again"


def find_finished(
    folder: Path, identity: Mapping[str, Any], *, resume: bool = False, force: bool = False
) -> dict[str, Any] | None:
    """Returns the result of a finished run, or None if there is something to do; changes nothing.

    Args:
        folder: The run folder.
        identity: The identity of the run, from `identify`.
        resume: Continue an unfinished run.
        force: Start again whatever run the folder holds.

    Raises:
        InputError: The folder is not a run of softf1, is a run of other inputs, or holds an
            unfinished run and neither `resume` nor `force` is given.
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
        what = "a finished run" if done else "an unfinished run"
        raise InputError(f"holds {what}, but {say_changes(changes)}", path=folder)
    if done is None and not resume:
        raise InputError(
            "holds an unfinished run: use --resume to continue it, --force to start again, or "
            "--out for another folder",
            path=folder,
        )
    return done


def read_result(folder: Path) -> dict[str, Any] | None:
    """Reads the result of a finished run; None if there is none."""
    return _read(folder / RESULT)


def finished_on(folder: Path, result: Mapping[str, Any]) -> str:
    """When a run was finished, in words."""
    try:
        moment = datetime.fromisoformat(str(result["finished"]))
    except (KeyError, ValueError):  # from a version without this entry
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
    """Locks the folder for this run while `held` is open, and checks it again.

    The second check is needed because another process may have worked in it since `find_finished`.

    Returns:
        The result if another process has finished the same run; None if it must be trained.
    """
    _lock(folder / CHECKPOINTS / LOCK, held)
    done = find_finished(folder, identity, resume=resume, force=force)
    if done is not None:
        remove_folder(folder / CHECKPOINTS)
        return done
    write_json(folder / CHECKPOINTS / RUN, {"schema": SCHEMA, **identity})
    if force:
        _empty(folder)
    write_text(folder / RECIPE, format_recipe(recipe))
    return None


def finish_run(folder: Path, result: dict[str, Any], identity: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the result, which marks the run as finished, and removes the checkpoints."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    # The identity of the recipe as given, not of what `auto` chose.
    result |= {key: identity[key] for key in ("hash", "encoder_files")} | {"finished": now}
    write_json(folder / RESULT, result)
    remove_folder(folder / CHECKPOINTS)
    return result


def tidy(folder: Path, identity: Mapping[str, Any]) -> None:
    """Removes checkpoints that a process killed at the very end left in a finished run."""
    remove_unfinished(folder)  # the process may have been killed while it removed them
    if not (folder / CHECKPOINTS).is_dir():
        return
    with suppress(InputError), ExitStack() as held:  # another process is at work in the folder
        _lock(folder / CHECKPOINTS / LOCK, held)
        if find_finished(folder, identity, resume=True) is not None:
            remove_folder(folder / CHECKPOINTS)


def _empty(folder: Path) -> None:
    """Removes the files of a run, the result first; other files stay."""
    for name in (RESULT, "headroom.json", "metrics.jsonl", ERROR):
        (folder / name).unlink(missing_ok=True)
    for path in folder.glob("predictions.*.jsonl"):
        path.unlink()
    for path in (folder / "model", *(folder / CHECKPOINTS).glob("*step-*")):
        remove_folder(path)


def _refuse_others(folder: Path) -> None:
    """Raises if the folder has files that are not from a run of softf1."""
    check_folder(folder)
    for path in folder.iterdir() if folder.is_dir() else ():
        own = path.name == ERROR or is_unfinished(path)
        if path.name == CHECKPOINTS and path.is_dir():  # killed before anything was written
            own = all(one.name == LOCK or is_unfinished(one) for one in path.iterdir())
        if not own:
            raise InputError(
                f"wanted an empty folder or a run of softf1, found {path.name}; use another --out",
                path=folder,
            )


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    content = load_json(path, "a result in JSON")
    known = isinstance(content, dict) and content.get("schema") == SCHEMA
    if not known or not isinstance(content.get("hash"), str):
        raise InputError(
            "wanted the result of a run, got another file; use another --out", path=path
        )
    return dict(content)


def _lock(path: Path, held: ExitStack) -> None:
    """Takes the lock; the system releases it when the process ends, however it ends."""
    while True:
        make_folder(path.parent)
        with suppress(FileNotFoundError):  # another process has just finished here
            number = os.open(path, os.O_WRONLY | os.O_CREAT | NO_LINKS, 0o666)
            if lock_file(number) is False:
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
    """Returns everything that decides the result of a run, with the keys of `result.json`.

    Args:
        recipe: What is trained.
        given: Examples of train, dev and test instead of the recipe's files.
        hash_data: Hashes a data file; pass a cached function for many runs over the same files.
        hash_encoder: Hashes the files of an encoder; may be cached too.
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
    """Lists in words what changed; entries that one side lacks are not compared.

    >>> before = {"hash": "a", "data": {"train": {"sha256": "1"}}, "versions": {"torch": "2.11"}}
    >>> now = {"hash": "a", "data": {"train": {"sha256": "2"}}, "versions": {"torch": "2.12"},
    ...        "recipe": {"task": {"train": "train.csv"}}}
    >>> list_changes(before, now)
    ['the train file train.csv has changed', 'torch was 2.11 and is 2.12']
    """
    changes = []
    if before.get("hash") != now["hash"]:
        changes += _list_values(before.get("recipe"), now["recipe"]) or ["the recipe has changed"]
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
    """Returns the changes as one sentence that ends with the options to continue."""
    return f"{_shorten(changes, '; ')}: {WAYS}"


def hash_path(path: str) -> str | None:
    """Returns the hash of a data file; None for what is not a local file (`hf:NAME`)."""
    is_file = os.path.isfile(path)  # noqa: PTH113 - False for too long names, too
    return hash_file(path) if is_file else None


def hash_examples(examples: Iterable[Any]) -> str:
    """Returns the hash of examples that were given in memory."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(example).encode() + b"\n")
    return digest.hexdigest()


def hash_encoder_files(name: str) -> dict[str, str]:
    """Returns the hashes of an encoder's files; for a Hub name, the commit in the cache.

    The result is empty for an encoder from scratch, or one that is not downloaded yet.
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
    """Returns the versions of the packages that a result depends on."""
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
    except ValueError:  # not a valid Hub name; loading it raises
        return None
    return Path(config).parent.name if isinstance(config, str) else None


def _list_values(before: Any, now: Mapping[str, Any]) -> list[str]:
    old, new = flatten(_of(before)), flatten(now)
    if not old:
        return []
    keys = [key for key in (*new, *(set(old) - set(new))) if key != "name"]
    if new.get("loss.name") == AUTO:  # the old values are those that auto chose
        chosen = {key for rule in read_rules() for key in rule.values}
        keys = [key for key in keys if key not in chosen or new.get(key) not in (None, AUTO)]
    return [
        f"{key} was {old.get(key)!r} and is {new.get(key)!r}"
        for key in keys
        if old.get(key) != new.get(key)
    ]


def _shorten(parts: Sequence[str], between: str = ", ") -> str:
    more = len(parts) - SHOWN
    return between.join(parts[:SHOWN]) + (f"{between}and {more} more" if more > 0 else "")


def _differ(before: Any, now: Any) -> bool:
    return before is not None and now is not None and before != now


def _of(value: Any) -> dict[str, Any]:
    """The object if it is a dict, else an empty one: files may have been edited by hand."""
    return value if isinstance(value, dict) else {}
