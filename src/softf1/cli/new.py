"""Looks at your files, writes a commented recipe for them, and says what to run next."""

from __future__ import annotations

import argparse
from pathlib import Path

from softf1.cli.options import SETTINGS, add_shared, propose_for
from softf1.cli.show import print_notes
from softf1.errors import printable

STDOUT = "-"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 new`."""
    parser.add_argument(
        "data",
        nargs="+",
        metavar="DATA",
        help="train, dev and test files, recognised by name or order; or hf:NAME",
    )
    parser.add_argument(
        "--out",
        default="recipe.toml",
        metavar="FILE",
        help="where to write the recipe (default: recipe.toml; - prints it)",
    )
    add_shared(parser, "--format", "--task", "--encoder", *SETTINGS)


def run(options: argparse.Namespace) -> int:
    """Looks, writes, prints the commands that come next, and estimates what a run takes."""
    from softf1.files import refuse_folder
    from softf1.scaffold import write_new
    from softf1.training.dry_run import describe_cost

    to_screen = options.out == STDOUT
    if not to_screen:
        refuse_folder(Path(options.out))
    made = propose_for(options, "recipe" if to_screen else Path(options.out).stem)
    if to_screen:
        print(made.text, end="")
        return 0
    write_new(options.out, made.text)
    print(f"{printable(options.out)}: {printable(made.summary())}\n")
    print("\n".join(map(printable, made.commands(options.out))), flush=True)
    print(f"\na run: {printable(describe_cost(made.recipe, made.examples))}")
    print_notes(made.survey.notes)
    return 0
