"""Safetensors files, written so that nothing is copied and every byte is on the disk at the end.

The library's writer gives neither a checksum nor an error of the operating system when the disk is
full; its reader is used as it is.
"""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from softf1.files import hash_file, sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from torch import Tensor

_NAMES = {
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


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write tensors of any device, one after another; returns the file's `size` and `sha256`."""
    # Larger numbers first, so that each starts at a multiple of its size.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    head = _describe(order, tensors)
    with path.open("xb") as file, ThreadPoolExecutor(1) as pool:
        parts: list[bytes | Tensor] = [head, *(tensors[name] for name in order)]
        digest = _write(file, parts, pool)
        size = file.tell()
        sync(file)
    return {"size": size, "sha256": digest}


def _describe(order: Iterable[str], tensors: Mapping[str, Tensor]) -> bytes:
    at, header = 0, {}
    for name in order:
        tensor = tensors[name]
        if tensor.dtype not in _NAMES:
            raise TypeError(f"wanted a dtype of safetensors for {name}, got {tensor.dtype}")
        end = at + tensor.numel() * tensor.element_size()
        kind, shape = _NAMES[tensor.dtype], list(tensor.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write(file: BinaryIO, parts: list[bytes | Tensor], pool: ThreadPoolExecutor) -> str:
    """Write the parts while another thread hashes them."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else view_bytes(part)
        hashed = pool.submit(digest.update, data)
        file.write(data)
        hashed.result()
    return digest.hexdigest()


def view_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, on the host; a copy only where it is elsewhere or not contiguous."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def describe_file(path: Path) -> dict[str, Any]:
    """The `size` and `sha256` of a file."""
    return {"size": path.stat().st_size, "sha256": hash_file(path)}


def check_file(path: Path, known: Mapping[str, Any]) -> str | None:
    """What is wrong with a file, if anything."""
    if not path.is_file():
        return f"{path.name} is missing"
    size = path.stat().st_size
    if size != known["size"]:
        return f"{path.name} has {size} bytes instead of {known['size']}"
    return None if hash_file(path) == known["sha256"] else f"{path.name} has another checksum"
