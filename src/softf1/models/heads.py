"""Finds the output layer of a model, whatever its family calls it."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from softf1.errors import InputError

NAMES = ("classifier", "qa_outputs", "score", "logits_proj", "classification_head")
"""Names of the head in models of transformers."""

OUTPUT = ("out_proj", "linear_out", "dense")
"""Names of the last layer of a head with several, such as `classifier.out_proj` of RoBERTa."""


class Head(NamedTuple):
    """The rows of a linear layer that compute the logits of one key."""

    layer: nn.Linear
    rows: slice


def find_encoders(model: nn.Module) -> list[nn.Module]:
    """The pretrained parts of a model; the rest is its head. Empty for a model from scratch.

    >>> find_encoders(nn.ModuleDict({"encoder": nn.Linear(4, 4), "head": nn.Linear(4, 3)}))
    [Linear(in_features=4, out_features=4, bias=True)]
    """
    encoder: Any = getattr(model, "base_model", model)
    if encoder is not model:
        return [encoder]
    # BERT-MRC has an encoder, T5 for questions encoder and decoder, beside their heads.
    children = dict(model.named_children())
    return [children[name] for name in ("encoder", "decoder") if name in children]


def find_output(model: nn.Module, size: int) -> nn.Linear:
    """Finds the linear layer with `size` outputs that computes the logits.

    It is found by name, not by order: RoBERTa and related models create the head first.

    >>> model = nn.ModuleDict({"classifier": nn.Linear(4, 3), "encoder": nn.Linear(4, 4)})
    >>> find_output(model, 3) is model["classifier"]
    True

    Raises:
        InputError: There is no such layer under any of the known names.
    """
    children = dict(model.named_children())
    heads = [children[name] for name in NAMES if name in children]
    inner = [getattr(head, name, None) for head in heads for name in OUTPUT]
    for layer in (*heads, *inner):
        if isinstance(layer, nn.Linear) and layer.out_features == size:
            return layer
    kind, known = type(model).__name__, ", ".join(NAMES)
    raise InputError(f"wanted a head of {size} outputs ({known}) in {kind}, found none")
