"""Finds labels in your data that are likely to be wrong, and lists them for you to review."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.cli.options import (
    MOST,
    SETTINGS,
    add_number,
    add_shared,
    add_switch,
    check_least,
    choose_executor,
    parse_number,
    propose_for,
)
from softf1.cli.show import points, print_table
from softf1.errors import InputError, printable

if TYPE_CHECKING:
    from softf1.recipe import Recipe


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 suspects`."""
    parser.add_argument(
        "data",
        nargs="+",
        metavar="DATA",
        help="one to three files, or hf:NAME; or a recipe, to check all its files",
    )
    add_shared(parser, "--format")
    parser.add_argument(
        "--task", help="tagging, span_ner, pairs or classification (default: detected)"
    )
    add_shared(parser, "--encoder", *SETTINGS)
    add_number(parser, "--folds", "number of folds, one model each (default: 5)", default=5)
    parser.add_argument("--epochs", type=parse_number, metavar="N", help="epochs per model")
    add_number(parser, "--seed", "seed of all models")
    add_number(parser, "--top", "number of suspects to list (default: 1000)", default=1000)
    add_number(parser, "--jobs", "models to train in parallel (default: 1)", default=1)
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="output folder (default: runs/NAME-suspects)"
    )
    add_shared(parser, "--on")
    add_switch(parser, "--force", "delete the folder's results and start over")
    add_shared(parser, "--quiet")


def run(options: argparse.Namespace) -> int:
    """Trains the folds, writes the page and the file to review, prints the first suspects."""
    from softf1.experiments.suspects import REVIEW, find_suspects
    from softf1.reports.suspects import check_extra, write_suspects

    check_least(options, most=MOST, folds=2, jobs=1)
    check_least(options, top=1)
    check_extra()
    recipe = make_recipe(options)
    folder = options.out or Path("runs") / f"{recipe.name}-suspects"
    how = {"folds": options.folds, "top": options.top}
    with choose_executor(options, folder) as execute:
        content = find_suspects(
            recipe, folder, execute=execute, force=options.force, quiet=options.quiet, **how
        )
    page = write_suspects(folder)
    print_suspects(content)
    print(printable(f"{page}, {folder / REVIEW}"))
    return 0


def make_recipe(options: argparse.Namespace) -> Recipe:
    """Returns the given recipe, or the one that `softf1 new` would write, but with cross entropy.

    Suspects are ranked by probabilities, and cross entropy rewards a model for calibrated ones.
    """
    from softf1.experiments.search import BASELINE
    from softf1.recipe import check_recipe, read_recipe, with_values
    from softf1.recipe.loading import list_recipes

    changes = {"train.epochs": options.epochs, "train.seed": options.seed}
    first = options.data[0]
    if first.endswith(".toml") or first in list_recipes():
        given = ("format", "task", "set", "encoding")
        told = [f"--{name}" for name in given if getattr(options, name)]
        if told or len(options.data) > 1:
            got = ", ".join([*told, *options.data[1:]])
            raise InputError(f"wanted a recipe alone, which names files and task; got {got} too")
        recipe = read_recipe(first)
        changes["encoder.name"] = options.encoder
    else:
        name = Path(first).stem.partition(".")[0].replace(":", "-") or "data"
        recipe = propose_for(options, name).recipe
        changes |= {"loss.name": BASELINE, "eval.tune": False}
    recipe = with_values(recipe, {k: v for k, v in changes.items() if v is not None})
    check_recipe(recipe)
    return recipe


SHOWN = 10
"""Suspects that are printed; the files have more."""


def print_suspects(content: dict[str, Any]) -> None:
    """Prints the most likely errors and how many there are of each kind."""
    from softf1.experiments.suspects import say_marks

    score = f"{content['headline']} {points(content['score'])} on texts unseen in training"
    print(f"{content['examples']:,} examples, {content['folds']} folds, {score}")
    if dead := content.get("collapsed"):
        said = f"{dead} of {content['folds']} models predict nothing or only one class"
        print(f"note: {said}: do not trust this list, train longer (--epochs)")
    if not content["found"]:
        print("No label looks wrong.")
        return
    heads = ["score", "line", "kind", "given", "suggested"]
    rows = [
        [
            f"{one['score']:.4f}",
            f"{one['file']}:{one['line']}",
            one["kind"],
            say_marks(one["given"]),
            say_marks(one["suggested"]),
        ]
        for one in content["suspects"][:SHOWN]
    ]
    print_table(heads, rows, numbers=slice(0, 1))
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in content["kinds"].items())
    print(f"{content['found']:,} suspects: {kinds}")
    if content["unknown"]:
        many = content["unknown"]
        have = "example has" if many == 1 else "examples have"
        print(f"note: {many:,} {have} a label that no other fold has; it was not judged")
