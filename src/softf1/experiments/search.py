"""The search space of each variant, and successive halving to search it with few full runs.

Every variant gets the same number of trials, over learning rate, main option of the loss, and
epochs. Halving gives many settings a short run and the better ones a longer run; settings whose dev
scores differ by less than a standard error count as equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from softf1.errors import InputError
from softf1.experiments.grid import Grid, RunSpec, name_run
from softf1.experiments.per_example import count_run
from softf1.losses import compared_losses, loss_facts
from softf1.options import nearest
from softf1.recipe import Recipe, check_recipe, with_values
from softf1.recipe.auto import AUTO
from softf1.recipe.checking import check_loss_name
from softf1.recipe.loading import parse_override, split_values
from softf1.recipe.sections import SECTIONS
from softf1.tasks.registry import find_task, load_task, make_task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from softf1.experiments.meter import Meter
    from softf1.losses.registry import LossFacts

Level = Literal["none", "small", "full"]
Values = dict[str, Any]

TUNED = "+tuned"
"""Suffix of a variant that uses the runs of a loss, with thresholds tuned on dev."""

TUNING_SEED = 9_999_999
"""The seed of the trials: one that a comparison is unlikely to use."""

BASELINE = "ce"
MATCHED = "ce, matched compute"
"""The control: cross entropy, trained for as long as the slowest variant."""

RATES = {"small": (1.0, 2.5), "full": (1.0, 0.4, 2.5)}
"""Factors of the recipe's learning rate."""

MORE_RATES = {
    "small": (1.0, 2.5, 0.4, 5.0),
    "full": (1.0, 0.6, 1.6, 0.4, 2.5, 0.25, 4.0, 0.16, 6.3),
}
"""Factors for a loss without an option to tune, so that it gets as many settings as the others."""

SHARES = {"none": (), "small": (1 / 3,), "full": (1 / 3, 1.0)}
"""The length of each round of halving, as a fraction of a full run.

Four settings are too few to halve: a round at a ninth would save a quarter of the time, and most
losses have not learned anything by then."""

KEEP = {"none": 1, "small": 2, "full": 3}
"""One in this many settings reaches the next round."""

EPOCHS = {"none": (), "small": (1.0, 2.0), "full": (1.0, 2.0)}
"""Factors of the recipe's epochs, tried last and on full runs: a short run cannot tell whether
more epochs help."""

SHARED = {"loss.name", "train.seed", "train.patience", "eval"}
"""Keys, and a section, that a variant cannot change; see `is_shared` for `[task]`."""

DIRECTION = "train.adversarial_direction"
RANDOM = ", random step"
"""Suffix of a control: the variant with noise instead of its adversarial step."""


def split_variant(variant: str) -> tuple[str, Values]:
    """Parses a variant into its loss and the recipe values it fixes.

    A key without a section is an option of the loss.

    >>> split_variant("dsc[alpha=0.01,decay=paper]")
    ('dsc', {'loss.alpha': 0.01, 'loss.decay': 'paper'})
    >>> split_variant("ce+dice[dice.over=batch, train.epochs=6]")
    ('ce+dice', {'loss.dice.over': 'batch', 'train.epochs': 6})
    >>> split_variant("auto, random step")
    ('auto', {'train.adversarial_direction': 'random'})
    """
    if variant.endswith(RANDOM):
        loss, values = split_variant(variant.removesuffix(RANDOM))
        return loss, {**values, DIRECTION: "random"}
    loss, bracket, rest = variant.removesuffix(TUNED).partition("[")
    if not bracket:
        return loss, {}
    if not rest.endswith("]"):
        raise InputError(f"wanted a loss, or LOSS[key=value,…], got {variant!r}")
    values = {}
    for word in split_values(rest[:-1]):
        key, value = parse_override(word)
        section, dot, _ = key.partition(".")
        if (
            dot
            and section not in (*SECTIONS, *loss.split("+"))
            and (near := nearest(section, SECTIONS))
        ):
            raise InputError(
                f"wanted a section of the recipe, got {section!r} in {variant!r}{near}"
            )
        values[key if dot and section in SECTIONS else f"loss.{key}"] = value
    return loss, values


