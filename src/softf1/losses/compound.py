"""Sums of losses, fixed or moving from one to the other over training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from softf1.losses._core import Schedule, check_choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from softf1.losses._module import Settings


class CompoundLoss(nn.Module):
    """The weighted sum of other losses; with a schedule, it moves from the first to the second.

    With `f` running from 0 to 1 over `schedule_steps` calls of `advance()`, the shares are
    `(mix[0] · (1 − f), mix[1] · f)`: cross entropy first, say, then dice, which is how to start a
    dice loss that collapses. The step is a buffer: it is saved in `state_dict()` and continues
    after loading.

    Args:
        parts: The losses.
        mix: One factor per part; 1 for each by default.
        schedule: `linear` or `cosine`, for two parts.
        schedule_steps: How many steps the move takes.

    >>> from softf1.losses import CrossEntropyLoss, DiceLoss
    >>> loss = CompoundLoss([CrossEntropyLoss(), DiceLoss()], schedule="linear", schedule_steps=100)
    >>> loss.advance(25)  # once after each optimizer step; here 25 at once
    >>> loss.shares()
    tensor([0.7500, 0.2500])
    """

    summary: ClassVar[str] = "a sum, such as ce+dice; mix, schedule"
    tunes: ClassVar[dict[str, Settings]] = {
        "ce+dice": ({"dice.over": "example"}, {"dice.over": "batch"}, {"mix": [1.0, 0.5]})
    }
    """As in `LossModule`, by name of the sum; `softf1 compare` runs these sums by default."""
    tunes_positions: ClassVar[dict[str, Settings]] = {
        "ce+dice": ({}, {"mix": [1.0, 0.5]}, {"mix": [0.5, 1.0]})
    }

    step: Tensor
    mix: Tensor

    def __init__(
        self,
        parts: Sequence[nn.Module],
        *,
        mix: Sequence[float] | None = None,
        schedule: Schedule | None = None,
        schedule_steps: int | None = None,
    ) -> None:
        super().__init__()
        mix = [1.0] * len(parts) if mix is None else list(mix)
        if not parts or len(mix) != len(parts):
            raise ValueError(f"wanted one mix factor per part, got {len(mix)} for {len(parts)}")
        if not all(math.isfinite(factor) and factor >= 0 for factor in mix):
            raise ValueError(f"wanted finite mix factors from 0 up, got {mix}")
        _check_schedule(len(parts), schedule, schedule_steps)
        for part in parts:
            _check_part(part)
        self.parts = nn.ModuleList(parts)
        self.schedule = schedule
        self.schedule_steps = schedule_steps
        self.register_buffer("mix", torch.tensor(mix, dtype=torch.float32), persistent=False)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def advance(self, steps: int = 1) -> None:
        """Moves the schedule on: call it once after each optimizer step."""
        self.step += steps

    def shares(self) -> Tensor:
        """Returns the factor of each part at the current step."""
        if self.schedule is None or self.schedule_steps is None:
            return self.mix
        done = (self.step / self.schedule_steps).clamp(max=1.0)
        if self.schedule == "cosine":
            done = 0.5 * (1.0 - torch.cos(math.pi * done))
        return self.mix * torch.stack([1.0 - done, done])

    def forward(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the sum of the parts' losses times their shares."""
        return self.combine([part(logits, target, mask) for part in self.parts])

    def combine(self, values: Sequence[Tensor]) -> Tensor:
        """Returns the sum of the parts' values times their shares."""
        pairs = zip(self.shares(), values, strict=True)
        return torch.stack([share * value for share, value in pairs]).sum(0)

    def extra_repr(self) -> str:
        """Shows mix and schedule."""
        moving = f", schedule={self.schedule!r}, schedule_steps={self.schedule_steps}"
        return f"mix={tuple(self.mix.tolist())}{moving if self.schedule else ''}"


def _check_schedule(parts: int, schedule: Schedule | None, steps: int | None) -> None:
    if schedule is None:
        if steps is not None:
            raise ValueError("schedule_steps needs a schedule, got none")
        return
    check_choice("schedule", schedule)
    if parts != 2:
        raise ValueError(f"a schedule moves from one part to another: wanted 2 parts, got {parts}")
    if steps is None or steps < 1:
        raise ValueError(f"wanted schedule_steps >= 1, got {steps!r}")


def _check_part(part: nn.Module) -> None:
    options = getattr(part, "options", {})
    if options.get("reduction") == "sums":
        raise ValueError('reduction="sums" is refused in a sum of losses: take those of its parts')
    by_class = options.get("over") == "batch" or getattr(part, "compares_rows", False)
    if options.get("reduction") == "none" and by_class:
        raise ValueError(
            'reduction="none" is refused with a batch-level part: its values are per class'
        )
