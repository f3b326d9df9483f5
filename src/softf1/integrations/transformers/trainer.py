"""A Trainer that takes two passes over the micro-batches of a step, exact for every loss.

The first pass sums the statistics of the whole step over micro-batches and processes, without
gradient; the second is the Trainer's own, with the same dropout again. See docs/exact.md. For a
mean over rows, weighted or not, the labels alone tell the statistics: then only the first step of
a training has a first pass, which shows what the model's logits look like.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer

from softf1.integrations.transformers.adapter import TrainerLoss
from softf1.integrations.transformers.targets import take_labels
from softf1.losses import CompoundLoss, WindowLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor, nn

    Base = Trainer
else:
    Base = object  # stands before a Trainer among the parents

PASSES_DIFFER = 1e-2


class ExactLossMixin(Base):
    """Makes a Trainer exact for any loss: `class Mine(ExactLossMixin, MyTrainer): ...`.

    Wants `compute_loss_func=loss(…)`. Needed at batch level, and for class weights of cross
    entropy, with more than one micro-batch a step; right everywhere else too. It takes
    `start_positions` and `end_positions` as they are, and leaves padding out of the positions.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        found = self.compute_loss_func
        if not isinstance(found, TrainerLoss):
            raise TypeError(
                "wanted compute_loss_func=softf1.integrations.transformers.loss(…), "
                f"got {type(found).__name__}"
            )
        self._loss = found
        self._window = WindowLoss(found.loss, statistics=found.statistics, decay=found.decay)
        self._micro_batches: list[Any] = []
        self._done = 0
        self._in_step = self._checked = False
        self._blank: Callable[[Mapping[str, Any], Tensor], Any] | None = None

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Keeps the micro-batches of the step that begins."""
        samples, items = super().get_batch_samples(*args, **kwargs)
        self._micro_batches, self._done = samples, 0
        return samples, items

    def training_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: Any = None,  # noqa: ARG002 — the window knows what to divide by
    ) -> Tensor:
        """Runs the first pass at the first micro-batch, and one micro-batch of the second."""
        # Not in get_batch_samples: after that, a resumed run sets its random state.
        if self._done == 0:
            self._collect(model)
        self._in_step = True
        try:
            with self._window.micro_batch():
                # Without a number of items the Trainer leaves the scale of the loss alone.
                value = super().training_step(model, inputs, None)
        finally:
            self._in_step = False
        self._done += 1
        # The value of a step is known at its end, and the Trainer's log adds up.
        done = self._done == len(self._micro_batches)
        return self._finish().to(value) if done else torch.zeros_like(value)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 — the Trainer's signature
        num_items_in_batch: Any = None,  # noqa: ARG002
    ) -> Any:
        """Returns this micro-batch's part in training, the loss of the batch in evaluation."""
        outputs, logits, target = self._forward(model, inputs)
        of = self._window if self._in_step else self._loss.loss
        value = of(logits, target)
        return (value, outputs) if return_outputs else value

    def _forward(self, model: nn.Module, inputs: Mapping[str, Any]) -> tuple[Any, Tensor, Tensor]:
        rest, labels = take_labels(inputs)
        outputs = model(**rest)
        logits, target = self._pair(outputs, labels, rest)
        self._loss.loss.to(logits.device)
        return outputs, logits, target

    def _pair(self, outputs: Any, labels: Tensor, rest: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        return self._loss.pair(outputs, labels, attention_mask=rest.get("attention_mask"))

    def _collect(self, model: nn.Module) -> None:
        window = self._window
        window.reset()
        if isinstance(self._loss.loss, CompoundLoss):
            self._loss.loss.step.fill_(self.state.global_step)
        if not window.needs_statistics:
            return
        if self._blank is None or window.needs_logits:
            self._collect_logits(model)
        else:
            for inputs in self._micro_batches:
                rest, labels = take_labels(self._prepare_inputs(inputs))
                logits, target = self._pair(self._blank(rest, labels), labels, rest)
                window.collect_counts(target, logits.shape)
        window.reduce()

    def _collect_logits(self, model: nn.Module) -> None:
        model.train()
        swap_weights = getattr(self.optimizer, "train", None)
        if callable(swap_weights):  # schedule-free optimizers keep two sets
            swap_weights()
        for inputs in self._micro_batches:
            with self._window.micro_batch(), self.compute_loss_context_manager():
                outputs, logits, target = self._forward(model, self._prepare_inputs(inputs))
                self._window.collect(logits, target)
        self._blank = blank_answers if "start_logits" in outputs else blank_rows(logits, target)

    def _finish(self) -> Tensor:
        value, off = self._window.finish(), self._window.mismatch
        if not self._checked and off is not None:
            self._checked = True  # once: reading it waits for the device
            warn_of_difference(off.item())
        return value


def blank_answers(inputs: Mapping[str, Any], labels: Tensor) -> dict[str, Tensor]:
    """Returns logits of no meaning in the shape of those for answers."""
    row = torch.zeros(inputs["input_ids"].shape, device=labels.device)
    return {"start_logits": row, "end_logits": row}


def blank_rows(logits: Tensor, target: Tensor) -> Callable[[Mapping[str, Any], Tensor], Any]:
    """Returns a function from a batch to logits of no meaning, in shape like these for `target`."""
    classes = () if logits.dim() == target.dim() else logits.shape[-1:]

    def blank(_: Mapping[str, Any], labels: Tensor) -> dict[str, Tensor]:
        return {"logits": torch.zeros(*labels.shape, *classes, device=labels.device)}

    return blank


def warn_of_difference(off: float) -> None:
    """Warns where the two passes of a step did not see the same."""
    if off > PASSES_DIFFER:
        warnings.warn(
            f"the two passes of a step differ by {off:.0%}: the model draws random numbers that "
            "torch does not know, or changes between them; the loss is not exact",
            stacklevel=4,
        )


class SoftF1Trainer(ExactLossMixin, Trainer):
    """transformers' Trainer with `ExactLossMixin`."""
