"""Runs the kernels of batch level: sums of each class, the loss, and the gradient.

Plans are made once for a shape, as at the example level.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch
import triton

from softf1.kernels import (
    _launch,
    _sigmoid,
    _softmax_batch,
    _softmax_batch_long,
    _softmax_example_long,
)
from softf1.kernels._launch import Plan, launch, shape_of
from softf1.kernels._numbers import floats, kept_floats

if TYPE_CHECKING:
    from torch import Tensor

    from softf1.kernels._launch import Lanes, Shape
    from softf1.kernels._numbers import Numbers

MOST_LINES = 64  # of partial sums that one program adds up
MOST_PARTIAL = 2**14  # partial sums that the last program holds at once


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
    c = x.shape[1]
    partial, aux = _partial_sums(x, target, mask, numbers)
    value = floats(x, c) if none else floats(x)
    slopes = floats(x, 2, c)
    while len(partial) > _lines_at_once(c):
        partial = _shorten(partial)
    flags = (weight is not None, micro, mean, none)
    plan = _plan_finish(len(partial), c, numbers.smooth, flags, x.device)
    launch(plan, partial, value if weight is None else weight, value, slopes)
    return value, slopes, aux


@lru_cache(maxsize=1024)
def _lines_at_once(c: int) -> int:
    """Returns how many lines of partial sums one program may finish: each launch costs the host."""
    return 1 if c > 1_024 else max(MOST_LINES, MOST_PARTIAL // triton.next_power_of_2(c))


def run_batch_sums(
    x: Tensor, target: Tensor, mask: Tensor | None, numbers: Numbers
) -> tuple[Tensor, Tensor]:
    """Returns (2, C), overlap and total of each class, and what backward needs of the rows."""
    partial, aux = _partial_sums(x, target, mask, numbers)
    while len(partial) > 1:
        partial = _shorten(partial)
    return partial[0], aux


def _shorten(partial: Tensor) -> Tensor:
    """Adds groups of lines up."""
    lines, _, c = partial.shape
    plan = _plan_shorten(lines, c, partial.device)
    shorter = floats(partial, plan.grid[0], 2, c)
    launch(plan, partial, shorter)
    return shorter


@lru_cache(maxsize=4096)
def _plan_shorten(lines: int, c: int, device: torch.device) -> Plan:  # noqa: ARG001 — see below
    grid = (triton.cdiv(lines, MOST_LINES), triton.cdiv(2 * c, 64), 1)
    return Plan(_softmax_batch.batch_shorten_kernel, grid, (lines, c), (MOST_LINES, 64), 4)


def _partial_sums(
    x: Tensor, target: Tensor, mask: Tensor | None, numbers: Numbers
) -> tuple[Tensor, Tensor]:
    """Returns (lines, 2, C), overlap and total over the rows of each program, and the rows'."""
    n, c = x.shape
    aux = floats(x, kept_floats(n, numbers, softmax=True) if target.dim() == 1 else 0)
    if not n:
        return x.new_zeros((1, 2, c), dtype=torch.float32), aux
    if target.dim() == 2:
        return _sum_terms(x, target, mask, numbers), aux
    wide = _wide_lanes(shape_of(x, target), numbers) is not None
    return (_sum_wide if wide else _sum_rows)(x, target, mask, aux, numbers), aux


