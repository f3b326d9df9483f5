"""Parts of an encoder layer, each a matrix product and the kernels around it, with derivatives.

    linear_norm     LayerNorm(residual + dropout(linear(x)))
    linear_gelu     gelu(linear(x))
    linear_qkv      query, key and value of self-attention in one product

`softf1.kernels.attention` has the attention itself.

As PyTorch operators, they are 4, 2 and 3 kernels forward and twice as many backward, and
the sum over rows that is the gradient of a bias is slower than the matrix product next to it. Under
autocast a norm's output is float32, and every product after it casts it again: `linear_norm` writes
it in both precisions, so that nothing is cast and residuals are added in float32. Gradients are the
same on every call: no kernel adds in an order that depends on timing.

Gradients of biases, and of a norm's scale and shift, are sums over rows. Each part can compute its
own, or leave them to `softf1.kernels.row_sums` (the argument `owed`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
from torch.autograd.function import once_differentiable

from softf1.kernels._encoder import (
    gelu_backward,
    gelu_forward,
    norm_backward,
    norm_forward,
    pack_backward,
)
from softf1.kernels._launch import processors, start
from softf1.kernels.row_sums import Owed, add_lines, open_lines, own_bias, reserve, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

LONGEST_ROW = 8_192
"""Largest width of a norm: a row stays in registers."""
TILE = 2_048  # entries of a tile: 16 for each of 128 threads
COLUMNS = 128  # of a tile that is summed over rows


class Dropout(NamedTuple):
    """The probability p, and the seed to draw from: `seeds[call]`, on the device."""

    p: float = 0.0
    seeds: Tensor | None = None
    call: int = 0

    @property
    def of_65536(self) -> int:
        """The probability as the kernels draw it, with 16 bits; the mask is exact for it."""
        return min(round(self.p * 65_536), 65_535)


def linear_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor,
    norm: torch.nn.LayerNorm,
    dropout: Dropout,
    *,
    owed: Owed | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Returns LayerNorm(residual + dropout(x·weightᵀ + bias)) in float32 and in x's half precision.

    Args:
        x: Input, (…, inputs).
        weight: (width, inputs), of x's dtype.
        bias: (width,), of x's dtype.
        residual: (…, width) in float32.
        norm: The LayerNorm, float32.
        dropout: Dropout of the product.
        owed: Collects the gradients of scale, shift and bias; None: computed by this part.
    """
    out: tuple[Tensor, Tensor | None] = LinearNorm.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, residual, norm.weight, norm.bias, *split(owed), norm.eps, dropout
    )
    return out


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor, *, owed: Owed | None = None) -> Tensor:
    """Returns gelu(x·weightᵀ + bias), the exact form with the error function."""
    out: Tensor = LinearGelu.apply(x, weight, bias, *split(owed))  # type: ignore[no-untyped-call]
    return out


def linear_qkv(
    x: Tensor, *layers: Tensor, owed: Owed | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns query, key and value (…, width), computed in one product: views of one tensor.

    Args:
        x: Input, (…, inputs).
        layers: Three weights (width, inputs), then three biases. If they lie one after the other in
            memory, nothing is copied.
        owed: Collects the gradients of the biases; None: computed by this part.
    """
    out: tuple[Tensor, Tensor, Tensor] = LinearQKV.apply(x, *layers, *split(owed))  # type: ignore[no-untyped-call]
    return out


class LinearNorm(torch.autograd.Function):
    """See `linear_norm`."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor, *norm: Any
    ) -> tuple[Tensor, Tensor | None]:
        gain, shift, _, owed, eps, dropout = norm
        z = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight.t())
        residual = residual.contiguous()
        rows, width = z.shape
        y, half = torch.empty_like(residual), None
        if z.dtype != torch.float32:
            half = torch.empty_like(residual, dtype=z.dtype)
        statistics = torch.empty((2, rows), dtype=torch.float32, device=z.device)
        tile = norm_tile(width)
        start(
            norm_forward, (triton.cdiv(rows, tile["R"]),),
            z, residual, gain, shift, some(dropout.seeds, z), y, some(half, y), statistics,
            rows, dropout.call, dropout.of_65536, eps, width,
            **tile, DROP=dropout.of_65536 > 0, HALF=half is not None,
        )  # fmt: skip
        ctx.save_for_backward(x, weight, z, residual, gain, statistics, dropout.seeds)
        ctx.dropped, ctx.call = dropout.of_65536, dropout.call
        ctx.lines = min(triton.cdiv(rows, tile["R"]), 2 * processors(z.device))
        ctx.owed = reserve(owed, ctx.lines)
        ctx.set_materialize_grads(False)
        return y, half

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, dhalf: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: D102
        x, weight, z, residual, gain, statistics, seeds = ctx.saved_tensors
        if dy is None and dhalf is None:
            return (None,) * 10
        rows, width = z.shape
        dz, dresidual = torch.empty_like(z), torch.empty_like(residual)
        tile = norm_tile(width)
        parts = open_lines(ctx, 3 * width, z.device)
        dy, dhalf = contiguous(dy), contiguous(dhalf)
        start(
            norm_backward, (ctx.lines,),
            some(dy, z), some(dhalf, z), z, residual, gain, some(seeds, z), statistics,
            dz, dresidual, parts, rows, ctx.call, ctx.dropped, width, parts.stride(0),
            **tile, DROP=ctx.dropped > 0, WHOLE=dy is not None, HALF=dhalf is not None,
        )  # fmt: skip
        dgain = dshift = dbias = None
        if ctx.owed is None:
            of_norm, dbias = add_lines(parts, 2 * width, z.dtype)
            dgain, dshift = of_norm.chunk(2)
        dx, dweight = product_gradients(ctx, dz, x, weight)
        return dx, dweight, dbias, dresidual, dgain, dshift, *(None,) * 4


