"""A loss and its options as numbers, and the memory that its kernels write."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from softf1.kernels._launch import MOST_PROGRAMS

if TYPE_CHECKING:
    from torch import Tensor

ENTROPY, DICE, TVERSKY, ZLPR = range(4)  # losses; the first three as in `_formulas`
NO_DECAY, DETACHED, PAPER = range(3)
AFTER_ROWS = 2 + 2 * MOST_PROGRAMS  # floats after the rows' values: factor, count, programs' sums


class Numbers(NamedTuple):
    """A loss and its options as the kernels take them.

    For ce and focal, `alpha` is gamma, and `fp` is tau, or 0 if logits are not adjusted. For zlpr,
    `alpha` is the margin.
    """

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
        """True for a decay with alpha below 1: kernels treat the largest class of a row apart."""
        return self.decay > 0 and self.alpha < 1.0

    @property
    def focal(self) -> bool:
        """True for a cross entropy with gamma above 0."""
        return self.loss == ENTROPY and self.alpha > 0.0

    @property
    def adjusted(self) -> bool:
        """True for a cross entropy of `logits − tau · log weight`."""
        return self.loss == ENTROPY and self.fp > 0.0

    @property
    def zlpr(self) -> bool:
        """True for ZLPR, whose kernels take labels and numbers as targets."""
        return self.loss == ZLPR

    @property
    def formula(self) -> tuple[int | bool, ...]:
        """The constants LOSS, POWER, DECAY, FRACTIONAL and ALPHA_ONE of softmax kernels."""
        return (self.loss, self.power, self.decay, self.fractional, self.alpha == 1.0)


def kept_values(numbers: Numbers, *, softmax: bool) -> int:
    """Returns how many floats forward keeps for each row at example level."""
    if numbers.zlpr:
        return 4
    if not softmax:
        return 1
    return 8 if numbers.fractional else 5


def floats(x: Tensor, *size: int) -> Tensor:
    """Returns an uninitialized float32 tensor on the device of `x`."""
    # Unpacked: torch needs a third of the time more to read a tuple of sizes.
    return torch.empty(*size, dtype=torch.float32, device=x.device)


def one_float(x: Tensor) -> Tensor:
    """Returns an uninitialized float32 scalar on the device of `x`."""
    # Without dimensions `torch.empty` takes nearly twice as long.
    return torch.empty_strided((), (), dtype=torch.float32, device=x.device)
