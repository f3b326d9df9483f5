"""Runs the kernels of batch level: sums of each class, the loss, and the gradient.

Launches are laid out once for all tensors of the same shape, strides, dtype and device (a "kind"),
as at example level.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import triton

from softf1.kernels import (
    _launch,
    _sigmoid,
    _softmax_batch,
    _softmax_batch_long,
    _softmax_example_long,
)
from softf1.kernels._launch import Plan, kind_of, launch, shape_of
from softf1.kernels._numbers import floats, kept_values, one_float

if TYPE_CHECKING:
    from torch import Tensor

    from softf1.kernels._launch import Lanes, Shape
    from softf1.kernels._numbers import Numbers
    from softf1.losses._core import Reduction

MOST_LINES = 64  # lines of partial sums that one program adds up
MOST_PARTIAL = 2**14  # partial sums that one program turns into the loss
HELD = 2**12  # partial sums that it reads at once if it is the last program of the statistics


def batch_room(n: int, c: int, numbers: Numbers, *, softmax: bool) -> tuple[int, int]:
    """Returns where the slopes start in the floats that forward writes, and how many floats it is.

    First come the rows' values, then the slopes, derivatives of the loss by overlap and total
    (2, C), then the lines of partial sums if they are few.
    """
    at = (kept_values(numbers, softmax=True) * n + 3) // 4 * 4 if softmax else 0
    return at, at + 2 * c * (1 + _lines_at_once(c))


class BatchLevel:
    """The kernels of a loss at batch level, laid out for tensors of one kind."""

    __slots__ = (
        "at", "backward", "compiled", "few", "flags", "none", "room", "shape", "smooth", "sums",
    )  # fmt: skip
    gives_sums: ClassVar = False

    def __init__(
        self,
        kind: tuple[Any, ...],
        numbers: Numbers,
        flags: tuple[bool, bool, bool, bool],
        *,
        has_mask: bool,
    ) -> None:
        self.shape, strides = shape_of(kind)
        self.flags, self.none, self.smooth = flags, flags[3], numbers.smooth
        n, c, softmax = self.shape.n, self.shape.c, len(strides) == 1
        self.at, self.room = batch_room(n, c, numbers, softmax=softmax)
        self.few = self.compiled = False
        if softmax and _wide_lanes(self.shape, numbers) is not None:
            self.sums = _plan_wide(self.shape, strides[0], numbers, has_mask=has_mask)
        else:
            self.sums = self._plan_sums(strides, numbers, has_mask=has_mask)
        self.backward = self._plan_backward(strides, numbers, has_mask=has_mask)

    @property
    def first(self) -> Plan:
        """The kernel that a training step launches first."""
        return self.sums[0]

    def value(
        self, x: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns the loss, () or (C,), and what backward needs."""
        n, c = x.shape
        aux = floats(x, self.room)
        value = floats(x, c) if self.none else one_float(x)
        if self.few and n:
            launch(
                self.sums[0], x, target, x if mask is None else mask,
                x if weight is None else weight, aux, aux, _launch.counter(x), value,
            )  # fmt: skip
            return value, aux
        partial = self._partial_sums(x, target, mask, aux)
        while len(partial) > _lines_at_once(c):
            partial = _shorten(partial)
        plan = _plan_finish(len(partial), c, self.smooth, self.at, self.flags, x.device)
        launch(plan, partial, value if weight is None else weight, value, aux)
        return value, aux

    def value_and_gradient(self, *inputs: Any) -> tuple[Tensor, Tensor, None]:
        """Returns `value`, and None for the gradient, which needs the sums of all rows first."""
        return (*self.value(*inputs), None)

    def gradient(
        self,
        incoming: Tensor,
        x: Tensor,
        target: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,  # noqa: ARG002 — the slopes include it
        aux: Tensor,
        foreseen: None = None,  # noqa: ARG002
        *,
        slopes: Tensor | None = None,
    ) -> Tensor:
        """Returns the gradient (N, C); `incoming` is (C,) or one number."""
        dx = torch.empty_like(x, memory_format=torch.contiguous_format)
        if not x.shape[0]:
            return dx
        if self.none:
            incoming = incoming.contiguous()
        slopes = aux if slopes is None else slopes
        if target.dim() == 1:
            launch(self.backward, x, target, aux, slopes, incoming, dx)
        else:
            launch(self.backward, x, target, x if mask is None else mask, slopes, incoming, dx)
        return dx

    def _partial_sums(self, x: Tensor, target: Tensor, mask: Tensor | None, aux: Tensor) -> Tensor:
        """Returns (lines, 2, C), overlap and total over the rows of each program."""
        n, c = x.shape
        if not n:
            return x.new_zeros((1, 2, c), dtype=torch.float32)
        filler = x if mask is None else mask
        if len(self.sums) == 3:
            totals, gold, collect = self.sums
            partial, sums = floats(x, totals.grid[0], c), floats(x, 1, 2, c)
            counts = torch.zeros((2, c), dtype=torch.int64, device=x.device)
            launch(totals, x, target, filler, aux, partial)
            launch(gold, x, target, filler, aux, counts)
            launch(collect, partial, counts, sums)
            return sums
        *state, last = self.sums
        for plan in state:
            launch(plan, x, target, filler, aux)
        partial = floats(x, last.grid[0], 2, c)
        launch(last, x, target, filler, x, aux, partial, aux, aux)
        return partial

    def _plan_sums(
        self, strides: tuple[int, ...], numbers: Numbers, *, has_mask: bool
    ) -> list[Plan]:
        """Plans the statistics; before them, softmax sums if rows are longer than a tile."""
        shape = self.shape
        n, c, stride_n, stride_c, *_ = shape
        loss, power, decay, alpha, fp, fn, smooth, ignore = numbers
        vector, unit = shape.vector, stride_c == 1
        s, rows, w, warps, programs = _launch.statistics_tile(n, c, vector, shape.many)
        tiles = triton.cdiv(c, s * w)
        self.few = tiles == 1 and programs <= _lines_at_once(c) and not self.gives_sums
        block = triton.next_power_of_2(c)
        held = min(_launch.room_for(programs), max(1, HELD // block))
        finish = (self.few, *self.flags, held, block)
        after = (self.at, self.at + 2 * c if self.few else 0)
        places = (n, c // vector, stride_n // vector, stride_c, *strides, ignore)
        constants: tuple[int | bool, ...]
        if len(strides) == 2:
            constants = (loss, power, decay, has_mask, vector, s, rows, w)
            kernel = _sigmoid.sigmoid_batch_statistics_kernel
        else:
            constants = (*numbers.formula, has_mask, vector, unit, s, rows, w, tiles == 1)
            kernel = _softmax_batch.softmax_batch_statistics_kernel
        sums = Plan(
            kernel, (programs, tiles, 1), (*places, alpha, fp, fn, smooth, *after),
            (*constants, *finish), warps,
        )  # fmt: skip
        if tiles == 1 or len(strides) == 2:
            return [sums]
        lanes, v, warps, programs = _launch.long_lanes(n, shape.element_size, shape.many)
        even = c % (lanes * v) == 0
        state = Plan(
            _softmax_example_long.softmax_batch_long_state_kernel, (programs, 1, 1), places,
            (numbers.fractional, has_mask, vector, unit, even, lanes, v), warps,
        )  # fmt: skip
        return [state, sums]

    def _plan_backward(self, strides: tuple[int, ...], numbers: Numbers, *, has_mask: bool) -> Plan:
        shape = self.shape
        n, c, stride_n, stride_c, *_ = shape
        loss, power, decay, alpha, fp, fn, _, ignore = numbers
        vector, slopes = shape.vector, (int(self.none), 0 if self.gives_sums else self.at)
        places = (n, c // vector, stride_n // vector)
        constants: tuple[int | bool, ...]
        numbers_: tuple[int | float, ...]
        if len(strides) == 2:
            s, rows, w, warps, programs = _launch.backward_tile(n, c, vector, shape.many)
            constants = (loss, power, decay, has_mask, vector, s, rows, w)
            numbers_ = (*places, stride_c, *strides, *slopes, ignore, alpha, fp, fn)
            kernel = _sigmoid.sigmoid_batch_backward_kernel
        elif (layout := _wide_lanes(shape, numbers)) is not None:
            lanes, v, warps, programs = layout
            constants = (
                loss, power, decay, alpha == 1.0, vector, lanes, v, triton.cdiv(c, lanes * v)
            )  # fmt: skip
            numbers_ = (*places, *strides, *slopes, alpha, fp, fn)
            kernel = _softmax_batch_long.softmax_batch_long_backward_kernel
        else:
            s, rows, w, warps, programs = _launch.batch_backward_tile(n, c, vector, shape.many)
            constants = (*numbers.formula, vector, stride_c == 1, s, rows, w, s * w >= c)
            numbers_ = (*places, stride_c, *strides, *slopes, alpha, fp, fn)
            kernel = _softmax_batch.softmax_batch_backward_kernel
        return Plan(kernel, (programs, 1, 1), numbers_, constants, warps)


class BatchSums(BatchLevel):
    """The same with `reduction="sums"`: the incoming gradient (2, C) is the slopes."""

    __slots__ = ()
    gives_sums: ClassVar = True

    def value(
        self,
        x: Tensor,
        target: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,  # noqa: ARG002 — sums are not weighted
    ) -> tuple[Tensor, Tensor]:
        """Returns overlap and total of each class (2, C), and what backward needs of the rows."""
        aux = floats(x, self.room)
        partial = self._partial_sums(x, target, mask, aux)
        while len(partial) > 1:
            partial = _shorten(partial)
        return partial[0], aux

    def gradient(self, incoming: Tensor, *saved: Any, slopes: Tensor | None = None) -> Tensor:
        """Returns the gradient (N, C)."""
        one = torch.ones((), device=incoming.device)
        slopes = incoming.contiguous() if slopes is None else slopes
        return super().gradient(one, *saved, slopes=slopes)


def lay_out_batch(
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    numbers: Numbers,
    reduction: Reduction,
    *,
    micro: bool,
) -> BatchLevel:
    """Returns the kernels for these tensors, laid out at their first use."""
    kind = kind_of(x, target)
    return _lay_out(kind, numbers, mask is None, weight is None, reduction, micro)


@lru_cache(maxsize=4096)
def _lay_out(
    kind: tuple[Any, ...],
    numbers: Numbers,
    no_mask: bool,  # noqa: FBT001 — positional, because keywords make the cache's lookup slower
    no_weight: bool,  # noqa: FBT001
    reduction: Reduction,
    micro: bool,  # noqa: FBT001
) -> BatchLevel:
    mean, none = reduction == "mean" and not micro, reduction == "none" and not micro
    flags = (not no_weight, micro, mean, none)
    made = BatchSums if reduction == "sums" else BatchLevel
    return made(kind, numbers, flags, has_mask=not no_mask)


@lru_cache(maxsize=1024)
def _lines_at_once(c: int) -> int:
    """Returns how many lines of partial sums one program may finish, to save launches."""
    return 1 if c > 1_024 else max(MOST_LINES, MOST_PARTIAL // triton.next_power_of_2(c))


def _shorten(partial: Tensor) -> Tensor:
    """Adds up groups of lines."""
    lines, _, c = partial.shape
    plan = _plan_shorten(lines, c, partial.device)
    shorter = floats(partial, plan.grid[0], 2, c)
    launch(plan, partial, shorter)
    return shorter


@lru_cache(maxsize=4096)
def _plan_shorten(lines: int, c: int, device: torch.device) -> Plan:  # noqa: ARG001 — see below
    grid = (triton.cdiv(lines, MOST_LINES), triton.cdiv(2 * c, 64), 1)
    return Plan(_softmax_batch.batch_shorten_kernel, grid, (lines, c), (MOST_LINES, 64), 4)


@lru_cache(maxsize=4096)
def _plan_finish(
    lines: int,
    c: int,
    smooth: float,
    at: int,
    flags: tuple[bool, ...],
    device: torch.device,  # noqa: ARG001 — a plan keeps a kernel compiled for one device
) -> Plan:
    block = min(triton.next_power_of_2(c), 4_096 if lines == 1 else 1_024)
    at_once = min(triton.next_power_of_2(lines), max(1, MOST_PARTIAL // block))
    warps = 4 if at_once * block <= 1_024 else 16
    kernel, numbers = _softmax_batch.batch_finish_kernel, (lines, c, smooth, at)
    return Plan(kernel, (1, 1, 1), numbers, (*flags, at_once, block), warps)


def _wide_lanes(shape: Shape, numbers: Numbers) -> Lanes | None:
    n, c, _, stride_c, *_ = shape
    if c <= _launch.LONGEST_TILE or numbers.fractional or stride_c != 1:
        return None
    return _launch.wide_lanes(n, c, shape.element_size, shape.many)


def _plan_wide(shape: Shape, stride: int, numbers: Numbers, *, has_mask: bool) -> list[Plan]:
    """Plans three kernels: totals of the classes, gold terms, and their sum (1, 2, C)."""
    n, c, stride_n, *_ = shape
    loss, power, decay, alpha, fp, fn, _, ignore = numbers
    layout = _wide_lanes(shape, numbers)
    assert layout is not None  # noqa: S101 — checked by the caller
    lanes, v, warps, programs = layout
    vector = shape.vector
    formula = (loss, power, decay, alpha == 1.0)
    # Terms are integers in units of 1 / unit: n terms of at most 2 + fp + fn stay within 63 bits.
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
