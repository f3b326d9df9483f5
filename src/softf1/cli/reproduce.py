"""Repeats the paper's tables; without TABLE, lists them and which data was found."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from softf1.cli.options import add_grid_options, add_switch, check_grid_options, choose_executor
from softf1.cli.show import print_table, report_failed


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 reproduce`."""
    parser.add_argument("table", nargs="?", help="the table, such as 3, 8, figure1, news-test")
    parser.add_argument(
        "values",
        nargs="*",
        metavar="key=value",
        help="change keys of all recipes, such as encoder.name=minilm",
    )
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="use FOLDER in place of data/ in the recipes"
    )
    add_switch(parser, "--dry-run", "show what would run; train nothing")
    add_grid_options(parser, "runs/reproduce", seeds=1)


def run(options: argparse.Namespace) -> int:
    """Lists the tables, or runs one with the data that is available and prints it."""
    from softf1.experiments.grid import lock_grid
    from softf1.experiments.reproduce import Reproduction
    from softf1.experiments.tables import check_changes, find_table, list_ready, read_tables

    check_grid_options(options)
    tables = read_tables().values() if options.table is None else [find_table(options.table)]
    check_changes(tables, options.values, options.data)
    if options.table is None:
        print_table(*list_ready(options.values, options.data))
        return 0
    (table,) = tables
    print(f"{table.title}\n{table.source}")
    folder = options.out or Path("runs") / "reproduce"
    with ExitStack() as held:
        execute = None
        if table.trains and not options.dry_run:
            held.enter_context(lock_grid(folder))
            execute = held.enter_context(choose_executor(options, folder))
        reproduction = Reproduction(
            folder,
            seeds=options.seeds,
            execute=execute,
            overrides=options.values,
            data=options.data,
            keep_models=not options.no_models,
            force=options.force,
            quiet=options.quiet,
        )
        print_table(*reproduction.tabulate(table))
    if reproduction.written is not None:
        print(reproduction.written)
    return report_failed(reproduction.failed)
