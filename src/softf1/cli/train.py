"""Trains a model with a recipe; writes a run folder with model, predictions and scores."""

from __future__ import annotations

import argparse
from pathlib import Path

from softf1.cli.options import add_shared, add_switch


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 train`."""
    parser.add_argument("recipe", help="a TOML file, or the name of a shipped recipe (softf1 list)")
    parser.add_argument(
        "values",
        nargs="*",
        default=[],  # without it, argparse lists them as required
        metavar="key=value",
        help="change keys of the recipe, such as train.lr=3e-5",
    )
    parser.add_argument("--out", type=Path, help="run folder (default: runs/NAME-LOSS-sSEED)")
    add_switch(parser, "--resume", "continue from the last checkpoint")
    add_switch(parser, "--force", "delete the run in the folder and start over")
    add_switch(parser, "--dry-run", "check recipe, data and memory; train nothing")
    add_shared(parser, "--quiet")


def run(options: argparse.Namespace) -> int:
    """Trains; prints the scores."""
    from softf1.cli.show import format_finished, format_result
    from softf1.recipe import check_recipe, read_recipe
    from softf1.training.processes import close_process_group, own_rank
    from softf1.training.run import default_folder, train_or_find

    recipe = read_recipe(options.recipe, options.values)
    check_recipe(recipe, path=options.recipe, overrides=options.values)
    folder = options.out or default_folder(recipe)
    if options.dry_run:
        from softf1.training.dry_run import describe_run

        text = describe_run(recipe, folder, resume=options.resume, force=options.force)
    else:
        how = {"resume": options.resume, "force": options.force, "quiet": options.quiet}
        result, trained = train_or_find(recipe, folder, **how)
        text = (format_result if trained else format_finished)(result, folder)
    if own_rank() == 0:
        print(text)
    close_process_group()
    return 0
