"""Compares losses on real data (named entities in spoken Cantonese) and writes a report."""

from __future__ import annotations

import argparse
from pathlib import Path

from softf1.cli.options import MOST, add_number, add_shared, add_switch, check_least


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the verb."""
    add_number(parser, "--seeds", "seeds per loss (default: 3)", default=3)
    add_number(parser, "--jobs", "parallel runs (default: one per core)", default=0)
    parser.add_argument(
        "--out", type=Path, default=Path("runs/demo"), help="output folder (default: runs/demo)"
    )
    add_switch(parser, "--force", "delete the folder's results and start over")
    add_shared(parser, "--quiet")


def run(options: argparse.Namespace) -> int:
    """Trains, prints the table with its verdict, and says where the page is."""
    from contextlib import closing

    from softf1.cli.show import show_and_exit
    from softf1.experiments.demo import NOTICE, introduce, run_demo
    from softf1.experiments.grid import refuse_others
    from softf1.experiments.workers import Pool, count_cores
    from softf1.reports import write_report

    check_least(options, most=MOST, seeds=1, jobs=0)
    refuse_others(options.out)
    print(introduce(options.seeds), flush=True)
    with closing(Pool(options.jobs or count_cores(), logs=options.out / "logs")) as pool:
        how = {"seeds": options.seeds, "force": options.force, "quiet": options.quiet}
        comparison = run_demo(options.out, execute=pool, **how)
    code = show_and_exit(comparison, options.out)
    page = write_report([options.out], options.out / "report.html", notices=[NOTICE])
    print(f"The page, to open in a browser: {page}")
    return code
