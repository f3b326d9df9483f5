"""Weights of linear layers in half precision, all in one go.

Autocast turns each weight and bias to half precision in a kernel of its own, and its gradient back
in another: two hundred launches a step for six layers. The numbers are the same here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class CastOnce(nn.Module):
    """Calls a model with its linear layers in half precision; to be used inside autocast.

    >>> model = nn.Linear(2, 2)
    >>> half = CastOnce(model, torch.bfloat16)
    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     torch.equal(half(input=torch.ones(1, 2)), model(torch.ones(1, 2)))
    True
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype
        linear = {id(p) for m in model.modules() if type(m) is nn.Linear for p in m.parameters()}
        self.names = [name for name, p in model.named_parameters() if id(p) in linear]

    def forward(self, **inputs: Any) -> Any:
        """What the model gives."""
        parameters = dict(self.model.named_parameters())
        half = Cast.apply(self.dtype, *(parameters[n] for n in self.names))  # type: ignore[no-untyped-call]
        chosen = dict(zip(self.names, half, strict=True))
        return torch.func.functional_call(self.model, chosen, kwargs=inputs)


class Cast(torch.autograd.Function):
    """Tensors to another type and their gradients back, a launch or two each way."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Copies in the other type."""
        ctx.dtypes = [tensor.dtype for tensor in tensors]
        return tuple(copy_all(tensors, [dtype] * len(tensors)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients in the type of the tensors; none where there is none."""
        there = [g for g in gradients if g is not None]
        types = [d for d, g in zip(ctx.dtypes, gradients, strict=True) if g is not None]
        made = iter(copy_all(there, types))
        return (None, *(None if g is None else next(made) for g in gradients))


def copy_all(tensors: Any, dtypes: list[torch.dtype]) -> list[Tensor]:
    """Copies of all tensors in other types."""
    out = [torch.empty_like(t, dtype=dtype) for t, dtype in zip(tensors, dtypes, strict=True)]
    torch._foreach_copy_(out, list(tensors))
    return out