@lru_cache(maxsize=4096)
def _plan_finish(
    lines: int,
    c: int,
    smooth: float,
    flags: tuple[bool, ...],
    device: torch.device,  # noqa: ARG001 — a plan keeps what starts a kernel on one device
) -> Plan:
    block = min(triton.next_power_of_2(c), 4_096 if lines == 1 else 1_024)
    at_once = min(triton.next_power_of_2(lines), max(1, MOST_PARTIAL // block))
    warps = 4 if at_once * block <= 1_024 else 16
    return Plan(
        _softmax_batch.batch_finish_kernel,
        (1, 1, 1),
        (lines, c, smooth),
        (*flags, at_once, block),
        warps,
    )


def _sum_terms(x: Tensor, target: Tensor, mask: Tensor | None, numbers: Numbers) -> Tensor:
    """Returns (lines, 2, C): overlap and total of each class over the rows of each program."""
    plan = _plan_terms(shape_of(x, target), target.stride(), numbers, has_mask=mask is not None)
    partial = floats(x, plan.grid[0], 2, x.shape[1])
    launch(plan, x, target, x if mask is None else mask, partial)
    return partial


@lru_cache(maxsize=4096)
def _plan_terms(
    shape: Shape, strides: tuple[int, ...], numbers: Numbers, *, has_mask: bool
) -> Plan:
    n, c, stride_n, stride_c, *_ = shape
    loss, power, decay, alpha, fp, fn, _, ignore = numbers
    vector = shape.vector
    s, rows, w, warps, programs = _launch.statistics_tile(n, c, vector, shape.many)
    return Plan(
        _sigmoid.sigmoid_batch_statistics_kernel, (programs, triton.cdiv(c, s * w), 1),
        (n, c // vector, stride_n // vector, stride_c, *strides, ignore, alpha, fp, fn),
        (loss, power, decay, has_mask, vector, s, rows, w), warps,
    )  # fmt: skip


def _sum_rows(
    x: Tensor, target: Tensor, mask: Tensor | None, aux: Tensor, numbers: Numbers
) -> Tensor:
    """Returns (lines, 2, C), and leaves what backward needs of the rows in `aux`."""
    plans = _plan_sums(shape_of(x, target), target.stride(0), numbers, has_mask=mask is not None)
    filler = x if mask is None else mask
    for plan in plans[:-1]:
        launch(plan, x, target, filler, aux)
    partial = floats(x, plans[-1].grid[0], 2, x.shape[1])
    launch(plans[-1], x, target, filler, aux, partial)
    return partial


@lru_cache(maxsize=4096)
def _plan_sums(shape: Shape, stride: int, numbers: Numbers, *, has_mask: bool) -> list[Plan]:
    """Where rows are longer than a tile, their softmax sums come first."""
    n, c, stride_n, stride_c, *_ = shape
    _, _, _, alpha, fp, fn, _, ignore = numbers
    vector, unit = shape.vector, stride_c == 1
    s, rows, w, warps, programs = _launch.statistics_tile(n, c, vector, shape.many)
    grid = (programs, triton.cdiv(c, s * w), 1)
    places = (n, c // vector, stride_n // vector, stride_c, stride, ignore)
    constants = (*numbers.formula, has_mask, vector, unit, s, rows, w, grid[1] == 1)
    plans = [
        Plan(
            _softmax_batch.softmax_batch_statistics_kernel,
            grid,
            (*places, alpha, fp, fn),
            constants,
            warps,
        )
    ]
    if grid[1] > 1:
        lanes, v, warps, programs = _launch.long_lanes(n, shape.element_size, shape.many)
        even = c % (lanes * v) == 0
        constants = (numbers.fractional, has_mask, vector, unit, even, lanes, v)
        plans.insert(
            0,
            Plan(
                _softmax_example_long.softmax_batch_long_state_kernel,
                (programs, 1, 1),
                places,
                constants,
                warps,
            ),
        )
    return plans


def _wide_lanes(shape: Shape, numbers: Numbers) -> Lanes | None:
    n, c, _, stride_c, *_ = shape
    if c <= _launch.LONGEST_TILE or numbers.fractional or stride_c != 1:
        return None
    return _launch.wide_lanes(n, c, shape.element_size, shape.many)


def _sum_wide(
    x: Tensor, target: Tensor, mask: Tensor | None, aux: Tensor, numbers: Numbers
) -> Tensor:
    """Returns (1, 2, C), and leaves what backward needs of the rows in `aux`."""
    c = x.shape[1]
    totals, gold, collect = _plan_wide(
        shape_of(x, target), target.stride(0), numbers, has_mask=mask is not None
    )
    filler = x if mask is None else mask
    partial, sums = floats(x, totals.grid[0], c), floats(x, 1, 2, c)
    counts = torch.zeros((2, c), dtype=torch.int64, device=x.device)
    launch(totals, x, target, filler, aux, partial)
    launch(gold, x, target, filler, aux, counts)
    launch(collect, partial, counts, sums)
    return sums


@lru_cache(maxsize=4096)
def _plan_wide(shape: Shape, stride: int, numbers: Numbers, *, has_mask: bool) -> list[Plan]:
    n, c, stride_n, *_ = shape
    loss, power, decay, alpha, fp, fn, _, ignore = numbers
    layout = _wide_lanes(shape, numbers)
    assert layout is not None  # noqa: S101 — asked before
    lanes, v, warps, programs = layout
    vector = shape.vector
    formula = (loss, power, decay, alpha == 1.0)
    # Whole numbers of 1 / unit: n terms of at most 2 + fp + fn stay within 63 bits.
    unit = 2.0 ** (61 - n.bit_length() - int(3 + fp + fn).bit_length())
    return [
        Plan(
            _softmax_batch_long.softmax_batch_long_totals_kernel, (programs, 1, 1),
            (n, c // vector, stride_n // vector, stride, ignore, alpha, fp),
            (*formula, has_mask, vector, lanes, v, triton.cdiv(c, lanes * v)), warps,
        ),
        Plan(
            _softmax_batch_long.softmax_batch_long_gold_kernel, (triton.cdiv(n, 128), 1, 1),
            (n, c, stride_n, stride, ignore, alpha, fp, fn, unit), (*formula, has_mask, 128), 4,
        ),
        Plan(
            _softmax_batch_long.softmax_batch_long_collect_kernel, (triton.cdiv(c, 128), 1, 1),
            (programs, c, unit), (32, 128), 4,
        ),
    ]  # fmt: skip


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
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not x.shape[0]:
        return dx
    strides = target.stride()
    plan = _plan_batch_backward(
        shape_of(x, target), strides, incoming.stride(), numbers, has_mask=mask is not None
    )
    if len(strides) == 1:
        launch(plan, x, target, aux, slopes, incoming, dx)
    else:
        launch(plan, x, target, x if mask is None else mask, slopes, incoming, dx)
    return dx


@lru_cache(maxsize=4096)
def _plan_batch_backward(
    shape: Shape,
    strides: tuple[int, ...],
    incoming: tuple[int, ...],
    numbers: Numbers,
    *,
    has_mask: bool,
) -> Plan:
    n, c, stride_n, stride_c, *_ = shape
    loss, power, decay, alpha, fp, fn, _, ignore = numbers
    vector, stride = shape.vector, incoming[0] if incoming else 0
    places = (n, c // vector, stride_n // vector)
    constants: tuple[int | bool, ...]
    numbers_: tuple[int | float, ...]
    if len(strides) == 2:
        s, rows, w, warps, programs = _launch.backward_tile(n, c, vector, shape.many)
        constants = (loss, power, decay, has_mask, vector, s, rows, w)
        numbers_ = (*places, stride_c, *strides, stride, ignore, alpha, fp, fn)
        kernel = _sigmoid.sigmoid_batch_backward_kernel
    elif (layout := _wide_lanes(shape, numbers)) is not None:
        lanes, v, warps, programs = layout
        constants = (
            loss, power, decay, alpha == 1.0, vector, lanes, v, triton.cdiv(c, lanes * v)
        )  # fmt: skip
        numbers_ = (*places, *strides, stride, alpha, fp, fn)
        kernel = _softmax_batch_long.softmax_batch_long_backward_kernel
    else:
        s, rows, w, warps, programs = _launch.batch_backward_tile(n, c, vector, shape.many)
        constants = (*numbers.formula, vector, stride_c == 1, s, rows, w, s * w >= c)
        numbers_ = (*places, stride_c, *strides, stride, alpha, fp, fn)
        kernel = _softmax_batch.softmax_batch_backward_kernel
    return Plan(kernel, (programs, 1, 1), numbers_, constants, warps)
