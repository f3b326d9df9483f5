"""Runs the kernels of ce, focal, and of the dice family at example level: plans, allocates, starts.

Plans are made once for a shape: in eager mode the host is slower than the kernels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch
import triton

from softf1.kernels import _launch, _sigmoid, _softmax_example, _softmax_example_long
from softf1.kernels._launch import Plan, launch, shape_of
from softf1.kernels._numbers import AFTER_ROWS, floats, kept_floats

if TYPE_CHECKING:
    from torch import Tensor

    from softf1.kernels._launch import Shape
    from softf1.kernels._numbers import Numbers

PAIRABLE = (1e-6, 1e6)  # a product of two such numbers is far from the ends of float32


def run_example(
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
    n = x.shape[0]
    aux = floats(x, kept_floats(n, numbers, softmax=target.dim() == 1))
    if not n:
        return x.new_zeros((0,) if none else (), dtype=torch.float32), aux.zero_()
    value = floats(x, n) if none else floats(x)
    flags = (mask is not None, weight is not None, mean, none)
    plan = _plan_rows(shape_of(x, target), target.stride(), numbers, flags)
    counter = aux if none else _launch.counter(x)
    launch(
        plan, x, target, x if mask is None else mask, x if weight is None else weight,
        aux, counter, value,
    )  # fmt: skip
    return value, aux


def run_example_sums(
    x: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, numbers: Numbers
) -> tuple[Tensor, Tensor]:
    """Returns (2, 1), the sum of the rows' losses and their count, and what backward needs."""
    value, aux = run_example(x, target, mask, weight, numbers, mean=False, none=False)
    return torch.stack([value, aux[1 - AFTER_ROWS]]).unsqueeze(1), aux


@lru_cache(maxsize=4096)
def _plan_rows(
    shape: Shape, strides: tuple[int, ...], numbers: Numbers, flags: tuple[bool, ...]
) -> Plan:
    n, c, stride_n, stride_c, *_ = shape
    loss, power, decay, alpha, fp, fn, smooth, ignore = numbers
    vector, unit = shape.vector, stride_c == 1
    places = (n, c // vector, stride_n // vector, stride_c, *strides, ignore, alpha, fp, fn, smooth)
    layout: tuple[int | bool, ...]
    if len(strides) == 1 and c > _launch.LONGEST_TILE:
        lanes, v, warps, programs = _launch.long_lanes(n, shape.element_size, shape.many)
        low, high = PAIRABLE
        even = c % (lanes * v) == 0
        # Pairs are of one thread's entries: it must have two.
        paired = low <= smooth <= high and fp <= high and lanes * v >= 64 * warps
        layout = (unit, even, lanes, v, paired, triton.next_power_of_2(programs))
        kernel = _softmax_example_long.softmax_example_long_forward_kernel
    else:
        s, rows, w, warps, programs = _launch.forward_tile(n, c, vector, shape.many)
        layout = (s, rows, w, triton.next_power_of_2(programs))
        kernel = _sigmoid.sigmoid_example_forward_kernel
        if len(strides) == 1:
            layout, kernel = (unit, *layout), _softmax_example.softmax_example_forward_kernel
    grid = (programs, 1, 1)
    if len(strides) == 2:
        constants = (loss, power, decay, numbers.focal, *flags, vector, *layout)
        return Plan(kernel, grid, places, constants, warps)
    constants = (*numbers.formula, smooth > 0.0, numbers.focal, *flags, vector, *layout)
    return Plan(kernel, grid, (*places, power * smooth), constants, warps)


def run_example_backward(
    incoming: Tensor,
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    aux: Tensor,
    numbers: Numbers,
) -> Tensor:
    """Returns the gradient (N, C); `incoming` is (N,) or one number."""
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not x.shape[0]:
        return dx
    flags = (mask is not None, weight is not None)
    plan = _plan_rows_backward(
        shape_of(x, target), target.stride(), incoming.stride(), numbers, flags
    )
    weight = x if weight is None else weight
    if target.dim() == 1:
        launch(plan, x, target, weight, aux, incoming, dx)
    else:
        launch(plan, x, target, x if mask is None else mask, weight, aux, incoming, dx)
    return dx


@lru_cache(maxsize=4096)
def _plan_rows_backward(
    shape: Shape,
    strides: tuple[int, ...],
    incoming: tuple[int, ...],
    numbers: Numbers,
    flags: tuple[bool, ...],
) -> Plan:
    n, c, stride_n, stride_c, *_ = shape
    loss, power, decay, alpha, fp, fn, smooth, ignore = numbers
    vector, none = shape.vector, len(incoming) == 1
    s, rows, w, warps, programs = _launch.backward_tile(n, c, vector, shape.many)
    places = (n, c // vector, stride_n // vector, stride_c, *strides, *(incoming or (0,)))
    constants: tuple[int | bool, ...]
    if len(strides) == 2:
        constants = (loss, power, decay, numbers.focal, *flags, none, vector, s, rows, w)
        numbers_ = (*places, ignore, alpha, fp, fn, smooth)
        return Plan(
            _sigmoid.sigmoid_example_backward_kernel, (programs, 1, 1), numbers_, constants, warps
        )
    constants = (
        *numbers.formula, smooth > 0.0, flags[1], none, vector, stride_c == 1,
        s, rows, w, triton.cdiv(c, s * w),
    )  # fmt: skip
    numbers_ = (*places, alpha, fp, smooth, power * smooth)
    return Plan(
        _softmax_example.softmax_example_backward_kernel,
        (programs, 1, 1),
        numbers_,
        constants,
        warps,
    )
