"""The loss of a recipe, built and tried on a few numbers."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import torch

from softf1.losses import WindowLoss, make_loss
from softf1.losses.registry import loss_names
from softf1.recipe.fields import RecipeError, named, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

    from softf1.recipe.recipe import LossSection

OF_TRAINING = ("ignore_index", "mask", "reduction")
"""Options of losses that training sets itself."""
CLASSES = 3
"""How many classes the trial has; which labels there are, only the data can say."""
PLAIN = {"bool": "true or false", "float": "a number", "int": "a whole number", "None": "none"}
"""What the plain types of options are called."""
TROUBLE = (TypeError, ValueError, RuntimeError, AttributeError, IndexError)
"""What a loss may raise on options that it cannot take."""


def check_loss(loss: LossSection, *, softmax: bool, whole: bool = True) -> None:
    """Build the loss and try it, which also tries the values of its options.

    Args:
        loss: The recipe's `[loss]`.
        softmax: Whether targets are one of several classes; otherwise yes or no at every place.
        whole: Whether a process has its share of a step in one piece.
    """
    _check_names(loss)
    classes = CLASSES if softmax else 1
    try:
        made = _build(loss, classes=classes)
        for key, wanted, value in _mistyped(made):
            raise RecipeError(f"loss.{key}", f"wanted {wanted}, got {value!r}")
        target = torch.tensor([0, 1, 1, 0])
        made(torch.zeros(4, classes), target if softmax else target[:, None].float())
        if not whole:
            WindowLoss(made, statistics=loss.statistics)  # refuses what needs a batch in one piece
    except RecipeError:
        raise
    except TROUBLE as error:
        text = str(error).strip().partition("\n")[0]
        key = named("loss", _dotted(loss.options), text)
        raise RecipeError(key, text + _hint(key.rpartition(".")[2], text)) from error


def _check_names(loss: LossSection) -> None:
    names = loss_names()
    for part in loss.name.split("+"):
        if part not in names:
            message = f"unknown loss {part!r}{nearest(part, names)}; known: {', '.join(names)}"
            raise RecipeError("loss.name", message)
        if not isinstance(loss.options.get(part, {}), dict):
            raise RecipeError(f"loss.{part}", f"wanted a table, got {loss.options[part]!r}")
    for key, value in _excluded(loss.options):
        labels = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str) or _is(one, "int") for one in labels):
            raise RecipeError(f"loss.{key}", f"wanted labels or their numbers, got {value!r}")
    for name in OF_TRAINING:
        if name in loss.options:
            raise RecipeError(f"loss.{name}", "training sets this itself")


def _build(loss: LossSection, *, classes: int) -> nn.Module:
    options = _numbered(loss.options)
    if options.get("schedule") is not None:
        options.setdefault("schedule_steps", 1)
    if loss.scheme is not None:
        options["weight"] = torch.ones(classes)
    return make_loss(loss.name, **options)


def _numbered(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the first class in place of excluded labels, in tables of parts too."""

    def number(name: str, value: Any) -> Any:
        if name == "exclude":
            return (0,)
        return _numbered(value) if isinstance(value, dict) else value

    return {name: number(name, value) for name, value in options.items()}


def _excluded(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every `exclude`, those in tables too."""
    for name, value in options.items():
        if name == "exclude":
            yield f"{prefix}{name}", value
        elif isinstance(value, dict):
            yield from _excluded(value, f"{prefix}{name}.")


def _mistyped(made: nn.Module) -> Iterator[tuple[str, str, Any]]:
    """Options of our own losses that want numbers, or true or false, and got something else."""
    for part in made.modules():
        function, options = getattr(type(part), "function", None), getattr(part, "options", {})
        known = inspect.signature(function).parameters if function else {}
        for name in options.keys() & known.keys():
            kinds = set(str(known[name].annotation).split(" | "))
            if kinds <= PLAIN.keys() and not any(_is(options[name], kind) for kind in kinds):
                yield name, " or ".join(PLAIN[kind] for kind in sorted(kinds)), options[name]


def _is(value: object, kind: str) -> bool:
    truth = isinstance(value, bool)
    return {
        "bool": truth,
        "int": isinstance(value, int) and not truth,
        "float": isinstance(value, (int, float)) and not truth,
        "None": value is None,
    }[kind]


def _dotted(options: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Names of options, those in tables too, as `dice.over`."""
    for name, value in options.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{name}.")


def _hint(name: str, text: str) -> str:
    """The nearest of the options that a message lists behind a semicolon."""
    known = text.partition(";")[2] if "has no option" in text else ""
    return nearest(name, re.findall(r"\w+", known))
