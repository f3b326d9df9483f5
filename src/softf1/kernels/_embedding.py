"""Kernels of the gradient of an embedding: `softf1.kernels.embedding` says what they do."""

# No `from __future__ import annotations`: Triton reads the annotations.
import triton
import triton.language as tl

from softf1.kernels._encoder import NUMBERS

PAST = tl.constexpr(2**31 - 1)  # larger than any id


@triton.jit(do_not_specialize=NUMBERS)
def place_ids(id_of, order, counts, ids, padding, R: tl.constexpr, W: tl.constexpr):
    """Writes the places of the ids in sorted order, and at the first of equal ids their number.

    The number is 0 at the others, and for the id `padding`, which has no gradient.
    """
    place = tl.program_id(0) * R + tl.arange(0, R)
    own = tl.load(id_of + place, mask=place < ids, other=0).to(tl.int32)
    lower = tl.zeros([R, W], tl.int32)
    earlier = tl.zeros([R, W], tl.int32)
    equal = tl.zeros([R, W], tl.int32)
    for first in tl.range(0, ids, W):
        other = first + tl.arange(0, W)
        theirs = tl.load(id_of + other, mask=other < ids, other=PAST).to(tl.int32)
        same = theirs[None, :] == own[:, None]
        lower += (theirs[None, :] < own[:, None]).to(tl.int32)
        earlier += (same & (other[None, :] < place[:, None])).to(tl.int32)
        equal += same.to(tl.int32)
    same_before = tl.sum(earlier, axis=1)
    sorted_place = tl.sum(lower, axis=1) + same_before
    count = tl.where((same_before == 0) & (own != padding), tl.sum(equal, axis=1), 0)
    tl.store(order + sorted_place, place, mask=place < ids)
    tl.store(counts + sorted_place, count, mask=place < ids)


@triton.jit
def add_rows(gradient, id_of, order, counts, out, width, R: tl.constexpr, W: tl.constexpr):
    """Adds up the rows of one distinct id; a program whose place is not the first has none."""
    count = tl.load(counts + tl.program_id(0))
    if count > 0:
        order += tl.program_id(0)
        col = tl.program_id(1) * W + tl.arange(0, W)
        kind: tl.constexpr = gradient.dtype.element_ty
        exact: tl.constexpr = tl.float64 if kind == tl.float64 else tl.float32
        total = tl.zeros([R, W], exact)
        for first in tl.range(0, count, R, num_stages=3):
            row = first + tl.arange(0, R)
            place = tl.load(order + row, mask=row < count, other=0).to(tl.int64)
            inside = (row < count)[:, None] & (col < width)[None, :]
            found = tl.load(
                gradient + place[:, None] * width + col[None, :], mask=inside, other=0.0
            )
            total += found.to(exact)
        own = tl.load(id_of + tl.load(order)).to(tl.int64)
        summed = tl.sum(total, axis=0)
        tl.store(out + own * width + col, summed.to(out.dtype.element_ty), mask=col < width)
