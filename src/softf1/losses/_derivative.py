"""Derivatives that are written by hand have none of their own, and say so."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SECOND_DERIVATIVE = (
    "the dice family and the fused kernels have hand-written first derivatives only; a second "
    "derivative (a gradient penalty, a Hessian) is not available"
)


class _FirstDerivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dx: Tensor, x: Tensor) -> Tensor:  # noqa: ARG004
        return dx.view_as(dx)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> None:  # noqa: ARG004
        raise RuntimeError(SECOND_DERIVATIVE)


def first_derivative(dx: Tensor, x: Tensor) -> Tensor:
    """Returns dx, which raises if a derivative of it is asked for, instead of giving a silent 0."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return dx
    result: Tensor = _FirstDerivative.apply(dx, x)  # type: ignore[no-untyped-call]
    return result
