"""Trains over a grid of values of any recipe keys; shows precision, recall and F1 for each."""

from __future__ import annotations

import argparse

from softf1.cli.options import add_grid_options, add_shared, check_grid_options, run_grid


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 sweep`."""
    add_shared(parser, "recipe")
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
    add_grid_options(parser, "runs/NAME-sweep")


def run(options: argparse.Namespace) -> int:
    """Runs the missing runs of the sweep and prints the table."""
    from softf1.experiments.sweep import check_variants, parse_axes, parse_complements, sweep
    from softf1.recipe import read_recipe

    check_grid_options(options)
    axes, rest = parse_axes(options.values)
    complements = parse_complements(options.complement)
    recipe = read_recipe(options.recipe, rest)
    given = [*options.values, *(f"{key}=" for key in complements.values())]
    rows = check_variants(recipe, axes, complements, path=options.recipe, overrides=given)
    return run_grid(options, recipe, sweep, rows=rows, axes=axes, complements=complements)
