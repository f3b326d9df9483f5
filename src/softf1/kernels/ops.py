"""The kernels as operators that torch.compile, CUDA graphs and autocast accept."""

# torch.library reads annotations itself: they are not postponed here.
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import triton
from torch import Tensor

from softf1.kernels import _batch, _rows

LONGEST_TILE = 32_768  # a row of so many classes still fits into the registers of one program
TILE = 8_192
SECOND_DERIVATIVE = (
    "softf1's losses have hand-written first derivatives only; a second derivative (a gradient "
    "penalty, a Hessian) is not available"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a kernel is laid over rows × classes."""

    rows: int
    classes: int
    block_n: int
    block_c: int
    tiles: int
    warps: int
    programs: int
    stages: int

    def options(self) -> dict[str, int]:
        """Returns the launch options that every kernel takes."""
        return {
            "BLOCK_N": self.block_n,
            "BLOCK_C": self.block_c,
            "TILES": self.tiles,
            "num_warps": self.warps,
        }


@lru_cache(maxsize=1024)
def lay_out(rows: int, classes: int, processors: int) -> Shape:
    """Chooses tile and grid: about 4,096 entries a tile, or one row where that is longer."""
    block_c = triton.next_power_of_2(classes)
    if block_c > LONGEST_TILE:
        block_c = TILE
    block_n = max(1, min(256, 4_096 // block_c, triton.next_power_of_2(max(rows, 1))))
    entries = block_n * block_c
    warps = 4 if entries <= 4_096 else 8 if entries <= 8_192 else 32
    tiles = triton.cdiv(classes, block_c)
    blocks = triton.cdiv(max(rows, 1), block_n)
    together = max(1, 2_048 // (32 * warps) // 2)
    stages = 1
    return Shape(
        rows, classes, block_n, block_c, tiles, warps, min(blocks, processors * together), stages
    )


def _shape(x: Tensor) -> Shape:
    processors = 4
    if x.is_cuda:
        processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    return lay_out(x.shape[0], x.shape[1], processors)


def _floats(x: Tensor, *shape: int) -> Tensor:
    return x.new_empty(shape, dtype=torch.float32)


def _fractional(decay: int, alpha: float) -> bool:
    return decay > 0 and alpha < 1.0


def _decay(decay: int, alpha: float) -> dict[str, bool]:
    return {"FRACTIONAL": _fractional(decay, alpha), "ALPHA_ONE": alpha == 1.0}


def _strides(target: Tensor) -> tuple[int, int]:
    return target.stride(0), target.stride(1) if target.dim() == 2 else 0


@torch.library.custom_op("softf1::rows", mutates_args=())
def rows(
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    loss: int,
    power: int,
    decay: int,
    alpha: float,
    fp: float,
    fn: float,
    smooth: float,
    ignore: int,
    mean: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns a value a row (N,), (sum or mean, its factor), and what backward needs (5, N)."""
    n, c = x.shape
    shape = _shape(x)
    values = _floats(x, n)
    aux = _floats(x, _rows.AUX, n)
    result = x.new_zeros(2, dtype=torch.float32)
    if n:
        partial = _floats(x, 2 * shape.programs)
        counter = x.new_zeros(1, dtype=torch.int32)
        _rows.rows_forward_kernel[(shape.programs,)](
            x, target, x if mask is None else mask, x if weight is None else weight,
            values, aux, partial, counter, result,
            n, c, *x.stride(), *_strides(target), ignore, alpha, fp, fn, smooth,
            LOSS=loss, POWER=power, DECAY=decay, FOCAL=loss == 0 and alpha > 0,
            **_decay(decay, alpha),
            SIGMOID=target.dim() == 2, HAS_MASK=mask is not None, HAS_WEIGHT=weight is not None,
            MEAN=mean, STAGES=shape.stages, PROGRAMS=triton.next_power_of_2(shape.programs),
            **shape.options(),
        )  # fmt: skip
    return values, result, aux


@rows.register_fake
def _(x: Tensor, target: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    n = x.shape[0]
    return _floats(x, n), _floats(x, 2), _floats(x, _rows.AUX, n)


@torch.library.custom_op("softf1::rows_backward", mutates_args=())
def rows_backward(
    incoming: Tensor,
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    aux: Tensor,
    result: Tensor,
    loss: int,
    power: int,
    decay: int,
    alpha: float,
    fp: float,
    fn: float,
    smooth: float,
    ignore: int,
) -> Tensor:
    """Returns the gradient (N, C); `incoming` is (N,) or one number."""
    n, c = x.shape
    shape = _shape(x)
    dx = x.new_empty((n, c))
    if n:
        _rows.rows_backward_kernel[(shape.programs,)](
            x, target, x if mask is None else mask, x if weight is None else weight,
            aux, result, incoming, dx,
            n, c, *x.stride(), *_strides(target), incoming.stride(0) if incoming.dim() else 0,
            ignore, alpha, fp, fn, smooth,
            LOSS=loss, POWER=power, DECAY=decay, FOCAL=loss == 0 and alpha > 0,
            **_decay(decay, alpha),
            SIGMOID=target.dim() == 2, HAS_MASK=mask is not None, HAS_WEIGHT=weight is not None,
            STAGES=shape.stages, **shape.options(),
        )  # fmt: skip
    return dx


@rows_backward.register_fake
def _(incoming: Tensor, x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _keep_rows(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, target, mask, weight, *numbers = inputs
    _, result, aux = output
    ctx.save_for_backward(x, target, mask, weight, aux, result)
    ctx.numbers = numbers[:-1]
    ctx.set_materialize_grads(False)


def _rows_gradient(
    ctx: Any, of_values: Tensor | None, of_result: Tensor | None, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    x, target, mask, weight, aux, result = ctx.saved_tensors
    # The result's first number is the sum or mean; without a reduction its factor is 1.
    incoming = of_values if of_result is None else of_result[0]
    dx = None
    if incoming is not None:
        dx = rows_backward(incoming, x, target, mask, weight, aux, result, *ctx.numbers)
    return dx, *(None,) * 12


rows.register_autograd(_rows_gradient, setup_context=_keep_rows)


@torch.library.custom_op("softf1::batch", mutates_args=())
def batch(
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    loss: int,
    power: int,
    decay: int,
    alpha: float,
    fp: float,
    fn: float,
    smooth: float,
    ignore: int,
    micro: bool,
    mean: bool,
    none: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the loss (() or (C,)), its derivatives by overlap and total (2, C), and (5, N)."""
    n, c = x.shape
    shape = _shape(x)
    softmax = target.dim() == 1
    aux = _floats(x, _rows.AUX, n if softmax else 0)
    slopes = _floats(x, 2, c)
    value = _floats(x, c) if none else _floats(x)
    filler = x if mask is None else mask
    lines = max(1, min(shape.programs, _most_lines(x)))
    partial = _floats(x, lines, 2, c) if n else x.new_zeros((1, 2, c), dtype=torch.float32)
    if n:
        if softmax and shape.tiles > 1:
            _batch.sums_kernel[(triton.cdiv(n, shape.block_n),)](
                x, target, filler, aux, n, c, *x.stride(), target.stride(0), ignore,
                FRACTIONAL=_fractional(decay, alpha), HAS_MASK=mask is not None,
                **shape.options(),
            )  # fmt: skip
        _batch.statistics_kernel[(lines, shape.tiles)](
            x, target, filler, aux, partial,
            n, c, *x.stride(), *_strides(target), ignore, alpha, fp, fn,
            LOSS=loss, POWER=power, DECAY=decay, **_decay(decay, alpha),
            SIGMOID=not softmax, HAS_MASK=mask is not None,
            STAGES=shape.stages, **shape.options(),
        )  # fmt: skip
    if c > 1_024 and lines > 1:
        partial = partial.sum(0, keepdim=True)
    _batch.finish_kernel[(1,)](
        partial, x if weight is None else weight, value, slopes, len(partial), c, smooth,
        HAS_WEIGHT=weight is not None, MICRO=micro, MEAN=mean, NONE=none,
        BLOCK_C=min(triton.next_power_of_2(c), 4_096), num_warps=8 if c > 256 else 1,
    )  # fmt: skip
    return value, slopes, aux


def _most_lines(x: Tensor) -> int:
    """Returns how many programs share the rows: more than fill the device only cost memory."""
    return 32 if not x.is_cuda else torch.cuda.get_device_properties(x.device).multi_processor_count


@batch.register_fake
def _(x: Tensor, target: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    n, c = x.shape
    value = _floats(x, c) if rest[-1] else _floats(x)
    return value, _floats(x, 2, c), _floats(x, _rows.AUX, n if target.dim() == 1 else 0)


@torch.library.custom_op("softf1::batch_backward", mutates_args=())
def batch_backward(
    incoming: Tensor,
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    aux: Tensor,
    slopes: Tensor,
    loss: int,
    power: int,
    decay: int,
    alpha: float,
    fp: float,
    fn: float,
    ignore: int,
) -> Tensor:
    """Returns the gradient (N, C); `incoming` is (C,) or one number."""
    n, c = x.shape
    shape = _shape(x)
    dx = x.new_empty((n, c))
    if n:
        _batch.backward_kernel[(shape.programs,)](
            x, target, x if mask is None else mask, aux, slopes, incoming, dx,
            n, c, *x.stride(), *_strides(target), incoming.stride(0) if incoming.dim() else 0,
            ignore, alpha, fp, fn,
            LOSS=loss, POWER=power, DECAY=decay, **_decay(decay, alpha), SIGMOID=target.dim() == 2,
            HAS_MASK=mask is not None, STAGES=shape.stages, **shape.options(),
        )  # fmt: skip
    return dx


@batch_backward.register_fake
def _(incoming: Tensor, x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _keep_batch(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, target, mask, _, *numbers = inputs
    _, slopes, aux = output
    ctx.save_for_backward(x, target, mask, aux, slopes)
    loss, power, decay, alpha, fp, fn, _, ignore, *_ = numbers
    ctx.numbers = (loss, power, decay, alpha, fp, fn, ignore)
    ctx.set_materialize_grads(False)


def _batch_gradient(
    ctx: Any, incoming: Tensor | None, _: Tensor | None, __: Tensor | None
) -> tuple[Tensor | None, ...]:
    dx = None
    if incoming is not None:
        x, target, mask, aux, slopes = ctx.saved_tensors
        dx = batch_backward(incoming, x, target, mask, aux, slopes, *ctx.numbers)
    return dx, *(None,) * 14


batch.register_autograd(_batch_gradient, setup_context=_keep_batch)


def _refuse(ctx: Any, *_: Any) -> None:
    raise RuntimeError(SECOND_DERIVATIVE)


for _operator in (rows_backward, batch_backward):
    _operator.register_autograd(_refuse)
