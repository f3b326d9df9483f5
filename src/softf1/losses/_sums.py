"""Every loss as a function of sums that add up over rows, batches and ranks.

    example level, ce, focal:  (2, 1)  Σ loss, Σ count       loss = Σ loss / Σ count
    batch level:               (2, C)  overlap, total        loss = mean of the ratios, or one ratio

`take_sums` gives the sums of some rows, `fold_sums` the loss from the sums of all rows. The parts
of a compound loss stand side by side: (2, K). So do the halves of a consistent loss, and then how
far they are apart: (2, 2·K + 1).
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from softf1.losses._core import mean
from softf1.losses._family import Shared, fold_classes
from softf1.losses._module import LossModule
from softf1.losses.compound import CompoundLoss
from softf1.losses.consistency import ConsistentLoss, consistency_loss

if TYPE_CHECKING:
    from torch import Tensor, nn


def check_sums(loss: nn.Module) -> None:
    """Raises where the loss of the whole batch cannot be had from sums over parts of it."""
    for part in _parts(loss):
        options = _options(part)
        if options.get("ohem_ratio") is not None:
            raise ValueError(
                "ohem_ratio is refused here: which negatives are hard is known only to a whole "
                "batch in one place, so that its loss is no function of sums over micro-batches"
            )
        if options.get("reduction") not in ("mean", "sum"):
            raise ValueError(
                f'wanted reduction="mean" or "sum", which give one value a batch, '
                f"got {options.get('reduction')!r}"
            )


def has_batch_level(loss: nn.Module) -> bool:
    """Says whether any part of the loss is a ratio of sums over the batch."""
    return any(_options(part).get("over") == "batch" for part in _parts(loss))


def is_sum_of_rows(loss: nn.Module) -> bool:
    """True for a single loss that is Σ loss, divided by a count or not."""
    return isinstance(loss, LossModule) and _options(loss).get("over") != "batch"


def take_sums(loss: nn.Module, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """Returns (2, K): the sums of these rows, differentiable."""
    if isinstance(loss, ConsistentLoss):
        first, second = loss.split(logits, target)
        halves = [take_sums(loss.loss, half, target, mask) for half in (first, second)]
        apart = consistency_loss(first, second, target, mask=mask, reduction="sums")
        return torch.cat([*halves, apart.to(halves[0].dtype)], dim=1)
    return torch.cat([_take(part, logits, target, mask) for part in _parts(loss)], dim=1)


def _take(part: LossModule, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    options = part.options | {"reduction": "sums"}
    sums = type(part).function(logits, target, mask=mask, weight=part.weight, **options)
    if sums.dim() != 2:  # a scalar would pass for sums without a word
        raise TypeError(
            f'{type(part).__name__} gave {tuple(sums.shape)} for reduction="sums", wanted (2, K)'
        )
    return sums


def fold_sums(loss: nn.Module, sums: Tensor) -> Tensor:
    """Returns the loss, a scalar, of all rows together, from their sums (2, K)."""
    if isinstance(loss, ConsistentLoss):
        first, second = (fold_sums(loss.loss, half) for half in sums[:, :-1].chunk(2, dim=1))
        return (first + second) / 2 + loss.factor * mean(*sums[:, -1])
    parts = [_options(part) for part in _parts(loss)]
    by_class = [options.get("over") == "batch" for options in parts]
    classes = (sums.shape[1] - by_class.count(False)) // max(1, by_class.count(True))
    sums_of_parts = torch.split(sums, [classes if own else 1 for own in by_class], dim=1)
    values = [_fold(options, own) for options, own in zip(parts, sums_of_parts, strict=True)]
    if not isinstance(loss, CompoundLoss):
        return values[0]
    shares = zip(loss.shares(), values, strict=True)
    return torch.stack([share * value for share, value in shares]).sum()


def _fold(options: dict[str, Any], sums: Tensor) -> Tensor:
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
    """Returns every option of a loss, those at their defaults too."""
    parameters = inspect.signature(type(part).function).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    return defaults | part.options | {"weight": part.weight}
