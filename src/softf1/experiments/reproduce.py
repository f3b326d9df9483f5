"""`softf1 reproduce`: printed figures beside our own, as far as the data is there.

Another encoder, another seed or other data is another experiment: every row says which encoder and
how many seeds its figures are of, and a row whose data is missing says so.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.experiments.rebalanced import write_rebalanced
from softf1.experiments.rows import run_rows
from softf1.experiments.tables import CITED, is_printed, load_part, missing_files
from softf1.files import new_file
from softf1.recipe import with_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from softf1.experiments.cells import Execute
    from softf1.experiments.tables import Part, Table
    from softf1.recipe import Recipe

SHARED = ("over", "exclude", "smooth")
"""Options that the paper's dice losses have in common."""

AUTHORS = {"alpha": 0.01, "decay": "paper", "squared": True, "over": "batch"}
"""DSC as in all scripts of the authors."""

NEWS = {"alpha": 0.2, "decay": "paper", "smooth": 1e-8, "over": "batch"}
"""What the study on news calls dice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of the answer.

    Attributes:
        dataset: The data.
        model: The model, as printed.
        loss: The loss; "cited" where nothing is run.
        printed: Printed figures.
        ours: Our figures, the same scores.
        printed_gain: Gain over cross entropy as printed, of the last score.
        gain: Ours, with its interval.
        seeds: How many runs ours is the mean of.
        encoder: The encoder of the printed figures, and ours.
        remark: Why there is no figure of ours, or what to know of it.
    """

    dataset: str
    model: str
    loss: str
    printed: list[float | None]
    ours: list[float | None] = field(default_factory=list)
    printed_gain: float | None = None
    gain: tuple[float, float | None, float | None] | None = None
    seeds: int = 0
    encoder: str = ""
    remark: str = ""


class Reproduction:
    """Runs the parts of tables.

    Args:
        out: Folder for the grids.
        seeds: How many seeds each row gets.
        execute: Runs cells; None runs nothing and only says what would be.
        overrides: Changes to all recipes.
        data: The folder that stands for `data/` of the recipes.
        keep_models: Keep the models of the runs.
        force: Start afresh in grids that are there, of these or other inputs.
        quiet: Show no progress.
    """

    def __init__(
        self,
        out: Path,
        *,
        seeds: int,
        execute: Execute | None,
        overrides: Sequence[str] = (),
        data: Path | None = None,
        keep_models: bool = False,
        force: bool = False,
        quiet: bool = False,
    ) -> None:
        self.out, self.seeds, self.execute = out, seeds, execute
        self.overrides, self.data, self.quiet = overrides, data, quiet
        self.keep_models, self.force = keep_models, force
        self.failed: dict[str, str] = {}
        self.fresh: set[Path] = set()

    def run(self, table: Table) -> list[Line]:
        """The rows of a table of scores."""
        return [line for part in table.parts for line in self.run_part(part, table)]

    def run_part(self, part: Part, table: Table) -> list[Line]:
        """The rows of one dataset."""
        try:
            recipe = load_part(part.recipe, self.overrides, self.data, part.values)
        except InputError as error:
            return self._lines(part, table, remark=str(error))
        missing = missing_files(recipe)
        if missing:
            return self._lines(part, table, remark=f"needs {', '.join(missing)}")
        if self.execute is None:
            return self._lines(part, table, remark="can be run", recipe=recipe)
        found = self.measure(part, recipe)
        return self._lines(part, table, found=found, recipe=recipe)

    def measure(self, part: Part, recipe: Recipe) -> dict[str, Any]:
        """Run the rows of a part that are not done yet."""
        assert self.execute is not None  # noqa: S101 - said where nothing is run
        folder = self.out / part.folder
        if part.rebalance is not None:
            place = self.out / "data" / f"{part.folder}.tsv"
            train = write_rebalanced(recipe, part.rebalance, place)
            recipe = with_values(recipe, {"task.train": str(train)})
        rows = {
            str(row[1]): loss_values(row[1], recipe, study=part.losses)
            for row in part.rows
            if row[1] != CITED
        }
        found = run_rows(
            recipe,
            folder,
            rows=rows,
            seeds=range(recipe.train.seed, recipe.train.seed + self.seeds),
            execute=self.execute,
            about={"kind": "reproduce", "axis": ["loss"]},
            keep_models=self.keep_models,
            force=self.force and folder not in self.fresh,  # parts may share runs
            quiet=self.quiet,
        )
        self.fresh.add(folder)
        self.failed |= {f"{part.folder}/{cell}": error for cell, error in found["failed"].items()}
        return found

    def _lines(
        self,
        part: Part,
        table: Table,
        *,
        found: Mapping[str, Any] | None = None,
        remark: str = "",
        recipe: Recipe | None = None,
    ) -> list[Line]:
        rows = {row["loss"]: row for row in found["rows"]} if found else {}
        start = next((row[-1] for row in part.rows if row[1] == "ce"), None)
        lines = []
        for model, loss, *figures in part.rows:
            ours = rows.get(str(loss))
            lines.append(
                Line(
                    dataset=part.dataset,
                    model=model,
                    loss=_name(loss),
                    printed=[x if is_printed(x) else None for x in figures],
                    ours=_ours(ours, table, found),
                    printed_gain=_gain(figures[-1], start) if loss not in (CITED, "ce") else None,
                    gain=_measured_gain(ours) if start is not None else None,
                    seeds=ours["n"] if ours else 0,
                    encoder=_encoders(part, recipe),
                    remark=_remark(loss, ours, found, remark or part.note),
                )
            )
        return lines


