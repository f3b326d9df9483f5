"""The kernels with their derivatives: as operators for torch.compile, directly for everything else.

torch.compile sees an operator as one node. Started from Python, an operator's dispatch takes five
times as long as starting the kernels: there an autograd function calls them itself.
"""

# torch.library reads annotations itself: they are not postponed here.
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from softf1.kernels._run import (
    Numbers,
    kept_floats,
    run_batch,
    run_batch_backward,
    run_class_sums,
    run_row_sums,
    run_rows,
    run_rows_backward,
)

SECOND_DERIVATIVE = (
    "softf1's losses have hand-written first derivatives only; a second derivative (a gradient "
    "penalty, a Hessian) is not available"
)


def rows(
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    numbers: Numbers,
    *,
    mean: bool,
    none: bool,
) -> Tensor:
    """Returns the loss of rows x (N, C): its sum or mean, or (N,)."""
    value: Tensor
    if _wants_operator(x):
        value, _ = rows_forward(x, target, mask, weight, *numbers, mean, none)
    elif torch.is_grad_enabled() and x.requires_grad:
        value = _Rows.apply(x, target, mask, weight, numbers, mean, none)  # type: ignore[no-untyped-call]
    else:
        value, _ = run_rows(x, target, mask, weight, numbers, mean=mean, none=none)
    return value


def batch(
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    numbers: Numbers,
    *,
    micro: bool,
    mean: bool,
    none: bool,
) -> Tensor:
    """Returns the loss of rows x (N, C) at batch level: one value, or (C,)."""
    value: Tensor
    if _wants_operator(x):
        value, _, _ = batch_forward(x, target, mask, weight, *numbers, micro, mean, none)
    elif torch.is_grad_enabled() and x.requires_grad:
        value = _Batch.apply(x, target, mask, weight, numbers, micro, mean, none)  # type: ignore[no-untyped-call]
    else:
        value, _, _ = run_batch(x, target, mask, weight, numbers, micro=micro, mean=mean, none=none)
    return value


def row_sums(
    x: Tensor, target: Tensor, mask: Tensor | None, weight: Tensor | None, numbers: Numbers
) -> Tensor:
    """Returns (2, 1): the sum of the rows' losses, and their count."""
    value: Tensor = _RowSums.apply(x, target, mask, weight, numbers)  # type: ignore[no-untyped-call]
    return value


def class_sums(x: Tensor, target: Tensor, mask: Tensor | None, numbers: Numbers) -> Tensor:
    """Returns (2, C): overlap and total of each class."""
    value: Tensor = _ClassSums.apply(x, target, mask, numbers)  # type: ignore[no-untyped-call]
    return value


def _wants_operator(x: Tensor) -> bool:
    """True under torch.compile, and for tensors that have no memory of their own."""
    return torch.compiler.is_compiling() or type(x) not in (Tensor, Parameter)


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        target: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,
        numbers: Numbers,
        mean: bool,
        none: bool,
    ) -> Tensor:
        value, aux = run_rows(x, target, mask, weight, numbers, mean=mean, none=none)
        ctx.save_for_backward(x, target, mask, weight, aux)
        ctx.numbers = numbers
        return value

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        x, target, mask, weight, aux = ctx.saved_tensors
        dx = run_rows_backward(incoming, x, target, mask, weight, aux, ctx.numbers)
        return _first_derivative(dx, x), *(None,) * 6


class _Batch(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        target: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,
        numbers: Numbers,
        micro: bool,
        mean: bool,
        none: bool,
    ) -> Tensor:
        value, slopes, aux = run_batch(
            x, target, mask, weight, numbers, micro=micro, mean=mean, none=none
        )
        ctx.save_for_backward(x, target, mask, aux, slopes)
        ctx.numbers = numbers
        return value

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        x, target, mask, aux, slopes = ctx.saved_tensors
        dx = run_batch_backward(incoming, x, target, mask, aux, slopes, ctx.numbers)
        return _first_derivative(dx, x), *(None,) * 7


class _RowSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        target: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,
        numbers: Numbers,
    ) -> Tensor:
        sums, aux = run_row_sums(x, target, mask, weight, numbers)
        ctx.save_for_backward(x, target, mask, weight, aux)
        ctx.numbers = numbers
        return sums

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        x, target, mask, weight, aux = ctx.saved_tensors
        dx = run_rows_backward(incoming[0, 0], x, target, mask, weight, aux, ctx.numbers)
        return _first_derivative(dx, x), *(None,) * 4


