"""What each row is tuned over: learning rate, main option of its loss, epochs. As much for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from softf1.errors import InputError
from softf1.experiments.cells import name_cell
from softf1.recipe import check_recipe, with_values
from softf1.recipe.loading import parse_override, split_values
from softf1.recipe.sections import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from softf1.recipe import Recipe

Level = Literal["none", "small", "full"]
Values = dict[str, Any]

TUNED = "+tuned"
"""Ends the name of a row that takes the runs of a loss with thresholds or biases tuned on dev."""

DEFAULT = ("ce", "ce+tuned", "wce", "la", "focal", "wfocal", "dice", "tversky", "dsc", "ce+dice")
BASELINE = "ce"

WEIGHTED = ("wce", "wfocal", "la")
"""Losses that need classes with counts, which positions in a text have not."""

RATES = {"small": (1.0, 2.5), "full": (1.0, 0.4, 2.5)}
"""Factors of the recipe's learning rate."""

MORE_RATES = {
    "small": (1.0, 2.5, 0.4, 5.0),
    "full": (1.0, 0.6, 1.6, 0.4, 2.5, 0.25, 4.0, 0.16, 6.3),
}
"""The same for a loss that has no option to choose, so that it gets as many settings."""

SHARES = {"none": (), "small": (1 / 3,), "full": (1 / 3, 1.0)}
"""The share of a whole run that a setting gets in each round of halving.

Four settings are too few to halve: a round at a ninth saves a quarter of the time, and most losses
have not begun to find anything by then."""

KEEP = {"none": 1, "small": 2, "full": 3}
"""Of that many settings, one gets into the next round."""

EPOCHS = {"none": (), "small": (1.0, 2.0), "full": (1.0, 2.0)}
"""Factors of the recipe's epochs, tried last, on whole runs: a short one cannot tell whether more
epochs pay."""

SHARED = {"loss.name", "train.seed", "train.patience", "eval", "task.kind"}
SHARED |= {"task.dev", "task.dev_share", "task.test"}
"""Keys, and a section, that a row cannot change: all rows are judged on the same examples."""

ADVERSARIAL = ("train.adversarial", "train.adversarial_relative")
DIRECTION = "train.adversarial_direction"

OPTIONS: dict[str, list[Values]] = {
    "ce": [{}, {"label_smoothing": 0.1}, {"label_smoothing": 0.05}],
    "wce": [{"weights": "balanced"}, {"weights": "log"}, {"weights": "effective"}],
    "focal": [{"gamma": 2.0}, {"gamma": 1.0}, {"gamma": 0.5}],
    "wfocal": [{"gamma": 2.0}, {"gamma": 1.0}, {"gamma": 0.5}],
    "la": [{"tau": 1.0}, {"tau": 0.5}, {"tau": 1.5}],
    "dice": [{"over": "example"}, {"over": "batch"}, {"over": "example", "smooth": 0.1}],
    # The linear form falls into p = 0 everywhere on real data, whatever alpha is.
    "tversky": [
        {"over": "batch", "squared": True, "alpha": alpha, "beta": beta}
        for alpha, beta in ((0.5, 0.5), (0.3, 0.7), (0.7, 0.3))
    ],
    "dsc": [
        {"alpha": 0.01, "squared": True},
        {"alpha": 0.01, "squared": True, "over": "batch"},
        {"alpha": 1.0, "squared": True},
    ],
    "ce+dice": [{"dice.over": "example"}, {"dice.over": "batch"}, {"mix": [1.0, 0.5]}],
}
"""The main option of each loss, its usual value first."""

POSITIONS: dict[str, list[Values]] = {
    "dice": [{}, {"squared": False}, {"smooth": 0.1}],
    "tversky": [
        {"squared": True, "alpha": alpha, "beta": beta}
        for alpha, beta in ((0.5, 0.5), (0.3, 0.7), (0.7, 0.3))
    ],
    "dsc": [{"alpha": alpha, "squared": True} for alpha in (0.01, 1.0, 0.1)],
    "ce+dice": [{}, {"mix": [1.0, 0.5]}, {"mix": [0.5, 1.0]}],
}
"""The same where a softmax chooses one position of a text: there is nothing to sum over a batch."""


def split_row(row: str) -> tuple[str, Values]:
    """The loss of a row, and the values of the recipe that the row fixes.

    A key that names no section is an option of the loss.

    >>> split_row("dsc[alpha=0.01,decay=paper]")
    ('dsc', {'loss.alpha': 0.01, 'loss.decay': 'paper'})
    >>> split_row("ce+dice[dice.over=batch, train.epochs=6]")
    ('ce+dice', {'loss.dice.over': 'batch', 'train.epochs': 6})
    """
    loss, found, rest = row.removesuffix(TUNED).partition("[")
    if not found:
        return loss, {}
    if not rest.endswith("]"):
        raise InputError(f"wanted a loss, or LOSS[key=value,…], got {row!r}")
    values = {}
    for word in split_values(rest[:-1]):
        key, value = parse_override(word)
        section, dot, _ = key.partition(".")
        key = key if dot and section in SECTIONS else f"loss.{key}"
        if key in SHARED or section in SHARED:
            raise InputError(f"wanted a key in which rows may differ, got {key} in {row!r}")
        values[key] = value
    return loss, values