class LinearGelu(torch.autograd.Function):
    """See `linear_gelu`."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, _: Tensor | None, owed: Owed | None
    ) -> Tensor:
        z = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight.t())
        y = torch.empty_like(z)
        start(gelu_forward, (triton.cdiv(z.numel(), TILE),), z, y, z.numel(), TILE)
        ctx.save_for_backward(x, weight, z)
        ctx.lines = count_lines(z)
        ctx.owed = reserve(owed, ctx.lines)
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        x, weight, z = ctx.saved_tensors
        dz, (rows, width) = torch.empty_like(z), z.shape
        parts = open_lines(ctx, width, z.device)
        start(
            gelu_backward, (triton.cdiv(width, COLUMNS), ctx.lines),
            dy.contiguous(), z, dz, parts, rows, width, parts.stride(0),
            R=TILE // COLUMNS, W=COLUMNS,
        )  # fmt: skip
        dx, dweight = product_gradients(ctx, dz, x, weight)
        return dx, dweight, own_bias(ctx, parts, z.dtype), None, None


class LinearQKV(torch.autograd.Function):
    """See `linear_qkv`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *given: Any) -> tuple[Tensor, ...]:  # noqa: D102
        *layers, _, owed = given
        weight, bias = join_rows(layers[:3]), join_rows(layers[3:])
        z = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight.t())
        ctx.save_for_backward(x, weight)
        ctx.lines = count_lines(z)
        ctx.owed = reserve(owed, ctx.lines)
        ctx.set_materialize_grads(False)
        return z.view(*x.shape[:-1], -1).chunk(3, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: D102
        x, weight = ctx.saved_tensors
        width = weight.shape[0] // 3
        parts_of = [as_rows(g, x, width) for g in gradients]
        rows = parts_of[0].shape[0]
        dz = torch.empty((rows, 3 * width), dtype=x.dtype, device=x.device)
        parts = open_lines(ctx, 3 * width, x.device)
        start(
            pack_backward, (3 * triton.cdiv(width, COLUMNS), ctx.lines),
            *parts_of, dz, parts, rows, width, parts.stride(0), *(g.stride(0) for g in parts_of),
            R=TILE // COLUMNS, W=COLUMNS,
        )  # fmt: skip
        dx, dweight = product_gradients(ctx, dz, x, weight, weights=3)
        return dx, *thirds(dweight), *thirds(own_bias(ctx, parts, x.dtype)), None, None


def norm_tile(width: int) -> dict[str, int]:
    """Returns the tile of a norm: R whole rows."""
    across = max(8, triton.next_power_of_2(width))  # eight neighbours share a draw
    return {"R": max(1, TILE // across), "W": across, "num_warps": max(4, across // 512)}


def count_lines(z: Tensor) -> int:
    """Returns how many programs share the rows: enough to keep the device busy."""
    rows, width = z.shape
    most: int = max(1, 4 * processors(z.device) // triton.cdiv(width, COLUMNS))
    return min(-(-rows * COLUMNS // TILE), most)


def thirds(gradient: Tensor | None) -> Sequence[Tensor | None]:
    """Splits a gradient into those of query, key and value."""
    return (None,) * 3 if gradient is None else gradient.chunk(3)


def product_gradients(
    ctx: Any, dz: Tensor, x: Tensor, weight: Tensor, *, weights: int = 1
) -> tuple[Tensor | None, Tensor | None]:
    """Returns the gradients of x·weightᵀ by x and by the weight, each if it is needed.

    The inputs of `ctx` begin with x and as many weights as are joined in the one given here.
    """
    dx = (dz @ weight).view_as(x) if ctx.needs_input_grad[0] else None
    needed = any(ctx.needs_input_grad[1 : 1 + weights])
    return dx, dz.t() @ x.reshape(-1, x.shape[-1]) if needed else None


def join_rows(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenates tensors along their first axis; a view if they already lie so in memory.

    >>> first, second = torch.arange(4.0).view(2, 2).split(1)
    >>> joined = join_rows((first, second))
    >>> joined.shape, joined.data_ptr() == first.data_ptr()
    (torch.Size([2, 2]), True)
    >>> join_rows((second, first)).tolist()
    [[2.0, 3.0], [0.0, 1.0]]
    """
    first, step = tensors[0], tensors[0].numel() * tensors[0].element_size()
    start, storage = first.data_ptr(), first.untyped_storage().data_ptr()
    for number, tensor in enumerate(tensors):
        same = tensor.shape == first.shape and tensor.is_contiguous()
        if (
            not same
            or tensor.data_ptr() != start + number * step
            or tensor.untyped_storage().data_ptr() != storage
        ):
            return torch.cat(tuple(tensors))
    size = (len(tensors) * first.shape[0], *first.shape[1:])
    return first.as_strided(size, first.stride())


def as_rows(gradient: Tensor | None, x: Tensor, width: int) -> Tensor:
    """Returns a gradient as (rows, width), each row contiguous; zeros for None."""
    if gradient is None:
        return x.new_zeros((x.numel() // x.shape[-1], width))
    rows = gradient.reshape(-1, width)
    return rows if rows.stride(1) == 1 else rows.contiguous()


def contiguous(gradient: Tensor | None) -> Tensor | None:
    """Returns the gradient as a contiguous tensor."""
    return None if gradient is None else gradient.contiguous()


def some(tensor: Tensor | None, other: Tensor) -> Tensor:
    """Returns the tensor, or for None `other`: a kernel needs a pointer even if it is not read."""
    return other if tensor is None else tensor