def is_shared(key: str, recipe: Recipe) -> bool:
    """Whether all variants must have the same value, to be scored alike on the same examples.

    Of `[task]`, only `drop_leaks`, the options of the model and the training file may differ; the
    last only if neither dev nor a fold is taken from it.
    """
    section, _, rest = key.partition(".")
    if section != "task":
        return key in SHARED or section in SHARED
    if rest == "train":
        return recipe.task.dev is None or recipe.task.folds is not None
    free = ("drop_leaks", *getattr(find_task(recipe.task.kind), "model_options", ()))
    return rest.partition(".")[0] not in free


def check_shared(variant: str, recipe: Recipe) -> None:
    """Raises if a variant sets a key that all variants share."""
    for key in split_variant(variant)[1]:
        if is_shared(key, recipe):
            message = f"wanted a key in which rows may differ, got {key} in {variant!r}"
            raise InputError(f"{message}: all rows are scored alike, on the same examples")


def add_noise(variants: Sequence[str], recipe: Recipe) -> tuple[str, ...]:
    """Adds a control for every size of an adversarial step: random noise of the same size.

    The first variant with a step of that size is trained again with a random direction: a gain that
    both share is not due to the gradient.
    """
    known, controls = set(), []
    for variant in dict.fromkeys(variant.removesuffix(TUNED) for variant in variants):
        size = _step_size(variant, recipe)
        if size and size not in known:
            known.add(size)
            controls.append(f"{variant}{RANDOM}")
    asked = [split_variant(variant) for variant in variants]
    return (*variants, *(control for control in controls if split_variant(control) not in asked))


def _step_size(variant: str, recipe: Recipe) -> tuple[Any, ...]:
    """The size of a variant's adversarial step, set or left to `auto`; empty if it has none."""
    loss, fixed = split_variant(variant)
    train = with_values(recipe, _without_loss(fixed)).train
    sizes = (train.adversarial, train.adversarial_relative)
    if train.adversarial_direction == "random":
        return ()
    if sizes == (None, None):
        return (AUTO,) if loss == AUTO else ()
    return sizes if any(sizes) else ()


def check_losses(losses: Sequence[str], recipe: Recipe, tune: Level = "small") -> tuple[str, ...]:
    """Returns the variants without duplicates, cross entropy first; raises for invalid ones."""
    wanted = tuple(dict.fromkeys((BASELINE, *losses)))
    names: dict[str, str] = {}
    for variant in wanted:
        loss, fixed = split_variant(variant)
        check_shared(variant, recipe)
        if (other := names.setdefault(name_run(variant, ""), variant)) != variant:
            raise InputError(f"wanted rows whose folders differ in name, got {other} and {variant}")
        own = with_values(recipe, _without_loss(fixed))
        if chooses_position(own) and find_loss(loss).needs_classes:
            raise InputError(f"{loss} needs classes, but a softmax over positions has none")
        for values in list_settings(variant, recipe, tune):
            check_recipe(with_values(recipe, values))
    return wanted


def build_variants(losses: Sequence[str], recipe: Recipe) -> list[Recipe]:
    """Returns the recipe of each variant, as it is without tuning."""
    return [with_values(recipe, list_settings(loss, recipe, "none")[0]) for loss in losses]


def default_losses(recipe: Recipe) -> tuple[str, ...]:
    """The default variants: strong baselines, `auto` if the recipe has it, and the paper's losses.

    An F1 loss is worth using if it beats cross entropy with tuned thresholds, weighted cross
    entropy and logit adjustment.
    """
    own = [AUTO] if recipe.loss.name == AUTO else []
    losses = (BASELINE, BASELINE + TUNED, *own, *compared_losses())
    positions = chooses_position(recipe)
    kept = [
        x for x in losses if not positions or not find_loss(x.removesuffix(TUNED)).needs_classes
    ]
    return tuple(dict.fromkeys(kept))