def loss_values(loss: str | float, recipe: Recipe, *, study: str = "paper") -> dict[str, Any]:
    """The recipe's values for a loss of the paper, or of the study on news.

    A number is Tversky's alpha. The recipe's own loss stays as the recipe has it.
    """
    if not isinstance(loss, str):
        return {"loss.alpha": loss, "loss.beta": round(1 - loss, 12)}
    if loss == recipe.loss.name and study == "paper":
        return {}
    options: dict[str, Any] = {}
    shared = {key: recipe.loss.options[key] for key in SHARED if key in recipe.loss.options}
    if loss == "wce":
        options = {"weights": "log" if study == "paper" else "balanced"}
    elif loss == "dice":
        options = {"over": "batch"} | shared
    elif loss == "dsc":
        options = AUTHORS | shared
    values = {"loss.name": loss} | {f"loss.{key}": value for key, value in options.items()}
    if study == "news" and loss == "dice":
        values = {"loss.name": "dsc"} | {f"loss.{key}": value for key, value in NEWS.items()}
    one_span = recipe.task.kind == "qa" and not recipe.task.options.get("several")
    # Cross entropy of reading comprehension is that over positions, as everywhere.
    return values | ({"task.positions": "softmax"} if loss == "ce" and one_span else {})


def _name(loss: str | float) -> str:
    return loss if isinstance(loss, str) else f"tversky, alpha {loss:g}"


def _ours(
    row: Mapping[str, Any] | None, table: Table, found: Mapping[str, Any] | None
) -> list[float | None]:
    if row is None or found is None:
        return []
    means = row["means"].get(table.split or found["split"], {})
    return [100 * means[name] if name in means else None for name in table.scores]


def _gain(figure: float, start: float | None) -> float | None:
    if start is None or not is_printed(start) or not is_printed(figure):
        return None
    return round(figure - start, 2)


def _measured_gain(
    row: Mapping[str, Any] | None,
) -> tuple[float, float | None, float | None] | None:
    if row is None or row["difference"] is None:
        return None
    low, high = (100 * row[key] if row[key] == row[key] else None for key in ("low", "high"))
    return 100 * row["difference"], low, high


def _encoders(part: Part, recipe: Recipe | None) -> str:
    """Theirs and ours: with another encoder, the figures are of another experiment."""
    return part.encoder if recipe is None else f"{part.encoder}; ours {recipe.encoder.name}"


def _remark(
    loss: str | float,
    ours: Mapping[str, Any] | None,
    found: Mapping[str, Any] | None,
    remark: str,
) -> str:
    if loss == CITED:
        return "cited from another publication"
    if found is not None and ours is None:
        failed = [error for cell, error in found["failed"].items() if cell.startswith(f"{loss}-s")]
        return f"failed: {failed[0]}" if failed else "not run"
    return remark


def write_lines(folder: Path, table: Table, lines: Sequence[Line]) -> Path:
    """Write the rows of a table for programs; gives the path."""
    path = folder / f"reproduce-{table.id}.json"
    content = {"schema": 1, "table": table.id, "title": table.title, "source": table.source}
    rows = [asdict(line) for line in lines]
    text = json.dumps(
        {**content, "scores": table.scores, "rows": rows}, ensure_ascii=False, indent=1
    )
    with new_file(path) as file:
        file.write(text.encode() + b"\n")
    return path
