"""A loss as the Trainer's `compute_loss_func`, with the step that one whole batch would take.

The Trainer adds up the gradients of the micro-batches i without dividing them, and over W
processes it takes their mean. It passes I, the number of labels of the whole step:

    average_tokens_across_devices    I                  what the Trainer does to the loss
    yes (its default)                of all processes   times W
    no                               of this process    nothing

So Σ loss_i / I is the mean over the step in the first case, and in the second if all processes have
the same I. If they differ, which happens in the second case only, it is W · Σ loss_i / Σ I.
A mean that is not over labels (class weights of cross entropy, batch level) cannot be computed from
I. It is exact if a step is one micro-batch per process; with more, an error is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

from softf1.integrations.transformers.targets import IGNORE, pair_up
from softf1.losses import CompoundLoss, CrossEntropyLoss, FocalLoss, WindowLoss, make_loss
from softf1.losses._sums import has_batch_level, take_sums
from softf1.training.processes import count_ranks

if TYPE_CHECKING:
    from softf1.losses._core import Statistics

MIXIN = "SoftF1Trainer, or your Trainer with ExactLossMixin, takes the same compute_loss_func"


def loss(
    name: str | nn.Module,
    *,
    shift: bool | None = None,
    statistics: Statistics = "exact",
    decay: float = 0.9,
    **options: Any,
) -> TrainerLoss:
    """Returns a loss for `Trainer(…, compute_loss_func=…)`.

    For token classification, sequence classification (one label or, with labels of the shape of the
    logits, several), question answering (with `AnswerLabels` as data collator) and language models.

    Args:
        name: As in `make_loss`, or a loss that you made.
        shift: True for causal language models, whose labels are aligned with their own token.
        statistics: For `SoftF1Trainer`: `exact`, or `running` without the extra pass.
        decay: For `running`, as in `WindowLoss`.
        options: As in `make_loss`.

    >>> compute_loss = loss("dsc", alpha=0.5)
    >>> outputs = {"logits": torch.zeros(2, 3, 4)}
    >>> compute_loss(outputs, torch.tensor([[0, 1, -100], [0, 0, 2]]))
    tensor(0.2219)
    """
    made = name if isinstance(name, nn.Module) else make_loss(name, **options)
    return TrainerLoss(made, shift=shift, statistics=statistics, decay=decay)


class TrainerLoss:
    """The loss that `loss` returns, called as `(outputs, labels, num_items_in_batch)`."""

    def __init__(
        self, loss: nn.Module, *, shift: bool | None, statistics: Statistics, decay: float
    ) -> None:
        for options in (getattr(part, "options", {}) for part in parts(loss)):
            for name, wanted in (("reduction", "mean"), ("ignore_index", IGNORE)):
                if options.get(name, wanted) != wanted:
                    raise ValueError(f"the Trainer needs {name}={wanted!r}, got {options[name]!r}")
        self.loss, self.shift = loss, shift
        self.statistics, self.decay = statistics, decay
        self._step: Step | None = None

    def __repr__(self) -> str:
        """Shows the loss."""
        return f"TrainerLoss({self.loss!r})"

    def pair(
        self, outputs: Any, labels: Tensor, *, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns logits and target; raises if the loss cannot take them."""
        logits, target = pair_up(outputs, labels, shift=self.shift, attention_mask=attention_mask)
        answers = not isinstance(outputs, torch.Tensor) and "start_logits" in outputs
        if answers and has_batch_level(self.loss):
            raise ValueError(
                "a loss over the batch is refused for question answering: position 7 of two texts "
                'is not one class; use over="example", or another loss'
            )
        return logits, target

    def __call__(
        self, outputs: Any, labels: Tensor | None, num_items_in_batch: Any = None
    ) -> Tensor:
        """Returns the loss of a micro-batch, scaled so that the losses of a step add up."""
        if labels is None:
            raise ValueError(
                "wanted labels, got none: the Trainer passes on `labels` only; for answers use the "
                f"data collator AnswerLabels, or: {MIXIN}"
            )
        logits, target = self.pair(outputs, labels)
        self.loss.to(logits.device)
        if num_items_in_batch is None:
            return self._whole(logits, target)
        items = _one_number(num_items_in_batch)
        counts = torch.stack([(target != IGNORE).sum(), (labels != IGNORE).sum()])
        here = LabelTotals(*counts.tolist())
        if not torch.is_grad_enabled():
            # Evaluation: return the loss of this batch, although the Trainer will multiply it.
            return self._whole(logits, target) / (1 if items in here else count_ranks())
        if getattr(self.loss, "schedule", None) is not None:
            raise ValueError(f"a schedule needs to know the step: {MIXIN}")
        key = num_items_in_batch  # the Trainer passes one object per step
        if self._step is None or self._step.key is not key:
            self._step = Step(key, items, here, before=self._step, device=logits.device)
        self._step.add(here)
        return self._part(self._step, logits, target, here)

    def _part(self, step: Step, logits: Tensor, target: Tensor, here: LabelTotals) -> Tensor:
        if step.is_whole and count_ranks() == 1:
            return self._whole(logits, target)
        softmax = target.shape != logits.shape and logits.shape[-1] > 1
        if (obstacle := self._obstacle(softmax=softmax)) or step.scale is None:
            if not step.is_whole:
                raise ValueError(
                    f"{obstacle} over several micro-batches takes two passes over them: {MIXIN}"
                )
            # A step of one micro-batch per rank: both passes share its logits.
            window = WindowLoss(self.loss)
            window.collect(logits, target)
            window.reduce()
            value: Tensor = window(logits, target)
            return value / count_ranks() if step.multiplied else value
        sums = torch.cat(take_sums(self.loss, logits, target, None), dim=1)
        labels_in_row = 1 if softmax else logits.shape[-1]
        if any(rows * labels_in_row != here.seen for rows in sums[1].tolist()):
            raise ValueError(
                f"wanted every row to have all of its labels or none, got {here.seen} labels in "
                f"{sums[1].tolist()[0]:g} rows of {labels_in_row}: {MIXIN}"
            )
        shares = self.loss.shares() if isinstance(self.loss, CompoundLoss) else sums.new_ones(1)
        return step.scale * labels_in_row * (shares * sums[0]).sum()

    def _whole(self, logits: Tensor, target: Tensor) -> Tensor:
        value: Tensor = self.loss(logits, target)
        return value

    def _obstacle(self, *, softmax: bool) -> str | None:
        """Returns why the loss does not divide by the number of labels; None if it does."""
        for part in parts(self.loss):
            if has_batch_level(part):
                return "a ranking" if getattr(part, "compares_rows", False) else 'over="batch"'
            entropy = isinstance(part, CrossEntropyLoss | FocalLoss)
            if entropy and softmax and part.weight is not None:
                return f"{type(part).__name__} with class weights"
        return None


