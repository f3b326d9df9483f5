"""Online hard example mining: all positives, and of the negatives only the hardest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from softf1.losses._core import Rows
    from softf1.losses._probability import Link


@torch.no_grad()
def easy_negatives(rows: Rows, link: Link, *, ratio: float, min_kept: int) -> Tensor:
    """Returns (N, C) bool: the negatives that are too easy to be kept.

    Per class, `min(available, max(min_kept, ceil(ratio · positives)))` negatives of the highest
    probability stay; of equals the lower row. No host sync: how many stay is known on the device.
    """
    terms = rows.terms()
    positive = terms & _positives(rows)
    negative = terms & ~positive
    # In float64 the product is the one that a user computes in Python.
    wanted = (ratio * positive.sum(0).to(torch.float64)).ceil().clamp_min(min_kept)
    hardness = link.probabilities(rows.logits).masked_fill(~negative, -1.0)
    order = hardness.sort(dim=0, descending=True, stable=True).indices
    rank = torch.arange(len(hardness), device=wanted.device).unsqueeze(1)
    return negative.scatter(0, order, rank >= wanted) & negative


def _positives(rows: Rows) -> Tensor:
    """Returns (N, C) bool, y >= 0.5."""
    if rows.gold is None:
        return rows.y >= 0.5
    return torch.zeros_like(rows.logits, dtype=torch.bool).scatter(1, rows.gold, rows.y >= 0.5)
