"""The recipe that `softf1 new` writes, and the commands that come next."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from softf1.data.examples import QAExample
from softf1.errors import InputError, printable
from softf1.files import new_file
from softf1.recipe import Recipe, build_recipe, check_recipe, with_values
from softf1.scaffold.sections import (
    Line,
    Section,
    choose_auto,
    format_sections,
    propose_encoder,
    propose_loss,
    propose_task,
    propose_training,
    read_values,
    weighs_classes_alike,
)
from softf1.scaffold.survey import Survey, survey
from softf1.tasks.registry import make_task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from softf1.data.stats import LabelStats


SHOWN = 12
"""The most labels to list; with more, only the most frequent and the rarest."""


def describe_data(survey: Survey) -> list[str]:
    """Describes imbalance and labels, and how often batches miss a label, as lines of text."""
    stats = survey.stats
    ratio = "no positives" if stats.ratio is None else f"{stats.ratio:.3g} negatives per positive"
    language = "" if survey.language == "other" else f", {survey.language} text"
    counts = f"{stats.negatives:,} negatives ({printable(stats.negative)}), {stats.positives:,}"
    counts += f" positives, counted in {stats.unit}: {ratio}"
    return [
        "Written by softf1 new, which looked at the data. Every key: docs/recipes.md.",
        "",
        f"{printable(stats.path)}: {stats.examples:,} examples{language}",
        printable(stats.plain_labels) or counts,
        *_describe_labels(stats.labels, stats.batch_size),
        *map(printable, survey.notes),
    ]


def _describe_labels(labels: tuple[LabelStats, ...], batch_size: int) -> list[str]:
    half = SHOWN // 2
    shown = labels if len(labels) <= SHOWN else (*labels[:half], *labels[-half:])
    names = [printable(label.label) for label in shown]
    width = max(len("label"), *map(len, names))
    head = f"  {'label':<{width}}  {'count':>9}  {'share':>7}  batches of {batch_size} without it"
    lines = [
        f"  {name:<{width}}  {one.count:>9,}  {one.share:>7.2%}  {one.share_without:.0%}"
        for name, one in zip(names, shown, strict=True)
    ]
    if len(labels) > SHOWN:
        lines.insert(half, f"  … {len(labels) - SHOWN} more …")
    return [head, *lines]


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """A proposed recipe.

    Attributes:
        text: TOML with comments.
        recipe: The same recipe as an object.
        survey: Facts about the files.
    """

    text: str
    recipe: Recipe
    survey: Survey

    @property
    def examples(self) -> int:
        """The number of training examples; BERT-MRC has one per query and sentence."""
        return self.survey.stats.examples * len(self.recipe.task.options.get("queries", ("",)))

    def summary(self) -> str:
        """Summarises the choices in one line."""
        recipe, stats = self.recipe, self.survey.stats
        return (
            f"{recipe.task.kind}, {stats.examples:,} examples, {stats.format}; "
            f"encoder {recipe.encoder.name}, loss {recipe.loss.name}"
        )

    def commands(self, path: str) -> tuple[str, ...]:
        """The next commands for a recipe at `path`: train, compare, report.

        A row with a tuned decision is compared with another one, so `auto` has one too, if it can.
        """
        file = shlex.quote(path)
        losses = "wce,dice,ce+dice"
        if self.recipe.task.kind == QAExample.task:
            losses = "focal,dice,ce+dice"
        elif weighs_classes_alike(self.survey):
            losses = "wce,la,ce+dice"
        losses = f"ce+tuned,{losses}" if _tunes(self.recipe) else losses
        losses = f"auto,auto+tuned,{losses}" if self.recipe.eval.tune else f"auto,{losses}"
        return (
            f"softf1 train {file}",
            f"softf1 compare {file} --losses {losses} --seeds 5",
            f"softf1 report {shlex.quote(f'runs/{self.recipe.name}-compare')}",
        )


def _tunes(recipe: Recipe) -> bool:
    """Whether the task has a threshold or bias to tune."""
    return bool(getattr(make_task(recipe.task.kind, **recipe.task.options), "tunes", True))


def propose_recipe(
    paths: Sequence[str],
    *,
    name: str = "recipe",
    task: str | None = None,
    format: str | None = None,  # noqa: A002 - the word that users know from recipes and --format
    options: Mapping[str, object] | None = None,
    encoder: str | None = None,
) -> Proposal:
    """Inspects files and proposes a recipe, with reasons as comments.

    Args:
        paths: One to three files: train, dev and test, recognised by name or in that order.
        name: The name of the recipe.
        task: Forces the task; detected by default.
        format: Forces the format; detected by default.
        options: Options of the reader, such as the column of the label.
        encoder: Forces the encoder; chosen by task and language by default.

    Raises:
        InputError: A file fits no format, or the files do not fit together.
    """
    surveyed = survey(paths, task=task, format=format, options=options, encoder=encoder)
    sections = [
        *propose_task(surveyed),
        propose_encoder(surveyed),
        propose_loss(surveyed),
        propose_training(surveyed),
    ]
    recipe = build_recipe({"name": name, **read_values(sections)})
    check_recipe(recipe)
    chosen = choose_auto(surveyed).values.items()
    if _tunes(with_values(recipe, {k: value for k, value in chosen if k.startswith("task.")})):
        why = "tune a threshold or bias on dev; scores with and without it are reported"
        sections.append(Section("eval", [Line("tune", value=True, why=why)]))
        recipe = with_values(recipe, {"eval.tune": True})
    return Proposal(
        text=format_sections(sections, head=describe_data(surveyed)), recipe=recipe, survey=surveyed
    )


def write_new(path: str, text: str) -> None:
    """Writes a file that must not exist yet."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InputError("wanted files with names in UTF-8, to write them into a recipe") from error
    try:
        with new_file(Path(path), replace=False) as file:
            file.write(data)
    except FileExistsError as error:
        raise InputError(
            "wanted a new file, this one exists already: choose another with --out", path=path
        ) from error
