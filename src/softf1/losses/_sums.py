"""Every loss as a function of statistics of its rows, over batches and ranks.

    example level, ce, focal:  (2, 1)     Σ loss, Σ count     loss = Σ loss / Σ count
    batch level:               (2, C)     overlap, total      loss = mean of ratios (micro: one)
    rankings:                  (2, N, C)  scores, labels      loss = that of all rows

The first two add up over batches; scores of rows are concatenated. `take_sums` returns the
statistics of some rows, `join_sums` joins those of two sets of rows, `fold_sums` computes the loss
from those of all rows. A compound loss has one tensor per part. A `ConsistentLoss` has the tensors
of both halves, then one for the consistency term.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from softf1.losses._core import mean
from softf1.losses._family import Shared, fold_classes
from softf1.losses._module import LossModule
from softf1.losses._ranking import LEFT_OUT
from softf1.losses.compound import CompoundLoss
from softf1.losses.consistency import ConsistentLoss, consistency_loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn


def check_sums(loss: nn.Module) -> None:
    """Raises if the loss of a whole batch cannot be computed from statistics of micro-batches."""
    for part in _parts(loss):
        options = _options(part)
        if options.get("ohem_ratio") is not None:
            raise ValueError(
                "ohem_ratio is refused here: finding the hardest negatives needs the whole batch "
                "at once, so the loss is not a function of sums over micro-batches"
            )
        if options.get("reduction") not in ("mean", "sum"):
            raise ValueError(
                f'wanted reduction="mean" or "sum", which give one value per batch, '
                f"got {options.get('reduction')!r}"
            )


def check_adds_up(loss: nn.Module, where: str) -> None:
    """Raises if the loss ranks rows against each other, so that sums do not determine it."""
    for part in _parts(loss):
        if part.compares_rows:
            raise ValueError(
                f"{type(part).__name__} is refused {where}: it ranks all rows of a batch "
                "against each other, which sums over parts of the batch cannot do"
            )


def has_batch_level(loss: nn.Module) -> bool:
    """True if a loss, also of another package, or a part of it is not a mean over rows."""
    if isinstance(loss, ConsistentLoss):
        return has_batch_level(loss.loss)
    if isinstance(loss, CompoundLoss):
        return any(map(has_batch_level, loss.parts))
    options = getattr(loss, "options", None)  # another package may mean anything by it
    over = options.get("over") if isinstance(options, dict) else None  # the default: "example"
    return over == "batch" or bool(getattr(loss, "compares_rows", False))


def is_sum_of_rows(loss: nn.Module) -> bool:
    """True for a single loss that is the sum of the rows' losses, divided by a count or not."""
    return isinstance(loss, LossModule) and not has_batch_level(loss)


def take_sums(
    loss: nn.Module, logits: Tensor, target: Tensor, mask: Tensor | None
) -> tuple[Tensor, ...]:
    """Returns the statistics of these rows, differentiable, one tensor per part of the loss."""
    if isinstance(loss, ConsistentLoss):
        first, second = loss.split(logits, target)
        halves = [*take_sums(loss.loss, first, target, mask)]
        halves += take_sums(loss.loss, second, target, mask)
        how: dict[str, Any] = {"ignore_index": loss.ignore_index, "reduction": "sums"}
        apart = consistency_loss(first, second, target, mask=mask, **how)
        return *halves, apart.to(halves[0].dtype)
    return tuple(_take(part, logits, target, mask) for part in _parts(loss))


def _take(part: LossModule, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    options = part.options | {"reduction": "sums"}
    sums = type(part).function(logits, target, mask=mask, weight=part.weight, **options)
    if sums.dim() != (3 if part.compares_rows else 2):  # a scalar would go unnoticed
        wanted = "(2, N, C)" if part.compares_rows else "(2, K)"
        raise TypeError(
            f'{type(part).__name__} gave {tuple(sums.shape)} for reduction="sums", wanted {wanted}'
        )
    return sums


def join_sums(first: Sequence[Tensor], second: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Returns the statistics of the rows of both: adds up sums, concatenates scores of rows."""
    return tuple(
        torch.cat([a, b], dim=1) if has_rows(a) else a + b
        for a, b in zip(first, second, strict=True)
    )


def has_rows(sums: Tensor) -> bool:
    """True for the scores of rows, (2, N, C), False for sums over them, (2, K)."""
    return sums.dim() == 3


def fold_sums(loss: nn.Module, sums: Sequence[Tensor]) -> Tensor:
    """Returns the loss of all rows together, a scalar, from their statistics."""
    if isinstance(loss, ConsistentLoss):
        half = len(sums) // 2
        first, second = fold_sums(loss.loss, sums[:half]), fold_sums(loss.loss, sums[half:-1])
        return (first + second) / 2 + loss.factor * mean(*sums[-1].squeeze(1))
    values = [_fold(part, own) for part, own in zip(_parts(loss), sums, strict=True)]
    return loss.combine(values) if isinstance(loss, CompoundLoss) else values[0]


def _fold(part: LossModule, sums: Tensor) -> Tensor:
    options = _options(part)
    if part.compares_rows:  # log-odds are logits of a sigmoid for each class
        scores, labels = sums
        given = options | {"ignore_index": LEFT_OUT, "mask": None}
        return type(part).function(scores, labels.detach(), **given)
    if options.get("over") == "batch":
        return fold_classes(sums, Shared(**{name: options[name] for name in Shared._fields}))
    total, count = sums.squeeze(1)
    return total if options["reduction"] == "sum" else mean(total, count)


def _parts(loss: nn.Module) -> list[LossModule]:
    loss = loss.loss if isinstance(loss, ConsistentLoss) else loss
    parts = list(loss.parts) if isinstance(loss, CompoundLoss) else [loss]
    known = [part for part in parts if isinstance(part, LossModule)]
    if len(known) < len(parts):
        names = ", ".join(type(part).__name__ for part in parts)
        raise TypeError(f"wanted a loss of softf1.losses, or a sum of such losses, got {names}")
    return known


def _options(part: LossModule) -> dict[str, Any]:
    """Returns all options of a loss, including those at their defaults."""
    parameters = inspect.signature(type(part).function).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    return defaults | part.options | {"weight": part.weight}