def parts(loss: nn.Module) -> list[nn.Module]:
    """Returns the parts of a compound loss, or the loss itself."""
    return list(loss.parts) if isinstance(loss, CompoundLoss) else [loss]


def _one_number(items: Any) -> int:
    if isinstance(items, torch.Tensor) and items.numel() > 1:
        raise ValueError(
            "wanted one process per GPU (torchrun or accelerate launch), got DataParallel, where "
            f"the Trainer scales a loss by the number of GPUs; or: {MIXIN}"
        )
    return int(items)


class LabelTotals(NamedTuple):
    """Label counts of a micro-batch or step: `seen` by the loss, and `given`; both without −100."""

    seen: int
    given: int


class Step:
    """Facts about a step from its first micro-batch, on all ranks.

    Args:
        key: The object that the Trainer passes for every micro-batch of this step.
        items: The number of labels of the step, according to the Trainer.
        first: The labels of the first micro-batch on this rank.
        before: The previous step, which is checked.
        device: The device for collectives.

    Attributes:
        is_whole: Whether the first micro-batches of all ranks are the whole step.
        multiplied: In a whole step: whether the Trainer multiplies the loss by the number of ranks.
        scale: The factor from a sum over labels to this micro-batch's part of the mean; None if the
            Trainer counts other labels than the loss.
    """

    def __init__(
        self, key: Any, items: int, first: LabelTotals, *, before: Step | None, device: torch.device
    ) -> None:
        self.key, self.items, self.counted = key, items, LabelTotals(0, 0)
        self.is_whole: bool
        checked = before is None or before.is_whole
        past = (0, 0, 0) if before is None or checked else (before.items, *before.counted)
        all_items, seen, given, *all_past = gather_numbers((items, *first, *past), device)
        _check_counted(*all_past)
        self.multiplied = _add_up(seen, all_items) or _add_up(given, all_items)
        self.is_whole = self.multiplied or all_items in (seen, given)
        self.scale: float | None = 1 / max(items, 1)
        if len(set(all_items)) > 1:
            self.scale = count_ranks() / max(sum(all_items), 1)
        if self.is_whole and seen != given:
            self.scale = None

    def add(self, micro_batch: LabelTotals) -> None:
        """Adds a micro-batch."""
        self.counted = LabelTotals(*map(sum, zip(self.counted, micro_batch, strict=True)))


def gather_numbers(numbers: Sequence[int], device: torch.device) -> list[list[int]]:
    """Gathers each number from all ranks."""
    own = torch.tensor(numbers, dtype=torch.int64, device=device)
    if count_ranks() == 1:
        return [[number] for number in numbers]
    everywhere = [torch.empty_like(own) for _ in range(count_ranks())]
    distributed.all_gather(everywhere, own)
    columns: list[list[int]] = torch.stack(everywhere, dim=1).tolist()
    return columns


def _add_up(parts: list[int], totals: list[int]) -> bool:
    """Returns whether the Trainer passed every rank the sum over all ranks."""
    return all(total == sum(parts) for total in totals)


def _check_counted(items: list[int], seen: list[int], given: list[int]) -> None:
    """Raises if Trainer and loss count different labels."""
    if seen == items or _add_up(seen, items):
        return
    too_many = any(own > told for own, told in zip(seen, items, strict=True))
    if too_many or given == items or _add_up(given, items):
        raise ValueError(
            f"the Trainer counted {items} labels in the last step (a number for each process), the "
            f"loss {seen}, so that the step was too small or too large by as much. Usual reasons: "
            "shift=True with a model that the Trainer does not take for one that shifts (GPT-2), "
            "shift_labels in the batch, positions of answers outside of the row. SoftF1Trainer "
            "takes the same compute_loss_func and needs no count"
        )
