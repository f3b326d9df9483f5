"""Self-attention with its matrix product, for training steps: texts of any length.

Beside the kernels of PyTorch, these read query, key and value from one product and write the
gradient of that product, so that nothing is copied in between, and they add up in a fixed order.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
from torch.autograd.function import once_differentiable

from softf1.kernels._attention import (
    attention_backward,
    attention_forward,
    long_attention_forward,
    long_attention_key_backward,
    long_attention_query_backward,
)
from softf1.kernels._launch import start
from softf1.kernels.encoder import Dropout, join_rows, product_gradients, some, thirds
from softf1.kernels.row_sums import Owed, open_lines, own_bias, reserve, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

LONGEST_TEXT = 128
"""Most tokens of a text of which one program holds all scores of a head."""
LONGEST_WHOLE = 32
"""The same in float32, which uses no tensor cores: larger tiles take minutes to compile."""
LARGEST_HEAD = 128
"""Width of a head in the kernels for long texts."""
ON_CHIP = {64: 77 * 1024, 128: 149 * 1024}
"""Shared memory that these kernels need for heads of a width, by Triton 3.9 for sm_86 and sm_90;
consumer GPUs (99 KiB) have too little for heads over 64."""
BLOCK = 64
"""Queries or keys of a program for long texts."""


class Packed(NamedTuple):
    """Texts one after the other, without padding, as (1, rows, width).

    Attributes:
        starts: The first row of each text, and the number of rows; int32, (texts + 1,).
        longest: No text has more tokens.
    """

    starts: Tensor
    longest: int


def self_attention(
    x: Tensor,
    *layers: Tensor,
    heads: int,
    scale: float,
    allowed: Tensor | None,
    dropout: Dropout,
    owed: Owed | None = None,
    packed: Packed | None = None,
) -> Tensor:
    """Returns self-attention (texts, tokens, width) of texts that `takes_text` accepts.

    Args:
        x: Input, (texts, tokens, inputs).
        layers: Weights of query, key and value (width, inputs), then three biases.
        heads: Number of heads, which share the width.
        scale: Factor of the scores.
        allowed: True where a token may attend to another, (texts, 1, tokens, tokens); None: all.
        dropout: Dropout of the attention probabilities.
        owed: Collects the gradients of the biases; None: computed by this part.
        packed: Where the texts are, if they are packed and short; every token then attends to its
            whole text.
    """
    out: Tensor = SelfAttention.apply(  # type: ignore[no-untyped-call]
        x, *layers, *split(owed), heads, scale, allowed, dropout, packed
    )
    return out


class SelfAttention(torch.autograd.Function):
    """See `self_attention`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *given: Any) -> Tensor:  # noqa: D102
        *layers, _, owed, heads, scale, allowed, dropout, packed = given
        weight, bias = join_rows(layers[:3]), join_rows(layers[3:])
        qkv = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight.t())
        width, (texts, steps) = weight.shape[0] // 3, x.shape[:2]
        out, sums = qkv.new_empty((*x.shape[:-1], width)), None
        if packed is not None:
            allowed, texts, steps = packed.starts, len(packed.starts) - 1, packed.longest
        else:
            if allowed is None:
                allowed = torch.ones((1, 1, 1, 1), dtype=torch.bool, device=x.device)
            allowed = allowed.view(torch.uint8).expand(texts, 1, steps, steps)
        ctx.numbers = {
            "steps": steps, "call": dropout.call, "dropped": dropout.of_65536, "scale": scale,
            "heads": heads, "size": width // heads, "DROP": dropout.of_65536 > 0,
        }  # fmt: skip
        ctx.packed = packed is not None
        ctx.short, ctx.lines = ctx.packed or is_short(x, width // heads), texts
        strides = (0, 0, 0, 0) if ctx.packed else allowed.stride()
        ctx.numbers |= lay_out(ctx.short, steps, width // heads, strides)
        if ctx.short:
            ctx.numbers["PACKED"] = ctx.packed
        seeds = some(dropout.seeds, qkv)
        if ctx.short:
            start(attention_forward, (texts * heads,), qkv, allowed, seeds, out, **ctx.numbers)
        else:
            sums = qkv.new_empty((texts * heads, steps), dtype=torch.float32)
            blocks = triton.cdiv(steps, BLOCK)
            ctx.lines = texts * blocks
            start(
                long_attention_forward, (texts * heads, blocks),
                qkv, allowed, seeds, out, sums, **ctx.numbers,
            )  # fmt: skip
        ctx.save_for_backward(
            x, weight, qkv, allowed, dropout.seeds, sums, None if ctx.short else out
        )
        ctx.owed = reserve(owed, ctx.lines)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        x, weight, qkv, allowed, seeds, sums, out = ctx.saved_tensors
        dqkv = torch.empty_like(qkv)
        parts = open_lines(ctx, qkv.shape[1], x.device)
        given: tuple[Any, ...] = (qkv, allowed, some(seeds, qkv))
        heads, dout, stride = ctx.numbers["heads"], dout.contiguous(), parts.stride(0)
        if ctx.short:
            start(
                attention_backward, (ctx.lines * heads,),
                dout, *given, dqkv, parts, stride, **ctx.numbers,
            )  # fmt: skip
        else:
            grid = (len(x) * heads, ctx.lines // len(x))
            given = (dout, out, *given, sums, dqkv, parts, stride)
            start(long_attention_query_backward, grid, *given, **ctx.numbers)
            start(long_attention_key_backward, grid, *given, **ctx.numbers | {"N": BLOCK})
        dx, dweight = product_gradients(ctx, dqkv, x, weight, weights=3)
        return dx, *thirds(dweight), *thirds(own_bias(ctx, parts, x.dtype)), *(None,) * 7


def takes_text(x: Tensor, size: int, allowed: Tensor | None) -> bool:
    """Whether `self_attention` takes texts (texts, tokens, inputs) with heads of that size.

    In float32, which has no tensor cores, PyTorch's kernels are better at long texts. A mask that
    differs from token to token is for short texts only.
    """
    if is_short(x, size):
        return True
    half = x.dtype in (torch.bfloat16, torch.float16)
    if not half or size > LARGEST_HEAD or (allowed is not None and allowed.stride(2) != 0):
        return False
    return ON_CHIP[64 if size <= 64 else 128] <= shared_memory(x.device)


def is_short(x: Tensor, size: int) -> bool:
    """Whether one program can hold all scores of a head of a text."""
    return fits_whole(x.shape[1], size, x.element_size(), x.device)


def fits_whole(steps: int, size: int, element_size: int, device: torch.device) -> bool:
    """The same for texts of so many tokens, with entries of so many bytes."""
    across, deep = attention_tile(steps, size)
    # Shared memory of the backward kernel: two matrices of scores, and up to four of a head.
    needed = element_size * across * (2 * across + 4 * deep)
    longest = LONGEST_TEXT if element_size == 2 else LONGEST_WHOLE
    return steps <= longest and needed <= shared_memory(device)


@lru_cache(maxsize=32)
def shared_memory(device: torch.device) -> int:
    """Returns the bytes of shared memory that a program may use; no limit for the interpreter.

    Tensors without data (device "meta") are for the current GPU.
    """
    if device.type == "meta" and torch.cuda.is_available():
        device = torch.device("cuda")
    if device.type != "cuda":
        return sys.maxsize
    has = torch.cuda.get_device_properties(device)
    return int(getattr(has, "shared_memory_per_block_optin", has.shared_memory_per_block))


def attention_tile(steps: int, size: int) -> tuple[int, int]:
    """Returns rows and columns of a head's tile: few sizes, because each is compiled."""
    # Tensor cores need at least 16.
    return max(32, triton.next_power_of_2(steps)), max(16, triton.next_power_of_2(size))


def lay_out(short: bool, steps: int, size: int, strides: Sequence[int]) -> dict[str, int]:  # noqa: FBT001
    """Returns tiles and the strides of the mask for the kernels."""
    across, deep = attention_tile(steps, size)
    mask_batch, _, mask_row, mask_col = strides
    if short:
        tile = {"mask_row": mask_row, "T": across, "num_warps": 8 if across > 64 else 4}
    else:
        tile = {"M": BLOCK, "N": BLOCK // 2, "num_warps": 4}
    return {"mask_batch": mask_batch, "mask_col": mask_col, "D": deep, **tile}
