"""Checkpoints: folders of safetensors and JSON, written completely or not at all.

    checkpoints/
      step-00000120/  model.safetensors  optimizer.safetensors  random.safetensors  state.json

A checkpoint is written in a hidden folder beside the others, forced to the disk and then renamed
(`softf1.files`), so that a process killed at any moment leaves only whole ones. `state.json` has
the sizes and checksums of all files, and its own checksum, so that later damage is noticed on
loading. Nothing is pickled. Tensors are written one by one, so they are not all copied, and not
by the writer of safetensors: it gives no checksum, and no error of the operating system when the
disk is full. Its reader is used.

Every rank must call `save_checkpoint` and `load_checkpoint`: rank 0 writes and reads, the others
receive its state, and `softf1.training.state_dict` gives them their part of the tensors.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from softf1.errors import InputError
from softf1.files import (
    PREFIX,
    REPLACED,
    hash_file,
    new_folder,
    remove_folder,
    remove_unfinished,
    restore,
    sync,
)
from softf1.training.processes import on_rank_0, own_rank

SCHEMA = 1
_NAME = re.compile(r"step-(\d{8,})")
_SUFFIX, _STATE = ".safetensors", "state.json"
_DAMAGED = ".damaged-"
_FLOAT = "$float"
_DTYPES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint.

    Attributes:
        step: Optimizer steps done.
        state: The JSON state, as given to `save_checkpoint`.
        tensors: Tensors by file name; empty on ranks other than 0.
        path: The folder of the checkpoint.
        warnings: One sentence for each newer checkpoint that is damaged.
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
) -> Path:
    """Saves a checkpoint and removes all but this one and the one before it.

    Args:
        folder: The folder of all checkpoints.
        step: Optimizer steps done, the name of the checkpoint. One of the same step is replaced;
            those of later steps are stale and removed.
        tensors: One safetensors file per entry; the tensors may be on any device.
        state: What JSON can hold; tuples come back as lists.

    Returns:
        The folder of this checkpoint.

    Raises:
        OSError: Writing failed, for example on a full disk; other checkpoints are intact.
    """
    final = folder / f"step-{step:08d}"
    on_rank_0(lambda: _save(final, tensors, state))
    return final


def _save(
    final: Path, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]
) -> None:
    folder = final.parent
    try:
        _tidy(folder)
        with new_folder(final) as made:
            files = {
                f"{name}{_SUFFIX}": write_tensors(made / f"{name}{_SUFFIX}", group)
                for name, group in tensors.items()
            }
            write_state(made / _STATE, step=_step(final), files=files, state=state)
        _prune(folder, newest=_step(final))
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"cannot save a checkpoint: {reason}", str(folder)) from error


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Loads the newest undamaged checkpoint; None if there is no checkpoint.

    Damaged ones are listed in `warnings` and removed by the next save.

    Raises:
        InputError: All checkpoints are damaged.
    """
    newest = on_rank_0(lambda: _find_newest(folder))
    if newest is None:
        return None
    path, content, warnings = newest
    tensors = {
        name.removesuffix(_SUFFIX): {} if own_rank() else load_file(path / name)
        for name in content["files"]
    }
    return Checkpoint(content["step"], content["state"], tensors, path, warnings)


def _find_newest(folder: Path) -> tuple[Path, dict[str, Any], list[str]] | None:
    """Finds the newest undamaged checkpoint; also returns what is wrong with newer ones."""
    damaged: dict[Path, str] = {}
    _tidy(folder)
    for path in _list(folder):
        content = read_state(path / _STATE)
        wrong = content if isinstance(content, str) else _check_files(path, content["files"])
        if not isinstance(content, str) and wrong is None:
            return path, content, _put_aside(damaged, path)
        damaged[path] = str(wrong)
    if not damaged:
        return None
    reasons = "; ".join(f"{path.name}: {why}" for path, why in damaged.items())
    raise InputError(f"wanted a whole checkpoint, got damaged ones ({reasons})", path=folder)


def _put_aside(damaged: Mapping[Path, str], used: Path) -> list[str]:
    """Renames damaged checkpoints, so that they do not count; returns one sentence for each."""
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
    paths = [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)]
    return sorted(paths, key=_step, reverse=True)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _tidy(folder: Path) -> None:
    """Removes unfinished checkpoints of killed processes, and restores those being replaced."""
    remove_unfinished(folder)
    for path in folder.glob(f"{PREFIX}step-*{REPLACED}"):
        restore(folder / path.name.removeprefix(PREFIX).removesuffix(REPLACED))


