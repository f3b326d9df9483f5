"""A model ready to train: dropout and the start of its head as the recipe says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from softf1.losses import prior_bias

if TYPE_CHECKING:
    from torch import Tensor

    from softf1.recipe import Recipe
    from softf1.training.material import Material


def make_model(recipe: Recipe, material: Material) -> nn.Module:
    """Encoder and head on the CPU, the same for the same seed."""
    torch.manual_seed(recipe.train.seed)
    task, name = material.task, recipe.encoder.name
    options = dict(recipe.encoder.options)
    if recipe.encoder.allow_pickle:
        options["allow_pickle"] = True
    model = task.build_model(name, material.codec, **options)
    if recipe.encoder.dropout is not None:
        set_dropout(model, recipe.encoder.dropout)
    start_heads(model, material, prior=recipe.train.head_bias == "prior")
    return model


def set_dropout(model: nn.Module, share: float) -> None:
    """Every dropout of the model, attention's own too, and its configuration."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
        for holder in (module, getattr(module, "config", None)):
            _set_shares(holder, share)


def _set_shares(holder: Any, share: float) -> None:
    """Attention and recurrent layers keep their dropout as a number."""
    for name, value in list(vars(holder).items() if holder is not None else ()):
        if ("dropout" in name or name.endswith("pdrop")) and type(value) in (int, float):
            setattr(holder, name, share)


@torch.no_grad()
def start_heads(model: nn.Module, material: Material, *, prior: bool) -> None:
    """Output biases at the log class prior, or at 0; softmax over positions has no classes."""
    counts = material.task.class_counts(material.features["train"])
    for key, (layer, rows) in material.task.heads(model).items():
        bias = cast("Tensor | None", layer.bias)
        if bias is None:  # in some decoders
            continue
        bias[rows] = 0.0
        if prior and key in counts:
            found = counts[key]
            bias[rows] = prior_bias(torch.from_numpy(found), sigmoid=found.ndim == 2)
