"""Dotted keys of a recipe: set in nested tables, and found in a file."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.recipe.fields import RecipeError, nearest
from softf1.recipe.sections import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

OF_ANY_LOSS = ("statistics", "keys")
"""Keys of `[loss]` that stay when another loss takes its place."""


def change(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables with other values of dotted keys."""
    changed = deepcopy(dict(values))
    loss = changed.get("loss", {})
    if isinstance(loss, dict) and _replaces(changes, loss.get("name", "ce")):
        changed["loss"] = {key: loss[key] for key in OF_ANY_LOSS if key in loss}
    for key, value in changes.items():
        _set(changed, key, value)
    return changed


def _replaces(changes: Mapping[str, Any], loss: str) -> bool:
    """Whether the changes name another loss."""
    return "loss.name" in changes and changes["loss.name"] != loss


def locate(
    error: RecipeError, path: Path, lines: Mapping[str, int], given: Iterable[str]
) -> InputError:
    """The error with file and line, unless a key that was given besides the file is at fault."""
    if any(_inside(error.key, key) or _inside(key, error.key) for key in given):
        return error
    line = next((lines[key] for key in _upwards(error.key) if key in lines), None)
    return InputError(str(error), path=path, line=line)


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in nested tables; None takes it out."""
    *path, last = key.split(".")
    if not path and last != "name":
        raise RecipeError(key, f"wanted name or section.key{nearest(key, SECTIONS)}")
    for name in path:
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise RecipeError(key, f"wanted a table {name}, got {values!r}")
    if value is None:
        values.pop(last, None)
    else:
        values[last] = value


def _inside(key: str, section: str) -> bool:
    return f"{key}.".startswith(f"{section}.")


def _upwards(key: str) -> list[str]:
    """A key and the sections around it, innermost first."""
    parts = key.split(".")
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