def _prune(folder: Path, *, newest: int) -> None:
    """Removes all but two checkpoints; each is renamed first, so that it never looks damaged."""
    kept = [path for path in _list(folder) if _step(path) <= newest][:2]
    for path in {*_list(folder), *folder.glob(f"{_DAMAGED}*")} - {*kept}:
        remove_folder(path)


def write_state(
    path: Path, *, step: int, files: Mapping[str, Any], state: Mapping[str, Any]
) -> None:
    """Writes the state of a checkpoint, with size and checksum of its files."""
    content = {"schema": SCHEMA, "step": step, "files": files, "state": to_json(state)}
    text = json.dumps(content | {"sha256": _hash(content)}, indent=1, allow_nan=False)
    with path.open("xb") as file:
        file.write(text.encode())
        sync(file)


def read_state(path: Path) -> dict[str, Any] | str:
    """Reads the state of a checkpoint; returns what is wrong if it is damaged.

    Raises:
        InputError: A later version of this package wrote it.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        known = content.pop("sha256")
        if _hash(content) != known:
            return f"{path.name} has another checksum"
    except OSError as error:
        return f"{path.name} cannot be read ({error.strerror})"
    except (ValueError, AttributeError, KeyError, TypeError):
        return f"{path.name} is no checkpoint's"
    if content["schema"] != SCHEMA:
        raise InputError(f"wanted schema {SCHEMA}, got {content['schema']}", path=path)
    return content | {"state": from_json(content["state"])}


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def to_json(value: Any) -> Any:
    """Converts to JSON types: numpy and torch numbers to Python's, infinities and NaN to names.

    >>> to_json({"best": float("-inf"), "betas": (0.9, 0.99)})
    {'best': {'$float': '-inf'}, 'betas': [0.9, 0.99]}
    """
    if isinstance(value, dict):
        return {str(key): to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    if hasattr(value, "item"):
        return to_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"wanted what JSON can hold, got {type(value).__name__}")


def from_json(value: Any) -> Any:
    """The inverse of `to_json`.

    >>> from_json({"best": {"$float": "-inf"}})
    {'best': -inf}
    """
    if isinstance(value, dict):
        if value.keys() == {_FLOAT}:
            return float(value[_FLOAT])
        return {key: from_json(inner) for key, inner in value.items()}
    return [from_json(inner) for inner in value] if isinstance(value, list) else value


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Writes tensors from any device one by one; returns the file's `size` and `sha256`."""
    # Wider dtypes first, so that each tensor is aligned to its item size.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    head, digest = _make_header(order, tensors), hashlib.sha256()
    with path.open("xb") as file, ThreadPoolExecutor(1) as pool:
        for part in chain([memoryview(head)], (view_bytes(tensors[name]) for name in order)):
            hashed = pool.submit(digest.update, part)  # in another thread, while it is written
            file.write(part)
            hashed.result()
        sync(file)
        return {"size": file.tell(), "sha256": digest.hexdigest()}


def _make_header(order: Iterable[str], tensors: Mapping[str, Tensor]) -> bytes:
    at, header = 0, {}
    for name in order:
        tensor = tensors[name]
        if tensor.dtype not in _DTYPES:
            raise TypeError(f"wanted a dtype of safetensors for {name}, got {tensor.dtype}")
        end = at + tensor.numel() * tensor.element_size()
        kind, shape = _DTYPES[tensor.dtype], list(tensor.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def view_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor in host memory; copied only if it is on a GPU or not contiguous."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def describe_file(path: Path) -> dict[str, Any]:
    """The `size` and `sha256` of a file."""
    return {"size": path.stat().st_size, "sha256": hash_file(path)}


def check_file(path: Path, known: Mapping[str, Any]) -> str | None:
    """Returns what is wrong with a file; None if it is intact."""
    if not path.is_file():
        return f"{path.name} is missing"
    size = path.stat().st_size
    if size != known["size"]:
        return f"{path.name} has {size} bytes instead of {known['size']}"
    return None if hash_file(path) == known["sha256"] else f"{path.name} has another checksum"
