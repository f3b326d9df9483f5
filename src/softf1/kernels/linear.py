"""A linear layer and a loss in one: the logits of a large label set never exist as a whole.

The rows are cut into chunks. Every loss is a function of sums over rows (`softf1.losses._sums`), so
the chunks' sums give the loss of all rows, and a chunk needs only the derivative of the loss by the
sums to compute its part of the gradients. If the loss is the sum of the rows' losses divided by
their count, that derivative is one number, which can be multiplied in at the end: one pass over the
chunks. At batch level it is two numbers per class, and a second pass computes the logits again. It
does not repeat the sums if the first pass could keep its autograd graphs: those of the kernels hold
the logits and little else, and the logits are left out of them.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from softf1.losses._sums import (
    check_adds_up,
    check_sums,
    fold_sums,
    is_sum_of_rows,
    join_sums,
    take_sums,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

CHUNK = 2**28  # logits of a chunk: half a GiB in bfloat16


def linear_loss(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    loss: nn.Module,
    *,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    chunk_rows: int | None = None,
) -> Tensor:
    """Returns `loss(hidden @ weight.T + bias, target, mask)` in chunks of rows.

    The gradients of hidden, weight and bias are computed along with the value. Both equal those of
    the unfused form up to rounding. Memory holds the logits of one chunk and their gradient instead
    of those of all rows.

    Args:
        hidden: (..., H).
        weight: (C, H), as in `torch.nn.Linear`.
        target: Class indices (...), or 0/1 (..., C) for sigmoid.
        loss: A loss of `softf1.losses` or a sum of such, `reduction` `mean` or `sum`. OHEM is
            refused, because a chunk does not know the batch's hardest negatives. So are ranking
            losses.
        bias: (C,).
        mask: (...), True = counts.
        chunk_rows: Rows per chunk; by default as many as give 2**28 logits.

    Returns:
        A float32 scalar (float64 for float64 logits).

    >>> from softf1.losses import make_loss
    >>> _ = torch.manual_seed(0)
    >>> hidden, weight = torch.randn(10, 4), torch.randn(3, 4)
    >>> target, loss = torch.arange(10) % 3, make_loss("dice", over="batch")
    >>> whole = loss(hidden @ weight.T, target)
    >>> torch.allclose(linear_loss(hidden, weight, target, loss, chunk_rows=4), whole)
    True
    """
    check_sums(loss)
    check_adds_up(loss, "in chunks of rows")
    rows = _flatten(hidden, weight, target, bias, mask)
    if chunk_rows is None:
        chunk_rows = max(1, CHUNK // weight.shape[0])
    if chunk_rows < 1:
        raise ValueError(f"wanted chunk_rows >= 1, got {chunk_rows}")
    value: Tensor = _LinearLoss.apply(*rows, loss, chunk_rows)  # type: ignore[no-untyped-call]
    return value


def _flatten(
    hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None]:
    """Returns hidden (N, H), weight, bias, target (N,) or (N, C), and mask (N,)."""
    if weight.dim() != 2 or hidden.dim() == 0 or hidden.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"wanted hidden (..., H) and weight (C, H), got {tuple(hidden.shape)} and "
            f"{tuple(weight.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"wanted bias {tuple(weight.shape[:1])}, got {tuple(bias.shape)}")
    shape, classes = hidden.shape[:-1], weight.shape[0]
    if target.shape not in (shape, (*shape, classes)):
        raise ValueError(
            f"wanted target {tuple(shape)} or {(*shape, classes)}, got {tuple(target.shape)}"
        )
    if mask is not None and mask.shape != shape:
        raise ValueError(f"wanted a mask of shape {tuple(shape)}, got {tuple(mask.shape)}")
    flat_target = target.reshape(-1) if target.shape == shape else target.reshape(-1, classes)
    flat_mask = None if mask is None else mask.reshape(-1)
    return hidden.reshape(-1, hidden.shape[-1]), weight, bias, flat_target, flat_mask


class _LinearLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        mask: Tensor | None,
        loss: nn.Module,
        chunk_rows: int,
    ) -> Tensor:
        work = _Work(hidden, weight, bias, target, mask, loss, chunk_rows)
        wanted = tuple(ctx.needs_input_grad[:3])
        ctx.gradients = None
        if not any(wanted):
            return fold_sums(loss, work.sums())
        with torch.enable_grad():
            one_pass = is_sum_of_rows(loss)
            total = work.sums_and_gradients() if one_pass else work.sums_with_graphs()
            total = tuple(sums.requires_grad_() for sums in total)
            value = fold_sums(loss, total)
            slopes = torch.autograd.grad(value, total)
        if not one_pass:
            work.gradients_of(slopes)
        factor = slopes[0][0, 0] if one_pass else None
        ctx.gradients = work.gradients(factor, wanted)
        return value.detach()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [None if g is None else g.mul_(incoming.to(g.dtype)) for g in ctx.gradients]
        ctx.gradients = None  # they were changed in place
        return (*gradients, *(None,) * 4)


class _Graph:
    """The sums of a chunk with their autograd graph, which does not hold the logits.

    Attributes:
        sums: One tensor per part of the loss.
        other_bytes: Bytes that the graph holds besides the logits.
    """

    def __init__(self, loss: nn.Module, logits: Tensor, target: Tensor, mask: Tensor | None):
        self.other_bytes = 0
        self._logits: Tensor | None = logits
        self._edge = torch.autograd.graph.get_gradient_edge(logits)
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        with torch.enable_grad(), hooks:
            self.sums = take_sums(loss, logits, target, mask)
        self._logits = None

    def gradient(self, logits: Tensor, slopes: tuple[Tensor, ...]) -> Tensor:
        """Returns the gradient of slopes · sums by the logits, which the caller computed again."""
        self._logits = logits
        (dx,) = torch.autograd.grad(self.sums, self._edge, slopes)
        self.sums, self._logits = (), None
        return dx

    def _pack(self, tensor: Tensor) -> Tensor | None:
        if self._logits is not None and _is_same(tensor, self._logits):
            return None
        self.other_bytes += tensor.nbytes
        return tensor

    def _unpack(self, kept: Tensor | None) -> Any:
        return self._logits if kept is None else kept


def _is_same(first: Tensor, second: Tensor) -> bool:
    """True if both tensors view the same memory in the same way."""
    same = first.data_ptr() == second.data_ptr() and first.dtype == second.dtype
    return same and first.shape == second.shape and first.stride() == second.stride()


class _Work:
    """The chunks of one call, and the gradients, added up over the chunks."""

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        mask: Tensor | None,
        loss: nn.Module,
        chunk_rows: int,
    ) -> None:
        self.hidden, self.weight, self.bias = hidden.detach(), weight.detach(), bias
        self.target, self.mask, self.loss, self.chunk_rows = target, mask, loss, chunk_rows
        if bias is not None:
            self.bias = bias.detach()
        self.graphs: list[_Graph] = []
        self.of_hidden: list[Tensor] = []
        self.of_weight: Tensor | None = None
        self.of_bias: Tensor | None = None

    def chunks(
        self, *, tracked: bool = False
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
        """Yields hidden, logits, target and mask of each chunk; without rows, one empty chunk.

        `tracked` logits have a `grad_fn`: `_Graph` keeps an edge to it, and not the logits.
        """
        for start in range(0, max(1, len(self.hidden)), self.chunk_rows):
            rows = slice(start, start + self.chunk_rows)
            hidden = self.hidden[rows].requires_grad_(tracked)
            mask = None if self.mask is None else self.mask[rows]
            logits = functional.linear(hidden, self.weight, self.bias)
            yield hidden, logits, self.target[rows], mask

    def sums(self) -> tuple[Tensor, ...]:
        """Returns the sums of all rows, without gradients."""
        with torch.no_grad():
            sums = [take_sums(self.loss, logits, t, m) for _, logits, t, m in self.chunks()]
            return reduce(join_sums, sums)

    def sums_with_graphs(self) -> tuple[Tensor, ...]:
        """Returns the sums of all rows, and keeps the chunks' graphs if they are small."""
        sums = []
        for _, logits, target, mask in self.chunks(tracked=True):
            graph = _Graph(self.loss, logits, target, mask)
            if not self.graphs and graph.other_bytes > logits.nbytes // 8:
                return self.sums()
            sums.append(tuple(own.detach() for own in graph.sums))
            self.graphs.append(graph)
        return reduce(join_sums, sums)

    def gradients_of(self, slopes: tuple[Tensor, ...]) -> None:
        """Adds up the gradients of slopes · sums."""
        if not self.graphs:
            self.sums_and_gradients(slopes)
            return
        for (hidden, logits, *_), graph in zip(self.chunks(), self.graphs, strict=True):
            self._add(hidden, graph.gradient(logits, slopes))

    def sums_and_gradients(self, slopes: tuple[Tensor, ...] | None = None) -> tuple[Tensor, ...]:
        """Returns the sums of all rows, and adds up the gradients of slopes · sums.

        Without slopes, the gradients of the sum of the rows' losses.
        """
        collected = []
        for hidden, logits, target, mask in self.chunks():
            logits.requires_grad_()
            with torch.enable_grad():
                sums = take_sums(self.loss, logits, target, mask)
            if slopes is None:
                like = sums[0]
                slopes = (torch.tensor([[1.0], [0.0]], dtype=like.dtype, device=like.device),)
            (dx,) = torch.autograd.grad(sums, logits, slopes)
            collected.append(tuple(own.detach() for own in sums))
            self._add(hidden, dx)
        return reduce(join_sums, collected)

    def _add(self, hidden: Tensor, dx: Tensor) -> None:
        with torch.no_grad():
            self.of_hidden.append(torch.mm(dx, self.weight.to(dx.dtype)))
            of_weight = torch.mm(dx.t(), hidden.to(dx.dtype))
            # Sums over chunks in float32: a bfloat16 sum would lose what a chunk adds.
            kind = torch.promote_types(dx.dtype, torch.float32)
            of_bias = dx.sum(0, dtype=kind)
            if self.of_weight is None or self.of_bias is None:
                self.of_weight, self.of_bias = of_weight.to(kind), of_bias
            else:
                self.of_weight += of_weight
                self.of_bias += of_bias

    def gradients(
        self, factor: Tensor | None, wanted: tuple[bool, ...]
    ) -> tuple[Tensor | None, ...]:
        """Returns the gradients of hidden, weight and bias, times the factor."""
        gradients = (torch.cat(self.of_hidden), self.of_weight, self.of_bias)
        self.of_hidden = []
        like = (self.hidden, self.weight, self.bias)
        return tuple(
            _scaled(gradient, factor, original) if want else None
            for gradient, original, want in zip(gradients, like, wanted, strict=True)
        )


def _scaled(gradient: Tensor | None, factor: Tensor | None, like: Tensor | None) -> Tensor | None:
    if gradient is None or like is None:
        return None
    if factor is not None:
        gradient.mul_(factor.to(gradient.dtype))
    return gradient.to(like.dtype)
