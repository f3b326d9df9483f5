"""Encoded files kept on disk: one file each, written as a whole, opened without reading it.

The name of a cache file is a hash of everything that its content depends on: the bytes of the data
file, the tokenizer and the library that runs it, the options of the task and the version of this
package. A change of any of them is another name, so that an entry is never stale. Hashing reads
1 GiB in about a second, so no time stamp is trusted instead. Two processes that encode the same
file at once each write a file of their own and move it into place: the last one wins, with the
same content. An entry carries a checksum; one that is damaged is not used but written anew.
"""

from __future__ import annotations

import hashlib
import json
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from softf1 import __version__
from softf1.files import hash_file, make_folder, scratch_folder
from softf1.tasks.base import Features
from softf1.tasks.registry import describe_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from softf1.data.problems import Problems
    from softf1.models.codec import Codec
    from softf1.tasks.base import Task

DTYPES = {"I16": "<i2", "I32": "<i4", "I64": "<i8", "U8": "|u1", "BOOL": "|b1"}


def encode_file(
    task: Task,
    path: Path | str,
    codec: Codec,
    *,
    cache: Path | str | None = None,
    problems: Problems | None = None,
) -> Features:
    """The features of a file, from the cache where they are there.

    Args:
        task: What to read and encode.
        path: The data file; one that is not a file on disk (`hf:NAME`) is never cached.
        codec: Turns text to ids.
        cache: The cache folder; None does without.
        problems: Decides about bad records. A file with skipped records is not cached, so that
            they are reported every time.
    """
    if cache is None or not Path(path).is_file():
        return task.encode(task.read(path, problems), codec)
    content = hash_file(path)
    entry = Path(cache) / f"{cache_key(task, content, codec)}.safetensors"
    found = load_features(entry)
    if found is not None:
        return found
    features = task.encode(task.read(path, problems), codec)
    clean = problems is None or not problems.skipped
    # A file that changed while it was read has features of neither version.
    if clean and hash_file(path) == content:
        try:
            save_features(features, entry)
        except OSError as error:  # a full disk costs the cache, not the features
            warnings.warn(f"{entry}: not cached: {error.strerror}", stacklevel=2)
    return features


def cache_key(task: Task, content: str, codec: Codec) -> str:
    """A name for what encoding would give."""
    options = describe_task(task, learned=False)
    parts = [__version__, content, codec.fingerprint(), codec.window, codec.limit, options]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def save_features(features: Features, entry: Path) -> None:
    """Write features so that a reader sees the whole file or none."""
    arrays = {key: np.ascontiguousarray(array) for key, array in features.arrays.items()}
    names = json.dumps(dict(features.names))
    make_folder(entry.parent)
    with scratch_folder(entry.parent) as folder:
        made = folder / entry.name
        save_file(arrays, made, metadata={"names": names, "sum": checksum(arrays, names)})
        made.replace(entry)


def load_features(entry: Path) -> Features | None:
    """Features as views of the file; None where there is no such file or it is damaged.

    A safetensors file is the length of its header, the header in JSON, and the arrays.
    """
    try:
        data = np.memmap(entry, np.uint8, mode="r")
        size = int(data[:8].view("<u8")[0])
        header = json.loads(data[8 : 8 + size].tobytes())
        about = header.pop("__metadata__")
        arrays = {key: _view(data[8 + size :], **where) for key, where in header.items()}
        if checksum(arrays, about["names"]) != about["sum"]:
            return None
        names = json.loads(about["names"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return Features(arrays, {key: tuple(found) for key, found in names.items()})


def checksum(arrays: Mapping[str, NDArray[Any]], names: str) -> str:
    """A number that changes with any byte, name, type or shape; it is quick, not secret."""
    total = zlib.crc32(names.encode())
    for key in sorted(arrays):
        array = arrays[key]
        total = zlib.crc32(f"{key} {array.dtype.str} {array.shape}".encode(), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return str(total)


def _view(
    data: NDArray[Any], *, dtype: str, shape: list[int], data_offsets: list[int]
) -> NDArray[Any]:
    start, end = data_offsets
    return np.asarray(data[start:end]).view(DTYPES[dtype]).reshape(shape)
