"""Losses by name: ours, and those of other packages under the entry point `softf1.losses`.

A loss is one class in one file, and one line here. The class declares everything else as
attributes: `summary`, `needs_counts`, `adds_prior`, `compares_rows`, `compared`, `tunes` and
`tunes_positions` (`LossModule` explains them), and its options by its signature. `loss_facts` reads
them for a name or a sum of names, `compared_losses` lists what `softf1 compare` runs by default.
Classes of other packages may leave attributes out; the defaults are those of `LossModule`.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from softf1.losses._module import LossModule
from softf1.losses.asymmetric import AsymmetricLoss
from softf1.losses.ce import CrossEntropyLoss, WeightedCrossEntropyLoss
from softf1.losses.compound import CompoundLoss
from softf1.losses.dice import DiceLoss
from softf1.losses.dsc import SelfAdjustingDiceLoss
from softf1.losses.focal import FocalLoss, WeightedFocalLoss
from softf1.losses.la import LogitAdjustedLoss
from softf1.losses.pauc import PartialAUCLoss
from softf1.losses.smooth_ap import SmoothAPLoss
from softf1.losses.tversky import TverskyLoss
from softf1.losses.zlpr import ZLPRLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.metadata import EntryPoints

    from torch import nn

    from softf1.losses._module import Settings

ENTRY_POINTS = "softf1.losses"
TO_EVERY_PART = ("weight", "ignore_index", "reduction", "check_labels")
OF_COMPOUND = ("mix", "schedule", "schedule_steps")

_registry: dict[str, Callable[..., nn.Module]] = {}


def register_loss(name: str, factory: Callable[..., nn.Module]) -> None:
    """Registers `factory(**options)`, a module called as `(logits, target, mask=None)`, by name.

    A package can do the same in its `pyproject.toml`:
    `[project.entry-points."softf1.losses"]`, `mine = "my_package:MyLoss"`.
    """
    if "+" in name or not name:
        raise ValueError(f"wanted a loss name without '+', got {name!r}")
    if name in _registry:
        raise ValueError(f"a loss named {name!r} is registered already")
    _registry[name] = factory


def loss_names() -> list[str]:
    """Returns the names that `make_loss` knows, entry points included."""
    return sorted({*_registry, *_find_plugins(tuple(sys.path)).names})


@dataclass(frozen=True, slots=True, kw_only=True)
class LossFacts:
    """The facts that a loss, or a sum of losses, declares; `LossModule` explains them."""

    name: str
    summary: str
    options: Mapping[str, Any]
    """Its options with their defaults."""
    needs_counts: bool
    adds_prior: bool
    compares_rows: bool
    compared: bool
    tunes: Settings
    tunes_positions: Settings

    @property
    def needs_classes(self) -> bool:
        """Whether the loss needs classes, so that it cannot be used for positions in a text."""
        return self.needs_counts or self.compares_rows


def loss_facts(name: str) -> LossFacts:
    """Returns the facts that a loss declares; for `a+b`, those of its parts and of the sum.

    >>> loss_facts("wce").needs_counts
    True
    >>> loss_facts("focal").tunes
    ({'gamma': 2.0}, {'gamma': 1.0}, {'gamma': 0.5})
    """
    parts = {part: _factory(part) for part in name.split("+")}
    if len(parts) == 1:
        owner: Any = parts[name]
        others = f"of another package: {owner.__module__}:{owner.__qualname__}"
        tunes = _say(owner, "tunes")
        return LossFacts(
            name=name,
            summary=_say(owner, "summary") or others,
            options=_options(owner),
            needs_counts=_say(owner, "needs_counts"),
            adds_prior=_say(owner, "adds_prior"),
            compares_rows=_say(owner, "compares_rows"),
            compared=_say(owner, "compared"),
            tunes=tunes,
            tunes_positions=_say(owner, "tunes_positions") or tunes,
        )
    tunes = CompoundLoss.tunes.get(name, ({},))
    return LossFacts(
        name=name,
        summary=CompoundLoss.summary,
        options=dict.fromkeys((*parts, *OF_COMPOUND, *TO_EVERY_PART)),
        needs_counts=any(_say(part, "needs_counts") for part in parts.values()),
        adds_prior=all(_say(part, "adds_prior") for part in parts.values()),
        compares_rows=any(_say(part, "compares_rows") for part in parts.values()),
        compared=name in CompoundLoss.tunes,
        tunes=tunes,
        tunes_positions=CompoundLoss.tunes_positions.get(name, tunes),
    )


def compared_losses() -> list[str]:
    """Returns the losses that `softf1 compare` runs by default: single losses, then sums.

    >>> compared_losses()
    ['ce', 'wce', 'la', 'focal', 'wfocal', 'dice', 'tversky', 'dsc', 'ce+dice']
    """
    others = [name for name in loss_names() if name not in _registry]
    single = [name for name in (*_registry, *others) if _say(_factory(name), "compared")]
    return [*single, *CompoundLoss.tunes]


def _say(owner: Any, fact: str) -> Any:
    return getattr(owner, fact, getattr(LossModule, fact))


def _options(owner: Any) -> dict[str, Any]:
    parameters = inspect.signature(owner).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def make_loss(name: str, **options: Any) -> nn.Module:
    """Returns the loss `name` with these options, or the sum of several for `a+b`.

    In a sum, `weight`, `ignore_index`, `reduction` and `check_labels` go to every part, `mix`,
    `schedule` and `schedule_steps` to the sum, and a dict under a part's name to that part.

    >>> make_loss("tversky", alpha=0.3, beta=0.7)
    TverskyLoss(alpha=0.3, beta=0.7)
    >>> loss = make_loss("ce+dice", mix=(1.0, 0.5), dice={"over": "batch"})
    """
    names = name.split("+")
    if len(names) == 1:
        return _make(name, options)
    if len(set(names)) != len(names):
        raise ValueError(f"wanted each part once in a sum of losses, got {name!r}")
    known = {*names, *OF_COMPOUND, *TO_EVERY_PART}
    for option in options:
        if option not in known:
            raise TypeError(f"{name} has no option {option!r}; it has {', '.join(sorted(known))}")
    common = {key: options[key] for key in TO_EVERY_PART if key in options}
    parts = [_make(part, {**common, **options.get(part, {})}) for part in names]
    return CompoundLoss(parts, **{key: options[key] for key in OF_COMPOUND if key in options})


@cache
def _find_plugins(path: tuple[str, ...]) -> EntryPoints:  # noqa: ARG001 - for the cache
    """Returns the losses of other packages; the search is slow, so once for each `sys.path`."""
    return entry_points(group=ENTRY_POINTS)


def _factory(name: str) -> Callable[..., nn.Module]:
    if name in _registry:
        return _registry[name]
    for point in _find_plugins(tuple(sys.path)).select(name=name):
        factory: Callable[..., nn.Module] = point.load()
        return factory
    choice = " (auto is for recipes, where it chooses a loss by the data)" if name == "auto" else ""
    raise ValueError(f"unknown loss {name!r}{choice}; known are {', '.join(loss_names())}")


def _make(name: str, options: dict[str, Any]) -> nn.Module:
    factory = _factory(name)
    loss = factory(**options)  # first, since it names an option that does not exist
    if getattr(factory, "needs_counts", False) and options.get("weight") is None:
        raise ValueError(
            f"{name} needs class weights: make_loss({name!r}, weight=class_weights(counts))"
        )
    return loss


register_loss("ce", CrossEntropyLoss)
register_loss("wce", WeightedCrossEntropyLoss)
register_loss("la", LogitAdjustedLoss)
register_loss("focal", FocalLoss)
register_loss("wfocal", WeightedFocalLoss)
register_loss("dice", DiceLoss)
register_loss("tversky", TverskyLoss)
register_loss("dsc", SelfAdjustingDiceLoss)
register_loss("smooth_ap", SmoothAPLoss)
register_loss("pauc", PartialAUCLoss)
register_loss("asymmetric", AsymmetricLoss)
register_loss("zlpr", ZLPRLoss)
