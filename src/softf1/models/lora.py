"""LoRA (Hu et al. 2022): freezes the encoder and trains small matrices beside its layers.

A linear layer W·x becomes W·x + (alpha / rank)·B·(A·x) with A of `rank` rows and B of `rank`
columns, which starts at 0. A, B and the head are trained, all else is frozen. At the end B·A is
added to W, and the model is an ordinary one again. The package `peft` has the layers.

peft's layers are inserted in place: the model keeps its class, and its head its name.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.models.encoders import LORA, find_encoders, list_frozen
from softf1.options import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

ALL = "all-linear"


def find_peft() -> Any:
    """Imports peft.

    Raises:
        InputError: It is not installed.
    """
    if importlib.util.find_spec("peft") is None:
        raise InputError('encoder.lora needs the package peft: pip install "softf1[lora]"')
    return importlib.import_module("peft")


def add_lora(
    model: nn.Module,
    *,
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
    targets: str | Iterable[str] = ALL,
) -> None:
    """Adds adapters to linear layers of the encoder, and freezes everything but them and the head.

    Args:
        model: A pretrained encoder with a head; it is changed in place.
        rank: Rank of the two matrices.
        alpha: Their product is multiplied by alpha / rank; None means twice the rank.
        dropout: Probability of dropout before the two matrices.
        targets: `all-linear`, or the last parts of names of layers, such as `q_proj`.

    Raises:
        InputError: peft is not installed, or there is no such layer.
    """
    from transformers.pytorch_utils import Conv1D

    peft, layers = find_peft(), list_layers(model)
    chosen = layers if targets == ALL else choose_layers(layers, targets)
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=2 * rank if alpha is None else alpha,
        lora_dropout=dropout,
        target_modules=list(chosen),
        # GPT-2 stores its weights transposed.
        fan_in_fan_out=any(isinstance(layer, Conv1D) for layer in chosen.values()),
    )
    peft.inject_adapter_in_model(config, model)
    frozen = list_frozen(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)


def list_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Returns the linear layers of the encoder by name; none of the head.

    Raises:
        InputError: The model has no encoder with such layers.
    """
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    inside = {id(layer) for part in find_encoders(model) for layer in part.modules()}
    layers: dict[str, nn.Module] = {
        name: layer
        for name, layer in model.named_modules()
        if id(layer) in inside and isinstance(layer, nn.Linear | Conv1D)
    }
    if not layers:
        kind = type(model).__name__
        raise InputError(
            f"encoder.lora: wanted a pretrained encoder with linear layers, got {kind}"
        )
    return layers


def choose_layers(layers: dict[str, Any], targets: Iterable[str]) -> dict[str, Any]:
    """Chooses the layers whose names end in one of the targets.

    >>> choose_layers({"layer.0.query": 1, "layer.0.value": 2}, ["value"])
    {'layer.0.value': 2}
    >>> choose_layers({"layer.0.query": 1, "layer.0.value": 2}, ["valu"])
    Traceback (most recent call last):
    softf1.errors.InputError: encoder.lora.targets: no linear layer of the encoder is named 'valu' \
(did you mean value?); known: query, value
    """
    chosen: dict[str, Any] = {}
    for target in targets:
        matching = {k: v for k, v in layers.items() if f".{k}".endswith(f".{target}")}
        if not matching:
            known = list(dict.fromkeys(name.rpartition(".")[2] for name in layers))
            raise InputError(
                f"encoder.lora.targets: no linear layer of the encoder is named {target!r}"
                f"{nearest(target, known)}; known: {', '.join(known)}"
            )
        chosen |= matching
    return chosen


def merge_lora(model: nn.Module) -> None:
    """Merges the adapters into the layers; does nothing to a model without LoRA."""
    if not hasattr(model, LORA):
        return
    layer_class = importlib.import_module("peft.tuners.lora").LoraLayer
    adapted = {n: layer for n, layer in model.named_modules() if isinstance(layer, layer_class)}
    for name, layer in adapted.items():
        layer.merge()
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, layer.get_base_layer())
    delattr(model, LORA)
    model.requires_grad_()
