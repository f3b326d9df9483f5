"""Micro-batches as tensors with a constant number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from softf1.tasks.base import IGNORE, Batch

if TYPE_CHECKING:
    from torch import Tensor

    from softf1.models.codec import Codec
    from softf1.tasks.base import Features, Task
    from softf1.training.batching import MicroBatch


def collate_rows(
    task: Task, features: Features, micro: MicroBatch, codec: Codec, epoch: int = 0
) -> Batch:
    """The micro-batch as tensors of `micro.rows` rows, of which the further ones count nowhere.

    They repeat the first row, so that no row is without a token, and all their targets are
    ignored: neither loss nor gradient knows them. `items` and `places` are those of the real rows,
    so that `gather` finds these alone; a place of booleans is a mask of the logits and grows with
    them. Without items there are only rows that count nowhere, of the shortest item.
    """
    empty = not len(micro.items)
    items = [int(features["length"].argmin())] if empty else micro.items.tolist()
    batch = task.collate(features, items, codec, width=micro.width, epoch=epoch)
    more = micro.rows - len(items)
    if not more and not empty:
        return batch
    return Batch(
        np.zeros(0, np.int64) if empty else batch.items,
        {name: _repeat(value, more) for name, value in batch.inputs.items()},
        {key: _ignore(target, more, everything=empty) for key, target in batch.targets.items()},
        {name: _place(value, more, empty=empty) for name, value in batch.places.items()},
    )


def _repeat(value: Tensor, more: int) -> Tensor:
    return torch.cat([value, value[:1].expand(more, *value.shape[1:])])


def _ignore(target: Tensor, more: int, *, everything: bool) -> Tensor:
    kept = target[:0] if everything else target
    rows = len(target) + more - len(kept)
    return torch.cat([kept, target.new_full((rows, *target.shape[1:]), IGNORE)])


def _place(value: Tensor, more: int, *, empty: bool) -> Tensor:
    if value.dtype == torch.bool:
        return _repeat(value, more)
    return value[:0] if empty else value
