"""Trains over a grid of values of any recipe keys; shows precision, recall and F1 for each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from softf1.cli.options import (
    add_grid_options,
    check_data,
    check_grid_options,
    choose_executor,
    read_grid_options,
)

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 sweep`."""
    parser.add_argument("recipe", help="a TOML file, or the name of a shipped recipe")
    parser.add_argument(
        "values",
        nargs="+",
        metavar="key=a,b,c",
        help="values to try, such as loss.alpha=0.1,0.3,0.5; a single value applies to all",
    )
    parser.add_argument(
        "--complement",
        action="append",
        default=[],
        metavar="KEY:OTHER",
        help="set OTHER to 1 − KEY, such as loss.alpha:loss.beta",
    )
    add_grid_options(parser)


def run(options: argparse.Namespace) -> int:
    """Runs what is missing of the sweep and prints the table."""
    from softf1.cli.show import finish
    from softf1.experiments.sweep import check_variants, parse_axes, parse_complements, sweep
    from softf1.recipe import read_recipe

    check_grid_options(options)
    axes, rest = parse_axes(options.values)
    complements = parse_complements(options.complement)
    recipe = read_recipe(options.recipe, rest)
    check_variants(recipe, axes, complements)
    folder = options.out or Path("runs") / f"{recipe.name}-sweep"
    if not any(key.startswith("task.") for key in axes):
        check_data(recipe, folder, force=options.force)
    with choose_executor(options, folder) as execute:
        comparison = sweep(
            recipe,
            folder,
            axes=axes,
            execute=execute,
            complements=complements,
            **read_grid_options(options, recipe),
        )
    return finish(comparison, folder)