def find_loss(name: str) -> LossFacts:
    """Returns the facts that a loss declares; raises for an unknown loss.

    `auto` counts as ce: it chooses its loss and options from the data, so only its learning rate is
    tuned.
    """
    check_loss_name(name)
    return loss_facts(BASELINE if name == AUTO else name)


def chooses_position(recipe: Recipe) -> bool:
    """Whether the task's output is a softmax over the positions of a text."""
    task = make_task(recipe.task.kind, **recipe.task.options)
    return bool(getattr(task, "chooses_position", False))


def list_settings(variant: str, recipe: Recipe, level: Level) -> list[Values]:
    """Lists the settings to try: equally many for each variant, the default first.

    Values that the variant fixes are not tuned; with a fixed rate only the loss's option is.
    """
    loss, fixed = split_variant(variant)
    check_shared(variant, recipe)
    recipe = with_values(recipe, _without_loss(fixed))
    known = _unique([_with_loss(loss, own) | fixed for own in _options(loss, recipe)])
    if level == "none":
        return known[:1]
    count = len(RATES[level])
    options = known[:count]
    rates = RATES[level] if len(options) == count else MORE_RATES[level]
    rates = (1.0,) if "train.lr" in fixed else rates
    settings = [_rate(recipe, rate) | own for rate in rates for own in options]
    return settings[: count * count]


def _without_loss(values: Values) -> Values:
    return {key: value for key, value in values.items() if not key.startswith("loss.")}


def _options(loss: str, recipe: Recipe) -> list[Values]:
    if loss == AUTO:
        return [{}]
    facts = find_loss(loss)
    tunes = facts.tunes_positions if chooses_position(recipe) else facts.tunes
    options = [dict(own) for own in tunes]
    if recipe.loss.name != loss or not recipe.loss.options:
        return options
    # The recipe's own options come first, then the other values.
    others = [own for own in options if not own.items() <= recipe.loss.options.items()]
    return [{}, *others] if len(options) > 1 else options


def _unique(options: list[Values]) -> list[Values]:
    return [own for number, own in enumerate(options) if own not in options[:number]]


def _with_loss(loss: str, options: Values) -> Values:
    return {"loss.name": loss} | {f"loss.{key}": value for key, value in options.items()}


def _rate(recipe: Recipe, factor: float) -> Values:
    if factor == 1.0:
        return {}
    rates = {"train.lr": recipe.train.lr, "train.head_lr": recipe.train.head_lr}
    return {key: float(f"{rate * factor:.3g}") for key, rate in rates.items() if rate is not None}


def same_start(variant: str, recipe: Recipe) -> Values:
    """Values that let every loss start from the same probabilities and train the same steps.

    No run stops early. A loss that adds the class prior to the logits itself starts with a zero
    bias; otherwise the prior would count twice.
    """
    values: Values = {"train.patience": 0}
    if find_loss(split_variant(variant)[0]).adds_prior and recipe.train.head_bias == "prior":
        values["train.head_bias"] = "zero"
    return values


def stretch(recipe: Recipe, share: float) -> Values:
    """Values for a run over a share of the steps, with a learning rate scaled to its length.

    The best learning rate falls with the square root of the number of steps, as theory predicts for
    stochastic gradients. Unscaled, short runs would favour rates that are too high for a full run,
    most of all for losses that learn slowly (benchmarks/short_runs.py). A run that is longer than
    the recipe's keeps its rate: it tests more epochs of the same training.
    """
    if share == 1.0:
        return {}
    values: Values = {"train.epochs": recipe.train.epochs * share}
    if share < 1:
        values |= _rate(recipe, share**-0.5)
        values["train.eval_every"] = min(recipe.train.eval_every, values["train.epochs"])
    if recipe.train.max_steps:
        values["train.max_steps"] = max(1, round(recipe.train.max_steps * share))
    return values


Setting = TypeVar("Setting")
Key = TypeVar("Key", bound="Hashable")


