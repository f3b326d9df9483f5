"""The kernels as PyTorch operators, which torch.compile sees as one node each."""

# No `from __future__ import annotations`: torch.library reads them. It does not know Literal.
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from softf1.kernels._numbers import Numbers
from softf1.kernels.batch_level import batch_room, lay_out_batch
from softf1.kernels.example_level import example_room, lay_out_example
from softf1.losses._core import SECOND_DERIVATIVE

if TYPE_CHECKING:
    from softf1.losses._core import Reduction


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
    reduction: str,
) -> tuple[Tensor, Tensor]:
    """Returns the loss, () or (N,), and what backward needs."""
    numbers = Numbers(loss, power, decay, alpha, fp, fn, smooth, ignore)
    return lay_out_example(x, target, mask, weight, numbers, cast("Reduction", reduction)).value(
        x, target, mask, weight
    )


@example_forward.register_fake
def _(x: Tensor, target: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    (n, c), numbers = x.shape, Numbers(*rest[2:10])
    size = example_room(n, c, numbers, softmax=target.dim() == 1)
    value = x.new_empty((n,) if rest[-1] == "none" else (), dtype=torch.float32)
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
    reduction: str,
) -> Tensor:
    """Returns the gradient (N, C); `incoming` is (N,) or one number."""
    numbers = Numbers(loss, power, decay, alpha, fp, fn, smooth, ignore)
    return lay_out_example(x, target, mask, weight, numbers, cast("Reduction", reduction)).gradient(
        incoming, x, target, mask, weight, aux
    )


@example_backward.register_fake
def _(incoming: Tensor, x: Tensor, *_: Any) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, target, mask, weight, *numbers = inputs
    ctx.save_for_backward(x, target, mask, weight, output[1])
    ctx.numbers = numbers
    ctx.set_materialize_grads(False)


def _example_gradient(ctx: Any, incoming: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    dx = None
    if incoming is not None:
        dx = example_backward(incoming, *ctx.saved_tensors, *ctx.numbers)
    return dx, *(None,) * 12


example_forward.register_autograd(_example_gradient, setup_context=_keep)


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
    reduction: str,
    micro: bool,
) -> tuple[Tensor, Tensor]:
    """Returns the loss, () or (C,), and what backward needs."""
    numbers = Numbers(loss, power, decay, alpha, fp, fn, smooth, ignore)
    return lay_out_batch(
        x, target, mask, weight, numbers, cast("Reduction", reduction), micro=micro
    ).value(x, target, mask, weight)


@batch_forward.register_fake
def _(x: Tensor, target: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    n, c = x.shape[0], int(x.shape[1])  # the sums depend on the classes; rows may stay symbolic
    _, size = batch_room(n, c, Numbers(*rest[2:10]), softmax=target.dim() == 1)
    none = rest[-2] == "none" and not rest[-1]
    value = x.new_empty((c,) if none else (), dtype=torch.float32)
    return value, x.new_empty(size, dtype=torch.float32)


@torch.library.custom_op("softf1::batch_backward", mutates_args=())
def batch_backward(
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
    reduction: str,
    micro: bool,
) -> Tensor:
    """Returns the gradient (N, C); `incoming` is (C,) or one number."""
    numbers = Numbers(loss, power, decay, alpha, fp, fn, smooth, ignore)
    return lay_out_batch(
        x, target, mask, weight, numbers, cast("Reduction", reduction), micro=micro
    ).gradient(incoming, x, target, mask, weight, aux)


@batch_backward.register_fake
def _(incoming: Tensor, x: Tensor, *_: Any) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _batch_gradient(ctx: Any, incoming: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    dx = None
    if incoming is not None:
        dx = batch_backward(incoming, *ctx.saved_tensors, *ctx.numbers)
    return dx, *(None,) * 13


batch_forward.register_autograd(_batch_gradient, setup_context=_keep)


def _refuse(ctx: Any, *_: Any) -> None:
    raise RuntimeError(SECOND_DERIVATIVE)


for _operator in (example_backward, batch_backward):
    _operator.register_autograd(_refuse)
