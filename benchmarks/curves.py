"""Gains over cross entropy by training size and by share of positives.

    python benchmarks/curves.py     # results/curves.csv, and the plots' place in the documentation
    python docs/plots.py            # the plots

`[curves]` of leads.toml names grids and variants. Their runs are in results/leads.csv, beyond.csv
and auto.csv; each is compared with cross entropy of the same version of softf1. A curve needs gains
at two places at least; one that has fewer is left out.
"""

from __future__ import annotations

import csv
import math
from statistics import mean
from typing import TYPE_CHECKING, Any

from beyond import FILES, HERE, PAGE, find_gains, half_width, put, read_plan, read_rows

if TYPE_CHECKING:
    from pathlib import Path

CURVES = HERE / "results" / "curves.csv"
MARKS = "<!-- curves -->\n", "<!-- end of curves -->\n"
COLUMNS = ("curve", "axis", "x", "variant", "name", "seeds", "gain", "half")
LEAST = 2
"""Places of a curve."""


def list_points(*paths: Path, split: str = "test") -> list[dict[str, Any]]:
    """The mean gain of each variant at each place, with half of a 95% interval over seeds."""
    rows, points = read_rows(*paths), []
    for curve, about in read_plan(HERE / "leads.toml")["curves"].items():
        own = [
            {"curve": curve, "axis": about["axis"], "x": x, "variant": variant, "name": name} | gain
            for variant, name in about["variants"].items()
            for grid, x in about["grids"].items()
            if (gain := describe_gain(find_gains(rows[grid], variant, split)))
        ]
        points += own if len({point["x"] for point in own}) >= LEAST else []
    return points


def describe_gain(gains: list[float]) -> dict[str, Any]:
    """The mean with its half-width; empty where there is none."""
    if not gains:
        return {}
    half = half_width(gains)
    shown = "" if math.isnan(half) else f"{half:.4f}"
    return {"seeds": len(gains), "gain": f"{mean(gains):.4f}", "half": shown}


def describe_curves(points: list[dict[str, Any]]) -> str:
    """The plots of the curves that there are, with their captions, in Markdown."""
    captions = {
        curve: about["caption"] for curve, about in read_plan(HERE / "leads.toml")["curves"].items()
    }
    drawn = dict.fromkeys(point["curve"] for point in points)
    return "\n\n".join(f"![{captions[curve]}](../images/{curve}.svg)" for curve in drawn)


def main() -> None:
    """Write the points and the place of the plots."""
    points = list_points(*FILES)
    with CURVES.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(points)
    put(PAGE, MARKS, describe_curves(points))


if __name__ == "__main__":
    main()
