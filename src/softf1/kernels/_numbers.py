"""A loss in numbers, and the memory that its kernels write."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from softf1.kernels._launch import MOST_PROGRAMS

if TYPE_CHECKING:
    from torch import Tensor

AFTER_ROWS = 2 + 2 * MOST_PROGRAMS  # after the values of rows: factor, count, programs' sums


class Numbers(NamedTuple):
    """A loss in numbers; `alpha` is gamma for the entropies."""

    loss: int
    power: int
    decay: int
    alpha: float
    fp: float
    fn: float
    smooth: float
    ignore: int

    @property
    def fractional(self) -> bool:
        """True where the largest class of a row is taken apart."""
        return self.decay > 0 and self.alpha < 1.0

    @property
    def focal(self) -> bool:
        """True for an entropy with gamma above 0."""
        return self.loss == 0 and self.alpha > 0.0

    @property
    def formula(self) -> tuple[int | bool, ...]:
        """LOSS, POWER, DECAY, FRACTIONAL, ALPHA_ONE."""
        return (self.loss, self.power, self.decay, self.fractional, self.alpha == 1.0)


def kept_values(numbers: Numbers) -> int:
    """Returns how many values of each softmax row forward keeps."""
    return 8 if numbers.fractional else 5


def floats(x: Tensor, *size: int) -> Tensor:
    """Returns memory for float32 where `x` is."""
    return torch.empty(size, dtype=torch.float32, device=x.device)
