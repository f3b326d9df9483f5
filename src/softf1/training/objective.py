"""The training objective, a weighted sum of losses over the outputs of a task, and its optimizer.

The optimizer is AdamW with parameter groups and a learning-rate schedule.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn

from softf1.errors import InputError
from softf1.losses import ConsistentLoss, WindowLoss, class_weights, make_loss
from softf1.losses._sums import has_batch_level
from softf1.models.encoders import find_encoders, list_frozen
from softf1.recipe.checking import list_excluded, list_weights, replace_excluded
from softf1.tasks.base import IGNORE, Batch, Task
from softf1.training.processes import count_ranks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from softf1.recipe import LossSection, TrainSection

Counts = dict[str, "NDArray[np.int64]"]


class Objective(nn.Module):
    """Σ weight · loss over the target keys of a task.

    If a step is one micro-batch on one rank, call `whole`. Otherwise call `count` with all
    micro-batches; if `needs_statistics`, `collect` or `collect_counts` with each, then `reduce`;
    then `part` with each, and `finish`.

    Rows of a step are about equally long, so steps differ in their number of targets. With
    `expected`, the gradient of a step is multiplied by its number of targets over `expected`: then
    every target weighs the same, as it does in steps of random rows.

    With `consistency`, the model sees every example twice, with different dropout (`prepare`).

    Attributes:
        windows: One `WindowLoss` per key, exact over micro-batches and ranks.
        weights: The weight of each key.
        counts: How often each class of a key occurs, where it has classes.
        expected: Targets of an average step; None weighs all steps the same.
        consistency: The factor of the consistency term; 0 shows the model every example once.
    """

    def __init__(
        self,
        losses: Mapping[str, nn.Module],
        *,
        weights: Mapping[str, float],
        counts: Counts,
        statistics: Any = "exact",
        expected: float | None = None,
        consistency: float = 0.0,
    ) -> None:
        super().__init__()
        self.expected, self.consistency = expected, consistency
        self.kept: Tensor | None = None
        if consistency:
            losses = {key: ConsistentLoss(loss, consistency) for key, loss in losses.items()}
        self.losses = nn.ModuleDict(losses)
        self.weights, self.counts, self.statistics = weights, counts, statistics
        self.windows: dict[str, WindowLoss] = {}

    def open_windows(self) -> None:
        """Makes the losses exact over micro-batches and ranks; raises if one cannot be."""
        try:
            made = {k: WindowLoss(v, statistics=self.statistics) for k, v in self.losses.items()}
        except (TypeError, ValueError) as error:
            raise InputError(
                f"with train.accumulate, train.micro_tokens or several processes: {error}"
            ) from error
        self.windows = made

    def prepare(self, batch: Batch) -> Batch:
        """Prepares a batch for the model: with consistency, every example twice."""
        if not self.consistency:
            return batch
        masks = {name: place for name, place in batch.places.items() if place.dtype == torch.bool}
        inputs, masks = (
            {name: torch.cat([value, value]) for name, value in part.items()}
            for part in (batch.inputs, masks)
        )
        return Batch(batch.items, inputs, batch.targets, batch.places | masks)

    @property
    def needs_logits(self) -> bool:
        """Whether the first pass needs logits; otherwise the targets are enough."""
        return any(window.needs_logits for window in self.windows.values())

    @property
    def needs_statistics(self) -> bool:
        """Whether a first pass is needed at all."""
        return any(window.needs_statistics for window in self.windows.values())

    def whole(
        self, logits: Mapping[str, Tensor], targets: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Returns the loss of a step that is one micro-batch on one rank.

        Returns two values: the weighted loss to differentiate, and the plain one to show.

        Args:
            logits: Logits of the prepared batch.
            targets: Targets of the batch, every example once.
        """
        value = self._sum({k: self.losses[k](logits[k], y) for k, y in targets.items()})
        return self._weigh(value, count_targets(targets)), value.detach()

    def count(self, batches: Sequence[Batch]) -> None:
        """Counts the targets of the step over all ranks; call before both passes."""
        if self.expected is None:
            return
        self.kept = torch.stack([count_targets(batch.targets) for batch in batches]).sum()
        if count_ranks() > 1:
            distributed.all_reduce(self.kept)

    def collect(self, logits: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> None:
        """First pass: adds the statistics of a micro-batch, from its logits."""
        for key, target in targets.items():
            self.windows[key].collect(logits[key], target)

    def collect_counts(self, batch: Batch) -> None:
        """First pass: adds the statistics of a micro-batch, from its targets only."""
        for key, target in batch.targets.items():
            self.windows[key].collect_counts(target, self._shape(key, target, batch))

    def reduce(self) -> None:
        """Sums the statistics over ranks; call on every rank between the passes."""
        for window in self.windows.values():
            window.reduce()

    def part(self, logits: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> Tensor:
        """Second pass: the part of the step's loss that this micro-batch differentiates."""
        value = self._sum({k: self.windows[k](logits[k], y) for k, y in targets.items()})
        return value if self.kept is None else self._weigh(value, self.kept)

    def finish(self) -> Tensor:
        """Returns the loss of the whole step."""
        self.kept = None
        return self._sum({key: window.finish() for key, window in self.windows.items()})

    def running_statistics(self) -> dict[str, Tensor]:
        """The running statistics of each key, for `restore_statistics`."""
        return {key: window.get_extra_state() for key, window in self.windows.items()}

    def restore_statistics(self, running: Mapping[str, Tensor]) -> None:
        """Restores running statistics, such as those of a checkpoint."""
        for key in running.keys() & self.windows.keys():  # whole steps have no windows
            self.windows[key].set_extra_state(running[key])

    def advance(self) -> None:
        """Advances the schedules of losses by one step."""
        for loss in self.losses.values():
            getattr(loss, "advance", lambda: None)()

    def _weigh(self, value: Tensor, targets: Tensor) -> Tensor:
        return value if self.expected is None else value * (targets / self.expected)

    def _sum(self, values: Mapping[str, Tensor]) -> Tensor:
        weights = ((self.weights.get(key, 1.0), value) for key, value in values.items())
        return add_all(value if weight == 1.0 else weight * value for weight, value in weights)

    def _shape(self, key: str, target: Tensor, batch: Batch) -> tuple[int, ...]:
        """The shape of the logits that belong to these targets."""
        counts, (first, *rest) = self.counts.get(key), target.shape
        rows = (2 * first if self.consistency else first, *rest)
        if counts is None:  # softmax over positions
            return (*rows, batch.inputs["input_ids"].shape[1])
        if counts.ndim == 1:
            return (*rows, len(counts))
        same = target.shape[-1:] == (len(counts),) and len(counts) > 1
        return rows if same else (*rows, 1)


def count_targets(targets: Mapping[str, Tensor]) -> Tensor:
    """Counts the targets that are not ignored.

    >>> count_targets({"tags": torch.tensor([[1, -100], [0, 2]])})
    tensor(3)
    """
    return add_all((target != IGNORE).sum() for target in targets.values())


def add_all(values: Iterable[Tensor]) -> Tensor:
    """Adds tensors; a single one is returned as it is, without a kernel."""
    return reduce(torch.add, values)


def make_objective(
    section: LossSection,
    *,
    keys: Iterable[str],
    counts: Counts,
    labels: tuple[str, ...],
    steps: int,
    expected: float | None = None,
    consistency: float = 0.0,
) -> Objective:
    """Returns the objective that a recipe asks for.

    Args:
        section: The recipe's `[loss]`.
        keys: The keys of the task's logits.
        counts: The task's class counts.
        labels: Names of the classes, for `exclude`.
        steps: Steps of the training, the default length of a loss schedule.
        expected: Targets of an average step, to weight steps by their targets.
        consistency: The factor of the consistency term.
    """
    options = replace_excluded(section.options, partial(_indices, labels=labels))
    if options.get("schedule") is not None:
        options.setdefault("schedule_steps", steps)
    for key in set(section.keys) - set(keys):
        raise InputError(f"loss.keys: wanted one of {', '.join(keys)}, got {key!r}")

    scheme: Any = section.scheme

    def make(key: str) -> nn.Module:
        one = key in counts and counts[key].shape[:-1] == (1,)
        if one and any(value for _, value in list_excluded(section.options)):
            raise InputError(f"loss.exclude: {key} is one output, so there is nothing to exclude")
        own = dict(options)
        weights = list_weights(section.options)
        if scheme is not None or weights:
            if key not in counts:
                raise InputError(
                    f"class weights: {key} is one of the positions of a text, and no class; "
                    'use another loss, or task.positions="sigmoid"'
                )
            known = torch.from_numpy(counts[key])
            if scheme is not None:
                own["weight"] = class_weights(known, scheme, sigmoid=known.ndim == 2)
            _check_weights(weights, labels, len(known))
        try:
            loss = make_loss(section.name, **own)
        except (TypeError, ValueError) as error:
            raise InputError(f"[loss]: {error}") from error
        if key not in counts and has_batch_level(loss):
            raise InputError(
                f"a loss over the batch is refused for {key}: position 7 of two texts is not one "
                'class; use over="example", another loss, or task.positions="sigmoid"'
            )
        return loss

    return Objective(
        {key: make(key) for key in keys},
        weights=section.keys,
        counts=counts,
        statistics=section.statistics,
        expected=expected,
        consistency=consistency,
    )


def _check_weights(
    weights: Iterable[tuple[str, list[Any]]], labels: tuple[str, ...], classes: int
) -> None:
    """Raises unless lists of class weights have one for each class."""
    for name, given in weights:
        if len(given) != classes:
            each = ", ".join(labels) or "the classes"
            said = f"wanted {classes} weights, one for each of {each}"
            raise InputError(f"loss.{name}: {said}; got {len(given)}")


def _indices(names: Any, labels: tuple[str, ...]) -> tuple[int, ...]:
    """Returns the indices of excluded labels, which are given by name or number."""
    excluded = [names] if isinstance(names, str | int) else list(names)
    for name in excluded:
        if isinstance(name, str) and name not in labels:
            raise InputError(f"loss.exclude: wanted one of {', '.join(labels)}, got {name!r}")
        if not isinstance(name, str) and labels and not 0 <= name < len(labels):
            wanted = f"the number of a label, from 0 to {len(labels) - 1}"
            raise InputError(f"loss.exclude: wanted {wanted}, got {name!r}")
    indices = tuple(labels.index(n) if isinstance(n, str) else n for n in excluded)
    if labels and len(set(indices)) == len(labels):
        raise InputError(f"loss.exclude leaves none of the {len(labels)} labels to learn from")
    return indices


class AdamW(torch.optim.AdamW):
    """AdamW without torch's compiler decorators, which are not needed here.

    The decorators import the compiler at the first call, which takes longer than a short training.
    """

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)


def parameter_groups(model: nn.Module, task: Task, train: TrainSection) -> list[dict[str, Any]]:
    """Parameters in up to four groups: encoder and head, with and without decay.

    Vectors (biases, scales of norms) have no decay. The head is everything outside the pretrained
    encoder; in a model from scratch, the output layers. Parameters that LoRA freezes are in no
    group. Parameters that no loss reaches are included: they never get a gradient, and so the
    groups do not depend on whether somebody froze them.
    """
    inside = {parameter for part in find_encoders(model) for parameter in part.parameters()}
    head = {p for own in task.heads(model).values() for p in own.layer.parameters()}
    if inside:
        head = set(model.parameters()) - inside
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    frozen = list_frozen(model)
    for name, parameter in model.named_parameters():
        if name in frozen:
            continue
        kind = (parameter in head, parameter.ndim >= 2)
        groups.setdefault(kind, []).append(parameter)
    return [
        {
            "params": parameters,
            "peak": train.head_lr if in_head and train.head_lr is not None else train.lr,
            "weight_decay": train.weight_decay if decays else 0.0,
        }
        for (in_head, decays), parameters in sorted(groups.items())
    ]


def make_optimizer(
    groups: list[dict[str, Any]], train: TrainSection, *, fused: bool, capturable: bool
) -> AdamW:
    """Makes AdamW over the groups; for CUDA graphs its rate and step count are on the device."""
    if capturable:
        device = groups[0]["params"][0].device
        for group in groups:
            group["lr"] = torch.tensor(group["peak"], device=device)
    return AdamW(
        groups,
        lr=train.lr,
        betas=train.betas,
        eps=train.eps,
        weight_decay=train.weight_decay,
        fused=fused,
        capturable=capturable,
    )


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Sets each group's rate to its peak rate times `factor`, in place if a graph reads it."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(group["peak"] * factor)
        else:
            group["lr"] = group["peak"] * factor


def rate_factor(step: int, *, steps: int, train: TrainSection) -> float:
    """Returns the factor of the peak learning rate at a step, counted from 0.

    >>> from softf1.recipe import TrainSection
    >>> train = TrainSection(schedule="linear", warmup=0.2)
    >>> [round(rate_factor(s, steps=10, train=train), 3) for s in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.125]
    """
    rise = round(train.warmup * steps)
    if step < rise:
        return (step + 1) / rise
    done = (step - rise) / max(1, steps - rise)
    shapes: dict[str, float] = {
        "constant": 1.0,
        "linear": 1.0 - done,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
        "polynomial": (1.0 - done) ** train.power,
    }
    return train.lr_end + (1.0 - train.lr_end) * shapes[train.schedule]


def count_steps(train: TrainSection, per_epoch: int) -> int:
    """Counts the optimizer steps of a training without early stopping."""
    steps = max(1, round(train.epochs * per_epoch))
    return min(steps, train.max_steps) if train.max_steps else steps
