"""A cell of a grid: one recipe with some values changed, trained in a folder of its own."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from softf1.errors import InputError
from softf1.recipe import describe_recipe, with_values
from softf1.tasks.registry import FILE
from softf1.training.identity import list_changes, say_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from softf1.recipe import Recipe

TRAIN = "softf1.training.run:Trainer"
"""What a worker calls for a cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of a grid.

    Attributes:
        id: Its name, and that of its folder.
        label: The row of the table that it belongs to: a loss, or values of a sweep.
        loss: The loss it is trained with.
        seed: Its seed; None where chance plays no part.
        values: What differs from the recipe, by key.
        folder: The run folder, relative to the grid's.
        cost: How long it takes, in units of a whole run.
    """

    id: str
    label: str
    loss: str
    seed: int | None
    values: dict[str, Any] = field(default_factory=dict)
    folder: str
    cost: float = 1.0

    def describe(self, state: str, error: str | None = None) -> dict[str, Any]:
        """The cell as `grid.json` has it."""
        shown: dict[str, Any] = {
            "id": self.id,
            "loss": self.loss,
            "label": self.label,
            "seed": self.seed,
        }
        shown |= {"values": self.values, "folder": self.folder, "state": state}
        return shown | ({"error": error} if error else {})


class Job(NamedTuple):
    """What is handed to a worker: all of it can be written as JSON."""

    id: str
    recipe: dict[str, Any]
    folder: str


class Done(NamedTuple):
    """What a worker hands back: a result, or the error in words."""

    id: str
    result: dict[str, Any] | None
    error: str | None = None
    seconds: float = 0.0


if TYPE_CHECKING:
    Execute = Callable[[Sequence[Job]], Iterator[Done]]
    """Runs jobs, in any order and as many at a time as it likes; gives each back once."""


def make_job(cell: Cell, recipe: Recipe, grid: Path) -> Job:
    """The cell with its whole recipe."""
    own = with_values(recipe, cell.values)
    return Job(cell.id, describe_recipe(own), str(grid / cell.folder))


def name_cell(row: str, rest: str) -> str:
    """A name for a cell of a row that any file system takes.

    >>> name_cell("dsc[decay=paper]", "s0")
    'dsc_decay=paper_-s0'
    """
    safe = "".join(c if c.isalnum() or c in "=.+-" else "_" for c in row)
    return f"{safe}-{rest}"


def read_done(cell: Cell, identity: Mapping[str, Any], grid: Path) -> dict[str, Any] | None:
    """The result of a finished cell; that of another recipe or other files is refused."""
    path = grid / cell.folder / "result.json"
    if not path.is_file():
        return None
    result = read_json(path)
    changes = list_changes(result, identity)
    if changes:
        raise InputError(f"holds a finished run, but {say_changes(changes)}", path=path.parent)
    return result


def read_json(path: Path) -> dict[str, Any]:
    """A file that holds an object in JSON."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"wanted JSON, got {error}", path=path) from error
    if not isinstance(found, dict):
        raise InputError(f"wanted an object in JSON, got {type(found).__name__}", path=path)
    return found


def plain(value: Any) -> Any:
    """The value with null where JSON has no number: NaN is what was not tested.

    >>> plain({"p": float("nan"), "rows": [1.5]})
    {'p': None, 'rows': [1.5]}
    """
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def drop_weights(folder: Path) -> None:
    """Remove a run's model but for its task, which the counting of predictions needs."""
    model = folder / "model"
    for path in model.iterdir() if model.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != FILE:
            path.unlink()
