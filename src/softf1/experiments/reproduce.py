"""`softf1 reproduce`: the paper's figures next to our own, as far as the data is available.

Another encoder, seed or dataset is another experiment: every row names its encoder and the number
of seeds, and a row without data says so. F1 by label comes last in this file; tables that need no
training are in `tables.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.experiments.search import BASELINE
from softf1.experiments.sweep import run_variants
from softf1.experiments.tables import (
    CITED,
    PaperTable,
    Rows,
    TablePart,
    compare_counts,
    derive_figure,
    is_printed,
    load_table_recipe,
    read_losses,
    weigh_classes,
    write_rebalanced,
)
from softf1.files import finite, write_json
from softf1.recipe import Recipe, with_values
from softf1.tasks.registry import make_task

if TYPE_CHECKING:
    from softf1.experiments.grid import Execute

SHARED = ("over", "exclude", "smooth")
"""Options that the paper's dice losses share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLine:
    """One row of a reproduced table.

    Attributes:
        dataset: The name of the dataset.
        model: The model, as printed.
        loss: The loss; "cited" if nothing is run.
        printed: Printed figures.
        ours: Our figures for the same scores.
        printed_gain: Printed gain over cross entropy in the last score.
        gain: Our gain, with its interval.
        seeds: The number of seeds behind our mean.
        encoder: The encoder of the printed figures, and ours.
        remark: Why we have no figure, or a note about it.
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
        seeds: The number of seeds per row.
        execute: Executes runs; None runs nothing and only says what would run.
        overrides: Changes to all recipes.
        data: The folder to use instead of the recipes' `data/`.
        keep_models: Keep the models of the runs.
        force: Delete what earlier grids left in the folders, and start again.
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
        self.written: Path | None = None

    def tabulate(self, table: PaperTable) -> tuple[list[str], list[list[str]]]:
        """Returns headings and rows of any table; writes the figures of a table of scores."""
        if table.kind == "scores":
            lines = self.run(table)
            if self.execute is not None:
                self.written = write_lines(self.out, table, lines)
            return format_lines(table, lines)
        heads, rows = self._facts(table)
        return heads, [[*map(str, row), *[""] * (len(heads) - len(row))] for row in rows]

    def _facts(self, table: PaperTable) -> tuple[list[str], Rows]:
        if table.kind == "figure":
            return derive_figure()
        if table.kind == "labels":
            return compare_labels(table, self)
        make = compare_counts if table.kind == "counts" else weigh_classes
        return make(table, self.overrides, self.data)

    def run(self, table: PaperTable) -> list[TableLine]:
        """Runs a table of scores; returns its rows."""
        return [line for part in table.parts for line in self.run_part(part, table)]

    def run_part(self, part: TablePart, table: PaperTable) -> list[TableLine]:
        """Runs the rows of one dataset."""
        measured, encoder, remark = None, part.encoder, part.note
        try:
            recipe = self.load(part)
        except InputError as error:
            remark = str(error)
        else:
            encoder += f"; ours {recipe.encoder.name}"
            if self.execute is None:
                remark = "can be run"
            else:
                measured = self.measure(part, recipe)
        lines = []
        for model, loss, *figures in part.rows:
            line = TableLine(
                dataset=part.dataset,
                model=model,
                loss=loss if isinstance(loss, str) else f"tversky, alpha {loss:g}",
                printed=[x if is_printed(x) else None for x in figures],
                printed_gain=_gain(figures[-1], loss, part),
                encoder=encoder,
                remark="cited from another publication" if loss == CITED else remark,
            )
            if measured is not None and loss != CITED:
                line = add_ours(line, str(loss), measured, part, table)
            lines.append(line)
        return lines

    def load(self, part: TablePart) -> Recipe:
        """Loads the recipe of a part; raises if a file does not exist."""
        return load_table_recipe(part.recipe, self.overrides, self.data, part.values, present=True)

    def measure(self, part: TablePart, recipe: Recipe) -> dict[str, Any]:
        """Runs the rows of a part that are not done yet."""
        assert self.execute is not None  # noqa: S101 - callers check this first
        folder = self.out / part.folder
        if part.rebalance is not None:
            place = self.out / "data" / f"{part.folder}.tsv"
            train = write_rebalanced(recipe, part.rebalance, place)
            recipe = with_values(recipe, {"task.train": str(train)})
        variants = {
            str(row[1]): loss_values(row[1], recipe, study=part.losses)
            for row in part.rows
            if row[1] != CITED
        }
        comparison = run_variants(
            recipe,
            folder,
            variants=variants,
            seeds=range(recipe.train.seed, recipe.train.seed + self.seeds),
            execute=self.execute,
            about={"kind": "reproduce", "axis": ["loss"]},
            keep_models=self.keep_models,
            force=self.force and folder not in self.fresh,  # parts may share runs
            quiet=self.quiet,
        )
        self.fresh.add(folder)
        self.failed |= {
            f"{part.folder}/{run}": error for run, error in comparison["failed"].items()
        }
        return comparison


def loss_values(loss: str | float, recipe: Recipe, *, study: str = "paper") -> dict[str, Any]:
    """Returns the recipe values for a loss of the paper, or of the study on news.

    A number is Tversky's alpha. The recipe's own loss keeps its options.
    """
    if not isinstance(loss, str):
        return {"loss.alpha": loss, "loss.beta": round(1 - loss, 12)}
    if loss == recipe.loss.name and study == "paper":
        return {}
    options = {"name": loss} | read_losses(study).get(loss, {})
    if options["name"] == loss and "over" in options:
        options |= {key: recipe.loss.options[key] for key in SHARED if key in recipe.loss.options}
    values = {f"loss.{key}": value for key, value in options.items()}
    task = make_task(recipe.task.kind, **recipe.task.options)
    one_span = hasattr(task, "chooses_position") and not getattr(task, "several", False)
    # Cross entropy for reading comprehension is a softmax over positions, as is usual.
    return values | ({"task.positions": "softmax"} if loss == BASELINE and one_span else {})


def _gain(figure: float, loss: str | float, part: TablePart) -> float | None:
    """The printed gain of a loss over cross entropy, if both figures are printed."""
    start = next((row[-1] for row in part.rows if row[1] == BASELINE), math.nan)
    printed = is_printed(start) and is_printed(figure) and loss not in (CITED, BASELINE)
    return round(figure - start, 2) if printed else None


def add_ours(
    line: TableLine, loss: str, measured: Mapping[str, Any], part: TablePart, table: PaperTable
) -> TableLine:
    """Adds our figures to a row, or why there are none."""
    row = next((row for row in measured["rows"] if row["loss"] == loss), None)
    if row is None:
        failed = [why for run, why in measured["failed"].items() if run.startswith(f"{loss}-s")]
        return replace(line, remark=f"failed: {failed[0]}" if failed else "not run")
    means = row["means"].get(table.split or measured["split"], {})
    ours = [100 * means[name] if name in means else None for name in table.scores]
    gain = None
    if row["difference"] is not None and any(own[1] == BASELINE for own in part.rows):
        low, high = (100 * row[key] if row[key] == row[key] else None for key in ("low", "high"))
        gain = 100 * row["difference"], low, high
    return replace(line, ours=ours, gain=gain, seeds=row["n"])


def format_lines(
    table: PaperTable, lines: Sequence[TableLine]
) -> tuple[list[str], list[list[str]]]:
    """Returns headings and rows of a table of scores."""
    names = " / ".join(table.scores)
    heads = ["dataset", "model", "loss", f"printed: {names}", "ours", "gain over CE", "ours"]
    heads += ["seeds", "encoder", ""]
    rows = [
        [
            line.dataset,
            line.model,
            line.loss,
            _figures(line.printed),
            _figures(line.ours),
            "" if line.printed_gain is None else f"{line.printed_gain:+.2f}",
            _interval(line),
            str(line.seeds or ""),
            line.encoder,
            line.remark,
        ]
        for line in lines
    ]
    return heads, rows


def _figures(values: list[float | None]) -> str:
    return " / ".join("–" if value is None else f"{value:.2f}" for value in values)


def _interval(line: TableLine) -> str:
    if line.gain is None:
        return ""
    mean, low, high = line.gain
    return f"{mean:+.2f}" + ("" if low is None else f" [{low:.2f}, {high:.2f}]")


def write_lines(folder: Path, table: PaperTable, lines: Sequence[TableLine]) -> Path:
    """Writes the rows of a table as a file; returns the path."""
    path = folder / f"reproduce-{table.id}.json"
    content = {"schema": 1, "table": table.id, "title": table.title, "source": table.source}
    rows = [asdict(line) for line in lines]
    write_json(path, finite({**content, "scores": table.scores, "rows": rows}))
    return path


def compare_labels(table: PaperTable, run: Reproduction) -> tuple[list[str], Rows]:
    """Returns headings and rows with the F1 of each label and loss: printed, and ours."""
    rest = table.rest
    losses = rest["losses"]
    rows = [[loss, loss] for loss in losses]
    part = TablePart(
        dataset="", recipe=rest["recipe"], encoder=rest["encoder"], rows=rows, losses="news"
    )
    scores, remark = {}, ""
    try:
        recipe = run.load(part)
        if run.execute is None:
            raise InputError("can be run")
        measured = run.measure(part, recipe)
        scores = {one["label"]: one["scores"] for one in measured["labels"]}
        remark = f"encoder {rest['encoder']}; ours {recipe.encoder.name}, {run.seeds} seeds"
    except InputError as error:
        remark = str(error)
    lines: Rows = []
    for label, count, *printed in rest["rows"]:
        ours = [_points(scores.get(label, {}).get(loss)) for loss in losses]
        pairs = [f"{a} / {b}" for a, b in zip(printed, ours, strict=True)]
        lines.append([label, count, *pairs])
    return ["label", "texts", *(f"{loss}: theirs / ours" for loss in losses)], [*lines, [remark]]


def _points(scores: dict[str, float] | None) -> str:
    return f"{100 * scores['f1']:.0f}" if scores else "–"
