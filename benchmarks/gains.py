"""What `auto` gains over cross entropy on every task, with the intervals of `softf1 compare`.

    python benchmarks/corpora_data.py ../shared work --only en
    python benchmarks/beyond.py run work --plan benchmarks/auto.toml --jobs 15 --seeds 5
        --out benchmarks/results/auto.csv --examples benchmarks/results/auto-examples.csv
    python benchmarks/gains.py

Cross entropy trains for the epochs of the grid, twice as many, and about as long as `auto` takes
(auto.toml); where that helps it, `auto` trains for twice the epochs too. A step of `auto` costs two
to five of cross entropy; the page says how much compute each got. The mean score on dev chooses
which run of each counts; beside that stands the gain over the cross entropy that is best on test.
The interval is over seeds and test examples, as in `softf1 compare`. Where a run kept no examples,
and for folds, each of which has other test examples, it is over seeds alone, marked with a dagger.
Writes results/gains.csv, results/gains-held-out.csv (data that the rules were not made from),
docs/results.md (all tasks, and sentences about them) and the README (the first six), beside the
paper's gain. Prints how the baseline stands to cross entropy with a tuned learning rate, and what
fused layers change.
"""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import numpy as np
from beyond import (
    BASELINE,
    LONGER,
    half_width,
    put,
    read_all,
    read_examples,
    read_plan,
    read_scores,
)
from beyond import RESULTS as UNFUSED
from corpora import ROWS, read_csv
from corpora_table import points, printed_gain, unfold

from softf1.experiments.statistics import correct_holm, estimate_difference

if TYPE_CHECKING:
    from softf1.experiments.statistics import Difference

HERE = Path(__file__).parent
PLAN = HERE / "auto.toml"
RUNS, EXAMPLES = HERE / "results" / "auto.csv", HERE / "results" / "auto-examples.csv"
GAINS, HELD = HERE / "results" / "gains.csv", HERE / "results" / "gains-held-out.csv"
README, SUMMARY = HERE.parent / "README.md", HERE.parent / "docs" / "results.md"
MARKS = "<!-- gains -->\n", "<!-- end of gains -->\n"
HELD_MARKS = "<!-- held -->\n", "<!-- end of held -->\n"
README_ROWS, SEEDS = 6, 5
TWICE, FOUR_TIMES = ", twice the epochs", ", four times the epochs"
AUTO = "auto"
AUTOS = (AUTO, AUTO + TWICE)
TIMES = {BASELINE: 1} | {f"{BASELINE}, {how} the epochs": times for how, times in LONGER.items()}
BASELINES = tuple(TIMES)
TIMES |= {AUTO: 1, AUTO + TWICE: 2}
"""How many times the epochs of the grid a variant trains."""
SEEDS_ONLY = "†"
"""Marks an interval that does not cover the choice of test examples."""


def find_gains(names: str = "order") -> list[dict[str, Any]]:
    """What `auto` gains on test over cross entropy; dev chooses how long each trains."""
    plan = read_plan(PLAN)
    grids, dev, test = read_all(plan), read_scores(RUNS, "dev"), read_scores(RUNS, "test")
    examples, rows = read_examples(EXAMPLES), []
    for grid in plan[names]:
        own, base = choose(dev[grid], AUTOS), choose(dev[grid], BASELINES)
        if own is None or base is None:
            continue
        gain = compare(grid, test[grid], own, base, examples)
        best = max(list_there(test[grid]), key=lambda name: mean(test[grid][name].values()))
        on_dev = mean(dev[grid][own].values()) - mean(dev[grid][base].values())
        over_best = compare(grid, test[grid], own, best, examples)
        rows.append(
            {
                "grid": grid,
                "data": grids[grid]["short"],
                "picks": plan["picks"][grid],
                "seeds": gain.seeds,
                "examples": gain.examples,
                "baseline": base,
                "chosen": own,
                "ce": f"{mean(test[grid][base].values()):.4f}",
                "auto": f"{mean(test[grid][own].values()):.4f}",
                "gain": f"{gain.mean:.4f}",
                "half": f"{half_of(gain):.4f}",
                "half_of_examples": f"{1.96 * gain.sd_examples:.4f}",
                "p": f"{gain.p:.5f}",
                "gain_on_dev": f"{on_dev:.4f}",
                "best": best,
                "gain_over_best": f"{over_best.mean:.4f}",
                "half_over_best": f"{half_of(over_best):.4f}",
                "examples_of_best": over_best.examples,
            }
        )
    return rows


def list_there(scores: dict[str, dict[str, float]]) -> list[str]:
    """The variants of cross entropy that were run, by their number of epochs."""
    return [name for name in BASELINES if scores[name]]


def half_of(gain: Difference) -> float:
    """Half of the interval."""
    return (gain.high - gain.low) / 2


def choose(dev: dict[str, dict[str, float]], variants: tuple[str, ...]) -> str | None:
    """The variant with the best mean on dev; None while one of them lacks seeds."""
    there = [name for name in variants if dev[name]]
    if any(len(dev[name]) < SEEDS for name in there):
        return None
    return max(there, key=lambda name: mean(dev[name].values()), default=None)


