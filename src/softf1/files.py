"""Files and folders that are there as a whole or not at all; all that softf1 writes goes this way.

What is being written has a random name that begins with `.softf1-`, is created exclusively, and is
locked for as long as its process lives. So nobody can put a link in its way, and what a killed
process left is recognised and removed by the next one that writes to the same folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX, UNFINISHED, REPLACED = ".softf1-", ".tmp", ".old"
NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


@contextmanager
def new_file(path: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """Opens a file to write that takes the place of `path` once it is complete and on the disk.

    Args:
        path: The file; its folder is made where there is none.
        replace: Whether a file that is there already is replaced.

    Raises:
        FileExistsError: There is one, and `replace` is false.
    """
    make_folder(path.parent)
    sweep(path.parent)
    with _created(path.parent) as (made, file):
        yield file
        sync(file)
        if replace:
            made.replace(path)
        else:
            _put_where_nothing_is(made, path)
        sync_folder(path.parent)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Makes a folder to fill that takes the place of `path` once it is complete and on the disk."""
    make_folder(path.parent)
    restore(path)
    with scratch_folder(path.parent) as made:
        yield made
        for found in (*made.rglob("*"), made):
            _sync_path(found)
        replaced = _replaced(path)
        if path.exists():  # no system call replaces a folder that has files
            path.rename(replaced)
        made.rename(path)
        sync_folder(path.parent)
        remove_folder(replaced)


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Makes a folder with a random name, which is removed at the end unless it was renamed."""
    sweep(parent)
    number = None
    while number is None:  # another process may sweep it before it is locked
        made = _random_name(parent)
        made.mkdir()
        with suppress(FileNotFoundError):
            number = _open_locked(made)
    try:
        yield made
    finally:
        os.close(number)
        shutil.rmtree(made, ignore_errors=True)


def make_folder(path: Path) -> None:
    """Makes a folder and those above it, and waits until their names are on the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def remove_folder(path: Path) -> None:
    """Removes a folder so that nobody ever sees a part of it; one that is not there is none."""
    hidden = _random_name(path.parent)
    with suppress(FileNotFoundError):
        path.rename(hidden)
        _remove(hidden)


def restore(path: Path) -> None:
    """Undoes the replacement of a folder that was interrupted half-way."""
    replaced = _replaced(path)
    if not replaced.exists():
        return
    if path.exists():
        remove_folder(replaced)
    else:
        replaced.rename(path)


def sweep(folder: Path) -> None:
    """Removes what killed processes left unfinished in a folder; what is being written stays."""
    for path in folder.glob(f"{PREFIX}*{UNFINISHED}"):
        with suppress(OSError):  # a link, or another process removed it first
            number = _open(path)
            try:
                if lock(number):
                    _remove(path)
            finally:
                os.close(number)


def hash_file(path: Path | str) -> str:
    """Returns the SHA-256 of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(file: BinaryIO) -> None:
    """Waits until what was written is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Waits until the names in a folder are on the disk."""
    if os.name != "nt":  # has no such thing
        _sync_path(path)


def is_unfinished(path: Path) -> bool:
    """Whether this is something that is being written, or that a killed process left."""
    return path.name.startswith(PREFIX) and path.name.endswith((UNFINISHED, REPLACED))


def lock(number: int, *, wait: bool = False) -> bool | None:
    """Locks an open file or folder for as long as it is open, or this process lives.

    Args:
        number: Its descriptor.
        wait: Wait for a process that holds the lock.

    Returns:
        Whether it was free; None where there are no locks (Windows, some network disks).
    """
    try:
        import fcntl

        fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


@contextmanager
def _created(parent: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Makes a file with a random name, locked; it is removed at the end unless it was renamed."""
    made = _random_name(parent)
    # Not `Path.open`, which takes no opener. The umask decides about permissions.
    with open(made, "xb", opener=_open_new) as file:
        lock(file.fileno(), wait=True)
        swept = not made.exists()  # before it was locked
        try:
            if not swept:
                yield made, file
        finally:
            made.unlink(missing_ok=True)
    if swept:
        with _created(parent) as again:
            yield again


def _put_where_nothing_is(made: Path, path: Path) -> None:
    try:
        path.hardlink_to(made)
    except FileExistsError:
        raise
    except OSError:  # a disk without links
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        made.replace(path)


def _open_new(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_EXCL | NO_LINKS, 0o666)


def _random_name(parent: Path) -> Path:
    return parent / f"{PREFIX}{secrets.token_hex(8)}{UNFINISHED}"


def _replaced(path: Path) -> Path:
    return path.with_name(f"{PREFIX}{path.name}{REPLACED}")


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | NO_LINKS)


def _open_locked(path: Path) -> int | None:
    """Returns the descriptor of a folder once it is locked; None where it is gone by then."""
    number = _open(path)
    lock(number, wait=True)
    if path.exists():
        return number
    os.close(number)
    return None


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
