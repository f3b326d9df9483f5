"""Runs the kernels: allocates what they write, chooses the one for the shape, starts it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton

from softf1.kernels import _batch, _launch, _long, _rows, _terms, _wide

if TYPE_CHECKING:
    from torch import Tensor

    from softf1.kernels._launch import Lanes, Tile

MOST_LINES = 512  # of partial sums that one program adds up
PAIRABLE = (1e-6, 1e6)  # a product of two such numbers is far from the ends of float32


class Numbers(NamedTuple):
    """A loss in numbers; `alpha` is gamma for the entropies."""

    loss: int
    power: int
    decay: int
    alpha: float
    fp: float
    fn: float
    smooth: float
    ignore: int

    @property
    def fractional(self) -> bool:
        """True where the largest class of a row is taken apart."""
        return self.decay > 0 and self.alpha < 1.0

    @property
    def planes(self) -> int:
        """How many values are kept of a softmax row."""
        return 8 if self.fractional else 5


@lru_cache(maxsize=1024)
def _constants(numbers: Numbers) -> tuple[int | bool, ...]:
    """Returns LOSS, POWER, DECAY, FRACTIONAL, ALPHA_ONE."""
    loss, power, decay, alpha, *_ = numbers
    return (loss, power, decay, numbers.fractional, alpha == 1.0)


def kept_floats(n: int, numbers: Numbers, *, softmax: bool) -> int:
    """Returns how many floats forward keeps for backward: values of rows, then one factor."""
    return (numbers.planes if softmax else 1) * n + 1


def _floats(x: Tensor, *size: int) -> Tensor:
    return torch.empty(size, dtype=torch.float32, device=x.device)


def run_rows(
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    numbers: Numbers,
    *,
    mean: bool,
    none: bool,
) -> tuple[Tensor, Tensor]:
    """Returns the loss, () or (N,), and what backward needs."""
    n, c = x.shape
    softmax = target.dim() == 1
    aux = _floats(x, kept_floats(n, numbers, softmax=softmax))
    if not n:
        return x.new_zeros((0,) if none else (), dtype=torch.float32), aux.zero_()
    value = _floats(x, n) if none else _floats(x)
    vector, many = _launch.vector_of(x), _launch.processors(x.device)
    lanes, tile = None, _launch.forward_tile(n, c, vector, many)
    if softmax and c > _launch.LONGEST_TILE:
        lanes = _launch.long_lanes(n, x.element_size(), many)
    warps, programs = (tile if lanes is None else lanes)[-2:]
    partial = aux if none else _floats(x, 2 * programs)
    counter = aux if none else _launch.counter(x)
    tensors = (
        x, target, x if mask is None else mask, x if weight is None else weight,
        value, aux, partial, counter, value,
    )  # fmt: skip
    loss, power, decay, alpha, fp, fn, smooth, ignore = numbers
    flags = (mask is not None, weight is not None, mean, none, vector)
    focal, unit = loss == 0 and alpha > 0.0, x.stride(1) == 1
    most = triton.next_power_of_2(programs)
    if not softmax:
        _launch.launch(
            _terms.terms_forward_kernel, (programs, 1, 1), tensors,
            (n, c // vector, x.stride(0) // vector, *x.stride()[1:], *target.stride(), ignore,
             alpha, fp, fn, smooth),
            (loss, power, decay, focal, *flags, *tile[:3], most), warps,
        )  # fmt: skip
        return value, aux
    constants = (*_constants(numbers), smooth > 0.0, focal, *flags, unit)
    arguments = (
        n, c // vector, x.stride(0) // vector, x.stride(1), target.stride(0), ignore,
        alpha, fp, fn, smooth, power * smooth,
    )  # fmt: skip
    layout: tuple[int | bool, ...] = (*tile[:3], most)
    kernel = _rows.rows_forward_kernel
    if lanes is not None:
        kernel = _long.long_forward_kernel
        even, low, high = c % (lanes.lanes * lanes.v) == 0, *PAIRABLE
        paired = low <= smooth <= high and fp <= high
        layout = (even, lanes.lanes, lanes.v, paired, most)
    _launch.launch(kernel, (programs, 1, 1), tensors, arguments, (*constants, *layout), warps)
    return value, aux


def run_rows_backward(
    incoming: Tensor,
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    aux: Tensor,
    numbers: Numbers,
) -> Tensor:
    """Returns the gradient (N, C); `incoming` is (N,) or one number."""
    n, c = x.shape
    dx = torch.empty((n, c), dtype=x.dtype, device=x.device)
    if not n:
        return dx
    vector, none = _launch.vector_of(x), incoming.dim() == 1
    tile = _launch.backward_tile(n, c, vector, _launch.processors(x.device))
    loss, power, decay, alpha, fp, fn, smooth, ignore = numbers
    stride = incoming.stride(0) if none else 0
    weight_or_x = x if weight is None else weight
    if target.dim() == 2:
        _launch.launch(
            _terms.terms_backward_kernel, (tile.programs, 1, 1),
            (x, target, x if mask is None else mask, weight_or_x, aux, incoming, dx),
            (n, c // vector, x.stride(0) // vector, x.stride(1), *target.stride(), stride, ignore,
             alpha, fp, fn, smooth),
            (loss, power, decay, loss == 0 and alpha > 0.0, mask is not None, weight is not None,
             none, vector, *tile[:3]),
            tile.warps,
        )  # fmt: skip
        return dx
    _launch.launch(
        _rows.rows_backward_kernel, (tile.programs, 1, 1),
        (x, target, weight_or_x, aux, incoming, dx),
        (n, c // vector, x.stride(0) // vector, x.stride(1), target.stride(0), stride,
         alpha, fp, smooth, power * smooth),
        (*_constants(numbers), smooth > 0.0, weight is not None, none, vector, x.stride(1) == 1,
         *tile[:3], tile.s * tile.w >= c),
        tile.warps,
    )  # fmt: skip
    return dx


def run_batch(
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    numbers: Numbers,
    *,
    micro: bool,
    mean: bool,
    none: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the loss (() or (C,)), its derivatives by overlap and total (2, C), and the rows'."""
    n, c = x.shape
    softmax = target.dim() == 1
    aux = _floats(x, kept_floats(n, numbers, softmax=True) if softmax else 0)
    value = _floats(x, c) if none else _floats(x)
    slopes = _floats(x, 2, c)
    partial = _partial_sums(x, target, mask, aux, numbers)
    lines = len(partial)
    if lines > MOST_LINES or (lines > 1 and c > 1_024):
        partial, lines = partial.sum(0, keepdim=True), 1
    block = min(triton.next_power_of_2(c), 4_096 if lines == 1 else 1_024)
    _launch.launch(
        _batch.finish_kernel, (1, 1, 1), (partial, x if weight is None else weight, value, slopes),
        (lines, c, numbers.smooth),
        (weight is not None, micro, mean, none, _lines_at_once(lines, block), block),
        4 if block <= 256 and lines == 1 else 16,
    )  # fmt: skip
    return value, slopes, aux