def add_noise(rows: Sequence[str]) -> tuple[str, ...]:
    """The rows, with a control for every size of an adversarial step: noise of that size.

    The first row that takes a step of that size is trained once more, with its step in a random
    direction: what both gain is not owed to the gradient.

    >>> add_noise(["ce", "ce[train.adversarial=0.5]"])[2:]
    ('ce[train.adversarial=0.5,train.adversarial_direction=random]',)
    """
    known, controls = set(), []
    for row in dict.fromkeys(row.removesuffix(TUNED) for row in rows):
        _, values = split_row(row)
        size = tuple((key, values[key]) for key in ADVERSARIAL if values.get(key))
        if size and DIRECTION not in values and size not in known:
            known.add(size)
            controls.append(f"{row[:-1]},{DIRECTION}=random]")
    return tuple(dict.fromkeys((*rows, *controls)))


def check_losses(losses: Sequence[str], recipe: Recipe, tune: Level = "small") -> tuple[str, ...]:
    """The rows without doubles, cross entropy first; those that cannot be are refused."""
    wanted = tuple(dict.fromkeys((BASELINE, *losses)))
    names: dict[str, str] = {}
    for row in wanted:
        loss, fixed = split_row(row)
        if (other := names.setdefault(name_cell(row, ""), row)) != row:
            raise InputError(f"wanted rows whose folders differ in name, got {other} and {row}")
        own = with_values(recipe, _without_loss(fixed))
        if chooses_position(own) and set(loss.split("+")) & set(WEIGHTED):
            raise InputError(f"wanted losses for positions in a text, which have no class: {loss}")
        for values in list_settings(row, recipe, tune):
            check_recipe(with_values(recipe, values))
    return wanted


def default_losses(recipe: Recipe) -> tuple[str, ...]:
    """What is compared where nothing is said: the baselines of an expert, and the paper's losses.

    Cross entropy with tuned thresholds, weighted cross entropy and logit adjustment are what an F1
    loss must beat to be worth having.
    """
    if chooses_position(recipe):
        return tuple(name for name in DEFAULT if name not in WEIGHTED)
    return DEFAULT


def chooses_position(recipe: Recipe) -> bool:
    """Whether the output is a softmax over the positions of a text."""
    positions = recipe.task.options.get("positions", "softmax")
    return recipe.task.kind == "qa" and positions == "softmax"


def list_settings(row: str, recipe: Recipe, level: Level) -> list[Values]:
    """The settings to choose from: as many for each row, the usual one first.

    What the row fixes is not tuned: of a row with its own learning rate, only the loss's option.
    """
    loss, fixed = split_row(row)
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
    known = OPTIONS | POSITIONS if chooses_position(recipe) else OPTIONS
    found = known.get(loss, [{}])
    if recipe.loss.name != loss or not recipe.loss.options:
        return found
    # What the recipe says of its own loss stands first, then the others that say something else.
    others = [own for own in found if not own.items() <= recipe.loss.options.items()]
    return [{}, *others] if len(found) > 1 else found


def _unique(options: list[Values]) -> list[Values]:
    return [own for number, own in enumerate(options) if own not in options[:number]]


def _with_loss(loss: str, options: Values) -> Values:
    return {"loss.name": loss} | {f"loss.{key}": value for key, value in options.items()}


def _rate(recipe: Recipe, factor: float) -> Values:
    if factor == 1.0:
        return {}
    rates = {"train.lr": recipe.train.lr, "train.head_lr": recipe.train.head_lr}
    return {key: float(f"{rate * factor:.3g}") for key, rate in rates.items() if rate is not None}


def same_start(row: str, recipe: Recipe) -> Values:
    """Values by which every loss starts from the same probabilities, for the same steps.

    Logit adjustment adds the class prior itself, so that a bias at the prior would count it twice.
    """
    values: Values = {"train.patience": 0}
    if split_row(row)[0] == "la" and recipe.train.head_bias == "prior":
        values["train.head_bias"] = "zero"
    return values


def stretch(recipe: Recipe, share: float) -> Values:
    """Values for a run over a share of the steps, in which rates compare as they would in a whole.

    The best learning rate falls with the square root of the number of steps, as in the theory of
    stochastic gradients. A short run at the rate of the whole one would favour rates that are too
    high for it, and losses that learn slowly most of all (benchmarks/short_runs.py). A run that is
    longer than the recipe's keeps its rate: it asks what more epochs of the same would give.
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
