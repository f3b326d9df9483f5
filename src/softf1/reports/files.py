"""Reads what runs left behind: result.json, metrics.jsonl and lines of predictions."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SCHEMA = 1


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file with an object of the schema that this page knows."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"wanted JSON, got: {error}", path=path) from None
    if not isinstance(value, dict):
        raise InputError(f"wanted an object, got {type(value).__name__}", path=path)
    if value.get("schema") != SCHEMA:
        raise InputError(f'wanted "schema": {SCHEMA}, got {value.get("schema")!r}', path=path)
    return value


def read_lines(path: Path, *, unfinished: bool = False) -> Iterator[dict[str, Any]]:
    """The objects of a file with one a line; nothing where there is no file.

    Args:
        path: The file.
        unfinished: Whether the last line may be cut short, as in the log of a run that was killed.
    """
    if not path.is_file():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                if unfinished and not line.endswith(b"\n"):
                    return
                raise InputError(f"wanted JSON, got: {error}", path=path, line=number) from None
            if not isinstance(value, dict):
                got = type(value).__name__
                raise InputError(f"wanted an object, got {got}", path=path, line=number)
            yield value


def need(value: Mapping[str, Any], key: str, kind: type, path: Path) -> Any:
    """The value under a key, which must be there and of that kind."""
    found = value.get(key)
    if not isinstance(found, kind) or isinstance(found, bool):
        got = "nothing" if found is None else type(found).__name__
        raise InputError(f'wanted "{key}" of type {kind.__name__}, got {got}', path=path)
    return found


def number(value: Any) -> float | None:
    """A finite number, or None for anything else.

    >>> number(1), number("1"), number(float("nan"))
    (1.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def section(value: Any, *keys: str) -> dict[str, Any]:
    """The object that the keys lead to; empty where there is none.

    >>> section({"scores": {"dev": {"f1": 0.5}}}, "scores", "dev")
    {'f1': 0.5}
    >>> section({"scores": None}, "scores", "test")
    {}
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items_of(value: Any) -> list[Any]:
    """The items of a list; none of anything else.

    >>> items_of([1, 2]), items_of(5)
    ([1, 2], [])
    """
    return value if isinstance(value, list) else []


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted keys.

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
