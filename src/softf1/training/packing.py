"""Leaves out padding: the texts of a batch, one after the other in rows.

Rows are a multiple of 128, or of more, so that shapes recur; those that are left over hold nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

ROOM = 128


def count_rows(tokens: int, places: int) -> int:
    """The rows that so many tokens are packed into, if they take so many places with padding.

    >>> count_rows(600, 1_800), count_rows(5_200, 14_000)
    (640, 5632)
    """
    unit = find_unit(places)
    return -(-tokens // unit) * unit


def find_unit(places: int) -> int:
    """The number of which rows are a multiple: large batches differ by more tokens.

    >>> find_unit(1_800), find_unit(14_000)
    (128, 512)
    """
    return max(ROOM, 1 << (places // 32 - 1).bit_length())


class Places(NamedTuple):
    """Where the tokens of a batch (texts, tokens) are in its packed rows, and the other way round.

    Attributes:
        kept: Which tokens are kept, (texts, tokens).
        row: The row of each token that is kept; of others, some row; (texts · tokens,).
        token: The token of each row; of rows that are left over, some token; (rows,).
        used: Whether a row is not left over, (rows, 1).
        starts: The first row of each text; rows that are left over make up texts as well.
    """

    kept: Tensor
    row: Tensor
    token: Tensor
    used: Tensor
    starts: Tensor


def find_places(mask: Tensor, room: int) -> Places:
    """Finds the places of the tokens of a mask (texts, tokens), 0 for padding, in `room` rows.

    The number of rows is that of `count_rows`.

    >>> places = find_places(torch.tensor([[1, 1, 0], [1, 0, 0]]), 4)
    >>> places.token.tolist(), places.row.tolist(), places.starts.tolist()
    ([0, 1, 3, 5], [0, 1, 1, 2, 2, 2], [0, 2, 3, 4, 4])
    """
    kept, width = mask != 0, mask.shape[1]
    count = kept.flatten().cumsum(0)
    rows = torch.arange(room, device=mask.device)
    token = torch.searchsorted(count, rows, right=True).clamp(max=mask.numel() - 1)
    ends = count.view(mask.shape)[:, -1]
    texts = -(-min(room, find_unit(mask.numel())) // width)  # of rows that are left over
    left = ends[-1] + width * torch.arange(1, texts + 1, device=mask.device)
    starts = torch.cat([ends.new_zeros(1), ends, left.clamp(max=room)])
    used = (rows < ends[-1])[:, None]
    return Places(kept, (count - 1).clamp(min=0), token, used, starts.to(torch.int32))


def pack_texts(x: Tensor, places: Places) -> Tensor:
    """Packs texts (texts, tokens, width) into (1, rows, width)."""
    out: Tensor = _Pack.apply(x, places)  # type: ignore[no-untyped-call]
    return out


def unpack_texts(x: Tensor, places: Places) -> Tensor:
    """Lays packed rows (1, rows, width) out as texts; at padding, with the output of some token.

    Gradients at padding and at rows that are left over are 0.
    """
    out: Tensor = _Unpack.apply(x, places)  # type: ignore[no-untyped-call]
    return out


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Places) -> Tensor:
        ctx.places = places
        return x.flatten(0, 1).index_select(0, places.token)[None]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        kept, row = ctx.places.kept, ctx.places.row
        laid = gradient[0].index_select(0, row).view(*kept.shape, -1)
        return torch.where(kept[..., None], laid, 0.0), None


class _Unpack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Places) -> Tensor:
        ctx.places = places
        return x[0].index_select(0, places.row).view(*places.kept.shape, -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        rows = gradient.flatten(0, 1).index_select(0, ctx.places.token)
        return torch.where(ctx.places.used, rows, 0.0)[None], None
