"""The kernels as operators of torch, which torch.compile sees as one node each."""

# torch.library reads annotations itself: they are not postponed here.
from typing import Any

import torch
from torch import Tensor

from softf1.kernels._numbers import Numbers, kept_floats
from softf1.kernels.batch_level import run_batch, run_batch_backward
from softf1.kernels.example_level import run_example, run_example_backward
from softf1.losses._derivative import SECOND_DERIVATIVE


@torch.library.custom_op("softf1::example", mutates_args=())
def example_forward(
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
    return run_example(x, target, mask, weight, numbers, mean=mean, none=none)


@example_forward.register_fake
def _(x: Tensor, target: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    n, numbers = x.shape[0], Numbers(*rest[2:10])
    size = kept_floats(n, numbers, softmax=target.dim() == 1)
    value = x.new_empty((n,) if rest[-1] else (), dtype=torch.float32)
    return value, x.new_empty(size, dtype=torch.float32)


@torch.library.custom_op("softf1::example_backward", mutates_args=())
def example_backward(
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
    return run_example_backward(incoming, x, target, mask, weight, aux, numbers)


@example_backward.register_fake
def _(incoming: Tensor, x: Tensor, *_: Any) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _keep_example(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, target, mask, weight, *numbers = inputs
    ctx.save_for_backward(x, target, mask, weight, output[1])
    ctx.numbers = numbers[:8]
    ctx.set_materialize_grads(False)


def _example_gradient(ctx: Any, incoming: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    dx = None
    if incoming is not None:
        dx = example_backward(incoming, *ctx.saved_tensors, *ctx.numbers)
    return dx, *(None,) * 13


example_forward.register_autograd(_example_gradient, setup_context=_keep_example)


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


for _operator in (example_backward, batch_backward):
    _operator.register_autograd(_refuse)
