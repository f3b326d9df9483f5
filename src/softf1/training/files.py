"""Files and folders that are there as a whole or not at all."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` once it is complete and on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # One process writes one file, and the name keeps two of them apart.
    made = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with made.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that takes the place of `path` once it is complete and on the disk.

    What an interrupted process left of its own attempt is removed: a folder of models is large.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    made, old = (path.with_name(f".{path.name}.{state}") for state in ("tmp", "old"))
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    try:
        yield made
        for file in made.rglob("*"):
            if file.is_file():
                _sync(file)
        shutil.rmtree(old, ignore_errors=True)
        if path.exists():  # no system call replaces a folder that has files
            path.rename(old)
        made.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _sync(file: Path) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
