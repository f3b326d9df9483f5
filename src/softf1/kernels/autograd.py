"""The kernels with their derivatives: as operators for torch.compile, directly for everything else.

Started from Python, an operator's dispatch takes five times as long as starting the kernels: there
an autograd function calls them itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter

from softf1.kernels.batch_level import run_batch, run_batch_backward, run_batch_sums
from softf1.kernels.example_level import run_example, run_example_backward, run_example_sums
from softf1.kernels.operators import batch_forward, example_forward
from softf1.losses._derivative import HandWritten, first_derivative

if TYPE_CHECKING:
    from softf1.kernels._numbers import Numbers


def example(
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    numbers: Numbers,
    *,
    mean: bool,
    none: bool,
) -> Tensor:
    """Returns the loss of rows x (N, C): its sum or mean, or (N,)."""
    value: Tensor
    if _wants_operator(x):
        value, _ = example_forward(x, target, mask, weight, *numbers, mean, none)
    elif torch.is_grad_enabled() and x.requires_grad:
        value = _Example.apply(x, target, mask, weight, numbers, mean, none)  # type: ignore[no-untyped-call]
    else:
        value, _ = run_example(x, target, mask, weight, numbers, mean=mean, none=none)
    return value


def batch(
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    numbers: Numbers,
    *,
    micro: bool,
    mean: bool,
    none: bool,
) -> Tensor:
    """Returns the loss of rows x (N, C) at batch level: one value, or (C,)."""
    value: Tensor
    if _wants_operator(x):
        value, _, _ = batch_forward(x, target, mask, weight, *numbers, micro, mean, none)
    elif torch.is_grad_enabled() and x.requires_grad:
        value = _Batch.apply(x, target, mask, weight, numbers, micro, mean, none)  # type: ignore[no-untyped-call]
    else:
        value, _, _ = run_batch(x, target, mask, weight, numbers, micro=micro, mean=mean, none=none)
    return value


def example_sums(
    x: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, numbers: Numbers
) -> Tensor:
    """Returns (2, 1): the sum of the rows' losses, and their count."""
    value: Tensor = _ExampleSums.apply(x, target, mask, weight, numbers)  # type: ignore[no-untyped-call]
    return value


def batch_sums(x: Tensor, target: Tensor, mask: Tensor | None, numbers: Numbers) -> Tensor:
    """Returns (2, C): overlap and total of each class."""
    value: Tensor = _BatchSums.apply(x, target, mask, numbers)  # type: ignore[no-untyped-call]
    return value


def _wants_operator(x: Tensor) -> bool:
    """True under torch.compile, and for tensors that have no memory of their own."""
    return torch.compiler.is_compiling() or type(x) not in (Tensor, Parameter)


class _Example(HandWritten):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        target: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,
        numbers: Numbers,
        mean: bool,
        none: bool,
    ) -> Tensor:
        value, aux = run_example(x, target, mask, weight, numbers, mean=mean, none=none)
        ctx.save_for_backward(x, target, mask, weight, aux)
        ctx.numbers = numbers
        return value

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        x, target, mask, weight, aux = ctx.saved_tensors
        dx = run_example_backward(incoming, x, target, mask, weight, aux, ctx.numbers)
        return first_derivative(dx, x), *(None,) * 6


class _Batch(HandWritten):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        target: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,
        numbers: Numbers,
        micro: bool,
        mean: bool,
        none: bool,
    ) -> Tensor:
        value, slopes, aux = run_batch(
            x, target, mask, weight, numbers, micro=micro, mean=mean, none=none
        )
        ctx.save_for_backward(x, target, mask, aux, slopes)
        ctx.numbers = numbers
        return value

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        x, target, mask, aux, slopes = ctx.saved_tensors
        dx = run_batch_backward(incoming, x, target, mask, aux, slopes, ctx.numbers)
        return first_derivative(dx, x), *(None,) * 7


class _ExampleSums(HandWritten):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        target: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,
        numbers: Numbers,
    ) -> Tensor:
        sums, aux = run_example_sums(x, target, mask, weight, numbers)
        ctx.save_for_backward(x, target, mask, weight, aux)
        ctx.numbers = numbers
        return sums

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        x, target, mask, weight, aux = ctx.saved_tensors
        dx = run_example_backward(incoming[0, 0], x, target, mask, weight, aux, ctx.numbers)
        return first_derivative(dx, x), *(None,) * 4


class _BatchSums(HandWritten):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, target: Tensor, mask: Tensor | None, numbers: Numbers
    ) -> Tensor:
        sums, aux = run_batch_sums(x, target, mask, numbers)
        ctx.save_for_backward(x, target, mask, aux)
        ctx.numbers = numbers
        return sums

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        x, target, mask, aux = ctx.saved_tensors
        one = torch.ones((), device=x.device)
        slopes = incoming.contiguous()
        dx = run_batch_backward(one, x, target, mask, aux, slopes, ctx.numbers)
        return first_derivative(dx, x), *(None,) * 3
