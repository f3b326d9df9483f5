"""Losses that are exact over micro-batches and ranks.

A ratio of sums is not a sum: the mean of the micro-batches' losses is not the loss of the batch,
and the mean over ranks is not either. But every loss is a function of sums S = Σ_i S_i over the
micro-batches i of all ranks (`_sums.py`), so that

    dL(S) / dθ = Σ_i  ∂L/∂S · dS_i/dθ

and ∂L/∂S, two numbers per class, is the same for all i. The first pass sums S without gradient; in
the second every micro-batch gives the gradient of the surrogate ∂L/∂S · S_i, linear in its
statistics. These add up to the gradient of the whole, however the rows are cut.

A ranking loss is a function of the scores of all rows. There S is the concatenation of the S_i
instead of their sum, and the surrogate of S_i uses the rows of ∂L/∂S that belong to it.
"""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from softf1.losses._core import Statistics, check_choice, divide
from softf1.losses._sums import (
    check_adds_up,
    check_sums,
    fold_sums,
    has_batch_level,
    has_rows,
    join_sums,
    take_sums,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Sums = tuple[Tensor, ...]


class WindowLoss(nn.Module):
    """The loss of a window: of all micro-batches and ranks that make one optimizer step.

    In this order: `collect` every micro-batch, `reduce`, call the object with every micro-batch and
    run backward, `finish`. `backward_exact` does it all.

    Gradients are averaged over ranks by DDP, FSDP and DeepSpeed; the result is scaled for that. Do
    not divide it by the number of micro-batches.

    Args:
        loss: A loss of this package or a sum of such; `reduction` must be `mean` or `sum`,
            `ohem_ratio` is refused.
        statistics: `exact`. Or `running`: no first pass except in the first window; S is then an
            average over past windows, which makes the gradient approximate. Not for ranking losses.
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
        if statistics == "running":
            check_adds_up(loss, 'with statistics="running"')
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"wanted 0 <= decay < 1, got {decay!r}")
        self.loss, self.statistics, self.decay, self.group = loss, statistics, decay, group
        # Σ decay^age · (S, 1) of past windows: divided by the last column, it is the average of S.
        self._average: Tensor | None = None
        # After finish(): how far apart the statistics of the two passes were, relative, this rank.
        self.mismatch: Tensor | None = None
        self.reset()

    def reset(self) -> None:
        """Forgets the window, but keeps the running average."""
        self._collected, self._seen = _Total(), _Total()
        self._random: deque[Callable[[], None]] = deque()
        self._solved: tuple[Tensor, Sums] | None = None
        self._counted = False

    @property
    def needs_statistics(self) -> bool:
        """True until `reduce` is called; with running statistics, in the first window only."""
        return self._solved is None and self._average is None

    @property
    def needs_logits(self) -> bool:
        """False for a mean over rows: the targets alone tell how many rows there are."""
        return has_batch_level(self.loss)

    @contextmanager
    def micro_batch(self) -> Iterator[None]:
        """Context of a forward pass: no gradient in the first, the same dropout in the second.

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
            target: The targets of a micro-batch.
            shape: The shape of its logits. They count as finite: a model that excludes targets by
                logits of −inf needs `collect`.
        """
        if self.needs_logits:
            raise RuntimeError(
                "wanted collect(logits, target): a ratio of sums, or a ranking, needs the logits"
            )
        logits = torch.zeros(*shape, device=target.device)
        # The dtype of the logits is not known yet, so counts are added up in float64.
        counts = take_sums(self.loss, logits, target, None)
        self._collected.add(tuple(own.double() for own in counts))
        self._counted = True

    def reduce(self) -> None:
        """Between the passes: sums the statistics over the ranks, each of which must call it."""
        if self._collected.sums is None:
            raise RuntimeError(
                "wanted at least one micro-batch on every rank; a rank without data collects one "
                "with nothing but ignored rows"
            )
        value, slopes = self._solve(self._over_ranks(self._collected.sums))
        self._solved = value, self._of_this_rank(slopes, self._collected.sums)

    def forward(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Second pass: returns the value of the whole window with this micro-batch's gradient."""
        sums = take_sums(self.loss, logits, target, mask)
        if self._solved is None:
            self._solved = self._solve(self._past(sums))
        value, slopes = self._solved
        pairs = zip(self._of_next_rows(slopes, sums), sums, strict=True)
        parts = [(slope.to(own.dtype) * own).sum() for slope, own in pairs]
        surrogate = self._ranks() * torch.stack(parts).sum()
        self._seen.add(tuple(own.detach() for own in sums))
        return value.to(surrogate.dtype) + (surrogate - surrogate.detach())

    def finish(self) -> Tensor:
        """Returns the value of the whole window, for logging, and begins the next window.

        With running statistics each rank must call it: it adds the window to the average.
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
            self.mismatch = _relative_distance(self._seen.sums, self._collected.sums)
        if self.statistics == "running":
            value = self._take_into_average(self._over_ranks(self._seen.sums))
        self.reset()
        return value

    def get_extra_state(self) -> Tensor:
        """Returns the running average for `state_dict()`, an empty tensor if there is none."""
        return torch.empty(0) if self._average is None else self._average

    def set_extra_state(self, state: Tensor) -> None:
        """Restores a saved running average, if `statistics` is `running`."""
        self._average = state if state.numel() and self.statistics == "running" else None

    def _take_into_average(self, sums: Sums) -> Tensor:
        new = torch.cat([*sums, torch.ones_like(sums[0][:, :1])], dim=1)
        past = self._average
        self._average = new if past is None else self.decay * past.to(new) + new
        return fold_sums(self.loss, sums)

    def _past(self, like: Sums) -> Sums:
        if self._average is None:
            raise RuntimeError("wanted collect(…) of every micro-batch, then reduce(), first")
        average = self._average.to(like[0])
        past = average[:, :-1] / average[:, -1:]
        return torch.split(past, [own.shape[1] for own in like], dim=1)

    def _solve(self, sums: Sums) -> tuple[Tensor, Sums]:
        """Returns the loss and its derivative by the statistics of the whole window."""
        with torch.enable_grad():
            leaves = tuple(own.detach().requires_grad_() for own in sums)
            value = fold_sums(self.loss, leaves)
        return value.detach(), torch.autograd.grad(value, leaves)

    def _over_ranks(self, sums: Sums) -> Sums:
        if self._ranks() == 1:
            return sums
        return tuple(self._gather(own) if has_rows(own) else self._add(own) for own in sums)

    def _add(self, sums: Tensor) -> Tensor:
        total = sums.clone()
        distributed.all_reduce(total, group=self.group)
        return total

    def _gather(self, scores: Tensor) -> Tensor:
        """Returns the scores of all ranks (2, N, C), one rank after the other."""
        counts = self._count_rows(scores)
        padded = functional.pad(scores, (0, 0, 0, max(counts) - scores.shape[1]))
        held = [torch.empty_like(padded) for _ in counts]
        distributed.all_gather(held, padded, group=self.group)
        return torch.cat([own[:, :n] for own, n in zip(held, counts, strict=True)], dim=1)

    def _count_rows(self, scores: Tensor) -> list[int]:
        """Returns how many rows each rank has."""
        own = torch.tensor([scores.shape[1]], device=scores.device)
        counts = [torch.empty_like(own) for _ in range(self._ranks())]
        distributed.all_gather(counts, own, group=self.group)
        return [int(count) for count in counts]

    def _of_this_rank(self, slopes: Sums, sums: Sums) -> Sums:
        """Returns the slopes of the rows that this rank collected."""
        if self._ranks() == 1:
            return slopes
        rank = distributed.get_rank(self.group)
        return tuple(
            torch.split(slope, self._count_rows(own), dim=1)[rank] if has_rows(own) else slope
            for slope, own in zip(slopes, sums, strict=True)
        )

    def _of_next_rows(self, slopes: Sums, sums: Sums) -> Iterator[Tensor]:
        """Yields the slopes of these rows, which come after those seen in this pass."""
        seen = self._seen.sums or (None,) * len(sums)
        for slope, own, before in zip(slopes, sums, seen, strict=True):
            first = 0 if before is None else before.shape[1]
            yield slope[:, first : first + own.shape[1]] if has_rows(own) else slope

    def _ranks(self) -> int:
        if not (distributed.is_available() and distributed.is_initialized()):
            return 1
        return distributed.get_world_size(self.group)


class _Total:
    """The joined statistics of some micro-batches, and the number of these micro-batches."""

    def __init__(self) -> None:
        self.sums: Sums | None = None
        self.count = 0

    def add(self, sums: Sums) -> None:
        self.sums = sums if self.sums is None else join_sums(self.sums, sums)
        self.count += 1


def _relative_distance(seen: Sums, wanted: Sums) -> Tensor:
    """Returns the largest difference of two sets of statistics, relative to the largest value."""
    largest = torch.stack([_largest(own) for own in wanted]).amax()
    pairs = zip(seen, wanted, strict=True)
    return divide(torch.stack([_largest(a - b) for a, b in pairs]).amax(), largest)


def _largest(values: Tensor) -> Tensor:
    return functional.pad(values.flatten(), (0, 1)).abs().amax()  # 0 if there are no values


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
        micro_batches: The micro-batches of this rank, at least one; sizes and number may differ.
        backward: Another way to run backward, such as `accelerator.backward`.
        no_sync: A context for all but the last micro-batch, so that gradients are synchronised
            once: DDP's `model.no_sync`.

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


def keep_random_state() -> Callable[[], None]:
    """Returns a function that restores torch's generators, of the CPU and of the accelerators.

    >>> replay = keep_random_state()
    >>> first = torch.rand(3)
    >>> replay()
    >>> torch.equal(first, torch.rand(3))
    True
    """
    on_host = torch.get_rng_state()
    if not torch.accelerator.is_available():
        return partial(torch.set_rng_state, on_host)
    device = torch.get_device_module()
    every = "_all" if hasattr(device, "get_rng_state_all") else ""  # a model may use several
    on_device = getattr(device, f"get_rng_state{every}")()

    def replay() -> None:
        torch.set_rng_state(on_host)
        getattr(device, f"set_rng_state{every}")(on_device)

    return replay
