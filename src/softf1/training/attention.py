"""Attention whose gradient is the same every time, on a GPU too.

torch chooses one of several kernels. The fast ones cut the keys of long rows into tiles and add up
the gradient of the queries in no fixed order, as torch's notes on reproducibility say: tasks with a
single row of more than 128 ids gave other weights with the same seed, all others the same. Plain
products of matrices have one order; they are slower, and keep every weight of attention.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from torch.nn.attention import SDPBackend, sdpa_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

TILE = 128
"""Keys that a fast kernel takes at a time."""


def steady_attention(inputs: Mapping[str, Tensor]) -> AbstractContextManager[None]:
    """The context for a forward pass over these inputs whose gradient will be wanted."""
    rows = inputs.get("input_ids")
    if rows is None or rows.device.type != "cuda" or rows.shape[-1] <= TILE:
        return nullcontext()
    return sdpa_kernel(SDPBackend.MATH)
