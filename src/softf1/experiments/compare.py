"""`softf1 compare`: tunes every variant equally on dev, then trains all with the same seeds.

Would cross entropy reach the same score with the same compute? If a variant takes clearly more
compute than cross entropy, a control trains cross entropy for as long as the slowest variant, by
multiplying its epochs. The better of the two on dev is the baseline. (The other control, noise
instead of an adversarial step, is a variant like any other: `search.add_noise`.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from softf1.experiments.comparison import find_differences, write_comparison
from softf1.experiments.grid import Execute, Grid, RunSpec, lock_grid, make_run
from softf1.experiments.meter import Meter
from softf1.experiments.references import add_reference
from softf1.experiments.search import (
    BASELINE,
    MATCHED,
    TUNED,
    Level,
    Values,
    add_noise,
    choose_settings,
    list_costs,
    list_settings,
    same_start,
    stretch,
    tune_decisions,
)
from softf1.experiments.statistics import plan_seeds
from softf1.recipe import Recipe, build_recipe, with_values

CHOICE = "first within a standard error of the best on dev"
"""How settings are chosen; a text in `grid.json`."""


def compare(
    recipe: Recipe,
    folder: Path,
    *,
    losses: Sequence[str],
    seeds: Sequence[int],
    execute: Execute,
    tune: Level = "small",
    most_seeds: int | None = None,
    width: float | None = None,
    controls: bool = True,
    references: Sequence[str] = (),
    gain: float = 0.005,
    keep_models: bool = True,
    force: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Runs the missing runs of the grid and writes `comparison.json`.

    Args:
        recipe: The recipe to train; every variant replaces its loss.
        folder: The grid folder.
        losses: What to compare with cross entropy: names, or `dsc[decay=paper]` and
            `ce[train.adversarial=0.5]` with options of the loss and keys of the recipe that are
            fixed for this variant; `ce+tuned` is the runs of `ce` with thresholds tuned on dev.
        seeds: The seeds of every variant.
        execute: Executes the runs.
        tune: How much is tuned on dev: nothing, or 4 or 9 settings per variant, on at most a third
            of the steps; then the epochs, on whole runs.
        most_seeds: Add up to this many seeds to variants whose interval they would narrow.
        width: Stop adding seeds at this half-width of the interval, as a fraction.
        controls: Add the controls that the variants need: cross entropy trained as long as the
            slowest variant, and noise instead of an adversarial step.
        references: Variants that need no training, such as `majority`.
        gain: The smallest gain that matters, as a fraction.
        keep_models: Keep the model of each run.
        force: Delete what an earlier grid left in the folder, and start again.
        quiet: Show no progress.

    Returns:
        The content of `comparison.json`, and `failed`: errors by run.
    """
    asked, losses = losses, add_noise(losses, recipe) if controls else tuple(losses)
    trained = tuple(dict.fromkeys(loss.removesuffix(TUNED) for loss in losses))
    settings = {loss: list_settings(loss, recipe, tune) for loss in trained}
    grid = Grid(folder, recipe, execute, keep_models=keep_models)
    with lock_grid(folder, force=force):
        grid.open(kind="compare", axis=["loss"], baseline=BASELINE, losses=list(losses))
        grid.content |= {"seeds": list(seeds), "tune": tune, "choice": CHOICE}
        grid.content["notes"] = [_say_noise(row) for row in losses if row not in asked]
        grid.content["matched"] = grid.earlier.get("matched") if controls else None
        costs = [*list_costs(settings, tune), *[1.0] * len(seeds) * len(settings)]
        with Meter(sum(costs), len(costs), quiet=quiet) as meter:
            for note in grid.content["notes"]:
                meter.say(f"note: {note}")
            chosen = choose_settings(grid, settings, tune, meter)
            variants = Runs(grid, chosen, losses, meter)
            variants.run({variant: list(seeds) for variant in chosen})
            if controls:
                variants.add_matched(seeds)
            if most_seeds is not None:
                variants.add_seeds(most_seeds, width)
        for name in references:
            add_reference(name, grid)
        grid.write()
        return write_comparison(grid, gain=gain)