def halve(
    settings: Mapping[Key, Sequence[Setting]],
    shares: Sequence[float],
    measure: Callable[[list[tuple[Key, Setting, float]]], Sequence[float | None]],
    *,
    keep: int = 2,
) -> dict[Key, Setting]:
    """Finds the best setting of each search by successive halving; all searches share the rounds.

    The earlier one wins a tie, so put the default setting first.

    Args:
        settings: The settings of each search, one or more.
        shares: The length of each round, as a fraction of a full run.
        measure: Returns the scores of trials `(key, setting, share)`, None for a failed trial; may
            run them in parallel.
        keep: One in this many settings reaches the next round; the last round keeps the best one.
    """
    left = {key: list(own) for key, own in settings.items()}
    for number, share in enumerate(shares, 1):
        searches = {key: own for key, own in left.items() if len(own) > 1}
        if not searches:
            break
        scores = iter(measure([(key, one, share) for key, own in searches.items() for one in own]))
        for key, own in searches.items():
            count = 1 if number == len(shares) else math.ceil(len(own) / keep)
            ranks = [rank_score(next(scores)) for _ in own]
            best = sorted(range(len(own)), key=lambda i: -ranks[i])[:count]
            left[key] = [own[i] for i in sorted(best)]  # in their order, which breaks ties
    return {key: own[0] for key, own in left.items()}


def rank_score(score: float | None) -> float:
    """The score to sort by: a failed run comes last."""
    return -math.inf if score is None or math.isnan(score) else score


def list_trials(settings: int, shares: Sequence[float], *, keep: int = 2) -> list[float]:
    """Lists the length of each trial of a search, as a fraction of a full run.

    >>> list_trials(4, [0.1, 0.3])
    [0.1, 0.1, 0.1, 0.1, 0.3, 0.3]
    """
    trials: list[float] = []
    for share in shares:
        trials += [share] * (settings if settings > 1 else 0)
        settings = math.ceil(settings / keep)
    return trials


def list_costs(settings: Mapping[str, Sequence[Values]], level: Level) -> list[float]:
    """Lists the length of every run of `choose_settings`, as a fraction of a full run."""
    costs: list[float] = []
    for variant, own in settings.items():
        costs += list_trials(len(own), SHARES[level], keep=KEEP[level])
        costs += list_epochs(variant, level)
    return costs


def list_epochs(variant: str, level: Level) -> tuple[float, ...]:
    """The epoch factors to try; none for a variant that fixes its epochs."""
    fixed = split_variant(variant)[1].keys() & {"train.epochs", "train.max_steps"}
    return () if fixed else EPOCHS[level]


class Trial(NamedTuple):
    """The dev score of a short run.

    Attributes:
        score: The primary metric; None if the run failed.
        pseudo: Its jackknife pseudo-values by example; None where it has none.
    """

    score: float | None
    pseudo: NDArray[np.float64] | None = None


def read_trial(folder: Path, result: dict[str, Any] | None) -> Trial:
    """Reads the dev score of a run, with its pseudo-values by example."""
    if result is None:
        return Trial(None)
    metric = result["headline"]
    score = float(result["scores"]["dev"][metric])
    try:
        task = load_task(folder / "model")
        path = folder / "predictions.dev.jsonl"
        counted = count_run(task, path, metric=metric, score=score)
        return Trial(score, counted.pseudo_values(metric))
    except InputError:  # no pseudo-values for this score, or files are gone
        return Trial(score)


def raise_equals(trials: Sequence[Trial]) -> list[float | None]:
    """Raises scores within one standard error of the best to the best, so that they tie with it.

    The earlier one wins a tie, so another setting replaces the default only if it is better by more
    than the standard error on dev. The best of four on a few hundred examples is often luck, and a
    learning rate that leads by luck after a third of the steps costs points in the end.

    >>> raise_equals([Trial(0.80), Trial(0.81), Trial(None)])
    [0.8, 0.81, None]
    """
    best = max(trials, key=lambda trial: rank_score(trial.score))
    return [best.score if _is_equal(trial, best) else trial.score for trial in trials]


