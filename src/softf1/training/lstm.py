"""An LSTM as one node of ONNX: torch's exporter would write out every step of a fixed length."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


def replace_lstms(model: nn.Module) -> nn.Module:
    """A copy of the model with ONNX's LSTM for torch's; the model itself where it has none."""
    found = [name for name, module in model.named_modules() if isinstance(module, nn.LSTM)]
    if not found:
        return model
    changed = copy.deepcopy(model)
    for name in found:
        parent, _, last = name.rpartition(".")
        lstm: nn.Module = changed.get_submodule(name)
        setattr(changed.get_submodule(parent), last, OnnxLstm(lstm))
    return changed


class OnnxLstm(nn.Module):
    """One layer one way, batch first; runs in an export only.

    torch keeps the gates as input, forget, cell, output, ONNX as input, output, forget, cell.
    """

    w: Tensor
    r: Tensor
    b: Tensor

    def __init__(self, lstm: nn.Module):
        super().__init__()
        if not isinstance(lstm, nn.LSTM) or lstm.num_layers > 1 or lstm.bidirectional:
            raise ValueError(f"wanted an LSTM of one layer and one direction, got {lstm}")
        self.size = lstm.hidden_size
        biases = torch.cat([_gates(lstm, "bias_ih_l0"), _gates(lstm, "bias_hh_l0")])
        self.register_buffer("w", _gates(lstm, "weight_ih_l0")[None])
        self.register_buffer("r", _gates(lstm, "weight_hh_l0")[None])
        self.register_buffer("b", biases[None])

    def forward(self, x: Tensor) -> tuple[Tensor]:
        """Hidden states (B, L, size) of (B, L, in), alone in a tuple."""
        steps = x.transpose(0, 1)
        y = torch.onnx.ops.symbolic(
            "::LSTM",
            (steps, self.w, self.r, self.b),
            {"hidden_size": self.size},
            dtype=x.dtype,
            shape=(steps.shape[0], 1, steps.shape[1], self.size),
        )
        return (y.squeeze(1).transpose(0, 1),)


def _gates(lstm: nn.LSTM, name: str) -> Tensor:
    """The rows of a weight or bias in ONNX's order."""
    entry, forget, cell, out = lstm.get_parameter(name).detach().chunk(4)
    return torch.cat([entry, out, forget, cell])
