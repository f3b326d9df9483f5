"""A loss in numbers, and the memory that its kernels write."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch

from softf1.kernels._launch import MOST_PROGRAMS

if TYPE_CHECKING:
    from torch import Tensor

AFTER_ROWS = 2 + 2 * MOST_PROGRAMS


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


@lru_cache(maxsize=4096)
def kept_floats(n: int, numbers: Numbers, *, softmax: bool) -> int:
    """Returns how many floats forward keeps: values of rows, factor and count, programs' sums."""
    planes = 1 if not softmax else 8 if numbers.fractional else 5
    return planes * n + AFTER_ROWS


def floats(x: Tensor, *size: int) -> Tensor:
    """Returns memory for float32 where `x` is."""
    return torch.empty(size, dtype=torch.float32, device=x.device)
