"""`softf1 sweep`: any keys of a recipe over lists of values, each combination with every seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from softf1.errors import InputError
from softf1.experiments.comparison import write_comparison
from softf1.experiments.grid import Execute, Grid, lock_grid, make_run
from softf1.experiments.meter import Meter
from softf1.recipe import Recipe, check_recipe, with_values
from softf1.recipe.loading import parse_override, split_values


def run_variants(
    recipe: Recipe,
    folder: Path,
    *,
    variants: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    execute: Execute,
    about: Mapping[str, Any],
    gain: float = 0.005,
    keep_models: bool = True,
    force: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Runs the missing runs of every variant of a recipe and writes `comparison.json`.

    Args:
        recipe: The recipe to train.
        folder: The grid folder.
        variants: Recipe values that each variant changes; the first is the baseline.
        seeds: The seeds of every variant.
        execute: Executes the runs.
        about: Entries of `grid.json` about the experiment: its `kind` and `axis`.
        gain: The smallest gain that matters, as a fraction.
        keep_models: Keep the model of each run.
        force: Delete what an earlier grid left in the folder, and start again.
        quiet: Show no progress.
    """
    runs = []
    for label, own in variants.items():
        loss = with_values(recipe, own).loss.name
        runs += [make_run(label, own, seed, loss=loss) for seed in seeds]
    grid = Grid(folder, recipe, execute, keep_models=keep_models)
    with lock_grid(folder, force=force):
        names = list(variants)
        grid.open(**about, baseline=names[0], losses=names, seeds=list(seeds))
        with Meter(len(runs), len(runs), quiet=quiet) as meter:
            grid.run(runs, meter)
        axis = {label: dict(own) for label, own in variants.items()}
        return write_comparison(grid, gain=gain, axis=axis)


Axes = dict[str, list[Any]]


def parse_axes(words: Sequence[str]) -> tuple[Axes, list[str]]:
    """Separates keys with several values from words that change the recipe for all runs.

    >>> parse_axes(["loss.alpha=0.1,0.3", "loss.name=dice,tversky", "train.lr=1e-4"])
    ({'loss.alpha': [0.1, 0.3], 'loss.name': ['dice', 'tversky']}, ['train.lr=1e-4'])
    """
    axes: Axes = {}
    rest = []
    for word in words:
        key, _, text = word.partition("=")
        values = list(split_values(text))
        if len(values) < 2:
            rest.append(word)
            continue
        axes[key.strip()] = [parse_override(f"{key}={value}")[1] for value in values]
    return axes, rest


def parse_complements(words: Sequence[str]) -> dict[str, str]:
    """Parses pairs of keys that add up to 1: the second follows from the first.

    >>> parse_complements(["loss.alpha:loss.beta"])
    {'loss.alpha': 'loss.beta'}
    """
    pairs = {}
    for word in words:
        first, colon, second = word.partition(":")
        if not colon or not first or not second:
            raise InputError(f"wanted --complement KEY:OTHER, got {word!r}")
        pairs[first] = second
    return pairs


def combine(axes: Axes, complements: Mapping[str, str]) -> list[dict[str, Any]]:
    """Lists all combinations of values, with the keys that follow from them.

    >>> combine({"loss.alpha": [0.3]}, {"loss.alpha": "loss.beta"})
    [{'loss.alpha': 0.3, 'loss.beta': 0.7}]
    """
    for first, second in complements.items():
        if first not in axes or second in axes:
            raise InputError(f"wanted --complement of a key of the sweep and another, got {first}")
        for value in axes[first]:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InputError(f"wanted numbers for {first}, got {value!r}")
    combined = []
    for values in product(*axes.values()):
        own = dict(zip(axes, values, strict=True))
        own |= {other: round(1 - own[key], 12) for key, other in complements.items()}
        combined.append(own)
    return combined


def check_variants(
    recipe: Recipe, axes: Axes, complements: Mapping[str, str], **written: Any
) -> list[Recipe]:
    """Returns the recipe of each variant; raises for invalid values, before the folder is made.

    Args:
        recipe: The recipe to train.
        axes: Values by key.
        complements: Keys that are 1 − the value of another.
        written: `path` and `overrides` of `check_recipe`.
    """
    if not axes or "train.seed" in axes:
        raise InputError("wanted key=a,b,… with two values or more (for seeds: --seeds N)")
    for key, values in axes.items():
        for number, value in enumerate(values):
            if value in values[:number]:
                shown = "the default" if value is None else repr(value)
                raise InputError(f"wanted different values of {key}, got {shown} twice")
    variants = [with_values(recipe, own) for own in combine(axes, complements)]
    for one in variants:
        check_recipe(one, **written)
    return variants


def sweep(
    recipe: Recipe,
    folder: Path,
    *,
    axes: Axes,
    complements: Mapping[str, str] | None = None,
    **how: Any,
) -> dict[str, Any]:
    """Runs the missing runs of the sweep and writes `comparison.json`.

    The first variant is the baseline.

    Args:
        recipe: The recipe to train.
        folder: The grid folder.
        axes: Values by key.
        complements: Keys that are 1 − the value of another, such as Tversky's beta and alpha.
        how: `seeds`, `execute`, `gain`, `keep_models`, `force` and `quiet` of `run_variants`.
    """
    check_variants(recipe, axes, complements or {})
    variants = {name_variant(values, axes): values for values in combine(axes, complements or {})}
    about = {"kind": "sweep", "axis": list(axes), "values": axes}
    return run_variants(recipe, folder, variants=variants, about=about, **how)


def name_variant(values: Mapping[str, Any], axes: Axes) -> str:
    """Names a variant by its values, without sections.

    >>> name_variant({"loss.alpha": 0.1, "loss.beta": 0.9}, {"loss.alpha": [0.1]})
    'alpha=0.1'
    """
    return " ".join(f"{key.rpartition('.')[2]}={values[key]}" for key in axes)
