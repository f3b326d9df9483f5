"""The dev score that chooses a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.training.evaluation import evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from softf1.recipe import Recipe
    from softf1.training.material import Material

TRIED = 200
"""Dev examples of the trial, from all over the file."""


def read_score(scores: Mapping[str, Any], metric: str) -> float:
    """The score of that name.

    >>> read_score({"f1": 0.5, "labels": {}}, "f1")
    0.5
    """
    score = scores.get(metric)
    if not isinstance(score, int | float):
        known = ", ".join(name for name, value in scores.items() if isinstance(value, int | float))
        raise InputError(f"eval.metric: wanted one of {known}, got {metric!r}")
    return float(score)


def check_metric(recipe: Recipe, material: Material, model: nn.Module) -> None:
    """Looks for `eval.metric` among the scores of some dev examples, before a long training.

    The model is the one that was just made, on the CPU; what it predicts does not matter.
    """
    if recipe.eval.metric is None:
        return
    task, codec = material.task, material.codec
    examples = material.examples["dev"][:: -(-len(material.examples["dev"]) // TRIED)]
    features = task.encode(examples, codec)
    found = evaluate(model, task, features, examples, codec, device="cpu")
    read_score(found.scores, recipe.eval.metric)
