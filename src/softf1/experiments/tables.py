"""The tables of the paper and of an independent study, and which of them can be run here.

Tables that need no training come last: class counts, class weights, and figure 1.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from softf1.data import read
from softf1.data.rebalance import rebalance
from softf1.errors import InputError
from softf1.files import write_text
from softf1.options import nearest
from softf1.recipe import Recipe, read_recipe, with_values
from softf1.recipe.loading import parse_override

if TYPE_CHECKING:
    from softf1.data.examples import PairExample
    from softf1.data.stats import Stats

Rows = list[list[Any]]

LOSSES = "losses"
"""The key of `paper.toml` that is not a table: options of the losses."""

CITED = "cited"
"""Marks a figure that the authors cite from another publication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """The rows of a table that one recipe reproduces.

    Attributes:
        dataset: Its name, as printed.
        recipe: The recipe.
        encoder: The encoder of the printed figures.
        rows: Model, loss and figures of each row.
        values: Changes to the recipe.
        rebalance: How the training pairs are rebalanced, if at all.
        losses: Whose loss options to use: the paper's, or those of the study on news.
        note: A note for the reader.
    """

    dataset: str
    recipe: str
    encoder: str
    rows: list[list[Any]]
    values: dict[str, Any] = field(default_factory=dict)
    rebalance: str | None = None
    losses: str = "paper"
    note: str = ""

    @property
    def folder(self) -> str:
        """The name of its grid; parts with the same runs share it."""
        encoder = "" if not self.values else f"-{self.encoder}"
        return f"{self.recipe}{encoder}{self.rebalance or ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """A table as printed.

    Attributes:
        id: Its name on the command line.
        title: What it shows.
        source: The publication.
        kind: scores, counts, weights, labels or figure.
        scores: The scores of its columns; the last one is compared.
        split: The split of the scores; None for test, or dev if there is no test.
        parts: Rows by dataset.
        rest: The content of tables without scores.
    """

    id: str
    title: str
    source: str
    kind: str = "scores"
    scores: list[str] = field(default_factory=list)
    split: str | None = None
    parts: list[TablePart] = field(default_factory=list)
    rest: dict[str, Any] = field(default_factory=dict)

    @property
    def trains(self) -> bool:
        """Whether its figures need training."""
        return self.kind in ("scores", "labels")

    def recipes(self) -> list[str]:
        """The recipes it needs, each once."""
        named = [part.recipe for part in self.parts]
        if self.kind == "counts":
            named += [row[1] for row in self.rest["rows"]]
        named += [self.rest["recipe"]] if "recipe" in self.rest else []
        return list(dict.fromkeys(named))


def read_tables() -> dict[str, PaperTable]:
    """Reads all tables, by name."""
    tables = _read_paper().items()
    return {name: _table(name, values) for name, values in tables if name != LOSSES}


def read_losses(study: str) -> dict[str, dict[str, Any]]:
    """Reads the options of each loss in the paper, or in the study on news."""
    losses: dict[str, dict[str, Any]] = _read_paper()[LOSSES][study]
    return losses


def _read_paper() -> dict[str, Any]:
    text = resources.files("softf1.experiments").joinpath("paper.toml").read_text("utf-8")
    return tomllib.loads(text)


def _table(name: str, values: dict[str, Any]) -> PaperTable:
    parts = [TablePart(**part) for part in values.pop("parts", [])]
    known = {
        key: values.pop(key)
        for key in ("title", "source", "kind", "scores", "split")
        if key in values
    }
    return PaperTable(id=name, parts=parts, rest=values, **known)


def find_table(name: str) -> PaperTable:
    """Finds a table by name; `table3` and `Table 3` mean 3."""
    tables = read_tables()
    plain = name.lower().replace(" ", "")
    table = tables.get(plain) or tables.get(plain.removeprefix("table"))
    if table is None:
        raise InputError(
            f"wanted a table, got {name!r}{nearest(name, tables)}; known: {', '.join(tables)}"
        )
    return table


def load_table_recipe(
    name: str,
    overrides: Sequence[str],
    data: Path | None,
    values: dict[str, Any] | None = None,
    *,
    present: bool = False,
) -> Recipe:
    """Loads the recipe of a table's part, with changes.

    Args:
        name: The recipe.
        overrides: Changes by the user, for all parts.
        data: The folder to use instead of the recipes' `data/`.
        values: Changes by the table.
        present: Raise if a file of the recipe does not exist.
    """
    recipe = with_values(read_recipe(name), values or {})
    if data is not None:
        recipe = with_values(recipe, {key: _moved(path, data) for key, path in _paths(recipe)})
    recipe = with_values(recipe, dict(map(parse_override, overrides)))
    if present and (missing := missing_files(recipe)):
        raise InputError(f"needs {', '.join(missing)}")
    return recipe


def _paths(recipe: Recipe) -> Iterator[tuple[str, str]]:
    for key in ("train", "dev", "test"):
        if (path := getattr(recipe.task, key)) is not None:
            yield f"task.{key}", path


def _moved(path: str, data: Path) -> str:
    parts = Path(path).parts
    return str(data.joinpath(*parts[parts.index("data") + 1 :])) if "data" in parts else path


def missing_files(recipe: Recipe) -> list[str]:
    """Lists the files of a recipe that do not exist."""
    return [p for _, p in _paths(recipe) if not p.startswith("hf:") and not Path(p).exists()]


def check_changes(
    tables: Iterable[PaperTable], overrides: Sequence[str], data: Path | None
) -> None:
    """Raises if the changes fit no recipe of the tables, or the data folder does not exist."""
    if data is not None and not data.is_dir():
        raise InputError("wanted a folder of datasets, found none", path=data)
    problems = []
    for name in dict.fromkeys(chain.from_iterable(table.recipes() for table in tables)):
        try:
            load_table_recipe(name, overrides, data)
        except InputError as error:
            problems.append(error)
        else:
            return
    if problems:
        raise problems[0]


def list_ready(overrides: Sequence[str], data: Path | None) -> tuple[list[str], list[list[str]]]:
    """Lists all tables and their missing files: headings and rows."""
    rows = []
    for table in read_tables().values():
        missing = []
        for name in table.recipes():
            try:
                missing.append(missing_files(load_table_recipe(name, overrides, data)))
            except InputError as error:
                missing.append([str(error)])
        ready = f"{missing.count([])} of {len(missing)}" if missing else "needs no data"
        files = dict.fromkeys(chain.from_iterable(missing))
        rows.append([table.id, table.title, ready, ", ".join(files)])
    return ["table", "what", "datasets here", "files that are missing"], rows


def is_printed(figure: Any) -> bool:
    """Whether there is a printed figure; nan stands for none."""
    return not (isinstance(figure, float) and math.isnan(figure))


HEADS = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
"""Columns of a rebalanced file: those of Quora Question Pairs."""


def write_rebalanced(recipe: Recipe, variant: Any, path: Path) -> Path:
    """Writes the rebalanced training file of a recipe of pairs.

    It is written every time: an existing one may come from older pairs.

    Args:
        recipe: The recipe with training and dev files; no added row may equal one of dev.
        variant: A variant of `softf1.data.rebalance`.
        path: The file to write.
    """
    format = recipe.task.options.get("format")  # noqa: A001 - the word of recipes
    pairs, held_out = (
        cast("list[PairExample]", read(name, format=format, task=recipe.task.kind).examples)
        for name in (recipe.task.train, recipe.task.dev or recipe.task.train)
    )
    positive = recipe.task.options.get("positive", "1")
    made = rebalance(pairs, variant, seed=0, positive=positive, held_out=held_out)
    lines = ["\t".join(HEADS)]
    for number, pair in enumerate(made):
        texts = (" ".join(text.split()) for text in (pair.first, pair.second))
        lines.append("\t".join([str(number), "0", "0", *texts, str(pair.label)]))
    write_text(path, "\n".join(lines) + "\n")
    return path


def compare_counts(
    table: PaperTable, overrides: Sequence[str], data: Path | None
) -> tuple[list[str], Rows]:
    """Compares negatives, positives and their ratio: as printed, and in the training files here."""
    rows: Rows = []
    for dataset, name, *printed in table.rest["rows"]:
        ours: list[Any] = ["", "", ""]
        try:
            recipe = load_table_recipe(name, overrides, data)
            if recipe.task.train in missing_files(recipe):
                raise InputError(f"needs {recipe.task.train}")
            stats = _describe_train(recipe)
            ours = [stats.negatives, stats.positives, stats.ratio and round(stats.ratio, 2)]
            remark = f"{stats.unit}; negative: {stats.negative}"
        except InputError as error:
            remark = str(error)
        rows.append([dataset, *printed, *ours, remark])
    heads = table.rest["heads"]
    return ["dataset", *heads, *(f"our {head}" for head in heads), ""], rows


def weigh_classes(
    table: PaperTable, overrides: Sequence[str], data: Path | None
) -> tuple[list[str], Rows]:
    """Compares printed class weights with ours for the printed counts; adds our own counts."""
    from softf1.losses import class_weights

    labels, counts, printed = zip(*table.rest["rows"], strict=True)
    weights = [round(weight, 2) for weight in class_weights(counts).tolist()]
    counted: dict[str, int] = {}
    remarks: Rows = []
    try:
        recipe = load_table_recipe(table.rest["recipe"], overrides, data, present=True)
        counted = {one.label: one.count for one in _describe_train(recipe).labels}
    except InputError as error:
        remarks = [[str(error)]]
    ours = [counted.get(label, "") for label in labels]
    rows = map(list, zip(labels, counts, printed, weights, ours, strict=True))
    heads = ["label", "texts", "weight", "our weight of that count", "texts in our data"]
    return heads, [*rows, *remarks]


def _describe_train(recipe: Recipe) -> Stats:
    """The imbalance of the training file of a recipe."""
    from softf1.data.stats import describe

    task = recipe.task
    return describe(read(task.train, format=task.options.get("format"), task=task.kind))


def derive_figure() -> tuple[list[str], Rows]:
    """Computes the derivatives of figure 1 from our losses.

    A positive with smooth = 0 has the dice loss 1 − 2·f1 and the self-adjusting one 1 − 2·f2.
    """
    import torch

    from softf1.losses import DiceLoss, SelfAdjustingDiceLoss

    p = torch.arange(0.05, 1.0, 0.1, dtype=torch.float64)
    columns = []
    for loss in (
        DiceLoss(squared=False, smooth=0.0, reduction="sum"),
        SelfAdjustingDiceLoss(alpha=1.0, decay="paper", smooth=0.0, reduction="sum"),
    ):
        x = torch.logit(p).unsqueeze(1).requires_grad_()
        (slope,) = torch.autograd.grad(loss(x, torch.ones(len(p))), x)
        by_p = -slope.squeeze(1) / (2 * p * (1 - p))
        columns.append([round(value, 3) for value in by_p.tolist()])
    rows = map(list, zip([round(v, 2) for v in p.tolist()], *columns, strict=True))
    return ["p", "p / (1 + p)", "(1 − p)p / (1 + (1 − p)p)"], list(rows)
