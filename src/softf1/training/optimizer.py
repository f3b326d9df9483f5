"""AdamW, its parameter groups, and the learning-rate schedule."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import torch

from softf1.models.heads import find_encoders
from softf1.models.lora import list_frozen

if TYPE_CHECKING:
    from torch import nn

    from softf1.recipe import TrainSection
    from softf1.tasks.base import Task


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
    head = _head_parameters(model, task)
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
    rate: Any = train.lr
    if capturable:
        device = groups[0]["params"][0].device
        for group in groups:
            group["lr"] = torch.tensor(group["peak"], device=device)
    return AdamW(
        groups,
        lr=rate,
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


def _head_parameters(model: nn.Module, task: Task) -> set[nn.Parameter]:
    inside = {parameter for part in find_encoders(model) for parameter in part.parameters()}
    if inside:
        return set(model.parameters()) - inside
    return {p for head in task.heads(model).values() for p in head.layer.parameters()}
