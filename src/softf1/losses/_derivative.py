"""Derivatives that are written by hand: what is not among them is refused in words."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad

from softf1.losses._core import under_transform

ONLY_FIRST = (
    "the dice family, the ranking losses and the fused kernels have hand-written first derivatives "
    "only; "
)
SECOND_DERIVATIVE = (
    f"{ONLY_FIRST}a second derivative (a gradient penalty, a Hessian) is not available"
)
FORWARD_MODE = (
    f"{ONLY_FIRST}forward mode (jvp, jacfwd) is not available: use torch.func.grad or vjp"
)
BATCHED = (
    f"{ONLY_FIRST}vmap over them is not available: leading axes of logits are rows already, and "
    'reduction="none" at example level gives a value for each'
)


class HandWritten(torch.autograd.Function):
    """An autograd function whose backward is the only derivative that it has."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:  # noqa: ARG004
        """Refuses forward mode."""
        raise RuntimeError(FORWARD_MODE)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> NoReturn:  # noqa: ARG004
        """Refuses vmap."""
        raise RuntimeError(BATCHED)


def apply_function(
    function: type[torch.autograd.Function], of_transforms: type[HandWritten], x: Tensor, *rest: Any
) -> Any:
    """Applies the one of two functions that fits: `of_transforms` inside of torch.func.

    Raises for a dual number; a `jvp` of the function's own would keep torch.compile out.
    """
    compiling = torch.compiler.is_compiling()
    if not compiling and forward_ad.unpack_dual(x).tangent is not None:  # type: ignore[no-untyped-call]
        raise RuntimeError(FORWARD_MODE)
    chosen = of_transforms if under_transform() else function
    return chosen.apply(x, *rest)  # type: ignore[no-untyped-call]


class _FirstDerivative(HandWritten):
    @staticmethod
    def forward(dx: Tensor, x: Tensor) -> Tensor:  # noqa: ARG004
        return dx.view_as(dx)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> NoReturn:  # noqa: ARG004
        raise RuntimeError(SECOND_DERIVATIVE)


def first_derivative(dx: Tensor, x: Tensor) -> Tensor:
    """Returns dx, which raises if a derivative of it is asked for, instead of giving a silent 0."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return dx
    result: Tensor = _FirstDerivative.apply(dx, x)  # type: ignore[no-untyped-call]
    return result
