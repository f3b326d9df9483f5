"""A model ready to train: dropout and the start of its head as the recipe says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from softf1.losses import prior_bias

if TYPE_CHECKING:
    from softf1.training.material import Material
    from softf1.training.recipe import Recipe


def make_model(recipe: Recipe, material: Material) -> nn.Module:
    """Encoder and head on the CPU, the same for the same seed."""
    torch.manual_seed(recipe.train.seed)
    task, name = material.task, recipe.encoder.name
    model = task.build_model(name, material.codec, **recipe.encoder.options)
    if recipe.encoder.dropout is not None:
        set_dropout(model, recipe.encoder.dropout)
    start_heads(model, material, prior=recipe.train.head_bias == "prior")
    return model


def set_dropout(model: nn.Module, share: float) -> None:
    """Every dropout of the model, attention's own too, and its configuration."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
    for config in {id(c): c for m in model.modules() if (c := getattr(m, "config", None))}.values():
        for name, value in vars(config).items():
            if "dropout" in name and isinstance(value, float):
                setattr(config, name, share)


@torch.no_grad()
def start_heads(model: nn.Module, material: Material, *, prior: bool) -> None:
    """Output biases at the log class prior, or at 0; softmax over positions has no classes."""
    counts = material.task.class_counts(material.features["train"])
    for key, (layer, rows) in material.task.heads(model).items():
        layer.bias[rows] = 0.0
        if prior and key in counts:
            found = counts[key]
            layer.bias[rows] = prior_bias(torch.from_numpy(found), sigmoid=found.ndim == 2)
