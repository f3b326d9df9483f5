"""Adversarial training: each step also trains on word embeddings moved to raise the loss.

Miyato, Dai and Goodfellow (2017), as it is used for encoders (the "fast gradient method"): after
the backward pass, with g the gradient of the word-embedding matrix E,

    r = ε · g / ‖g‖        one norm over the whole matrix

is added to E, the loss is computed and differentiated once more, its gradients add to the first
ones, and E is restored from a copy. In a loop of your own:

    loss(model(**batch).logits, labels).backward()
    with perturb_embeddings(model, 0.5):
        loss(model(**batch).logits, labels).backward()
    optimizer.step()
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Literal, cast

import torch
from torch import Tensor, distributed, nn

from softf1.errors import InputError
from softf1.options import Range, check_options, option_types
from softf1.training.processes import count_ranks

Direction = Literal["gradient", "random"]


def find_embeddings(model: nn.Module) -> nn.Parameter:
    """Returns the word-embedding matrix of a model, also inside DDP and other wrappers.

    >>> find_embeddings(nn.Embedding(7, 3)).shape
    torch.Size([7, 3])
    """
    if isinstance(model, nn.Embedding):
        return cast("nn.Parameter", model.weight)
    for module in model.modules():
        with suppress(AttributeError, NotImplementedError):
            weight = cast("Any", module).get_input_embeddings().weight
            if isinstance(weight, nn.Parameter):
                return weight
    raise InputError(
        "an adversarial step needs a model whose get_input_embeddings() returns its word "
        f"embedding, or the embedding itself, got {type(model).__name__}"
    )


@contextmanager
def perturb_embeddings(
    model: nn.Module,
    epsilon: Annotated[float, Range(least=0)],
    *,
    relative: bool = False,
    direction: Direction = "gradient",
    gradient: Tensor | None = None,
) -> Iterator[None]:
    """Context in which the word embeddings are moved by a step of size ε along their gradient.

    Enter it after the backward pass of the whole optimizer step (all micro-batches), repeat forward
    and backward inside, then clip and step. On leaving, the matrix is restored bit for bit. If the
    gradient is 0 or not finite, nothing is moved.

    Args:
        model: A model of transformers, one with `get_input_embeddings()`, or an `nn.Embedding`.
        epsilon: Length of the step ε, as a norm over the whole matrix. For the encoders of the BERT
            family 0.2 to 1 works, above that the step can do harm.
        relative: Multiply ε by the root-mean-square norm of the matrix's rows, so that one value
            suits encoders whose embeddings differ in scale (0.5 is then about 0.5 for BERT, and 5
            for embeddings that start from a standard normal distribution).
        direction: `gradient`; or `random`, a control: a step of the same length over the same rows
            in a random direction, the same on all processes.
        gradient: The gradient to follow; by default the `.grad` of the matrix.

    Raises:
        InputError: A value is not one of those above, or the model has no word embeddings.

    >>> embedding = nn.Embedding(3, 2)
    >>> embedding(torch.tensor([1])).sum().backward()  # the gradient of row 1 is (1, 1)
    >>> before = embedding.weight.detach().clone()
    >>> with perturb_embeddings(embedding, 0.5):
    ...     print(f"{(embedding.weight - before).norm():.3f}")
    0.500
    >>> torch.equal(embedding.weight, before)
    True
    """
    given = {"epsilon": epsilon, "relative": relative, "direction": direction}
    check_options(given, option_types(perturb_embeddings), owner="perturb_embeddings")
    weight = find_embeddings(model)
    gradient = weight.grad if gradient is None else gradient
    if gradient is None:
        raise RuntimeError(
            "wanted a gradient of the word embeddings: call backward() first, on embeddings that "
            "are not frozen"
        )
    with torch.no_grad():
        gradient = gradient.to_dense() if gradient.is_sparse else gradient
        own = local(weight)
        saved = own.clone()
        own.add_(find_step(weight, gradient, epsilon, relative=relative, direction=direction))
    try:
        yield
    finally:
        with torch.no_grad():
            own.copy_(saved)


@torch.no_grad()
def find_step(
    weight: Tensor, gradient: Tensor, epsilon: float, *, relative: bool, direction: Direction
) -> Tensor:
    """Returns r for the rows of the matrix on this process, without synchronising with the GPU."""
    largest = total_norm(gradient, math.inf)
    if direction == "random":
        own, sharded = local(gradient), hasattr(gradient, "full_tensor")
        step = torch.randn_like(own) * own.any(-1, keepdim=True)
        if count_ranks() > 1 and not sharded:  # all hold the same matrix, but draw other numbers
            distributed.broadcast(step, 0)
        squares = step.square().sum()
        if sharded:  # other processes hold the rest of the matrix
            distributed.all_reduce(squares)
        length = squares.sqrt()
    else:
        # Divided by a power of two near the largest entry, which is exact: otherwise the square of
        # a tiny gradient would be 0, and that of a huge one infinite.
        scaled = gradient / largest.log2().floor().exp2()
        step, length = local(scaled), total_norm(scaled)
    if relative:
        length = length / (total_norm(weight) / weight.shape[0] ** 0.5)
    able = (largest > 0) & (largest < math.inf) & torch.isfinite(length) & (length > 0)
    return torch.where(able, step * (epsilon / length), 0.0).to(local(weight).dtype)


@contextmanager
def trace_embeddings(model: nn.Module) -> Iterator[list[Tensor]]:
    """Records the gradient of frozen word embeddings; the list holds it on exit.

    If the embeddings are trained, the list stays empty: use their own gradient.
    """
    weight = find_embeddings(model)
    traced: list[Tensor] = []
    if weight.requires_grad:
        yield traced
        return
    weight.requires_grad_(True)  # noqa: FBT003 - torch's own
    try:
        yield traced
    finally:
        weight.requires_grad_(False)  # noqa: FBT003
    if weight.grad is not None:
        gradient = weight.grad.to_dense() if weight.grad.is_sparse else weight.grad
        sharded = hasattr(gradient, "full_tensor")  # FSDP has averaged it
        if count_ranks() > 1 and not sharded:
            distributed.all_reduce(gradient)  # DDP averages only what is trained
        traced.append(gradient)
        weight.grad = None


def total_norm(tensor: Tensor, order: float = 2) -> Tensor:
    """Returns the norm of a whole tensor, even if it is sharded over processes."""
    wide = tensor.float() if tensor.dtype.itemsize < 4 else tensor
    norm = torch.linalg.vector_norm(wide, order)
    whole: Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    return whole


def local(tensor: Tensor) -> Tensor:
    """Returns the shard of a tensor on this process, or the tensor if it is not sharded."""
    own: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return own
