"""Atomic writes: files and folders appear completely or not at all. All of softf1 writes this way.

An unfinished file has a random name that begins with `.softf1-`, is created exclusively, and is
locked while its process lives. So nobody can place a link under its name in advance, and the next
process that writes to the folder recognises and removes what a killed process left.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from softf1.errors import InputError

PREFIX, UNFINISHED, REPLACED = ".softf1-", ".tmp", ".old"
NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
"""Flag of `os.open` that refuses symbolic links; 0 where the system has none."""


@contextmanager
def new_file(path: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """Opens a file for writing that replaces `path` once it is complete and on disk.

    Args:
        path: The file; its folder is created if needed.
        replace: Whether an existing file may be replaced.

    Raises:
        FileExistsError: The file exists, and `replace` is false.
        InputError: There is a folder in its place, or a file in place of its folder.
    """
    refuse_folder(path)
    make_folder(path.parent)
    remove_unfinished(path.parent)
    try:
        made, file = _create(path.parent)
    except OSError as error:  # such as a folder that may not be written to
        error.filename = str(path)  # the name that the user knows
        raise
    with file:
        try:
            yield file
            sync(file)
            if replace:
                made.replace(path)
            else:
                _put_where_nothing_is(made, path)
            sync_folder(path.parent)
        finally:
            made.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, errors: str = "strict") -> None:
    """Writes a text file in UTF-8, completely or not at all."""
    with new_file(path) as file:
        file.write(text.encode(errors=errors))


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file, completely or not at all."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def load_json(path: Path, what: str = "JSON") -> Any:
    """Reads a JSON file; an error says that `what` was wanted, such as "a task in JSON"."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"wanted {what}, got {error}", path=path) from error


def read_json(path: Path, what: str = "JSON") -> dict[str, Any]:
    """Reads a JSON file that must hold an object; errors are those of `load_json`."""
    content = load_json(path, what)
    if not isinstance(content, dict):
        raise InputError(f"wanted an object, got {type(content).__name__}", path=path)
    return content


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested settings to dotted keys.

    >>> flatten({"train": {"lr": 0.1, "betas": [0.9, 0.99]}})
    {'train.lr': 0.1, 'train.betas': [0.9, 0.99]}
    """
    out: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            out |= flatten(item, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = item
    return out


def finite(value: Any) -> Any:
    """Replaces infinities and NaN, which JSON does not have, by None; tuples become lists.

    >>> finite({"null_score": math.inf, "spans": [(0, 1)]})
    {'null_score': None, 'spans': [[0, 1]]}
    """
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Creates a folder for the caller to fill; it replaces `path` once complete and on disk."""
    make_folder(path.parent)
    restore(path)
    with scratch_folder(path.parent) as made:
        yield made
        for part in (*made.rglob("*"), made):
            _sync_path(part)
        replaced = _replaced(path)
        if path.exists():  # rename does not replace a folder that has files
            path.rename(replaced)
        made.rename(path)
        sync_folder(path.parent)
        remove_folder(replaced)


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Creates a folder with a random name, and removes it on exit unless it was renamed."""
    remove_unfinished(parent)
    while True:  # another process may remove it before it is locked
        made = _random_name(parent)
        made.mkdir()
        with suppress(FileNotFoundError):
            number = _open(made)
            lock_file(number, wait=True)
            if made.exists():
                break
            os.close(number)
    try:
        yield made
    finally:
        os.close(number)
        shutil.rmtree(made, ignore_errors=True)


def refuse_folder(path: Path) -> None:
    """Raises if a file cannot be written because there is a folder in its place."""
    if path.is_dir():
        raise InputError("wanted a file to write to, got a folder", path=path)


def check_folder(path: Path) -> None:
    """Raises if a folder cannot be created because its path, or a parent of it, is a file."""
    there = next((one for one in (path, *path.parents) if one.exists()), path)
    if there.exists() and not there.is_dir():
        raise InputError("wanted a folder, got a file; use another --out", path=there)


def make_folder(path: Path) -> None:
    """Creates a folder and its parents, and waits until they are on disk."""
    check_folder(path)
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def remove_folder(path: Path) -> None:
    """Removes a folder atomically: it is renamed first, so nobody sees half of it."""
    hidden = _random_name(path.parent)
    with suppress(FileNotFoundError):
        path.rename(hidden)
        _remove(hidden)


def restore(path: Path) -> None:
    """Undoes an interrupted replacement of a folder."""
    replaced = _replaced(path)
    if not replaced.exists():
        return
    if path.exists():
        remove_folder(replaced)
    else:
        replaced.rename(path)


def remove_unfinished(folder: Path) -> None:
    """Removes unfinished files of killed processes from a folder; files in progress stay."""
    for path in folder.glob(f"{PREFIX}*{UNFINISHED}"):
        with suppress(OSError):  # a link, or already removed by another process
            number = _open(path)
            try:
                if lock_file(number):
                    _remove(path)
            finally:
                os.close(number)


def hash_file(path: Path | str) -> str:
    """Returns the SHA-256 of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(file: BinaryIO) -> None:
    """Waits until written data is on disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Waits until the entries of a folder are on disk."""
    if os.name != "nt":  # Windows cannot sync folders
        _sync_path(path)


def is_unfinished(path: Path) -> bool:
    """Whether this file is in progress, or was left by a killed process."""
    return path.name.startswith(PREFIX) and path.name.endswith((UNFINISHED, REPLACED))


def lock_file(number: int, *, wait: bool = False) -> bool | None:
    """Locks an open file or folder until it is closed or this process ends.

    Args:
        number: Its file descriptor.
        wait: Whether to wait for another process that holds the lock.

    Returns:
        Whether the lock was free; None if there are no locks (Windows, some network disks).
    """
    try:
        import fcntl

        fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _create(parent: Path) -> tuple[Path, BinaryIO]:
    """Creates a locked file with a random name; mode "x" does not follow an existing link."""
    while True:  # another process may remove it before it is locked
        made = _random_name(parent)
        file = made.open("xb")
        lock_file(file.fileno(), wait=True)
        if made.exists():
            return made, file
        file.close()


def _put_where_nothing_is(made: Path, path: Path) -> None:
    try:
        path.hardlink_to(made)
    except FileExistsError:
        raise
    except OSError:  # a disk without hard links
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        made.replace(path)


def _random_name(parent: Path) -> Path:
    return parent / f"{PREFIX}{secrets.token_hex(8)}{UNFINISHED}"


def _replaced(path: Path) -> Path:
    return path.with_name(f"{PREFIX}{path.name}{REPLACED}")


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | NO_LINKS)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync_path(path: Path) -> None:
    if path.is_symlink():
        return
    number = _open(path)
    try:
        os.fsync(number)
    finally:
        os.close(number)