def _is_equal(trial: Trial, best: Trial) -> bool:
    if trial.score is None or best.score is None or trial.pseudo is None or best.pseudo is None:
        return False
    if trial.pseudo.shape != best.pseudo.shape or len(best.pseudo) < 2:
        return False
    error = np.std(best.pseudo - trial.pseudo, ddof=1) / math.sqrt(len(best.pseudo))
    return bool(best.score - trial.score <= error)


def choose_settings(
    grid: Grid, settings: Mapping[str, Sequence[Values]], level: Level, meter: Meter
) -> dict[str, Values]:
    """Chooses the setting of every variant on dev; the trials of all variants run together.

    Short runs choose learning rate and option; two full runs of that setting choose the epochs.
    """

    def measure(trials: list[tuple[str, int, float]]) -> list[Trial]:
        runs = [make_trial(loss, n, settings[loss][n], share, grid) for loss, n, share in trials]
        results = grid.run(runs, meter)
        measured = [read_trial(grid.folder / run.folder, results.get(run.id)) for run in runs]
        known = {trial["folder"] for trial in grid.content["tuning"]}
        grid.content["tuning"] += [
            _describe_trial(run, trial, results.get(run.id), grid)
            for run, trial in zip(runs, measured, strict=True)
            if run.folder not in known
        ]
        return measured

    def decide(trials: list[tuple[str, int, float]]) -> list[float | None]:
        own = groupby(zip(trials, measure(trials), strict=True), key=lambda one: one[0][0])
        return [score for _, some in own for score in raise_equals([trial for _, trial in some])]

    def score(trials: list[tuple[str, int, float]]) -> list[float | None]:
        if trials[0][-1] == SHARES[level][-1]:  # only the last round treats near-ties as equal
            return decide(trials)
        return [trial.score for trial in measure(trials)]

    numbers = {variant: range(len(own)) for variant, own in settings.items()}
    best = halve(numbers, SHARES[level], score, keep=KEEP[level])
    factors = {variant: own for variant in best if (own := list_epochs(variant, level))}
    longer = halve(factors, [1.0], lambda own: decide([(v, best[v], by) for v, by, _ in own]))
    chosen = {variant: settings[variant][number] for variant, number in best.items()}
    return {
        variant: own | stretch(with_values(grid.recipe, own), longer.get(variant, 1.0))
        for variant, own in chosen.items()
    }


def tune_decisions(variant: str, grid: Grid) -> Values:
    """Returns the values of `[eval]` that decide whether thresholds are tuned after training.

    The trials of a variant keep the `eval.target` of its runs, because `auto` chooses by it.
    """
    tuned = grid.recipe.eval.tune or variant + TUNED in grid.content["losses"]
    cleared = {"eval.target": None} if grid.recipe.eval.target and not tuned else {}
    return {"eval.tune": tuned, **cleared}


def make_trial(variant: str, number: int, values: Values, share: float, grid: Grid) -> RunSpec:
    """Makes a run of one setting over a share of the steps."""
    name = name_run(variant, f"{number}-{round(100 * share)}")
    short = stretch(with_values(grid.recipe, values), share)
    return RunSpec(
        id=name,
        label=variant,
        loss=values["loss.name"],
        seed=TUNING_SEED,
        values={
            **same_start(variant, grid.recipe),
            **values,
            **short,
            **tune_decisions(variant, grid),
            "task.test": None,
            "train.seed": TUNING_SEED,
            "eval.tune": False,
        },
        trial=True,
        cost=share,
    )


def _describe_trial(
    run: RunSpec, trial: Trial, result: dict[str, Any] | None, grid: Grid
) -> dict[str, Any]:
    shown: dict[str, Any] = {"loss": run.label, "values": run.values, "score": trial.score}
    shown |= {"steps": result and result["steps"], "share": run.cost, "folder": run.folder}
    shown["counted"] = trial.pseudo is not None
    error = grid.errors.get(run.id)
    return shown | ({"error": error} if error else {})
