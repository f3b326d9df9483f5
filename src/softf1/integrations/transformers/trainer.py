"""A Trainer that takes two passes over the micro-batches of a step, exact for every loss.

The first pass sums the statistics of the whole step over micro-batches and processes, without
gradient; the second is the Trainer's own, with the same dropout again. See docs/exact.md. For a
mean over rows, weighted or not, the labels alone give the statistics: then only the first step of
a training has a first pass, which finds the shape of the model's logits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers import Trainer

from softf1.integrations.transformers.adapter import TrainerLoss
from softf1.integrations.transformers.targets import take_labels
from softf1.losses import CompoundLoss, ConsistentLoss, WindowLoss
from softf1.options import check_options, option_types
from softf1.recipe import TrainSection
from softf1.training.adversarial import perturb_embeddings, trace_embeddings
from softf1.training.build import note_consistency

if TYPE_CHECKING:
    from torch import Tensor, nn

    Base = Trainer

else:
    Base = object  # the mixin comes before a Trainer among the base classes

PASSES_DIFFER = 1e-2
"""Warn if the two passes of a step differ by more than this share."""


class ExactLossMixin(Base):
    """Makes a Trainer exact for any loss: `class Mine(ExactLossMixin, MyTrainer): ...`.

    Needs `compute_loss_func=loss(…)`. Use it for losses over the batch, and for class weights of
    cross entropy, with more than one micro-batch per step; it is exact for all others too. It takes
    `start_positions` and `end_positions` as they are, and leaves padding out of the positions.

    Args:
        args: The Trainer's.
        adversarial: Size ε of an adversarial step on the word embeddings, as a norm (a recipe's
            `train.adversarial`): 0.5 for encoders of the BERT family; about twice the time. See
            `softf1.training.adversarial`.
        adversarial_relative: The same in units of the average norm of the embedding rows, instead
            of `adversarial`: 0.5 suits encoders of any scale, and is what `auto` uses.
        consistency: Factor κ of the consistency term: every example runs twice, with different
            dropout, and differences between the two predictions are penalised. 1 is a good start.
        kwargs: The Trainer's.
    """

    def __init__(
        self,
        *args: Any,
        adversarial: float = 0.0,
        adversarial_relative: float = 0.0,
        consistency: float = 0.0,
        **kwargs: Any,
    ) -> None:
        given = {"adversarial": adversarial, "adversarial_relative": adversarial_relative}
        given["consistency"] = consistency
        check_options(given, option_types(TrainSection), owner=type(self).__name__)
        # Refuses both sizes.
        TrainSection(adversarial=adversarial, adversarial_relative=adversarial_relative)
        super().__init__(*args, **kwargs)
        loss = self.compute_loss_func
        if not isinstance(loss, TrainerLoss):
            raise TypeError(
                "wanted compute_loss_func=softf1.integrations.transformers.loss(…), "
                f"got {type(loss).__name__}"
            )
        self._loss, self._consistency = loss, consistency
        self._adversarial = adversarial or adversarial_relative
        self._relative = bool(adversarial_relative)
        own = ConsistentLoss(loss.loss, consistency) if consistency else loss.loss
        for said in note_consistency(cast("nn.Module", self.model), consistency):
            warnings.warn(said, stacklevel=2)
        self._window = WindowLoss(own, statistics=loss.statistics, decay=loss.decay)
        self._traced: list[Tensor] = []
        self._tracing = ExitStack()
        self._micro_batches: list[Any] = []
        self._done = 0
        self._in_step = self._checked = False
        self._blank: Callable[[Mapping[str, Any], Tensor], Any] | None = None

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Keeps the micro-batches of the next step."""
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
        # Not in get_batch_samples: a resumed run sets its random state after it.
        if self._done == 0:
            if self._adversarial:
                self._traced = self._tracing.enter_context(trace_embeddings(model))
            self._collect(model)
        value = self._run(model, inputs)
        self._done += 1
        # The Trainer's log sums these values, and the loss of a step is known only at its end.
        if self._done < len(self._micro_batches):
            return torch.zeros_like(value)
        total = self._finish().to(value)
        if self._adversarial:
            self._tracing.close()
            self._attack(model)
        return total

    def _run(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """Forward and backward of a micro-batch in the second pass."""
        self._in_step = True
        try:
            with self._window.micro_batch():
                # Without a number of items the Trainer leaves the scale of the loss alone.
                return super().training_step(model, inputs, None)
        finally:
            self._in_step = False

    def _attack(self, model: nn.Module) -> None:
        """Repeats both passes with the word embeddings moved along the step's gradient."""
        gradient = self._traced[0] if self._traced else None
        epsilon, relative = self._adversarial, self._relative
        with perturb_embeddings(model, epsilon, relative=relative, gradient=gradient):
            self._collect(model)
            for inputs in self._micro_batches:
                self._run(model, inputs)
            self._window.reset()  # running statistics are those of the clean passes only

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 — the Trainer's signature
        num_items_in_batch: Any = None,  # noqa: ARG002
    ) -> Any:
        """Returns this micro-batch's part of the loss in training, the batch loss in evaluation."""
        outputs, logits, target = self._forward(model, inputs, training=self._in_step)
        of = self._window if self._in_step else self._loss.loss
        value = of(logits, target)
        return (value, outputs) if return_outputs else value

    def _forward(
        self, model: nn.Module, inputs: Mapping[str, Any], *, training: bool
    ) -> tuple[Any, Tensor, Tensor]:
        rest, labels = self._take(inputs, training=training)
        outputs = model(**rest)
        logits, target = self._pair(outputs, labels, rest)
        self._loss.loss.to(logits.device)
        return outputs, logits, self._once(target, training=training)

    def _take(self, inputs: Mapping[str, Any], *, training: bool) -> tuple[dict[str, Any], Tensor]:
        """Returns inputs and labels; in training with consistency, every example twice."""
        rest, labels = take_labels(inputs)
        if not (training and self._consistency):
            return rest, labels
        rows = len(labels)
        twice = {
            name: torch.cat([x, x]) if isinstance(x, torch.Tensor) and x.shape[:1] == (rows,) else x
            for name, x in rest.items()
        }
        return twice, torch.cat([labels, labels])

    def _once(self, target: Tensor, *, training: bool) -> Tensor:
        return target.chunk(2)[0] if training and self._consistency else target

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
                rest, labels = self._take(self._prepare_inputs(inputs), training=True)
                logits, target = self._pair(self._blank(rest, labels), labels, rest)
                window.collect_counts(self._once(target, training=True), logits.shape)
        window.reduce()

    def _collect_logits(self, model: nn.Module) -> None:
        model.train()
        swap_weights = getattr(self.optimizer, "train", None)
        if callable(swap_weights):  # schedule-free optimizers keep two sets of weights
            swap_weights()
        for inputs in self._micro_batches:
            with self._window.micro_batch(), self.compute_loss_context_manager():
                prepared = self._prepare_inputs(inputs)
                outputs, logits, target = self._forward(model, prepared, training=True)
                self._window.collect(logits, target)
        self._blank = blank_answers if "start_logits" in outputs else blank_rows(logits, target)

    def _finish(self) -> Tensor:
        value, off = self._window.finish(), self._window.mismatch
        if not self._checked and off is not None:
            self._checked = True  # once, since reading it synchronises with the device
            if (share := off.item()) > PASSES_DIFFER:
                warnings.warn(
                    f"the two passes of a step differ by {share:.0%}: the model draws random "
                    "numbers that torch does not know, or changes between them; the loss is not "
                    "exact",
                    stacklevel=3,
                )
        return value


def blank_answers(inputs: Mapping[str, Any], labels: Tensor) -> dict[str, Tensor]:
    """Returns dummy logits in the shape of those for answers."""
    row = torch.zeros(inputs["input_ids"].shape, device=labels.device)
    return {"start_logits": row, "end_logits": row}


def blank_rows(logits: Tensor, target: Tensor) -> Callable[[Mapping[str, Any], Tensor], Any]:
    """Returns a function that makes dummy logits for a batch, shaped like these for `target`."""
    classes = () if logits.dim() == target.dim() else logits.shape[-1:]

    def blank(_: Mapping[str, Any], labels: Tensor) -> dict[str, Tensor]:
        return {"logits": torch.zeros(*labels.shape, *classes, device=labels.device)}

    return blank


class SoftF1Trainer(ExactLossMixin, Trainer):
    """transformers' Trainer with `ExactLossMixin`."""
