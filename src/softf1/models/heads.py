"""The output layer of a model, wherever its family keeps it."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn


class Head(NamedTuple):
    """The rows of a linear layer that give the logits of one key."""

    layer: nn.Linear
    rows: slice


def find_output(model: nn.Module, size: int) -> nn.Linear:
    """The last linear layer (`classifier`, `qa_outputs`, `logits_proj`), of `size` outputs.

    >>> find_output(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), 3).in_features
    8
    """
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not layers or layers[-1].out_features != size:
        got = f"{layers[-1].out_features}" if layers else "none"
        raise ValueError(f"wanted a last linear layer with {size} outputs, got {got}")
    return layers[-1]
