"""Writes one HTML page with verdict, plots, changed examples and settings of your runs."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 report`."""
    parser.add_argument(
        "folders",
        nargs="+",
        metavar="RUN|GRID",
        help="run folders, or the folder of one comparison or sweep",
    )
    parser.add_argument(
        "--out", metavar="FILE.html", help="output file (default: report.html in the first folder)"
    )


def run(options: argparse.Namespace) -> int:
    """Writes the page and prints where it is."""
    from softf1.reports import write_report

    out = options.out or Path(options.folders[0]) / "report.html"
    print(write_report(options.folders, out))
    return 0