def compare(
    grid: str,
    test: dict[str, dict[str, float]],
    own: str,
    base: str,
    examples: dict[tuple[str, ...], Any],
) -> Difference:
    """The difference in points, paired by seed, over seeds and test examples."""
    seeds = sorted(test[own].keys() & test[base].keys(), key=int)
    differences = [test[own][seed] - test[base][seed] for seed in seeds]
    pairs = [(examples.get((grid, own, s)), examples.get((grid, base, s))) for s in seeds]
    if grid in read_folds() or any(one is None for pair in pairs for one in pair):
        return estimate_difference(differences)
    return estimate_difference(differences, 100 * np.array([a - b for a, b in pairs]))


def read_folds() -> set[str]:
    """The grids whose seeds are folds, each with its own test examples."""
    return {name for name, grid in read_all(read_plan(PLAN)).items() if grid.get("kind") == "folds"}


def make_table(rows: list[dict[str, Any]], *, full: bool = False) -> str:
    """What `auto` gains on each task, beside the gain in the paper, and what it picks.

    In full, also how long each trains, and the gain over the cross entropy that is best on test.
    """
    grids = read_all(read_plan(PLAN))
    lines = [["data", "CE", "`auto`", "gain", "paper", "what `auto` picks"]]
    lines.append(["---", "---:", "---:", "---:", "---:", "---"])
    if full:
        lines[0] += ["epochs", "over CE at its best"]
        lines[1] += ["---", "---:"]
    for row in rows:
        scores = [f"{float(row[key]):.1f}" for key in ("ce", "auto")]
        printed = points(printed_gain(grids[row["grid"]], "dsc")) or "–"
        cells = [row["data"], *scores, show_gain(row), printed, row["picks"]]
        if full:
            cells.append(f"{TIMES[row['baseline']]}×, {TIMES[row['chosen']]}×")
            over = show_gain(row, "gain_over_best", "half_over_best", "examples_of_best")
            cells.append(f"{over} ({TIMES[row['best']]}×)")
        lines.append(cells)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def show_gain(
    row: dict[str, Any], gain: str = "gain", half: str = "half", examples: str = "examples"
) -> str:
    """A gain and half of its interval, bold where that is above 0, marked where over seeds only."""
    own, width = float(row[gain]), float(row[half])
    shown = f"**{points(own)}**" if own > width else points(own)
    return f"{shown} ± {width:.1f}{'' if int(row[examples]) else SEEDS_ONLY}"


def sum_up(rows: list[dict[str, Any]]) -> str:
    """How often `auto` is ahead, how sure that is, and its mean gain over the tasks."""
    gains = [float(row["gain"]) for row in rows]
    ahead, sure = sum(gain > 0 for gain in gains), find_sure(rows)
    alone = [row["data"] for row in sure if not int(row["examples"])]
    worse = [row["data"] for row in find_sure(rows, sign=-1)]
    return (
        f"`auto` is ahead on {ahead} of {len(rows)} tasks, on {len(sure)} of them with p < 0.05 "
        f"after Holm's correction over all tasks ({len(alone)} of these by seeds alone: "
        f"{'; '.join(alone) or 'none'}); significantly behind on {', '.join(worse) or 'none'}. "
        f"Its mean gain over the tasks is {show_mean(gains)}. {say_corpora(rows)}\n"
    )


def show_mean(gains: list[float]) -> str:
    """A mean over tasks and half of its interval."""
    return f"{points(mean(gains))} ± {half_width(gains):.1f}"


def say_corpora(rows: list[dict[str, Any]]) -> str:
    """The mean gain with one figure for each corpus: two tasks of one are not independent."""
    shared = {grid: name for name, grids in read_plan(PLAN)["corpora"].items() for grid in grids}
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(shared.get(row["grid"], row["grid"]), []).append(float(row["gain"]))
    means, least = ([take(own) for own in found.values()] for take in (mean, min))
    return (
        f"The tasks come from {len(found)} corpora: with the mean gain of each corpus it is "
        f"{show_mean(means)}, with the smallest of each {show_mean(least)}."
    )


def say_best(rows: list[dict[str, Any]]) -> str:
    """What is left over the cross entropy whose number of epochs is best on test."""
    gains = {row["data"]: float(row["gain_over_best"]) for row in rows}
    return (
        "Over cross entropy with the number of epochs that is best on test, `auto` gains "
        f"{show_mean(list(gains.values()))} on average and is ahead on "
        f"{sum(gain > 0 for gain in gains.values())} of {len(rows)} tasks, "
        f"behind on {list_behind(gains)}."
    )


def say_dev(rows: list[dict[str, Any]]) -> str:
    """Where dev alone would have chosen cross entropy."""
    behind = list_behind({row["data"]: float(row["gain_on_dev"]) for row in rows})
    there = " By dev scores one would choose cross entropy there." if "(" in behind else ""
    return f"On dev, `auto` is behind cross entropy on {behind}.{there}"


def list_behind(gains: dict[str, float]) -> str:
    """The tasks with a loss, and how large it is."""
    behind = [f"{data} ({points(gain)})" for data, gain in gains.items() if gain < 0]
    return "; ".join(behind) or "no task"


