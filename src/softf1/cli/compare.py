"""Trains several losses with the same seeds and tuning, and tests which one is better."""

from __future__ import annotations

import argparse

from softf1.cli.options import (
    MOST,
    add_grid_options,
    add_number,
    add_shared,
    add_switch,
    check_grid_options,
    parse_number,
    run_grid,
)
from softf1.errors import InputError

MOST_SEEDS = 20
"""The default of --max-seeds if --width is given."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 compare`."""
    add_shared(parser, "recipe")
    parser.add_argument(
        "values",
        nargs="*",
        default=[],  # without it, argparse lists them as required
        metavar="key=value",
        help="change keys of the recipe for every run",
    )
    parser.add_argument(
        "--losses",
        metavar="A,B,…",
        help="rows besides ce, such as dice, dsc[decay=paper] or ce[train.adversarial=0.5] "
        "(default: ce+tuned, wce, la, the losses of the paper, and auto if the recipe has it)",
    )
    add_grid_options(parser, "runs/NAME-compare")
    add_number(parser, "--max-seeds", "use up to N seeds for rows whose interval more seeds narrow")
    parser.add_argument(
        "--width",
        type=parse_number,
        metavar="POINTS",
        help="stop adding seeds at this half-width of the interval",
    )
    add_switch(
        parser,
        "--no-controls",
        "leave out the control rows: majority, tfidf, matched compute, noise",
    )
    parser.add_argument(
        "--tune",
        choices=("none", "small", "full"),
        default="small",
        help="how many settings to try on dev for each row: none, small (4 short runs, the "
        "default) or full (9); small and full also try twice the epochs",
    )


def run(options: argparse.Namespace) -> int:
    """Runs the missing runs of the grid, prints the table and the verdict."""
    from softf1.experiments.compare import compare
    from softf1.experiments.references import list_references
    from softf1.experiments.search import build_variants, check_losses, default_losses
    from softf1.recipe import check_recipe, read_recipe
    from softf1.recipe.loading import split_values

    check_grid_options(options)
    check_seeds(options)
    recipe = read_recipe(options.recipe, options.values)
    check_recipe(recipe, path=options.recipe, overrides=options.values)
    given = options.losses is not None  # an empty list is a mistake, not the default
    asked = list(split_values(options.losses)) if given else default_losses(recipe)
    losses = check_losses(asked, recipe, options.tune)
    return run_grid(
        options,
        recipe,
        compare,
        rows=build_variants(losses, recipe),
        losses=losses,
        tune=options.tune,
        most_seeds=options.max_seeds,
        width=options.width and options.width / 100,
        controls=not options.no_controls,
        references=() if options.no_controls else list_references(recipe),
    )


def check_seeds(options: argparse.Namespace) -> None:
    """Refuses --width and --max-seeds that make no sense; sets --max-seeds if only --width is."""
    if options.width is not None:
        if not 0 < options.width < 100:
            raise InputError(f"wanted --width between 0 and 100 points, got {options.width:g}")
        if options.max_seeds is None:
            options.max_seeds = max(MOST_SEEDS, options.seeds)
    if options.max_seeds is not None and not options.seeds <= options.max_seeds <= MOST:
        bounds = f"from --seeds ({options.seeds}) to {MOST}"
        raise InputError(f"wanted --max-seeds {bounds}, got {options.max_seeds}")
