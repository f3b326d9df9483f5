"""Losses by name: ours, and those of other packages under the entry point `softf1.losses`."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from softf1.losses.ce import CrossEntropyLoss
from softf1.losses.compound import CompoundLoss
from softf1.losses.dice import DiceLoss
from softf1.losses.dsc import SelfAdjustingDiceLoss
from softf1.losses.focal import FocalLoss
from softf1.losses.la import LogitAdjustedLoss
from softf1.losses.tversky import TverskyLoss

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

ENTRY_POINTS = "softf1.losses"
TO_EVERY_PART = ("weight", "ignore_index", "reduction", "check_labels")
OF_COMPOUND = ("mix", "schedule", "schedule_steps")

_registry: dict[str, Callable[..., nn.Module]] = {}


def register_loss(name: str, factory: Callable[..., nn.Module]) -> None:
    """Makes `factory(**options)`, a module called as `(logits, target, mask=None)`, known by name.

    Another package does the same without calling anything, in its `pyproject.toml`:
    `[project.entry-points."softf1.losses"]`, `mine = "my_package:MyLoss"`.
    """
    if "+" in name or not name:
        raise ValueError(f"wanted a loss name without '+', got {name!r}")
    if name in _registry:
        raise ValueError(f"a loss named {name!r} is registered already")
    _registry[name] = factory


def loss_names() -> list[str]:
    """Returns the names that `make_loss` knows, entry points included."""
    return sorted({*_registry, *(point.name for point in entry_points(group=ENTRY_POINTS))})


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
        return _factory(name)(**options)
    if len(set(names)) != len(names):
        raise ValueError(f"wanted each part once in a sum of losses, got {name!r}")
    known = {*names, *OF_COMPOUND, *TO_EVERY_PART}
    for option in options:
        if option not in known:
            raise TypeError(f"{name} has no option {option!r}; it has {', '.join(sorted(known))}")
    common = {key: options[key] for key in TO_EVERY_PART if key in options}
    parts = [_factory(part)(**{**common, **options.get(part, {})}) for part in names]
    return CompoundLoss(parts, **{key: options[key] for key in OF_COMPOUND if key in options})


def _factory(name: str) -> Callable[..., nn.Module]:
    if name in _registry:
        return _registry[name]
    for point in entry_points(group=ENTRY_POINTS, name=name):
        factory: Callable[..., nn.Module] = point.load()
        return factory
    raise ValueError(f"unknown loss {name!r}; known are {', '.join(loss_names())}")


def _weighted(name: str, factory: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    def make(**options: Any) -> nn.Module:
        if options.get("weight") is None:
            raise ValueError(
                f"{name} needs class weights: make_loss({name!r}, weight=class_weights(counts))"
            )
        return factory(**options)

    return make


register_loss("ce", CrossEntropyLoss)
register_loss("wce", _weighted("wce", CrossEntropyLoss))
register_loss("focal", FocalLoss)
register_loss("wfocal", _weighted("wfocal", FocalLoss))
register_loss("la", _weighted("la", LogitAdjustedLoss))
register_loss("dice", DiceLoss)
register_loss("tversky", TverskyLoss)
register_loss("dsc", SelfAdjustingDiceLoss)
