"""The gradient of an embedding: rows of a gradient added up by their ids, always in the same order.

PyTorch sorts the ids in a dozen kernels, and with more than 3,072 ids it adds up in an order that
depends on timing. Here two kernels do it. The first finds the place of each id in the sorted order
by counting how many come before it: for the ids of a step that is less work than the launches of a
sort. The second adds up the rows of each distinct id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton

from softf1.kernels._embedding import add_rows, place_ids
from softf1.kernels._launch import start

if TYPE_CHECKING:
    from torch import Tensor

MOST_IDS = 32_768
"""Every id is compared with every other: with more ids, sorting is faster."""
FEWEST_ROWS = 16
"""One program adds up all rows of an id: with few distinct ids, as for the segments of a text, a
matrix product with one-hot ids is faster."""


def embedding_gradient(gradient: Tensor, ids: Tensor, rows: int, padding_idx: int | None) -> Tensor:
    """Returns the gradient (rows, width) of an embedding's weight.

    Args:
        gradient: The gradient of its output, (…, width).
        ids: Its input, (…), at most `MOST_IDS` integers.
        rows: Number of rows of the weight.
        padding_idx: The row that has no gradient, if any.
    """
    width, many = gradient.shape[-1], ids.numel()
    out = gradient.new_zeros((rows, width))
    if not many:
        return out
    gradient, ids = gradient.contiguous(), ids.contiguous()
    # Two tensors: the kernels are compiled for addresses that are multiples of 16.
    order, counts = (ids.new_empty(many, dtype=torch.int32) for _ in range(2))
    padding = -1 if padding_idx is None else padding_idx
    start(place_ids, (triton.cdiv(many, 16),), ids, order, counts, many, padding, R=16, W=256)
    start(
        add_rows, (many, triton.cdiv(width, 128)),
        gradient, ids, order, counts, out, width, R=32, W=128,
    )  # fmt: skip
    return out