def _say_noise(row: str) -> str:
    return f"one more row as a control, {row}: noise of the same size; --no-controls leaves it out"


def _say_longer(matched: Mapping[str, Any], runs: int) -> str:
    more = f"{runs} more run{'s' if runs > 1 else ''} of ce as a control, with {matched['ratio']:g}"
    return (
        f"{more} times the epochs, as long as {matched['row']} takes; --no-controls leaves it out"
    )


class Runs:
    """The full-length runs of a comparison, by variant.

    Args:
        grid: The grid that executes them.
        chosen: The chosen setting of each trained variant.
        losses: All variants, including those with tuned thresholds.
        meter: Shows progress.
    """

    def __init__(
        self, grid: Grid, chosen: Mapping[str, Values], losses: Sequence[str], meter: Meter
    ) -> None:
        self.grid, self.chosen, self.losses, self.meter = grid, chosen, losses, meter
        self.seeds: dict[str, Sequence[int]] = {}

    def run(self, seeds: Mapping[str, Sequence[int]]) -> None:
        """Runs variants with these seeds; the meter already expects those of the first call."""
        runs = [run for variant, own in seeds.items() for run in self._runs(variant, own)]
        cost = sum(run.cost for run in runs)
        known = 0 if self.seeds else len(runs)
        self.meter.expect(cost - known, len(runs) - known)
        for variant, own in seeds.items():
            self.seeds[variant] = [*self.seeds.get(variant, []), *own]
        self.grid.content["seeds"] = sorted({s for own in self.seeds.values() for s in own})
        self.grid.run(runs, self.meter)

    def _runs(self, variant: str, seeds: Sequence[int]) -> list[RunSpec]:
        if variant == MATCHED:
            ratio = self.grid.content["matched"]["ratio"]
            return make_matched(self.chosen[BASELINE], ratio, self.grid, seeds)
        return make_runs(variant, self.chosen[variant], self.grid, seeds)

    def add_matched(self, seeds: Sequence[int]) -> None:
        """Trains cross entropy for as long as the slowest variant; dev chooses the baseline."""
        matched = self.grid.content["matched"] = match_compute(self.grid, self.chosen)
        if matched is None:
            return
        self.meter.say(f"note: {_say_longer(matched, len(seeds))}")
        place = self.losses.index(BASELINE) + 1
        self.grid.content["losses"] = [*self.losses[:place], MATCHED, *self.losses[place:]]
        self.run({MATCHED: list(seeds)})
        pair = {variant: self._runs(variant, seeds) for variant in (BASELINE, MATCHED)}
        self.grid.content["baseline"] = choose_baseline(self.grid, pair)
        self.grid.write()

    def add_seeds(self, most: int, width: float | None) -> None:
        """Adds seeds to the variants whose interval they narrow, and to their baseline.

        The number depends on the spread only, never on the size or sign of a difference, so that
        the intervals stay valid.
        """
        while True:
            self.grid.write()
            wanted: dict[str, int] = {}
            for variant, difference in find_differences(self.grid.folder).items():
                own = variant.removesuffix(TUNED)
                # At most double the seeds before looking at the spread again.
                planned = min(plan_seeds(difference, width=width), 2 * difference.seeds, most)
                wanted[own] = max(wanted.get(own, 0), planned)
            pair = [variant for variant in (BASELINE, MATCHED) if variant in self.seeds]
            wanted |= dict.fromkeys(pair, max(wanted.values(), default=0))
            more = {
                variant: self._next_seeds(variant, count)
                for variant, count in wanted.items()
                if variant in self.seeds and count > len(self.seeds[variant])
            }
            if not more:
                return
            self.run(more)

    def _next_seeds(self, variant: str, count: int) -> range:
        """The next seeds up to this many; the same ones for every variant."""
        last = self.seeds[variant][-1]
        return range(last + 1, last + 1 + count - len(self.seeds[variant]))


