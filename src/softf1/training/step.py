"""One optimizer step: gradient of all micro-batches, clipping, update; nothing waits for a GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from softf1.tasks.base import Batch, Task
    from softf1.training.objective import Objective

LOSS, STEPS, SKIPPED, NORM, RUN = range(5)


class Stepper:
    """Runs steps and keeps a meter of them on the device.

    Attributes:
        meter: Sum of the losses, steps, steps left out because their gradient was not finite, and
            the largest gradient norm, since the last reading; then how many steps were left out
            in a row up to now.
    """

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
    ) -> None:
        self.model, self.task, self.objective = model, task, objective
        self.optimizer, self.device, self.clip, self.alone = optimizer, device, clip, alone
        self.autocast = autocast
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

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The logits of a micro-batch, in float32."""
        with self.autocast():
            logits = self.task.logits(self.run(**batch.inputs), batch)
        return {key: value.float() for key, value in logits.items()}

    def gradient(self, batches: Sequence[Batch]) -> Tensor:
        """Adds the gradient of the step; gives its loss."""
        if self.alone and len(batches) == 1:
            return self.whole(batches[0])
        moved = [batch.to(self.device) for batch in batches]
        self.objective.count(moved)
        self._first_pass(moved)
        for left, batch in zip(reversed(range(len(moved))), moved, strict=True):
            with self._no_sync() if left else nullcontext(), self._replay():
                loss = self.objective.part(self.forward(batch), batch.targets)
                self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        return self.objective.finish()

    def whole(self, batch: Batch) -> Tensor:
        """Adds the gradient of a step that is one micro-batch on one rank."""
        moved = batch.to(self.device)
        loss, value = self.objective.whole(self.forward(moved), moved.targets)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        return value

    def update(self, loss: Tensor) -> None:
        """Clips, updates the weights unless the gradient is not finite, clears the gradient."""
        self.scaler.unscale_(self.optimizer)
        norm = self._clip()
        finite = torch.isfinite(norm)
        if self.fused and not self.scaler.is_enabled():
            # What a fused AdamW leaves out on its own, without a question to the device.
            self.optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        if self.fused or self.scaler.is_enabled() or bool(finite):
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self._note(loss, norm, finite)

    def read_meter(self) -> list[float]:
        """The meter, which begins anew but for the steps in a row."""
        found: list[float] = self.meter.tolist()
        self.meter[:RUN].zero_()
        return found

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
        """Both passes see the same dropout; the first key's window remembers it for all."""
        if not self.objective.needs_logits:
            return nullcontext()
        return next(iter(self.objective.windows.values())).micro_batch()

    def _no_sync(self) -> AbstractContextManager[Any]:
        return getattr(self.model, "no_sync", nullcontext)()

    def _clip(self) -> Tensor:
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.clip > 0:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.clip, norm)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def _note(self, loss: Tensor, norm: Tensor, finite: Tensor) -> None:
        self.meter[LOSS] += torch.where(finite, loss, 0.0)
        self.meter[STEPS] += 1
        self.meter[SKIPPED] += ~finite
        self.meter[NORM] = torch.maximum(self.meter[NORM], norm)
        self.meter[RUN] = (self.meter[RUN] + 1) * ~finite