class _ClassSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, target: Tensor, mask: Tensor | None, numbers: Numbers
    ) -> Tensor:
        sums, aux = run_class_sums(x, target, mask, numbers)
        ctx.save_for_backward(x, target, mask, aux)
        ctx.numbers = numbers
        return sums

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        x, target, mask, aux = ctx.saved_tensors
        one = torch.ones((), device=x.device)
        slopes = incoming.contiguous()
        dx = run_batch_backward(one, x, target, mask, aux, slopes, ctx.numbers)
        return _first_derivative(dx, x), *(None,) * 3


class _FirstDerivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dx: Tensor, x: Tensor) -> Tensor:  # noqa: ARG004
        return dx.view_as(dx)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> None:  # noqa: ARG004
        raise RuntimeError(SECOND_DERIVATIVE)


def _first_derivative(dx: Tensor, x: Tensor) -> Tensor:
    """Returns dx, which raises if a derivative of it is asked for, instead of giving a silent 0."""
    if not torch.is_grad_enabled():
        return dx
    result: Tensor = _FirstDerivative.apply(dx, x)  # type: ignore[no-untyped-call]
    return result


@torch.library.custom_op("softf1::rows", mutates_args=())
def rows_forward(
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
    none: bool,
) -> tuple[Tensor, Tensor]:
    """Returns the loss, () or (N,), and what backward needs."""
    numbers = Numbers(loss, power, decay, alpha, fp, fn, smooth, ignore)
    return run_rows(x, target, mask, weight, numbers, mean=mean, none=none)


@rows_forward.register_fake
def _(x: Tensor, target: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    n, numbers = x.shape[0], Numbers(*rest[2:10])
    size = kept_floats(n, numbers, softmax=target.dim() == 1)
    value = x.new_empty((n,) if rest[-1] else (), dtype=torch.float32)
    return value, x.new_empty(size, dtype=torch.float32)


@torch.library.custom_op("softf1::rows_backward", mutates_args=())
def rows_backward(
    incoming: Tensor,
    x: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    aux: Tensor,
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
    numbers = Numbers(loss, power, decay, alpha, fp, fn, smooth, ignore)
    return run_rows_backward(incoming, x, target, mask, weight, aux, numbers)


@rows_backward.register_fake
def _(incoming: Tensor, x: Tensor, *_: Any) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _keep_rows(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, target, mask, weight, *numbers = inputs
    ctx.save_for_backward(x, target, mask, weight, output[1])
    ctx.numbers = numbers[:8]
    ctx.set_materialize_grads(False)


def _rows_gradient(ctx: Any, incoming: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    dx = None
    if incoming is not None:
        dx = rows_backward(incoming, *ctx.saved_tensors, *ctx.numbers)
    return dx, *(None,) * 13


rows_forward.register_autograd(_rows_gradient, setup_context=_keep_rows)


@torch.library.custom_op("softf1::batch", mutates_args=())
def batch_forward(
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
    """Returns the loss (() or (C,)), its derivatives by overlap and total (2, C), and the rows'."""
    numbers = Numbers(loss, power, decay, alpha, fp, fn, smooth, ignore)
    return run_batch(x, target, mask, weight, numbers, micro=micro, mean=mean, none=none)


@batch_forward.register_fake
def _(x: Tensor, target: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    n, c = x.shape
    size = kept_floats(n, Numbers(*rest[2:10]), softmax=True) if target.dim() == 1 else 0
    value = x.new_empty((c,) if rest[-1] else (), dtype=torch.float32)
    return (
        value,
        x.new_empty((2, c), dtype=torch.float32),
        x.new_empty(size, dtype=torch.float32),
    )


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
    smooth: float,
    ignore: int,
) -> Tensor:
    """Returns the gradient (N, C); `incoming` is (C,) or one number."""
    numbers = Numbers(loss, power, decay, alpha, fp, fn, smooth, ignore)
    return run_batch_backward(incoming, x, target, mask, aux, slopes, numbers)


@batch_backward.register_fake
def _(incoming: Tensor, x: Tensor, *_: Any) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _keep_batch(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, target, mask, _, *numbers = inputs
    _, slopes, aux = output
    ctx.save_for_backward(x, target, mask, aux, slopes)
    ctx.numbers = numbers[:8]
    ctx.set_materialize_grads(False)


def _batch_gradient(
    ctx: Any, incoming: Tensor | None, _: Any, __: Any
) -> tuple[Tensor | None, ...]:
    dx = None
    if incoming is not None:
        dx = batch_backward(incoming, *ctx.saved_tensors, *ctx.numbers)
    return dx, *(None,) * 14


batch_forward.register_autograd(_batch_gradient, setup_context=_keep_batch)


def _refuse(ctx: Any, *_: Any) -> None:
    raise RuntimeError(SECOND_DERIVATIVE)


for _operator in (rows_backward, batch_backward):
    _operator.register_autograd(_refuse)