def _lines_at_once(lines: int, block: int) -> int:
    return int(min(triton.next_power_of_2(lines), max(1, 16_384 // block)))


def _partial_sums(
    x: Tensor, target: Tensor, mask: Tensor | None, aux: Tensor, numbers: Numbers
) -> Tensor:
    """Returns (lines, 2, C): overlap and total of each class over the rows of each program."""
    n, c = x.shape
    if not n:
        return x.new_zeros((1, 2, c), dtype=torch.float32)
    vector, many = _launch.vector_of(x), _launch.processors(x.device)
    tile = _launch.statistics_tile(n, c, vector, many)
    grid = (tile.programs, triton.cdiv(c, tile.s * tile.w), 1)
    loss, power, decay, alpha, fp, fn, _, ignore = numbers
    filler = x if mask is None else mask
    if target.dim() == 1 and (wide := _wide_lanes(x, numbers)) is not None:
        return _wide_sums(x, target, mask, aux, numbers, wide)
    partial = _floats(x, tile.programs, 2, c)
    if target.dim() == 2:
        _launch.launch(
            _terms.terms_statistics_kernel, grid, (x, target, filler, partial),
            (n, c // vector, x.stride(0) // vector, x.stride(1), *target.stride(), ignore,
             alpha, fp, fn),
            (loss, power, decay, mask is not None, vector, *tile[:3]), tile.warps,
        )  # fmt: skip
        return partial
    places = (n, c // vector, x.stride(0) // vector, x.stride(1), target.stride(0), ignore)
    unit = x.stride(1) == 1
    if grid[1] > 1:
        lanes = _launch.long_lanes(n, x.element_size(), many)
        _launch.launch(
            _long.long_state_kernel, (lanes.programs, 1, 1), (x, target, filler, aux), places,
            (numbers.fractional, mask is not None, vector, unit,
             c % (lanes.lanes * lanes.v) == 0, lanes.lanes, lanes.v),
            lanes.warps,
        )  # fmt: skip
    _launch.launch(
        _batch.statistics_kernel, grid, (x, target, filler, aux, partial),
        (*places, alpha, fp, fn),
        (*_constants(numbers), mask is not None, vector, unit, *tile[:3], grid[1] == 1),
        tile.warps,
    )  # fmt: skip
    return partial


def _wide_lanes(x: Tensor, numbers: Numbers) -> Lanes | None:
    n, c = x.shape
    if c <= _launch.LONGEST_TILE or numbers.fractional or x.stride(1) != 1:
        return None
    return _launch.wide_lanes(n, c, x.element_size(), _launch.processors(x.device))


def _wide_sums(
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    aux: Tensor,
    numbers: Numbers,
    lanes: Lanes,
) -> Tensor:
    """Returns (1, 2, C)."""
    n, c = x.shape
    loss, power, decay, alpha, fp, fn, _, ignore = numbers
    filler = x if mask is None else mask
    vector, part = _launch.vector_of(x), lanes.lanes * lanes.v
    formula = (loss, power, decay, alpha == 1.0)
    partial, sums = _floats(x, lanes.programs, c), _floats(x, 1, 2, c)
    counts = torch.zeros((2, c), dtype=torch.int64, device=x.device)
    _launch.launch(
        _wide.wide_totals_kernel, (lanes.programs, 1, 1), (x, target, filler, aux, partial),
        (n, c // vector, x.stride(0) // vector, target.stride(0), ignore, alpha, fp),
        (*formula, mask is not None, vector, lanes.lanes, lanes.v, triton.cdiv(c, part)),
        lanes.warps,
    )  # fmt: skip
    # Whole numbers of 1 / unit: n terms of at most 2 + fp + fn stay within 63 bits.
    unit = 2.0 ** (61 - n.bit_length() - int(3 + fp + fn).bit_length())
    _launch.launch(
        _wide.gold_kernel, (triton.cdiv(n, 128), 1, 1), (x, target, filler, aux, counts),
        (n, c, x.stride(0), target.stride(0), ignore, alpha, fp, fn, unit),
        (*formula, mask is not None, 128), 4,
    )  # fmt: skip
    _launch.launch(
        _wide.collect_kernel, (triton.cdiv(c, 128), 1, 1), (partial, counts, sums),
        (lanes.programs, c, unit), (32, 128), 4,
    )  # fmt: skip
    return sums


def run_batch_backward(
    incoming: Tensor,
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    aux: Tensor,
    slopes: Tensor,
    numbers: Numbers,
) -> Tensor:
    """Returns the gradient (N, C); `incoming` is (C,) or one number."""
    n, c = x.shape
    dx = torch.empty((n, c), dtype=x.dtype, device=x.device)
    if not n:
        return dx
    vector, many = _launch.vector_of(x), _launch.processors(x.device)
    loss, power, decay, alpha, fp, fn, _, ignore = numbers
    stride = incoming.stride(0) if incoming.dim() else 0
    if target.dim() == 2:
        tile: Tile = _launch.backward_tile(n, c, vector, many)
        _launch.launch(
            _terms.terms_batch_backward_kernel, (tile.programs, 1, 1),
            (x, target, x if mask is None else mask, slopes, incoming, dx),
            (n, c // vector, x.stride(0) // vector, x.stride(1), *target.stride(), stride, ignore,
             alpha, fp, fn),
            (loss, power, decay, mask is not None, vector, *tile[:3]), tile.warps,
        )  # fmt: skip
        return dx
    if (lanes := _wide_lanes(x, numbers)) is not None:
        part = lanes.lanes * lanes.v
        _launch.launch(
            _wide.wide_backward_kernel, (lanes.programs, 1, 1),
            (x, target, aux, slopes, incoming, dx),
            (n, c // vector, x.stride(0) // vector, target.stride(0), stride, alpha, fp, fn),
            (loss, power, decay, alpha == 1.0, vector, lanes.lanes, lanes.v,
             triton.cdiv(c, part)),
            lanes.warps,
        )  # fmt: skip
        return dx
    tile = _launch.batch_backward_tile(n, c, vector, many)
    _launch.launch(
        _batch.batch_backward_kernel, (tile.programs, 1, 1),
        (x, target, aux, slopes, incoming, dx),
        (n, c // vector, x.stride(0) // vector, x.stride(1), target.stride(0), stride,
         alpha, fp, fn),
        (*_constants(numbers), vector, x.stride(1) == 1, *tile[:3], tile.s * tile.w >= c),
        tile.warps,
    )  # fmt: skip
    return dx
