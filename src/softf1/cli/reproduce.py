"""Printed tables beside our own figures: without TABLE, lists them and what data is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from softf1.cli.compare import add_grid_options, check_grid_options, choose_executor

if TYPE_CHECKING:
    import argparse

    from softf1.experiments.reproduce import Line, Reproduction
    from softf1.experiments.tables import Table


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 reproduce`."""
    parser.add_argument("table", nargs="?", help="such as 3, 8, figure1, news-test")
    parser.add_argument(
        "values",
        nargs="*",
        metavar="key=value",
        help="changes to all recipes, such as encoder.name=minilm",
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="stands for data/ of recipes")
    parser.add_argument("--dry-run", action="store_true", help="say what can be run; run nothing")
    add_grid_options(parser)
    parser.set_defaults(seeds=1)


def run(options: argparse.Namespace) -> int:
    """Lists the tables, or runs what is there of one and prints it."""
    from softf1.experiments.grid import lock
    from softf1.experiments.tables import find_table

    check_grid_options(options)
    if options.table is None:
        return _list_tables(options)
    table = find_table(options.table)
    print(f"{table.title}\n{table.source}")
    if table.kind in ("counts", "weights", "figure"):
        return _print_facts(table, options)
    folder = options.out or Path("runs") / "reproduce"
    if options.dry_run:
        return _print_scores(table, _make(options, folder, None), folder)
    with lock(folder), choose_executor(options, folder) as execute:
        return _print_scores(table, _make(options, folder, execute), folder)


def _make(options: argparse.Namespace, folder: Path, execute: object) -> Reproduction:
    from softf1.experiments.reproduce import Reproduction

    return Reproduction(
        folder,
        seeds=options.seeds,
        execute=execute,  # type: ignore[arg-type]
        overrides=options.values,
        data=options.data,
        keep_models=not options.no_models,
        force=options.force,
        quiet=options.quiet,
    )


def _list_tables(options: argparse.Namespace) -> int:
    from softf1.errors import InputError
    from softf1.experiments.show import print_table
    from softf1.experiments.tables import load_part, missing_files, read_tables

    rows = []
    for table in read_tables().values():
        recipes = table.recipes()
        here, files = [], []
        for name in recipes:
            try:
                missing = missing_files(load_part(name, options.values, options.data))
            except InputError as error:
                missing = [str(error)]
            here += [] if missing else [name]
            files += missing
        ready = f"{len(here)} of {len(recipes)}" if recipes else "needs no data"
        rows.append([table.id, table.title, ready, ", ".join(dict.fromkeys(files))])
    print_table(["table", "what", "datasets here", "files that are missing"], rows)
    return 0


def _print_facts(table: Table, options: argparse.Namespace) -> int:
    from softf1.experiments import reproduce
    from softf1.experiments.show import print_table

    if table.kind == "figure":
        heads, rows = reproduce.derive_figure()
    else:
        make = reproduce.count_classes if table.kind == "counts" else reproduce.weigh_classes
        heads, rows = make(table, options.values, options.data)
    width = len(heads)
    print_table(heads, [[*map(str, row), *[""] * (width - len(row))] for row in rows])
    return 0


def _print_scores(table: Table, reproduction: Reproduction, folder: Path) -> int:
    import sys

    from softf1.experiments import reproduce
    from softf1.experiments.reproduce import write_lines
    from softf1.experiments.show import print_table

    if table.kind == "labels":
        heads, found = reproduce.score_labels(table, reproduction)
        print_table(heads, [[*map(str, row), *[""] * (len(heads) - len(row))] for row in found])
    else:
        lines = reproduction.run(table)
        print_table(*_columns(table, lines))
        if reproduction.execute is not None:
            print(write_lines(folder, table, lines))
    for name, error in reproduction.failed.items():
        print(f"failed: {name}: {error}", file=sys.stderr)
    return 1 if reproduction.failed else 0


def _columns(table: Table, lines: list[Line]) -> tuple[list[str], list[list[str]]]:
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


def _interval(line: Line) -> str:
    if line.gain is None:
        return ""
    mean, low, high = line.gain
    return f"{mean:+.2f}" + ("" if low is None else f" [{low:.2f}, {high:.2f}]")
