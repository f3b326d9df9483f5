"""The same seed gives the same run on a GPU: operations that add up in a fixed order.

PyTorch has a switch for deterministic operations, but it does not cover everything that a training
step needs, or only at a high cost. `FixedOrder` replaces these operations while a model runs:

    embedding      PyTorch adds up the gradients of more than 3,072 ids in any order, without a
                   warning
    attention      the backward passes of the fast kernels add in any order, unless operations
                   without a deterministic form are made errors
    lstm           cuDNN's backward pass adds in any order
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Iterator


FEW_ROWS = 512
"""Up to so many rows of an embedding, the gradient is a product with one-hot ids."""

REPEATABLE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""The kernels of attention that have a deterministic form; cuDNN's has none."""

HAS_TRITON = find_spec("triton") is not None


@contextmanager
def ask_torch(*, warn_only: bool) -> Iterator[None]:
    """Context in which torch uses deterministic operations; without one it warns, or fails."""
    before = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=warn_only)  # noqa: FBT003 - torch's own
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)


class FixedOrder(TorchFunctionMode):
    """Context in which embeddings, attention and LSTMs add up their gradients in a fixed order.

    Args:
        functions: The functions of torch to replace; all three, if none is given.
    """

    def __init__(self, *functions: Any) -> None:
        super().__init__()
        self.replaced = {one: REPLACED[one] for one in functions or REPLACED}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Runs the replaced functions; anything else runs as it is, and so does torch.compile."""
        if not torch.compiler.is_compiling():
            func = self.replaced.get(func, func)
        return func(*args, **(kwargs or {}))


def embedding_in_order(
    ids: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    *options: Any,
    **others: Any,
) -> Tensor:
    """`functional.embedding`, whose gradient is added up in a fixed order."""
    special = (max_norm, *options[1:], others.get("scale_grad_by_freq"), others.get("sparse"))
    if any(special) or not weight.requires_grad:
        return functional.embedding(ids, weight, padding_idx, max_norm, *options, **others)
    padding = None if padding_idx is None else padding_idx % len(weight)
    out: Tensor = _Embed.apply(ids, weight, padding)  # type: ignore[no-untyped-call]
    return out


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.rows, ctx.padding_idx = len(weight), padding_idx
        return functional.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:
        (ids,) = ctx.saved_tensors
        if gradient.is_cuda and HAS_TRITON:
            from softf1.kernels.embedding import FEWEST_ROWS, MOST_IDS, embedding_gradient

            if ids.numel() <= MOST_IDS and ctx.rows >= FEWEST_ROWS:
                return None, embedding_gradient(gradient, ids, ctx.rows, ctx.padding_idx), None
        return None, add_up_rows(gradient, ids, ctx.rows, ctx.padding_idx), None


def add_up_rows(gradient: Tensor, ids: Tensor, rows: int, padding_idx: int | None) -> Tensor:
    """The gradient of an embedding, in PyTorch: a product with one-hot ids, if rows are few.

    With more rows it sorts the ids and keeps equal ones in their order.
    """
    if padding_idx is not None:
        gradient = gradient.masked_fill((ids == padding_idx).unsqueeze(-1), 0.0)
    if rows <= FEW_ROWS:  # many ids share a row: one thread would sum them all
        same = torch.arange(rows, device=ids.device).unsqueeze(1) == ids.flatten()
        return same.to(gradient.dtype) @ gradient.flatten(0, -2)
    total = gradient.new_zeros((rows, gradient.shape[-1]))
    return total.index_put_((ids,), gradient, accumulate=True)


def attention_in_order(*inputs: Any, **options: Any) -> Tensor:
    """`functional.scaled_dot_product_attention` with a deterministic backward pass."""
    out: Tensor
    if torch.is_grad_enabled():
        out = _Attend.apply(options, *inputs)  # type: ignore[no-untyped-call]
    else:
        out = functional.scaled_dot_product_attention(*inputs, **options)
    return out


class _Attend(torch.autograd.Function):
    """Runs attention as a graph of its own, whose backward pass may not warn but must repeat.

    Only then do the fast kernels take their deterministic form.
    """

    @staticmethod
    def forward(ctx: Any, options: dict[str, Any], *inputs: Any) -> Tensor:
        ctx.inputs = [one.detach() if isinstance(one, Tensor) else one for one in inputs]
        for own, wanted in zip(ctx.inputs, ctx.needs_input_grad[1:], strict=True):
            if wanted:
                own.requires_grad_()
        with torch.enable_grad(), sdpa_kernel(REPEATABLE):
            ctx.out = functional.scaled_dot_product_attention(*ctx.inputs, **options)
        out: Tensor = ctx.out.detach()
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        wanted = [one for one in ctx.inputs if isinstance(one, Tensor) and one.requires_grad]
        with ask_torch(warn_only=False):
            found = iter(torch.autograd.grad(ctx.out, wanted, gradient))
        return (None, *(next(found) if want else None for want in ctx.needs_input_grad[1:]))


def lstm_in_order(*args: Any, **options: Any) -> Any:
    """`torch.lstm` without cuDNN."""
    cudnn: Any = torch.backends.cudnn
    before, cudnn.enabled = cudnn.enabled, False
    try:
        return torch.lstm(*args, **options)
    finally:
        cudnn.enabled = before


REPLACED = {
    functional.embedding: embedding_in_order,
    functional.scaled_dot_product_attention: attention_in_order,
    torch.lstm: lstm_in_order,
}
