"""Ranking losses on real pairs: average precision and F1 of the same runs.

    python benchmarks/corpora_data.py ../shared work --only en
    python benchmarks/leads_data.py work
    python benchmarks/rankings.py run work --jobs 15 --seeds 3
    python benchmarks/rankings.py table

`run` trains the variants of the grids `…-ranked` of leads.toml: average precision on dev chooses
the checkpoint, and a threshold for F1 is tuned on dev, for every loss alike, since the ranking
losses do not say where it is. It writes a line as each run ends into results/rankings.csv; what the
file has is not run again. `table` puts the means into docs/losses/rankings.md.
"""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from beyond import BASELINE, list_runs, make_parser, pair, put, read_all, read_plan, show_gain
from corpora import HERE, read_csv

from softf1.experiments.grid import Job
from softf1.experiments.workers import Pool
from softf1.recipe import describe_recipe

if TYPE_CHECKING:
    import argparse

PLAN = HERE / "leads.toml"
RESULTS = HERE / "results" / "rankings.csv"
PAGE = HERE.parent / "docs" / "losses" / "rankings.md"
MARKS = "<!-- rankings -->\n", "<!-- end of rankings -->\n"
SUFFIX = "-ranked"
COLUMNS = (
    "grid", "variant", "seed", "dev_average_precision", "average_precision", "f1", "tuned_f1",
    "best_epoch", "steps", "train_seconds", "device", "torch", "transformers", "softf1",
)  # fmt: skip
SHOWN = {"average_precision": "average precision", "tuned_f1": "F1, threshold from dev"}
NAMES = {"ce": "CE", "wce": "weighted CE", "pauc": "`pauc`", "smooth_ap": "`smooth_ap`"}


def list_grids() -> list[str]:
    """The grids that rank."""
    return [name for name in read_plan(PLAN)["order"] if name.endswith(SUFFIX)]


def run(options: argparse.Namespace) -> None:
    """Run what the file does not have yet."""
    options.plan, options.only, options.variants = PLAN, list_grids(), []
    done = {(row["grid"], row["variant"], row["seed"]) for row in read_csv(options.out)}
    runs = {str(n): one for n, one in enumerate(list_runs(options)) if one.key not in done}
    folder = Path(options.runs)
    jobs = [
        Job(id=n, recipe=describe_recipe(one.recipe), folder=str(folder / n))
        for n, one in sorted(runs.items(), key=lambda pair: "adv" not in pair[1].key[1])
    ]  # the slow ones first
    print(f"{len(jobs)} runs", flush=True)
    new = not options.out.is_file()
    with closing(Pool(options.jobs, logs=folder / "logs")) as pool, options.out.open("a") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        for found in pool(jobs):
            key = runs[found.id].key
            if found.result is None:
                print(f"{', '.join(key)}: {found.error}", flush=True)
            else:
                writer.writerow(describe(key, found.result))
                file.flush()
            shutil.rmtree(folder / found.id, ignore_errors=True)


def describe(key: tuple[str, str, str], result: dict[str, Any]) -> dict[str, Any]:
    """The line of a run; all scores are of test unless the name says dev."""
    grid, variant, seed = key
    dev, test, tuned = result["scores"]["dev"], result["scores"]["test"], result["tuned"]["test"]
    scores = {
        "dev_average_precision": dev["average_precision"],
        "average_precision": test["average_precision"],
        "f1": test["f1"],
        "tuned_f1": tuned["f1"],
    }
    return {
        "grid": grid, "variant": variant, "seed": seed,
        **{name: round(value, 6) for name, value in scores.items()},
        "best_epoch": result["best"]["epoch"], "steps": result["steps"],
        "train_seconds": result["seconds"]["train"], "device": result["device"],
        **{name: result["versions"][name] for name in COLUMNS[-3:]},
    }  # fmt: skip


def make_table(path: Path) -> str:
    """Both scores of cross entropy on each corpus, and what each variant gains by seed."""
    rows, titles = read_csv(path), read_all(read_plan(PLAN))
    if not rows:
        return "Not measured yet.\n"
    grids = [name for name in list_grids() if any(row["grid"] == name for row in rows)]
    heads = [f"{titles[grid]['short']}, {text}" for grid in grids for text in SHOWN.values()]
    lines = [f"| loss | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    for variant in sorted(dict.fromkeys(row["variant"] for row in rows), key=place):
        cells = []
        for grid in grids:
            for score in SHOWN:
                own, base = (
                    {
                        row["seed"]: 100 * float(row[score])
                        for row in rows
                        if (row["grid"], row["variant"]) == (grid, name)
                    }
                    for name in (variant, BASELINE)
                )
                if variant == BASELINE:
                    cells.append(f"{mean(base.values()):.1f}" if base else "")
                else:
                    gains = pair(own, base)
                    cells.append(show_gain(gains) if gains else "")
        lines.append(f"| {say(variant)} | {' | '.join(cells)} |")
    found, one = Counter((row["grid"], row["variant"]) for row in rows).values(), rows[0]
    seeds = str(max(found)) if min(found) == max(found) else f"{min(found)} to {max(found)}"
    machine = f"{one['device']}, torch {one['torch']}, transformers {one['transformers']}"
    lines += ["", f"{seeds} seeds, {machine}."]
    return "\n".join(lines) + "\n"


def place(variant: str) -> tuple[int, int]:
    """The place of a variant in the table: by loss, alone first."""
    loss, _, more = variant.partition(", ")
    return list(NAMES).index(loss), ("", "balanced", "adv .5").index(more)


def say(variant: str) -> str:
    """A variant in words.

    >>> say("pauc, adv .5")
    '`pauc`, ε .5'
    """
    loss, _, more = variant.partition(", ")
    return ", ".join(filter(None, (NAMES[loss], more.replace("adv", "ε"))))


def write_table(options: argparse.Namespace) -> None:
    """Put the table into its page."""
    put(PAGE, MARKS, make_table(options.out))


def main() -> None:
    """Run or write the table."""
    parser, _, _ = make_parser(
        __doc__, run=run, table=write_table, out=RESULTS, runs="ranking-runs", seeds=3
    )
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    main()
