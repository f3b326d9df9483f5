"""Attention whose gradient is the same every time, on a GPU too.

torch chooses one of several kernels. In the backward pass of long rows, cuDNN's and flash
attention's add up in no fixed order, as torch's notes on reproducibility say: tasks in which a
single row had more than 128 ids gave other weights with the same seed, all others the same. cuDNN's
can also be NaN where the length leaves 64 when divided by 128 (pytorch issue 196678). What is left,
the memory-efficient kernel, adds up in one order where examples times heads are more than 100.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from torch.nn.attention import SDPBackend, sdpa_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

TILE = 128
"""Keys that cuDNN's kernel takes at a time."""

STEADY = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def steady_attention(inputs: Mapping[str, Tensor]) -> AbstractContextManager[None]:
    """The context for a forward pass over these inputs whose gradient will be wanted."""
    rows = inputs.get("input_ids")
    if rows is None or rows.device.type != "cuda" or not is_unsteady(rows.shape[-1]):
        return nullcontext()
    return sdpa_kernel(STEADY)


def is_unsteady(width: int) -> bool:
    """Whether cuDNN's gradient of rows this long differs from run to run, or may be NaN.

    >>> [width for width in (32, 64, 128, 136, 192) if is_unsteady(width)]
    [64, 136, 192]
    """
    return width > TILE or width % TILE == TILE // 2
