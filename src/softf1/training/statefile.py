"""The JSON of a checkpoint: strict, and with a checksum of itself."""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.files import sync

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA = 1
_FLOAT = "$float"


def write_state(
    path: Path, *, step: int, files: Mapping[str, Any], state: Mapping[str, Any]
) -> None:
    """Write the state of a checkpoint and what its files must be like."""
    content = {"schema": SCHEMA, "step": step, "files": files, "state": to_json(state)}
    text = json.dumps(content | {"sha256": _hash(content)}, indent=1, allow_nan=False)
    with path.open("xb") as file:
        file.write(text.encode())
        sync(file)


def read_state(path: Path) -> dict[str, Any] | str:
    """The content, or what is wrong with it.

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
    """What JSON can hold: numbers of numpy and torch as Python's, infinities and NaN by name.

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
    """The reverse.

    >>> from_json({"best": {"$float": "-inf"}})
    {'best': -inf}
    """
    if isinstance(value, dict):
        if value.keys() == {_FLOAT}:
            return float(value[_FLOAT])
        return {key: from_json(inner) for key, inner in value.items()}
    return [from_json(inner) for inner in value] if isinstance(value, list) else value
