"""Sums over rows, the gradients of biases and norms, computed together for all parts of a model.

A kernel writes its sums as lines, one per program; to add up the lines, each part would need one
more kernel. `Sums` keeps the lines of all parts side by side and adds them up once the backward
pass is through with the last part. Autograd knows when: every part has the output of `AddUp` among
its inputs, so the backward of `AddUp` comes last.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
from torch.autograd.function import once_differentiable

from softf1.kernels._encoder import sum_parts
from softf1.kernels._launch import start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class Sums:
    """Gradients of parameters that are sums over rows, for all parts of one forward pass.

    Args:
        groups: Parameters of each part, in the order in which its kernel writes their sums: bias;
            or scale, shift and bias; or biases of query, key and value.
    """

    def __init__(self, groups: Sequence[Sequence[Tensor]]) -> None:
        self.sizes = [[vector.numel() for vector in group] for group in groups]
        self.columns: Counter[int] = Counter()  # columns used so far, by number of lines
        self.places: dict[int, tuple[int, int]] = {}  # lines and first column of a group
        self.parts: dict[int, Tensor] = {}
        self.written: set[int] = set()
        self.task = -1

    def reserve(self, group: int, lines: int) -> bool:
        """Reserves columns for a group's sums; False if the group has them already."""
        if group in self.places:
            return False
        self.places[group] = lines, self.columns[lines]
        self.columns[lines] += sum(self.sizes[group])
        return True

    def open(self, group: int, device: torch.device) -> Tensor:
        """Returns the tensor that the group's kernel writes its lines to."""
        task = torch._C._current_graph_task_id()  # noqa: SLF001
        if task != self.task:  # drop what a backward pass that was broken off may have left
            self.parts, self.written, self.task = {}, set(), task
        lines, column = self.places[group]
        if lines not in self.parts:
            size = (lines, self.columns[lines])
            self.parts[lines] = torch.empty(size, dtype=torch.float32, device=device)
        self.written.add(group)
        return self.parts[lines][:, column : column + sum(self.sizes[group])]

    def close(self) -> list[Tensor | None]:
        """Returns the gradients of all parameters; None for parts that backward did not reach."""
        for group in self.places.keys() - self.written:  # uninitialized, but it is added up too
            lines, column = self.places[group]
            if lines in self.parts:
                self.parts[lines][:, column : column + sum(self.sizes[group])] = 0.0
        sums = {
            lines: add_lines(parts, parts.shape[1], parts.dtype)[0]
            for lines, parts in self.parts.items()
        }
        out: list[Tensor | None] = []
        for group, sizes in enumerate(self.sizes):
            if group in self.written:
                lines, column = self.places[group]
                out += torch.split(sums[lines][column : column + sum(sizes)], sizes)
            else:
                out += [None] * len(sizes)
        self.parts, self.written = {}, set()
        return out


class AddUp(torch.autograd.Function):
    """An operation at the start of the forward pass, so that its backward comes at the end."""

    @staticmethod
    def forward(ctx: Any, sums: Sums, *vectors: Tensor) -> Tensor:  # noqa: D102
        ctx.sums = sums
        ctx.set_materialize_grads(False)
        return vectors[0].new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: D102
        found = ctx.sums.close()
        wanted = ctx.needs_input_grad[1:]
        return (None, *(one if want else None for one, want in zip(found, wanted, strict=True)))


class Owed(NamedTuple):
    """Where a part leaves its sums: `Sums`, the part's number, and the output of `AddUp`."""

    sums: Sums
    group: int
    token: Tensor


def split(owed: Owed | None) -> tuple[Tensor | None, Owed | None]:
    """Returns the arguments for a part: the token on its own, because autograd must see it."""
    return (None, None) if owed is None else (owed.token, owed)


def reserve(owed: Owed | None, lines: int) -> tuple[Sums, int] | None:
    """Reserves columns for a part's sums; None if the part computes them itself."""
    return owed[:2] if owed is not None and owed.sums.reserve(owed.group, lines) else None


def open_lines(ctx: Any, width: int, device: torch.device) -> Tensor:
    """Returns the tensor that a part's kernel writes its lines to."""
    if ctx.owed is None:
        return torch.empty((ctx.lines, width), dtype=torch.float32, device=device)
    sums, group = ctx.owed
    return sums.open(group, device)  # type: ignore[no-any-return]


def own_bias(ctx: Any, parts: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Returns the gradient of a bias if the part computes it itself."""
    return add_lines(parts, 0, dtype)[1] if ctx.owed is None else None


def add_lines(parts: Tensor, split: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Adds up the lines: the first `split` columns in float32, the others in `dtype`."""
    lines, width = parts.shape
    wide = torch.empty(split, dtype=torch.float32, device=parts.device)
    narrow = torch.empty(width - split, dtype=dtype, device=parts.device)
    start(
        sum_parts, (triton.cdiv(width, 32),),
        parts, wide, narrow, lines, width, split, R=64, W=32,
    )  # fmt: skip
    return wide, narrow
