"""The kernels with their derivatives: as operators for torch.compile, directly for everything else.

In eager mode, dispatching an operator takes five times as long as launching the kernels, so an
autograd function launches them itself. The operators are imported where they are first used, since
torch takes a while to register them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter

from softf1.kernels._launch import compiling
from softf1.kernels.batch_level import lay_out_batch
from softf1.kernels.example_level import lay_out_example
from softf1.losses._core import HandWritten, first_derivative, refuse_forward_mode

if TYPE_CHECKING:
    from softf1.kernels._numbers import Numbers
    from softf1.kernels.batch_level import BatchLevel
    from softf1.kernels.example_level import ExampleLevel
    from softf1.losses._core import Reduction


def example(
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    numbers: Numbers,
    reduction: Reduction,
) -> Tensor:
    """Returns the loss of rows x (N, C): a scalar, (N,) for "none", or (2, 1) for "sums"."""
    value: Tensor
    if _wants_operator(x) and reduction != "sums":
        from softf1.kernels.operators import example_forward

        value, _ = example_forward(x, target, mask, weight, *numbers, reduction)
        return value
    kernels = lay_out_example(x, target, mask, weight, numbers, reduction)
    return run(kernels, x, target, mask, weight)


def batch(
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    numbers: Numbers,
    reduction: Reduction,
    *,
    micro: bool,
) -> Tensor:
    """Returns the batch-level loss of x (N, C): a scalar, (C,) for "none", (2, C) for "sums"."""
    value: Tensor
    if _wants_operator(x) and reduction != "sums":
        from softf1.kernels.operators import batch_forward

        value, _ = batch_forward(x, target, mask, weight, *numbers, reduction, micro)
        return value
    kernels = lay_out_batch(x, target, mask, weight, numbers, reduction, micro=micro)
    return run(kernels, x, target, mask, weight)


def _wants_operator(x: Tensor) -> bool:
    """True under torch.compile, and for tensor subclasses, which may have no memory to point to."""
    return torch.compiler.is_compiling() or type(x) not in (Tensor, Parameter)


def run(
    kernels: ExampleLevel | BatchLevel,
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
) -> Tensor:
    """Returns the loss of tensors of the kind that the kernels are laid out for."""
    value: Tensor
    if x.requires_grad and torch.is_grad_enabled():
        if not kernels.compiled:
            compile_both(kernels, x, target, mask, weight)
        value = apply_loss(x, target, mask, weight, kernels)
    else:
        refuse_forward_mode(x)
        value, _ = kernels.value(x, target, mask, weight)
    return value


_rehearsed: set[tuple[object, ...]] = set()


def compile_both(
    kernels: ExampleLevel | BatchLevel,
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
) -> None:
    """Compiles forward and backward in parallel; otherwise they would be compiled in turn.

    Most shapes share their kernels with shapes seen before: then there is nothing to compile.
    """
    kernels.compiled = True
    plan = kernels.first
    key = (id(plan.kernel), plan.constants, plan.warps, x.dtype, target.dtype, x.device)
    if key in _rehearsed or not x.is_cuda or torch.cuda.is_current_stream_capturing():
        return
    _rehearsed.add(key)
    with compiling(x.device):
        rehearse(kernels, x, target, mask, weight)


def rehearse(kernels: ExampleLevel | BatchLevel, *inputs: Tensor | None) -> None:
    """Runs forward and backward on tensors without data, which only compiles the kernels."""
    blank: list[Any] = [None if t is None else torch.empty_like(t, device="meta") for t in inputs]
    value, *kept = kernels.value_and_gradient(*blank)
    kernels.gradient(value, *blank, *kept)


class _Loss(HandWritten):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        target: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,
        kernels: ExampleLevel | BatchLevel,
    ) -> Tensor:
        value, aux, ctx.foreseen = kernels.value_and_gradient(x, target, mask, weight)
        ctx.save_for_backward(x, target, mask, weight, aux)
        ctx.kernels = kernels
        return value

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        dx = ctx.kernels.gradient(incoming, *saved, ctx.foreseen)
        ctx.foreseen = None  # autograd owns it now; a second backward computes its own
        return first_derivative(dx, saved[0]), None, None, None, None


# What `_Loss.apply` calls in the end. Before, it looks for transforms of torch.func, which never
# come here: that takes a microsecond, a tenth of a forward pass.
apply_loss: Any = super(torch.autograd.Function, _Loss).apply
