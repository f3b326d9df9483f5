"""The same seed gives the same run on a GPU: operations that add up in a fixed order.

PyTorch has a switch for deterministic operations, but it does not cover everything that a training
step needs, or only at a high cost. `fixed_order` replaces these operations while a model runs:

    embedding      PyTorch adds up the gradients of more than 3,072 ids in any order, without a
                   warning
    attention      the backward passes of the fast kernels add in any order, unless operations
                   without a deterministic form are made errors
    lstm           cuDNN's backward pass adds in any order

What torch.compile compiles keeps its own operations, and so do embeddings in transforms of
torch.func, and a module that imports one of these functions by name.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from softf1.losses._core import under_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

EMBED = functional.embedding
ATTEND = functional.scaled_dot_product_attention
LSTM: Any = torch.lstm
"""The functions of torch that are replaced."""

FEW_ROWS = 512
"""Up to so many rows of an embedding, the gradient is a product with one-hot ids."""

HAS_TRITON = find_spec("triton") is not None


@contextmanager
def ask_torch() -> Iterator[None]:
    """Context in which torch uses deterministic operations, and warns where there are none."""
    flags: Any = torch.backends.cuda
    memory: Any = torch.utils.deterministic
    before, fills = which_operations(), memory.fill_uninitialized_memory
    cudnn = flags.cudnn_sdp_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # noqa: FBT003 - torch's own
    # torch would fill every new tensor first, a kernel each; nothing here reads one unwritten.
    memory.fill_uninitialized_memory = False
    flags.enable_cudnn_sdp(False)  # noqa: FBT003 - cuDNN's attention has no deterministic form
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = fills
        flags.enable_cudnn_sdp(cudnn)


def which_operations() -> tuple[bool, bool]:
    """Whether torch uses deterministic operations, and only warns where there are none."""
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled(), only_warns


class SharedContext:
    """A change to the whole process, for as long as any thread is inside.

    The first that enters makes it and the last that leaves takes it back. If each thread restored
    what it found, one that entered later would bring the change back for good.

    Args:
        change: Returns the context that makes the change.
    """

    def __init__(self, change: Callable[[], AbstractContextManager[Any]]) -> None:
        self.change, self.lock, self.inside = change, Lock(), 0
        self.made = ExitStack()

    def __enter__(self) -> None:
        """Makes the change, unless another thread has made it."""
        with self.lock:
            if not self.inside:
                self.made.enter_context(self.change())
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        """Takes the change back, unless another thread is inside."""
        with self.lock:
            self.inside -= 1
            if not self.inside:
                self.made.close()


@contextmanager
def fixed_order(*names: str) -> Iterator[None]:
    """Context in which embeddings, attention and LSTMs add up their gradients in a fixed order.

    Functions of torch are replaced for all threads, as long as one of them is in such a context.

    Args:
        names: Which functions of `REPLACED` to replace; all of them, if none is given.
    """
    with ExitStack() as stack:
        for name in names or REPLACED:
            stack.enter_context(REPLACED[name])
        yield


@contextmanager
def replace_function(home: Any, name: str, own: Callable[..., Any]) -> Iterator[None]:
    """Context in which a module of torch has another function of this name."""
    old = vars(home).get(name)
    setattr(home, name, own)
    try:
        yield
    finally:
        if old is None:  # the module looks it up somewhere else
            delattr(home, name)
        else:
            setattr(home, name, old)


def embedding_in_order(
    input: Tensor,  # noqa: A002 - torch's name, which a call may use
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    *options: Any,
    **others: Any,
) -> Tensor:
    """`functional.embedding`, whose gradient is added up in a fixed order."""
    special = (*options[1:], others.get("scale_grad_by_freq"), others.get("sparse"))
    traced = torch.compiler.is_compiling() or under_transform()
    if max_norm is not None or any(special) or not weight.requires_grad or traced:
        return EMBED(input, weight, padding_idx, max_norm, *options, **others)
    out: Tensor = _Embed.apply(input, weight, padding_idx)  # type: ignore[no-untyped-call]
    return out


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.rows = len(weight)
        ctx.padding_idx = None if padding_idx is None else padding_idx % ctx.rows
        return EMBED(ids, weight, padding_idx)  # raises if there is no such row

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:
        (ids,) = ctx.saved_tensors
        if gradient.is_cuda and HAS_TRITON:
            from softf1.kernels.embedding import FEWEST_ROWS, MOST_IDS, embedding_gradient

            if ids.numel() <= MOST_IDS and ctx.rows >= FEWEST_ROWS:
                return None, embedding_gradient(gradient, ids, ctx.rows, ctx.padding_idx), None
        return None, add_up_rows(gradient, ids, ctx.rows, ctx.padding_idx), None


def add_up_rows(gradient: Tensor, ids: Tensor, rows: int, padding_idx: int | None) -> Tensor:
    """The gradient of an embedding, in PyTorch: a product with one-hot ids, if rows are few.

    With more rows it sorts the ids and keeps equal ones in their order.
    """
    padding = None if padding_idx is None else ids == padding_idx
    if padding is not None:
        gradient = gradient.masked_fill(padding.unsqueeze(-1), 0.0)
    if rows <= FEW_ROWS:  # many ids share a row: one thread would sum them all
        same = torch.arange(rows, device=ids.device).unsqueeze(1) == ids.flatten()
        return same.to(gradient.dtype) @ gradient.reshape(-1, gradient.shape[-1])
    if padding is not None:  # the zeros of padding may go anywhere: here, to all rows in turn
        places = torch.arange(ids.numel(), device=ids.device, dtype=ids.dtype) % rows
        ids = torch.where(padding, places.view_as(ids), ids)
    total = gradient.new_zeros((rows, gradient.shape[-1]))
    return total.index_put_((ids,), gradient, accumulate=True)


def attention_in_order(*inputs: Any, **options: Any) -> Tensor:
    """`functional.scaled_dot_product_attention` with a deterministic backward pass.

    Only where torch would fail rather than warn do its kernels take their deterministic form. So
    their backward pass, and nothing else, runs like that.
    """
    if torch.compiler.is_compiling():
        return ATTEND(*inputs, **options)
    out = ATTEND(*inputs, **options)
    node = find_attention(out.grad_fn)
    if node is not None:
        before: list[tuple[bool, bool]] = []

        def enter(_: Any) -> None:
            before.append(which_operations())
            torch.use_deterministic_algorithms(True)  # noqa: FBT003 - torch's own

        def leave(*_: Any) -> None:
            asked, only_warns = before.pop()
            torch.use_deterministic_algorithms(asked, warn_only=only_warns)

        node.register_prehook(enter)
        node.register_hook(leave)
    return out


def find_attention(node: Any) -> Any:
    """Finds the node of a fast kernel behind an output of attention; None for products alone.

    Padding of narrow heads is cut off in a few nodes behind it.
    """
    for _ in range(4):
        if node is None or "ScaledDotProduct" in node.name():
            return node
        node = node.next_functions[0][0] if node.next_functions else None
    return None


def lstm_in_order(*args: Any, **options: Any) -> Any:
    """`torch.lstm` without cuDNN."""
    if torch.compiler.is_compiling():
        return LSTM(*args, **options)
    with WITHOUT_CUDNN:
        return LSTM(*args, **options)


@contextmanager
def turn_cudnn_off() -> Iterator[None]:
    """Context without cuDNN."""
    cudnn: Any = torch.backends.cudnn
    before, cudnn.enabled = cudnn.enabled, False
    try:
        yield
    finally:
        cudnn.enabled = before


DETERMINISTIC, WITHOUT_CUDNN = SharedContext(ask_torch), SharedContext(turn_cudnn_off)

REPLACED = {
    name: SharedContext(partial(replace_function, home, name, own))
    for home, name, own in (
        (functional, "embedding", embedding_in_order),
        (functional, "scaled_dot_product_attention", attention_in_order),
        (torch._VF, "lstm", lstm_in_order),  # noqa: SLF001 - where nn.LSTM looks
    )
}
"""The functions of torch that `fixed_order` replaces, by name."""