def say_edge(rows: list[dict[str, Any]]) -> str:
    """Where dev chose the longest cross entropy, so that a longer one might be better."""
    test = read_scores(RUNS, "test")
    edge = [row["data"] for row in rows if row["baseline"] == list_there(test[row["grid"]])[-1]]
    return f"Dev chose the longest cross entropy that we ran on {'; '.join(edge) or 'no task'}."


def say_compute(rows: list[dict[str, Any]]) -> str:
    """How long the longest cross entropy trains beside `auto`, and what its last epochs gave."""
    seconds, test = read_seconds(), read_scores(RUNS, "test")
    shares, steps, last, doubts = {}, [], {}, []
    for row in rows:
        grid, data = row["grid"], row["data"]
        shorter, longest = list_there(test[grid])[-2:]
        shares[data] = seconds[grid, longest] / seconds[grid, row["chosen"]]
        steps.append(seconds[grid, AUTO] / seconds[grid, BASELINE])
        last[data] = mean(test[grid][longest].values()) - mean(test[grid][shorter].values())
        if last[data] > float(row["gain"]) / 2:
            doubts.append(f"{data} ({points(last[data])})")
    fewer, all_ = [data for data, share in shares.items() if share < 1], shares.values()
    return (
        "The runs shared a GPU, so their seconds are rough: a step of `auto` took "
        f"{min(steps):.1f} to {max(steps):.1f} times as long as one of cross entropy, and the "
        f"longest cross entropy trained for {min(all_):.1f} to {max(all_):.1f} times the "
        f"seconds of `auto` (median {median(all_):.1f}), for fewer than `auto` on "
        f"{'; '.join(fewer) or 'no task'}. Its last step to more epochs changed the test score by "
        f"{points(min(last.values()))} to {points(max(last.values()))} points; where that was "
        "more than half of what `auto` gains, longer training might catch up: "
        f"{'; '.join(doubts) or 'no task'}."
    )


def read_seconds() -> dict[tuple[str, str], float]:
    """The mean seconds of training by grid and variant, beside other runs on the same GPU."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for row in read_csv(RUNS):
        seconds.setdefault((row["grid"], row["variant"]), []).append(float(row["train_seconds"]))
    return {key: mean(own) for key, own in seconds.items()}


def find_sure(rows: list[dict[str, Any]], sign: int = 1) -> list[dict[str, Any]]:
    """The tasks where `auto` is significantly ahead, or behind, after Holm's correction."""
    adjusted = correct_holm([float(row["p"]) for row in rows])
    pairs = zip(rows, adjusted, strict=True)
    return [row for row, p in pairs if p < 0.05 and sign * float(row["gain"]) > 0]


def make_summary(rows: list[dict[str, Any]]) -> str:
    """The table of all tasks, and what it shows in words."""
    weak = f"{say_best(rows)} {say_dev(rows)}"
    longer = f"{say_compute(rows)} {say_edge(rows)}"
    return f"{make_table(rows, full=True)}\n{sum_up(rows)}\n{weak}\n\n{longer}\n"


def make_held(rows: list[dict[str, Any]]) -> str:
    """The table of the data that the rules were not made from, and what it shows in words."""
    return f"{make_table(rows, full=True)}\n{say_dev(rows)} {say_edge(rows)}\n"


def compare_tuned(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Cross entropy with a tuned rate, in corpora-rows.csv, less the baseline here, by grid."""
    tuned: dict[str, list[float]] = {}
    for row in read_csv(ROWS):
        if row["loss"] == "ce":
            tuned.setdefault(unfold(row["grid"]), []).append(100 * float(row["mean"]))
    there = [row for row in rows if row["grid"] in tuned]
    return {row["grid"]: mean(tuned[row["grid"]]) - float(row["ce"]) for row in there}


def compare_fused() -> list[float]:
    """Cross entropy with fused layers (auto.csv) less without (beyond.csv), by grid."""
    fused, plain = read_scores(RUNS, "test"), read_scores(UNFUSED, "test")
    again = {row["grid"] for row in read_csv(RUNS) if row["softf1"] != "0.1.0"}
    return [
        mean(fused[grid][BASELINE].values()) - mean(plain[grid][BASELINE].values())
        for grid in sorted(again)
        if len(plain[grid][BASELINE]) >= SEEDS
    ]


def main() -> None:
    """Write the file and the tables of the pages."""
    rows, held = find_gains(), find_gains("held_out")
    for path, own in ((GAINS, rows), (HELD, held)):
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(own)
    put(SUMMARY, MARKS, make_summary(rows))
    put(SUMMARY, HELD_MARKS, make_held(held))
    put(README, MARKS, make_table(rows[:README_ROWS]))
    print(make_summary(rows), make_held(held), sep="\n")
    print("a tuned rate, less the baseline:", *compare_tuned(rows).items())
    fused = compare_fused()
    print(f"fused layers: {mean(fused):+.2f} ± {half_width(fused):.2f} on {len(fused)} tasks")


if __name__ == "__main__":
    main()