def make_runs(variant: str, values: Values, grid: Grid, seeds: Sequence[int]) -> list[RunSpec]:
    """Makes the full runs of a variant, one per seed."""
    recipe = grid.recipe
    own = {**same_start(variant, recipe), **values, **tune_decisions(variant, grid)}
    cost = with_values(recipe, values).train.epochs / recipe.train.epochs
    return [make_run(variant, own, seed, loss=own["loss.name"], cost=cost) for seed in seeds]


MANY = 1.5
"""Add the matched-compute control if a variant runs this many times as many examples through the
model as ce."""

SLOW = 2.0
"""Add it also if a variant takes this many times as long: its model or its loss may be slower. The
bound is higher, since seconds also depend on what else the machine is doing."""

ALIKE = 0.1
"""Keep the ratio that was measured before unless it changed by more than this, relatively."""


class Spent(NamedTuple):
    """The compute of a variant: passes of examples through the model, and training seconds."""

    passes: int
    seconds: float


def match_compute(grid: Grid, variants: Iterable[str]) -> dict[str, Any] | None:
    """Returns the control for `grid.json`: the slowest variant and its time relative to ce.

    None if no variant takes much more compute, or if the results of ce or the seconds are missing.
    Passes are counted, so a control for more passes does not depend on the load of the machine.
    Seconds on a CPU are CPU time: wall time there includes waiting for other programs. An earlier
    ratio is kept, because its runs exist already, unless it clearly changed.
    """
    spent = {variant: _find_spent(grid, variant) for variant in variants}
    known = {variant: one for variant, one in spent.items() if one}
    base = known.pop(BASELINE, None)
    if base is None or not known:
        return None
    slowest = max(known, key=lambda variant: known[variant].seconds)
    passes = max(one.passes for one in known.values()) / base.passes
    ratio = max(1.0, known[slowest].seconds / base.seconds)
    if passes < MANY and ratio < SLOW:
        return None
    earlier = grid.content["matched"]
    if earlier and abs(ratio / earlier["ratio"] - 1) <= ALIKE:
        return dict(earlier)
    return {"row": slowest, "ratio": float(f"{ratio:.2g}")}


def _find_spent(grid: Grid, variant: str) -> Spent | None:
    """Returns the compute of a variant's fastest run: slower ones may have shared the machine."""
    own = [run.id for run in grid.runs.values() if run.label == variant and not run.trial]
    spent = []
    for result in (grid.results[run] for run in own if run in grid.results):
        seconds = _read_seconds(result)
        if seconds:  # a clock that did not move says nothing
            passes = result["examples"] * build_recipe(result["recipe"]).train.passes
            spent.append(Spent(passes, seconds))
    return min(spent, key=lambda one: one.seconds, default=None)


def _read_seconds(result: Mapping[str, Any]) -> float | None:
    times = result.get("seconds", {})
    if "train_cpu" in times and str(result.get("device")).endswith("cpu"):
        return float(times["train_cpu"])
    return float(times["train"] - times.get("warmup", 0.0)) if "train" in times else None


def make_matched(values: Values, ratio: float, grid: Grid, seeds: Sequence[int]) -> list[RunSpec]:
    """Makes the runs of cross entropy with its epochs multiplied."""
    values = {**same_start(BASELINE, grid.recipe), **values, **tune_decisions(MATCHED, grid)}
    values |= stretch(with_values(grid.recipe, values), ratio)
    # The epochs are part of the name, so another ratio gives other runs without a conflict.
    how = {"loss": values["loss.name"], "tail": f"e{values['train.epochs']:g}-", "cost": ratio}
    return [make_run(MATCHED, values, seed, **how) for seed in seeds]


def choose_baseline(grid: Grid, runs: Mapping[str, Sequence[RunSpec]]) -> str:
    """Chooses cross entropy or its matched-compute control by their mean on dev.

    Args:
        grid: The grid with the results.
        runs: Runs of both, with the seeds that all variants share.
    """
    means = {}
    for variant, own in runs.items():
        results = [grid.results[run.id] for run in own if run.id in grid.results]
        scores = [one["scores"]["dev"][one["headline"]] for one in results]
        if scores:
            means[variant] = sum(scores) / len(scores)
    return max(means, key=lambda variant: (means[variant], variant == BASELINE), default=BASELINE)
