"""Shows how much a run's score could gain, and where: decision, ranking, labels, boundaries."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from softf1.cli.options import PLACES, add_scored, add_shared, add_switch, read_scored
from softf1.cli.show import format_table, print_json
from softf1.errors import printable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 headroom`."""
    add_scored(parser)
    add_switch(parser, "--examples", "show examples for each part")
    add_shared(parser, "--json", *PLACES)


def run(options: argparse.Namespace) -> int:
    """Finds or computes the headroom and prints it."""
    from softf1.files import finite
    from softf1.training.headroom import find_headroom

    headroom = find_headroom(options.folder, **read_scored(options))
    if options.json:
        print_json(finite(headroom))
    else:
        print_headroom(headroom, examples=options.examples)
    return 0


def print_headroom(headroom: Mapping[str, Any], *, examples: bool) -> None:
    """Prints the table of parts, the summary, and what is missing."""
    where = headroom["split"] or "this file"
    count = headroom["examples"]
    many = f"{count:,} example{'' if count == 1 else 's'}"
    primary = headroom.get("primary_metric", headroom["metric"])
    other = "" if primary == headroom["metric"] else f"; the primary metric of the run is {primary}"
    print(printable(f"{headroom['metric']} on {where}, {many}{other}") + "\n")
    rows = [
        [printable(part["title"]), f"{100 * part['score']:.2f}", f"{100 * part['gain']:+.2f}"]
        for part in headroom["parts"]
    ]
    head, *lines = format_table(["", headroom["metric"], "gain"], rows).splitlines()
    print(head)
    for line, part in zip(lines, headroom["parts"], strict=True):
        known = {key: x for key, x in part["counts"].items() if x is not None}
        counts = ", ".join(f"{key.replace('_', ' ')} {x:,.6g}" for key, x in known.items())
        print(f"{line}  {printable(counts)}".rstrip())
    if headroom["average_precision"] is not None:
        print(f"\naverage precision {100 * headroom['average_precision']:.2f}")
    for part in headroom["parts"] if examples else ():
        if part["examples"]:
            print(f"\n{printable(part['title'])}")
        for one in part["examples"]:
            line = "{}: {} → {} | {}".format(*map(one.get, ("id", "found", "gold", "text")))
            print(f"  {printable(line)}")
    summary = printable(headroom["summary"])
    more = " All in hindsight, on the same examples." if len(headroom["parts"]) > 1 else ""
    print(f"\n{summary[:1].upper()}{summary[1:]}.{more}")
    for text in headroom["missing"]:
        print(f"missing: {printable(text)}")
