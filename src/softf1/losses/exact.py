"""Losses that are exact over micro-batches and ranks.

A ratio of sums is not a sum: the mean of the micro-batches' losses is not the loss of the batch,
and the mean over ranks is not either. But every loss is a function of sums S = Σ_i S_i over the
micro-batches i of all ranks (`_sums.py`), so that

    dL(S) / dθ = Σ_i  ∂L/∂S · dS_i/dθ

and ∂L/∂S, two numbers a class, is the same for all i. The first pass sums S without gradient; in
the second every micro-batch gives the gradient of the surrogate ∂L/∂S · S_i, linear in its
statistics. These add up to the gradient of the whole, however the rows are cut.
"""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn

from softf1.losses._core import check_choice, divide
from softf1.losses._random import keep_random_state
from softf1.losses._sums import check_sums, fold_sums, has_batch_level, take_sums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from softf1.losses._core import Statistics


class WindowLoss(nn.Module):
    """The loss of a window: of all micro-batches and ranks that make one optimizer step.

    In this order: `collect` every micro-batch, `reduce`, call the object with every micro-batch and
    run backward, `finish`. `backward_exact` does it all.

    Gradients are averaged over ranks by DDP, FSDP and DeepSpeed; the result is scaled for that. Do
    not divide it by the number of micro-batches.

    Args:
        loss: A loss of this package or a sum of such; `reduction` must be `mean` or `sum`,
            `ohem_ratio` is refused.
        statistics: `exact`. Or `running`: no first pass but for the first window; S is then an
            average over past windows, which makes the gradient approximate.
        decay: How much of the running average stays with each window, from 0 to below 1.
        group: The ranks whose gradients are averaged; all by default.

    >>> from softf1.losses import make_loss
    >>> window = WindowLoss(make_loss("dice", over="batch"))
    >>> logits = torch.zeros(4, 1, requires_grad=True)
    >>> target = torch.tensor([1, 0, 0, 0])
    >>> for rows in (slice(0, 1), slice(1, 4)):
    ...     window.collect(logits[rows], target[rows])
    >>> window.reduce()
    >>> for rows in (slice(0, 1), slice(1, 4)):
    ...     window(logits[rows], target[rows]).backward()
    >>> window.finish()  # 1 − (2·½ + 1) / (4·¼ + 1 + 1)
    tensor(0.3333)
    """

    def __init__(
        self,
        loss: nn.Module,
        *,
        statistics: Statistics = "exact",
        decay: float = 0.9,
        group: distributed.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        check_sums(loss)
        check_choice("statistics", statistics)
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"wanted 0 <= decay < 1, got {decay!r}")
        self.loss, self.statistics, self.decay, self.group = loss, statistics, decay, group
        # Σ decay^age · (S, 1) of past windows: the last column makes up for the short start.
        self._average: Tensor | None = None
        # After finish(): how far apart the statistics of the two passes were, relative, this rank.
        self.mismatch: Tensor | None = None
        self.reset()

    def reset(self) -> None:
        """Forgets the window, not the running average."""
        self._collected, self._seen = _Total(), _Total()
        self._random: deque[Callable[[], None]] = deque()
        self._solved: tuple[Tensor, Tensor] | None = None
        self._counted = False

    @property
    def needs_statistics(self) -> bool:
        """True until `reduce`; with running statistics in the first window only."""
        return self._solved is None and self._average is None

    @property
    def needs_logits(self) -> bool:
        """False for a mean over rows: how many rows there are is known from the targets alone."""
        return has_batch_level(self.loss)

    @contextmanager
    def micro_batch(self) -> Iterator[None]:
        """Goes around a forward pass: no gradient in the first pass, its dropout in the second.

        The micro-batches must come in the same order in both passes.
        """
        if self.needs_statistics:
            self._random.append(keep_random_state())
        elif self._random:
            self._random.popleft()()
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.needs_statistics):
            yield

    @torch.no_grad()
    def collect(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """First pass: adds the statistics of a micro-batch."""
        self._collected.add(take_sums(self.loss, logits, target, mask))

    @torch.no_grad()
    def collect_counts(self, target: Tensor, shape: Sequence[int]) -> None:
        """First pass without a forward, for a loss that is a mean over rows.

        Args:
            target: Of a micro-batch.
            shape: Of the logits that will come.
        """
        if self.needs_logits:
            raise RuntimeError("wanted collect(logits, target): a ratio of sums needs the logits")
        logits = torch.zeros(*shape, device=target.device)
        # Which precision the logits will have is not known yet, and counts are small.
        self._collected.add(take_sums(self.loss, logits, target, None).double())
        self._counted = True

    def reduce(self) -> None:
        """Between the passes: sums the statistics over the ranks, each of which must call it."""
        if self._collected.sums is None:
            raise RuntimeError(
                "wanted at least one micro-batch on every rank; a rank without data collects one "
                "with nothing but ignored rows"
            )
        self._solved = self._solve(self._over_ranks(self._collected.sums))

    def forward(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Second pass: returns the value of the whole window with this micro-batch's gradient."""
        sums = take_sums(self.loss, logits, target, mask)
        if self._solved is None:
            self._solved = self._solve(self._past(sums))
        value, slope = (solved.to(sums.dtype) for solved in self._solved)
        self._seen.add(sums.detach())
        surrogate = self._ranks() * (slope * sums).sum()
        return value + (surrogate - surrogate.detach())

    def finish(self) -> Tensor:
        """Returns the value of the whole window, for logging, and begins the next window.

        With running statistics each rank must call it: it takes the window into the average.
        """
        wanted, seen = self._collected.count, self._seen.count
        if self._solved is None or self._seen.sums is None or wanted not in (0, seen):
            raise RuntimeError(
                f"wanted the loss of all {wanted} collected micro-batches before finish(), "
                f"got {seen}"
            )
        value, _ = self._solved
        if self._counted:  # the first pass knew how many rows, not their loss
            value = fold_sums(self.loss, self._over_ranks(self._seen.sums))
        elif self._collected.sums is not None:
            off = (self._seen.sums - self._collected.sums).abs().amax()
            self.mismatch = divide(off, self._collected.sums.abs().amax())
        if self.statistics == "running":
            value = self._take_into_average(self._over_ranks(self._seen.sums))
        self.reset()
        return value

    def get_extra_state(self) -> Tensor:
        """Returns the running average for `state_dict()`, nothing where there is none."""
        return torch.empty(0) if self._average is None else self._average

    def set_extra_state(self, state: Tensor) -> None:
        """Goes on with a saved running average, where one is used."""
        self._average = state if state.numel() and self.statistics == "running" else None

    def _take_into_average(self, sums: Tensor) -> Tensor:
        new = torch.cat([sums, torch.ones_like(sums[:, :1])], dim=1)
        past = self._average
        self._average = new if past is None else self.decay * past.to(new) + new
        return fold_sums(self.loss, sums)

    def _past(self, like: Tensor) -> Tensor:
        if self._average is None:
            raise RuntimeError("wanted collect(…) of every micro-batch, then reduce(), first")
        average = self._average.to(like)
        return average[:, :-1] / average[:, -1:]

    def _solve(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the loss and its derivative by the sums of the whole window."""
        with torch.enable_grad():
            value = fold_sums(self.loss, sums.requires_grad_())
        (slope,) = torch.autograd.grad(value, sums)
        return value.detach(), slope

    def _over_ranks(self, sums: Tensor) -> Tensor:
        total = sums.clone()
        if self._ranks() > 1:
            distributed.all_reduce(total, group=self.group)
        return total

    def _ranks(self) -> int:
        if not (distributed.is_available() and distributed.is_initialized()):
            return 1
        return distributed.get_world_size(self.group)


class _Total:
    """A running sum and how many it is of."""

    def __init__(self) -> None:
        self.sums: Tensor | None = None
        self.count = 0

    def add(self, sums: Tensor) -> None:
        self.sums = sums if self.sums is None else self.sums + sums
        self.count += 1


def backward_exact(
    window: WindowLoss,
    forward: Callable[[Any], tuple[Tensor, ...]],
    micro_batches: Iterable[Any],
    *,
    backward: Callable[[Tensor], object] = Tensor.backward,
    no_sync: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Tensor:
    """Runs both passes over the micro-batches of one optimizer step and returns their loss.

    Args:
        window: The loss.
        forward: From a micro-batch to `(logits, target)` or `(logits, target, mask)`.
        micro_batches: Those of this rank, at least one; their sizes and number may differ.
        backward: Such as `accelerator.backward`.
        no_sync: Entered for all but the last, so that gradients meet once: DDP's `model.no_sync`.

    Returns:
        The loss of all micro-batches of all ranks, a scalar without gradient.
    """
    window.reset()
    batches = list(micro_batches)
    if window.needs_statistics:
        for batch in batches:
            with window.micro_batch():
                window.collect(*forward(batch))
        window.reduce()
    for left, batch in zip(reversed(range(len(batches))), batches, strict=True):
        with no_sync() if left else nullcontext(), window.micro_batch():
            backward(window(*forward(batch)))
    return window.finish()
