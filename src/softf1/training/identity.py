"""What decides the result of a run: its recipe, the content of its files, and versions.

A folder says what its run was made of, in `result.json` and before the end in the checkpoints. The
same command later is about that run only if all of it is still the same. Files are hashed anew each
time (about 1 GiB a second): no time stamp is trusted.
"""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from softf1 import __version__
from softf1.files import hash_file
from softf1.models.encoders import find_encoder, list_encoders
from softf1.recipe import describe_recipe, hash_recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from softf1.recipe import Recipe

SPLITS = ("train", "dev", "test")
DECISIVE = ("softf1", "torch", "transformers")
"""Packages of which another version may give another result."""

READ = (".json", ".safetensors", ".bin", ".txt", ".model", ".vocab", ".tiktoken")
"""Ends of the names of config, weights and tokenizer in the folder of an encoder."""

SHOWN = 3
"""Changes that are named; of the others it is said how many there are."""

WAYS = "--out names another folder, --force starts afresh"


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
        "data": {name: {"sha256": found} for name, found in hashes.items()},
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
        found = (file for file in sorted(path.iterdir()) if file.suffix in READ and file.is_file())
        return {file.name: hash_file(file) for file in found}
    commit = _find_commit(name)
    return {"commit": commit} if commit else {}


def versions() -> dict[str, str]:
    """Returns the versions of what a result depends on."""
    return {
        "softf1": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def _find_commit(name: str) -> str | None:
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no name of the Hub; loading it says so
        return None
    return Path(found).parent.name if isinstance(found, str) else None


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
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _flatten(value, f"{before}{key}.")
        else:
            found[before + key] = value
    return found


def _shorten(parts: Sequence[str], between: str = ", ") -> str:
    more = len(parts) - SHOWN
    return between.join(parts[:SHOWN]) + (f"{between}and {more} more" if more > 0 else "")


def _differ(before: Any, now: Any) -> bool:
    return before is not None and now is not None and before != now


def _of(value: Any) -> dict[str, Any]:
    """The object, and an empty one for anything else: files may have been changed by hand."""
    return value if isinstance(value, dict) else {}
