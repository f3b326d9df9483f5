"""Recipes in TOML: read with line numbers and checked before anything runs."""

from softf1.options import OptionError
from softf1.recipe.checking import check_recipe
from softf1.recipe.loading import (
    build_recipe,
    describe_recipe,
    format_recipe,
    hash_recipe,
    read_recipe,
    with_values,
)
from softf1.recipe.sections import (
    SECTIONS,
    EncoderSection,
    EvalSection,
    LossSection,
    Recipe,
    TaskSection,
    TrainSection,
)

__all__ = [
    "SECTIONS",
    "EncoderSection",
    "EvalSection",
    "LossSection",
    "OptionError",
    "Recipe",
    "TaskSection",
    "TrainSection",
    "build_recipe",
    "check_recipe",
    "describe_recipe",
    "format_recipe",
    "hash_recipe",
    "read_recipe",
    "with_values",
]
