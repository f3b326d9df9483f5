"""Runs the kernels of losses with one value per row: plans, allocates, launches.

These are ce, focal, zlpr, and the dice family at example level.

In eager mode the host is slower than the kernels, so all that does not change from call to call is
one cache lookup. Its key is the "kind" of the tensors: shape, strides, dtype and device.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import triton

from softf1.kernels import _launch, _sigmoid, _softmax_example, _softmax_example_long, _zlpr
from softf1.kernels._launch import Plan, kind_of, launch, shape_of
from softf1.kernels._numbers import AFTER_ROWS, floats, kept_values, one_float

if TYPE_CHECKING:
    from torch import Tensor

    from softf1.kernels._launch import Shape
    from softf1.kernels._numbers import Numbers
    from softf1.losses._core import Reduction

PAIRABLE = (1e-6, 1e6)  # the product of two such numbers is well within float32


def example_room(n: int, c: int, numbers: Numbers, *, softmax: bool) -> int:
    """Returns how many floats forward writes for backward; offsets of classes, if any, first."""
    offsets = (c + 3) // 4 * 4 if numbers.adjusted else 0
    return offsets + kept_values(numbers, softmax=softmax) * n + AFTER_ROWS


class ExampleLevel:
    """The kernels of a loss at example level, laid out for tensors of one kind."""

    __slots__ = ("backward", "both", "check", "compiled", "forward", "masks", "none", "room")
    foresees: ClassVar = True

    def __init__(
        self, kind: tuple[Any, ...], numbers: Numbers, flags: tuple[bool, bool, bool, bool]
    ) -> None:
        shape, strides = shape_of(kind)
        self.none, softmax = flags[3], len(strides) == 1
        self.room = example_room(shape.n, shape.c, numbers, softmax=softmax)
        self.forward = _plan_rows(shape, strides, numbers, flags)
        self.backward = _plan_rows_backward(shape, strides, numbers, flags)
        self.both = self.check = None
        self.compiled = False
        self.masks = numbers.zlpr or not softmax  # else what forward kept says which rows count
        if not self.masks and self.foresees and _is_foreseen(shape, numbers, flags):
            self.both = _plan_rows(shape, strides, numbers, flags, gradient=True)
            self.check = _plan_rows_backward(shape, strides, numbers, flags, ready=True)

    @property
    def first(self) -> Plan:
        """The kernel that a training step launches first."""
        return self.forward if self.both is None else self.both

    def value(
        self, x: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns the loss, () or (N,), and what backward needs."""
        value, aux, _ = self._start(self.forward, x, target, mask, weight, x)
        return value, aux

    def value_and_gradient(
        self, x: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns `value` and, if it can be foreseen, the gradient (N, C) of the loss.

        It assumes that all rows count and that the loss is not scaled; `gradient` corrects it.
        """
        if self.both is None:
            return (*self.value(x, target, mask, weight), None)
        dx = torch.empty_like(x, memory_format=torch.contiguous_format)
        return self._start(self.both, x, target, mask, weight, dx)

    def _start(
        self,
        plan: Plan,
        x: Tensor,
        target: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,
        dx: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        n = x.shape[0]
        aux = floats(x, self.room)
        if not n:
            return x.new_zeros((0,) if self.none else (), dtype=torch.float32), aux.zero_(), dx
        value = floats(x, n) if self.none else one_float(x)
        launch(
            plan, x, target, x if mask is None else mask, x if weight is None else weight,
            aux, aux if self.none else _launch.counter(x), value, dx,
        )  # fmt: skip
        return value, aux, dx

    def gradient(
        self,
        incoming: Tensor,
        x: Tensor,
        target: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,
        aux: Tensor,
        foreseen: Tensor | None = None,
    ) -> Tensor:
        """Returns the gradient (N, C), in `foreseen` if given; `incoming` is (N,) or a scalar."""
        plan, dx = self.check, foreseen
        if plan is None or dx is None:
            plan = self.backward
            dx = torch.empty_like(x, memory_format=torch.contiguous_format)
        if not x.shape[0]:
            return dx
        if self.none:
            incoming = incoming.contiguous()
        weight = x if weight is None else weight
        if self.masks:
            launch(plan, x, target, x if mask is None else mask, weight, aux, incoming, dx)
        else:
            launch(plan, x, target, weight, aux, incoming, dx)
        return dx


class ExampleSums(ExampleLevel):
    """The same with `reduction="sums"`: the incoming gradient already has the divisor."""

    __slots__ = ()
    foresees: ClassVar = False

    def value(
        self, x: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns (2, 1), the sum of the rows' losses and their count, and what backward needs."""
        value, aux = super().value(x, target, mask, weight)
        return torch.stack([value, aux[1 - AFTER_ROWS]]).unsqueeze(1), aux

    def gradient(self, incoming: Tensor, *saved: Any) -> Tensor:
        """Returns the gradient (N, C); the count has none."""
        return super().gradient(incoming[0, 0], *saved)


def lay_out_example(
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    numbers: Numbers,
    reduction: Reduction,
) -> ExampleLevel:
    """Returns the kernels for these tensors, laid out at their first use."""
    return _lay_out(kind_of(x, target), numbers, mask is None, weight is None, reduction)


@lru_cache(maxsize=4096)
def _lay_out(
    kind: tuple[Any, ...],
    numbers: Numbers,
    no_mask: bool,  # noqa: FBT001 — positional, because keywords make the cache's lookup slower
    no_weight: bool,  # noqa: FBT001
    reduction: Reduction,
) -> ExampleLevel:
    weighted = not (no_weight or numbers.adjusted)
    flags = (not no_mask, weighted, reduction == "mean", reduction == "none")
    return (ExampleSums if reduction == "sums" else ExampleLevel)(kind, numbers, flags)


def _is_foreseen(shape: Shape, numbers: Numbers, flags: tuple[bool, bool, bool, bool]) -> bool:
    """True if the factor of the rows' gradients may be known before the rows are read.

    It is 1 for a sum, and 1 / n for a mean of rows that all count; a mask or weights change it.
    """
    has_mask, has_weight, mean, none = flags
    weighted = has_mask or (has_weight and numbers.loss == 0)
    return shape.c <= _launch.LONGEST_TILE and not none and not (mean and weighted)


def _is_pairable(numbers: Numbers) -> bool:
    """True if one reciprocal may serve two entries, where a thread has two."""
    low, high = PAIRABLE
    return low <= numbers.smooth <= high and numbers.fp <= high


def _plan_rows(
    shape: Shape,
    strides: tuple[int, ...],
    numbers: Numbers,
    flags: tuple[bool, ...],
    *,
    gradient: bool = False,
) -> Plan:
    if numbers.zlpr:
        return _plan_zlpr(shape, strides, numbers, flags)
    n, c, stride_n, stride_c, *_ = shape
    loss, power, decay, alpha, fp, fn, smooth, ignore = numbers
    vector, unit = shape.vector, stride_c == 1
    places = (n, c // vector, stride_n // vector, stride_c, *strides, ignore, alpha, fp, fn, smooth)
    layout: tuple[int | bool, ...]
    if gradient:
        s, rows, w, warps, programs = _launch.ready_tile(n, c, vector, shape.many)
        layout = (unit, s, rows, w, _launch.room_for(programs), True, c == s * w)
        kernel = _softmax_example.softmax_example_forward_kernel
    elif len(strides) == 1 and c > _launch.LONGEST_TILE:
        lanes, v, warps, programs = _launch.long_lanes(n, shape.element_size, shape.many)
        even = c % (lanes * v) == 0
        paired = _is_pairable(numbers) and lanes * v >= 64 * warps
        layout = (unit, even, lanes, v, paired, _launch.room_for(programs))
        kernel = _softmax_example_long.softmax_example_long_forward_kernel
    else:
        s, rows, w, warps, programs = _launch.forward_tile(n, c, vector, shape.many)
        layout = (s, rows, w, _launch.room_for(programs))
        kernel = _sigmoid.sigmoid_example_forward_kernel
        if len(strides) == 1:
            layout = (unit, *layout, False, c == s * w)
            kernel = _softmax_example.softmax_example_forward_kernel
    grid = (programs, 1, 1)
    if len(strides) == 2:
        constants = (
            loss, power, decay, numbers.focal, numbers.adjusted, *flags, vector, *layout,
        )  # fmt: skip
        return Plan(kernel, grid, places, constants, warps)
    constants = (
        *numbers.formula, smooth > 0.0, numbers.focal, numbers.adjusted, *flags, vector, *layout,
    )  # fmt: skip
    return Plan(kernel, grid, (*places, power * smooth), constants, warps)


def _plan_rows_backward(
    shape: Shape,
    strides: tuple[int, ...],
    numbers: Numbers,
    flags: tuple[bool, ...],
    *,
    ready: bool = False,
) -> Plan:
    if numbers.zlpr:
        return _plan_zlpr(shape, strides, numbers, flags, gradient=True)
    n, c, stride_n, stride_c, *_ = shape
    loss, power, decay, alpha, fp, fn, smooth, ignore = numbers
    vector, none = shape.vector, flags[3]
    s, rows, w, warps, programs = _launch.backward_tile(n, c, vector, shape.many)
    places = (n, c // vector, stride_n // vector, stride_c, *strides)
    constants: tuple[int | bool, ...]
    if len(strides) == 2:
        constants = (
            loss, power, decay, numbers.focal, numbers.adjusted, *flags[:2], none, vector,
            s, rows, w,
        )  # fmt: skip
        numbers_ = (*places, ignore, alpha, fp, fn, smooth)
        return Plan(
            _sigmoid.sigmoid_example_backward_kernel, (programs, 1, 1), numbers_, constants, warps
        )
    constants = (
        *numbers.formula, smooth > 0.0, numbers.adjusted, *flags[1:], vector, stride_c == 1,
        s, rows, w, triton.cdiv(c, s * w), ready,
    )  # fmt: skip
    numbers_ = (*places, alpha, fp, smooth, power * smooth)
    if ready:  # it mostly finds nothing to do and should end soon
        programs = min(programs, 16 * shape.many)
    return Plan(
        _softmax_example.softmax_example_backward_kernel,
        (programs, 1, 1),
        numbers_,
        constants,
        warps,
    )


def _plan_zlpr(
    shape: Shape,
    strides: tuple[int, ...],
    numbers: Numbers,
    flags: tuple[bool, ...],
    *,
    gradient: bool = False,
) -> Plan:
    n, c, stride_n, stride_c, *_ = shape
    choose = _launch.backward_tile if gradient else _launch.forward_tile
    s, rows, w, warps, programs = choose(n, c, shape.vector, shape.many)
    labels, strides = len(strides) == 1, (*strides, 0)[:2]
    if not labels and not gradient:  # targets and their addresses want registers, too
        s = max(1, s // 4)
    layout = (shape.vector, stride_c == 1, s, rows, w)
    places = (n, c // shape.vector, stride_n // shape.vector, stride_c, *strides, numbers.ignore)
    if gradient:
        kernel, constants = _zlpr.zlpr_backward_kernel, (labels, *flags[:2], flags[3], *layout)
    else:
        kernel = _zlpr.zlpr_forward_kernel
        constants = (labels, *flags, *layout, _launch.room_for(programs))
    return Plan(kernel, (programs, 1, 1), (*places, numbers.alpha), constants, warps)
