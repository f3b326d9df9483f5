"""Checkpoints: folders of safetensors and JSON that are whole or not there.

    checkpoints/
      step-00000120/  model.safetensors  optimizer.safetensors  random.safetensors  state.json

A checkpoint is written in a hidden folder beside the others, forced to the disk and then renamed
(`softf1.files`), so that a process killed at any moment leaves whole ones only. `state.json` has
the sizes and the checksums of all files and its own; what is damaged later is noticed when it is
loaded. Nothing is pickled.

Every rank must call these functions: rank 0 writes and reads, the others are given its state, and
`load_model_tensors` and `load_optimizer_tensors` give them their part of the tensors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file

from softf1.errors import InputError
from softf1.files import PREFIX, REPLACED, new_folder, remove_folder, restore, sweep
from softf1.training.generators import random_state, set_random_state
from softf1.training.ranks import own_rank, share
from softf1.training.statefile import read_state, write_state
from softf1.training.states import (
    load_model_tensors,
    load_optimizer_tensors,
    model_tensors,
    optimizer_groups,
    optimizer_tensors,
)
from softf1.training.tensorfile import check_file, write_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

__all__ = [
    "Checkpoint",
    "load_checkpoint",
    "load_model_tensors",
    "load_optimizer_tensors",
    "model_tensors",
    "optimizer_groups",
    "optimizer_tensors",
    "random_state",
    "save_checkpoint",
    "set_random_state",
]

_NAME = re.compile(r"step-(\d{8,})")
_SUFFIX, _STATE = ".safetensors", "state.json"
_DAMAGED = ".damaged-"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was saved.

    Attributes:
        step: The optimizer steps that were done.
        state: As it was given.
        tensors: By the names of their files; on ranks other than 0 there are none behind a name.
        path: Its folder.
        warnings: One sentence for each newer checkpoint that was damaged.
    """

    step: int
    state: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]
    path: Path
    warnings: list[str] = field(default_factory=list)


def save_checkpoint(
    folder: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    *,
    keep: int = 2,
) -> Path:
    """Save a checkpoint and remove all but the newest `keep`.

    Args:
        folder: Where checkpoints are.
        step: Its name; one of the same step is replaced, later ones belong to another past and go.
        tensors: A safetensors file each; they may be on any device.
        state: What JSON can hold; tuples come back as lists.
        keep: How many there may be, this one included.

    Returns:
        Its folder.

    Raises:
        OSError: It could not be written, on a full disk for one; the others are as they were.
    """
    final = folder / f"step-{step:08d}"
    error = share(None if own_rank() else _save(final, tensors, state, keep))
    if error is not None:
        raise error
    return final


def _save(
    final: Path, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], keep: int
) -> OSError | None:
    """Write a checkpoint; the error is given back: all ranks raise it, rather than wait."""
    folder = final.parent
    try:
        _tidy(folder)
        with new_folder(final) as made:
            files = {
                f"{name}{_SUFFIX}": write_tensors(made / f"{name}{_SUFFIX}", group)
                for name, group in tensors.items()
            }
            write_state(made / _STATE, step=_step(final), files=files, state=state)
        _prune(folder, newest=_step(final), keep=keep)
    except OSError as error:
        reason = error.strerror or str(error)
        return OSError(error.errno, f"cannot save a checkpoint: {reason}", str(folder))
    return None


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest whole checkpoint; None where there is none at all.

    A damaged one is named in `warnings` and put aside, to be removed by the next save.

    Raises:
        InputError: All of them are damaged.
    """
    found = share(None if own_rank() else _find(folder))
    if isinstance(found, Exception):
        raise found
    if found is None:
        return None
    path, content, warnings = found
    tensors = {
        name.removesuffix(_SUFFIX): {} if own_rank() else load_file(path / name)
        for name in content["files"]
    }
    return Checkpoint(content["step"], content["state"], tensors, path, warnings)


def _find(folder: Path) -> tuple[Path, dict[str, Any], list[str]] | Exception | None:
    """The folder and the content of the newest whole checkpoint, and what is wrong with others.

    Errors are given back: all ranks raise them, rather than wait for rank 0.
    """
    damaged: dict[Path, str] = {}
    try:
        _tidy(folder)
        for path in _list(folder):
            content = read_state(path / _STATE)
            wrong = content if isinstance(content, str) else _check_files(path, content["files"])
            if not isinstance(content, str) and wrong is None:
                return path, content, _put_aside(damaged, path)
            damaged[path] = str(wrong)
    except (InputError, OSError) as error:
        return error
    if not damaged:
        return None
    reasons = "; ".join(f"{path.name}: {why}" for path, why in damaged.items())
    return InputError(f"wanted a whole checkpoint, got damaged ones ({reasons})", path=folder)


def _put_aside(damaged: Mapping[Path, str], used: Path) -> list[str]:
    """Take damaged checkpoints out of the count of those to keep; a sentence for each."""
    for path in damaged:
        path.rename(path.with_name(f"{_DAMAGED}{path.name}"))
    return [f"{path} is damaged ({why}): {used.name} is used" for path, why in damaged.items()]


def _check_files(path: Path, files: Mapping[str, Any]) -> str | None:
    for name, known in files.items():
        if Path(name).name != name:
            return f"{name} is no file of it"
        try:
            wrong = check_file(path / name, known)
        except OSError as error:
            wrong = f"{name} cannot be read ({error.strerror})"
        if wrong:
            return wrong
    return None


def _list(folder: Path) -> list[Path]:
    """The checkpoints, newest first."""
    found = [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)]
    return sorted(found, key=_step, reverse=True)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _tidy(folder: Path) -> None:
    """Remove what a killed process left half done."""
    sweep(folder)
    for path in folder.glob(f"{PREFIX}step-*{REPLACED}"):
        restore(folder / path.name.removeprefix(PREFIX).removesuffix(REPLACED))


def _prune(folder: Path, *, newest: int, keep: int) -> None:
    """Keep the newest; a folder loses its name before its files, lest it look damaged."""
    later = [path for path in _list(folder) if _step(path) > newest]
    earlier = [path for path in _list(folder) if _step(path) <= newest]
    for path in [*later, *earlier[keep:], *folder.glob(f"{_DAMAGED}*")]:
        remove_folder(path)
