"""`softf1 reproduce`: the paper's figures next to our own, as far as the data is available.

Another encoder, seed or dataset is another experiment: every row names its encoder and the number
of seeds, and a row without data says so. F1 by label comes last in this file; tables that need no
training are in `tables.py`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
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
    load_present,
    read_losses,
    weigh_classes,
    write_rebalanced,
)
from softf1.files import finite, write_json
from softf1.recipe import Recipe, with_values
from softf1.tasks.registry import make_task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

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
        data: The folder that stands for `data/` of the recipes.
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
        try:
            recipe = load_present(part.recipe, self.overrides, self.data, part.values)
        except InputError as error:
            return self._lines(part, table, remark=str(error))
        if self.execute is None:
            return self._lines(part, table, remark="can be run", recipe=recipe)
        comparison = self.measure(part, recipe)
        return self._lines(part, table, comparison=comparison, recipe=recipe)

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

    def _lines(
        self,
        part: TablePart,
        table: PaperTable,
        *,
        comparison: Mapping[str, Any] | None = None,
        remark: str = "",
        recipe: Recipe | None = None,
    ) -> list[TableLine]:
        rows = {row["loss"]: row for row in comparison["rows"]} if comparison else {}
        start = next((row[-1] for row in part.rows if row[1] == BASELINE), None)
        lines = []
        for model, loss, *figures in part.rows:
            ours = rows.get(str(loss))
            lines.append(
                TableLine(
                    dataset=part.dataset,
                    model=model,
                    loss=_name(loss),
                    printed=[x if is_printed(x) else None for x in figures],
                    ours=_ours(ours, table, comparison),
                    printed_gain=_gain(figures[-1], start)
                    if loss not in (CITED, BASELINE)
                    else None,
                    gain=_measured_gain(ours) if start is not None else None,
                    seeds=ours["n"] if ours else 0,
                    encoder=_encoders(part, recipe),
                    remark=_remark(loss, ours, comparison, remark or part.note),
                )
            )
        return lines


def loss_values(loss: str | float, recipe: Recipe, *, study: str = "paper") -> dict[str, Any]:
    """Recipe values for a loss of the paper, or of the study on news.

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


def _name(loss: str | float) -> str:
    return loss if isinstance(loss, str) else f"tversky, alpha {loss:g}"


def _ours(
    row: Mapping[str, Any] | None, table: PaperTable, comparison: Mapping[str, Any] | None
) -> list[float | None]:
    if row is None or comparison is None:
        return []
    means = row["means"].get(table.split or comparison["split"], {})
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


def _encoders(part: TablePart, recipe: Recipe | None) -> str:
    """The printed encoder, and ours if the recipe could be read."""
    return part.encoder if recipe is None else f"{part.encoder}; ours {recipe.encoder.name}"


def _remark(
    loss: str | float,
    ours: Mapping[str, Any] | None,
    comparison: Mapping[str, Any] | None,
    remark: str,
) -> str:
    if loss == CITED:
        return "cited from another publication"
    if comparison is not None and ours is None:
        failed = [
            error for run, error in comparison["failed"].items() if run.startswith(f"{loss}-s")
        ]
        return f"failed: {failed[0]}" if failed else "not run"
    return remark


def format_lines(
    table: PaperTable, lines: Sequence[TableLine]
) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a table of scores."""
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
    """F1 of each label and loss, as printed and ours."""
    rest = table.rest
    losses = rest["losses"]
    rows = [[loss, loss] for loss in losses]
    part = TablePart(
        dataset="", recipe=rest["recipe"], encoder=rest["encoder"], rows=rows, losses="news"
    )
    scores, remark = {}, ""
    try:
        recipe = load_present(part.recipe, run.overrides, run.data)
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
