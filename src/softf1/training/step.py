"""One optimizer step: gradients of all micro-batches, clipping, update; no waiting for the GPU.

The methods of `Stepper` are in the order in which a step calls them. A step that is one micro-batch
on one rank takes one forward and one backward pass. With several, a loss over the whole batch needs
the batch's statistics first: one pass collects them, a second computes the gradient of each part,
and these add up to exactly that of the whole batch. Adversarial training does all of this once more
with moved word embeddings.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from softf1.training.adversarial import perturb_embeddings, trace_embeddings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from softf1.tasks.base import Batch, Task
    from softf1.training.adversarial import Direction
    from softf1.training.objective import Objective

LOSS, STEPS, NORM, SKIPPED, RUN = range(5)


class Attack(NamedTuple):
    """An adversarial step on the word embeddings: see `softf1.training.adversarial`."""

    epsilon: float
    relative: bool = False
    direction: Direction = "gradient"


class Stepper:
    """Runs optimizer steps and counts them in a meter on the device.

    Attributes:
        meter: Since the last reading: sum of the losses, steps, the largest finite gradient norm,
            and steps skipped because their gradient was not finite. Then the number of steps
            skipped in a row up to now.
        repeats: Whether deterministic operations cost no time.
    """

    repeats = False

    def __init__(
        self,
        model: nn.Module,
        *,
        task: Task,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        clip: float,
        alone: bool,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        scaler: torch.amp.GradScaler | None = None,
        attack: Attack | None = None,
    ) -> None:
        self.model, self.task, self.objective = model, task, objective
        self.optimizer, self.device, self.clip, self.alone = optimizer, device, clip, alone
        self.autocast, self.attack = autocast, attack
        self.run: Callable[..., Any] = model
        self.scaler = scaler or torch.amp.GradScaler(device.type, enabled=False)
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.meter = torch.zeros(5, dtype=torch.float32, device=device)
        self.fused = all(group.get("fused") for group in optimizer.param_groups)

    def step(self, batches: Sequence[Batch]) -> None:
        """Takes one step over the micro-batches of this rank."""
        self.model.train()
        self.update(self.gradient(batches))
        self.objective.advance()

    def gradient(self, batches: Sequence[Batch]) -> Tensor:
        """Adds the gradient of the step to the parameters' `.grad`; returns its loss."""
        moved = [batch.to(self.device) for batch in batches]
        run = self._whole if self.alone and len(moved) == 1 else self._parts
        if self.attack is None:
            return run(moved)
        with trace_embeddings(self.model) as traced:
            loss = run(moved)
        epsilon, relative, direction = self.attack
        how: Any = {"relative": relative, "direction": direction}
        if traced:
            how["gradient"] = traced[0]
        running = self.objective.running_statistics()
        # Direction and loss statistics are those of the whole step, not of a micro-batch.
        with perturb_embeddings(self.model, epsilon, **how):
            run(moved)
        self.objective.restore_statistics(running)  # the average is over clean passes only
        return loss

    def _whole(self, batches: Sequence[Batch]) -> Tensor:
        """Adds the gradient of a step that is one micro-batch on one rank."""
        (batch,) = batches
        loss, value = self.objective.whole(self.forward(batch), batch.targets)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        return value

    def _parts(self, batches: Sequence[Batch]) -> Tensor:
        """Adds the gradient of a step over micro-batches and ranks, exactly."""
        self.objective.count(batches)
        self._first_pass(batches)
        for left, batch in zip(reversed(range(len(batches))), batches, strict=True):
            with self._no_sync() if left else nullcontext(), self._replay():
                loss = self.objective.part(self.forward(batch), batch.targets)
                self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        return self.objective.finish()

    def _first_pass(self, batches: Sequence[Batch]) -> None:
        objective = self.objective
        if not objective.needs_statistics:
            return
        for batch in batches:
            if objective.needs_logits:
                with self._replay():
                    objective.collect(self.forward(batch), batch.targets)
            else:
                objective.collect_counts(batch)
        objective.reduce()

    def _replay(self) -> AbstractContextManager[None]:
        """Context for the same dropout in both passes; the first key's window stores it for all."""
        if not self.objective.needs_logits:
            return nullcontext()
        return next(iter(self.objective.windows.values())).micro_batch()

    def _no_sync(self) -> AbstractContextManager[Any]:
        return getattr(self.model, "no_sync", nullcontext)()

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the logits of a micro-batch in float32; with consistency, each example twice."""
        batch = self.objective.prepare(batch)
        with self.autocast():
            logits = self.task.logits(self.run(**batch.inputs), batch)
        return {key: as_float(value) for key, value in logits.items()}

    def update(self, loss: Tensor) -> None:
        """Clips the gradient, updates the weights if it is finite, and clears it."""
        self.scaler.unscale_(self.optimizer)
        norm = self._clip()
        finite = norm < torch.inf  # one kernel; isfinite is four
        skipped = torch.logical_not(finite, out=torch.empty_like(norm, dtype=torch.float32))
        if self.fused and not self.scaler.is_enabled():
            # A fused AdamW skips the update itself, without synchronising with the device.
            self.optimizer.found_inf = skipped  # type: ignore[attr-defined]
        if self.fused or self.scaler.is_enabled() or bool(finite):
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self._note(torch.where(finite, loss, 0.0), norm, skipped)

    def _clip(self) -> Tensor:
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.clip > 0:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.clip, norm)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def _note(self, loss: Tensor, norm: Tensor, skipped: Tensor) -> None:
        meter = self.meter
        meter[LOSS].add_(loss)
        meter[STEPS].add_(1)
        meter[SKIPPED:].add_(skipped)
        meter[RUN].mul_(skipped)  # a step that counts ends the row of skipped ones
        taken = norm.float().nan_to_num(nan=0.0, posinf=0.0)  # 0 if the step was skipped
        torch.maximum(meter[NORM], taken, out=meter[NORM])

    def read_meter(self) -> list[float]:
        """Reads the meter and resets all but the number of skipped steps in a row."""
        read: list[float] = self.meter.tolist()
        self.meter[:RUN].zero_()
        return read


def as_float(logits: Tensor) -> Tensor:
    """Casts half precision to float32, in which losses are computed."""
    return logits if logits.dtype == torch.float64 else logits.float()
