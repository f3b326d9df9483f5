"""What `auto` gains over cross entropy on every task, with the intervals of `softf1 compare`.

    python benchmarks/corpora_data.py ../shared work --only en
    python benchmarks/beyond.py run work --plan benchmarks/auto.toml --jobs 15 --seeds 5
        --out benchmarks/results/auto.csv --examples benchmarks/results/auto-examples.csv
    python benchmarks/gains.py

Cross entropy trains for the epochs of the grid, twice as many, and about as long as `auto` takes
(auto.toml); where that helps it, `auto` trains for twice the epochs too. A step of `auto` costs two
to five of cross entropy; the page says how much compute each got. The mean score on dev chooses
which run of each counts. The interval is over seeds and test examples, as in `softf1 compare`.
Where a run kept no examples, and for folds, each of which has other test examples, it is over seeds
alone. Writes results/gains.csv, results/gains-held-out.csv (data that took no part in making the
rules), docs/results.md (all tasks) and the README (the first six), beside the paper's gain. Prints
how the baseline stands to cross entropy with a tuned learning rate, and what fused layers change.
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
from corpora_table import points, printed_gain

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
        half = (gain.high - gain.low) / 2
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
                "half": f"{half:.4f}",
                "half_of_examples": f"{1.96 * gain.sd_examples:.4f}",
                "p": f"{gain.p:.5f}",
            }
        )
    return rows


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


def make_table(rows: list[dict[str, Any]], *, epochs: bool = False) -> str:
    """What `auto` gains on each task, beside the gain in the paper, and what it picks."""
    grids = read_all(read_plan(PLAN))
    lines = [["data", "CE", "`auto`", "gain", "paper", "what `auto` picks"] + ["epochs"] * epochs]
    lines.append(["---", "---:", "---:", "---:", "---:", "---"] + ["---"] * epochs)
    for row in rows:
        gain, half = float(row["gain"]), float(row["half"])
        shown = f"**{points(gain)}**" if gain > half else points(gain)
        scores = [f"{float(row[key]):.1f}" for key in ("ce", "auto")]
        printed = points(printed_gain(grids[row["grid"]], "dsc")) or "–"
        cells = [row["data"], *scores, f"{shown} ± {half:.1f}", printed, row["picks"]]
        lines.append(cells + [f"{TIMES[row['baseline']]}×, {TIMES[row['chosen']]}×"] * epochs)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def sum_up(rows: list[dict[str, Any]]) -> str:
    """How often `auto` is ahead, how sure that is, and its mean gain over the tasks."""
    gains = [float(row["gain"]) for row in rows]
    ahead, mean_gain, half = sum(gain > 0 for gain in gains), mean(gains), half_width(gains)
    sure = find_sure(rows)
    alone = [row["data"] for row in sure if not int(row["examples"])]
    worse = [row["data"] for row in find_sure(rows, sign=-1)]
    return (
        f"`auto` is ahead on {ahead} of {len(rows)} tasks, on {len(sure)} of them with p < 0.05 "
        f"after Holm's correction over all tasks ({len(alone)} of these by seeds alone: "
        f"{'; '.join(alone) or 'none'}); significantly behind on {', '.join(worse) or 'none'}. "
        f"Its mean gain over the tasks is {points(mean_gain)} ± {half:.1f}.\n"
    )


def say_compute(rows: list[dict[str, Any]]) -> str:
    """How long the longest cross entropy trains beside `auto`, and what its last epochs gave."""
    seconds, test = read_seconds(), read_scores(RUNS, "test")
    shares, last, doubts = {}, {}, []
    for row in rows:
        grid = row["grid"]
        shorter, longest = [name for name in BASELINES if test[grid][name]][-2:]
        shares[row["data"]] = seconds[grid, longest] / seconds[grid, row["chosen"]]
        last[row["data"]] = mean(test[grid][longest].values()) - mean(test[grid][shorter].values())
        if last[row["data"]] > float(row["gain"]) / 2:
            doubts.append(f"{row['data']} ({points(last[row['data']])})")
    fewer, all_ = [data for data, share in shares.items() if share < 1], shares.values()
    return (
        f"The longest cross entropy trains for {min(all_):.1f} to {max(all_):.1f} times the "
        f"seconds of `auto` (median {median(all_):.1f}), for fewer than `auto` on "
        f"{'; '.join(fewer) or 'no task'}. Its last step to more epochs changed "
        "the test score by "
        f"{points(min(last.values()))} to {points(max(last.values()))} points, by more than half "
        f"of the gain of `auto` on {'; '.join(doubts) or 'no task'}.\n"
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
    return f"{make_table(rows, epochs=True)}\n{sum_up(rows)}\n{say_compute(rows)}"


def compare_tuned(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Cross entropy with a tuned rate, in corpora-rows.csv, less the baseline here, by grid."""
    tuned = {row["grid"]: 100 * float(row["mean"]) for row in read_csv(ROWS) if row["loss"] == "ce"}
    return {
        row["grid"]: tuned[row["grid"]] - float(row["ce"]) for row in rows if row["grid"] in tuned
    }


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
    put(SUMMARY, HELD_MARKS, make_table(held, epochs=True))
    put(README, MARKS, make_table(rows[:README_ROWS]))
    print(make_summary(rows), make_table(held, epochs=True), sep="\n")
    print("a tuned rate, less the baseline:", *compare_tuned(rows).items())
    fused = compare_fused()
    print(f"fused layers: {mean(fused):+.2f} ± {half_width(fused):.2f} on {len(fused)} tasks")


if __name__ == "__main__":
    main()
