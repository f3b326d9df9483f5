"""Kernels of self-attention: softmax(query·keyᵀ·scale)·value of each head, forward and backward.

For short texts one program takes a head of a text and holds all its scores. Such texts may be
packed, one after the other without padding; `allowed` then holds the first row of each, and the
row after the last. For long texts a program takes a block of queries or of keys, and goes through
the keys or queries block by block. Forward then keeps of each row of scores s only the logarithm l
of the softmax's sum. Backward computes a block of scores again, with P = 2^(s − l), dropout mask m
and δ = Σ ∂out·out of a row:

    ∂value = (m·P)ᵀ·∂out,  ∂s = P·(m·(∂out·valueᵀ) − δ)·scale,  ∂query = ∂s·key,  ∂key = ∂sᵀ·query

One kernel goes through the keys for ∂query, one through the queries for ∂key and ∂value. No two
programs add to the same number, so the sums have a fixed order; that costs two products more than
adding up ∂query from all programs would.
"""

# No `from __future__ import annotations`: Triton reads the annotations.
import triton
import triton.language as tl

from softf1.kernels._encoder import NUMBERS, draw_kept, draw_mask, upscale

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def find_text(starts, batch, steps, PACKED: tl.constexpr):
    """Returns the first row of a text and its tokens: `steps`, or, packed, those up to the next."""
    if PACKED:
        row = tl.load(starts + batch)
        begin, steps = row.to(tl.int64), tl.load(starts + batch + 1) - row
    else:
        begin = batch.to(tl.int64) * steps
    return begin, steps


@triton.jit
def load_heads(
    source, begin, head, steps, size, row_stride, T: tl.constexpr, D: tl.constexpr, first=0
):
    """Returns T rows of one head of one text (T, D), where they lie and which entries exist."""
    step, entry = first + tl.arange(0, T)[:, None], tl.arange(0, D)[None, :]
    place = (begin + step) * row_stride + head * size + entry
    inside = (step < steps) & (entry < size)
    return tl.load(source + place, mask=inside, other=0.0), place, inside


@triton.jit
def attend(
    query, key, allowed, batch, steps, scale, mask_batch, mask_row, mask_col,
    T: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Returns a head's softmax(query·keyᵀ·scale); 0 in rows that may not attend to any token."""
    row, col = tl.arange(0, T)[:, None], tl.arange(0, T)[None, :]
    inside = (row < steps) & (col < steps)
    if not PACKED:
        place = batch.to(tl.int64) * mask_batch + row * mask_row + col * mask_col
        inside = inside & (tl.load(allowed + place, mask=inside, other=0) != 0)
    scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
    scores = tl.where(inside, scores, -float("inf"))
    highest = tl.max(scores, axis=1)
    highest = tl.where(highest == -float("inf"), 0.0, highest)
    powers = tl.exp(scores - highest[:, None])
    total = tl.sum(powers, axis=1)
    return powers / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit(do_not_specialize=NUMBERS)
def attention_forward(
    qkv, allowed, seeds, out,
    steps, call, dropped, scale, heads, size, mask_batch, mask_row, mask_col,
    T: tl.constexpr, D: tl.constexpr, DROP: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Writes dropout(softmax(query·keyᵀ·scale))·value of one head of one text."""
    batch, head, width = tl.program_id(0) // heads, tl.program_id(0) % heads, heads * size
    begin, steps = find_text(allowed, batch, steps, PACKED)
    query, _, _ = load_heads(qkv, begin, head, steps, size, 3 * width, T, D)
    key, _, _ = load_heads(qkv + width, begin, head, steps, size, 3 * width, T, D)
    value, _, _ = load_heads(qkv + 2 * width, begin, head, steps, size, 3 * width, T, D)
    shares = attend(
        query, key, allowed, batch, steps, scale, mask_batch, mask_row, mask_col, T, PACKED
    )
    if DROP:
        row = (tl.program_id(0) * T + tl.arange(0, T))[:, None] * (T // 8)
        shares *= draw_mask(seeds, call, row, dropped, T, T)
    mixed = tl.dot(shares.to(value.dtype), value, input_precision="ieee")
    _, place, inside = load_heads(out, begin, head, steps, size, width, T, D)
    tl.store(out + place, mixed, mask=inside)


@triton.jit(do_not_specialize=NUMBERS)
def attention_backward(
    dout, qkv, allowed, seeds, dqkv, parts,
    stride, steps, call, dropped, scale, heads, size, mask_batch, mask_row, mask_col,
    T: tl.constexpr, D: tl.constexpr, DROP: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Writes ∂query, ∂key, ∂value of one head of one text, and a line of ∂bias for each text."""
    batch, head, width = tl.program_id(0) // heads, tl.program_id(0) % heads, heads * size
    begin, steps = find_text(allowed, batch, steps, PACKED)
    query, place, inside = load_heads(qkv, begin, head, steps, size, 3 * width, T, D)
    key, _, _ = load_heads(qkv + width, begin, head, steps, size, 3 * width, T, D)
    value, _, _ = load_heads(qkv + 2 * width, begin, head, steps, size, 3 * width, T, D)
    incoming, _, _ = load_heads(dout, begin, head, steps, size, width, T, D)
    shares = attend(
        query, key, allowed, batch, steps, scale, mask_batch, mask_row, mask_col, T, PACKED
    )
    dshares = tl.dot(incoming, tl.trans(value), input_precision="ieee")
    kept = shares
    if DROP:
        row = (tl.program_id(0) * T + tl.arange(0, T))[:, None] * (T // 8)
        mask = draw_mask(seeds, call, row, dropped, T, T)
        kept *= mask
        dshares *= mask
    dscores = shares * (dshares - tl.sum(shares * dshares, axis=1)[:, None]) * scale
    dscores = dscores.to(query.dtype)
    dvalue = tl.dot(tl.trans(kept.to(value.dtype)), incoming, input_precision="ieee")
    dquery = tl.dot(dscores, key, input_precision="ieee")
    dkey = tl.dot(tl.trans(dscores), query, input_precision="ieee")
    line = parts + batch.to(tl.int64) * stride + head * size + tl.arange(0, D)
    there = tl.arange(0, D) < size
    tl.store(dqkv + place, dquery, mask=inside)
    tl.store(line, tl.sum(dquery, axis=0), mask=there)
    tl.store(dqkv + width + place, dkey, mask=inside)
    tl.store(line + width, tl.sum(dkey, axis=0), mask=there)
    tl.store(dqkv + 2 * width + place, dvalue, mask=inside)
    tl.store(line + 2 * width, tl.sum(dvalue, axis=0), mask=there)


@triton.jit
def load_block(
    qkv, number, batch, head, first, steps, heads, size, R: tl.constexpr, D: tl.constexpr
):
    """Returns rows of query (number 0), key (1) or value (2)."""
    width = heads * size
    begin = batch.to(tl.int64) * steps
    block, _, _ = load_heads(
        qkv + number * width, begin, head, steps, size, 3 * width, R, D, first
    )  # fmt: skip
    return block


@triton.jit
def find_seen(allowed, batch, first, steps, mask_batch, mask_col, N: tl.constexpr):
    """Returns which keys of a block are there and not masked."""
    col = first + tl.arange(0, N)
    place = batch.to(tl.int64) * mask_batch + col * mask_col
    return tl.load(allowed + place, mask=col < steps, other=0) != 0


@triton.jit
def block_scores(
    query, key, allowed, batch, first, steps, scale, mask_batch, mask_col, N: tl.constexpr
):
    """Returns query·keyᵀ·scale of a block as exponents of 2; −inf for keys that are masked."""
    seen = find_seen(allowed, batch, first, steps, mask_batch, mask_col, N)
    scores = tl.dot(query, tl.trans(key), input_precision="ieee") * (scale * LOG2_E)
    return tl.where(seen[None, :], scores, -float("inf"))


@triton.jit
def block_kept(
    seeds, call, dropped, number, row_first, col_first, steps, M: tl.constexpr, N: tl.constexpr
):
    """Returns what dropout keeps of a block of a head; forward and backward draw the same."""
    row = number * steps + row_first + tl.arange(0, M)
    start = row[:, None] * ((steps + 7) // 8) + col_first // 8
    return draw_kept(seeds, call, start, dropped, M, N)


@triton.jit(do_not_specialize=NUMBERS)
def long_attention_forward(
    qkv, allowed, seeds, out, sums, steps, call, dropped, scale, heads, size, mask_batch, mask_col,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Writes the attention of a block of queries, and log2 of the sum of each row's powers."""
    number, first = tl.program_id(0), tl.program_id(1) * M
    batch, head = number // heads, number % heads
    query = load_block(qkv, 0, batch, head, first, steps, heads, size, M, D)
    highest = tl.full([M], -float("inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    mixed = tl.zeros([M, D], tl.float32)
    for col in tl.range(0, steps, N):
        key = load_block(qkv, 1, batch, head, col, steps, heads, size, N, D)
        value = load_block(qkv, 2, batch, head, col, steps, heads, size, N, D)
        scores = block_scores(
            query, key, allowed, batch, col, steps, scale, mask_batch, mask_col, N
        )  # fmt: skip
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        base = tl.where(higher == -float("inf"), 0.0, higher)
        powers, fade = tl.exp2(scores - base[:, None]), tl.exp2(highest - base)
        total = total * fade + tl.sum(powers, axis=1)
        if DROP:
            kept = block_kept(seeds, call, dropped, number, first, col, steps, M, N)
            powers = tl.where(kept, powers, 0.0)
        mixed = mixed * fade[:, None] + tl.dot(
            powers.to(value.dtype), value, input_precision="ieee"
        )
        highest = higher
    empty = total == 0.0  # no key that is not masked
    total = tl.where(empty, 1.0, total)
    mixed /= total[:, None]
    if DROP:
        mixed *= upscale(dropped)
    begin = batch.to(tl.int64) * steps
    _, place, inside = load_heads(out, begin, head, steps, size, heads * size, M, D, first)
    tl.store(out + place, mixed, mask=inside)
    row = first + tl.arange(0, M)
    logs = tl.where(empty, float("inf"), highest + tl.log2(total))  # 2^(s − ∞) is 0
    tl.store(sums + number.to(tl.int64) * steps + row, logs, mask=row < steps)


@triton.jit
def load_incoming(
    dout, out, sums, number, batch, head, first, steps, heads, size,
    M: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Returns ∂out of a block of queries, δ, and the kept logarithms: ∞ past the text's end."""
    begin = batch.to(tl.int64) * steps
    incoming, place, inside = load_heads(
        dout, begin, head, steps, size, heads * size, M, D, first
    )  # fmt: skip
    own = tl.load(out + place, mask=inside, other=0.0)
    delta = tl.sum(incoming.to(tl.float32) * own.to(tl.float32), axis=1)
    row = first + tl.arange(0, M)
    kept = sums + number.to(tl.int64) * steps + row
    return incoming, delta, tl.load(kept, mask=row < steps, other=float("inf"))


@triton.jit
def store_gradient(
    gradient, dqkv, parts, stride, which, batch, head, first, steps, heads, size,
    R: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of rows of query, key or value, and a line of ∂bias for each block."""
    width, entry = heads * size, tl.arange(0, D)
    at = dqkv + which * width
    begin = batch.to(tl.int64) * steps
    _, place, inside = load_heads(at, begin, head, steps, size, 3 * width, R, D, first)
    tl.store(at + place, gradient, mask=inside)
    line = (batch * tl.num_programs(1) + tl.program_id(1)).to(tl.int64) * stride
    summed = tl.sum(tl.where(inside, gradient, 0.0), axis=0)
    tl.store(parts + line + which * width + head * size + entry, summed, mask=entry < size)


@triton.jit(do_not_specialize=NUMBERS)
def long_attention_query_backward(
    dout, out, qkv, allowed, seeds, sums, dqkv, parts,
    stride, steps, call, dropped, scale, heads, size, mask_batch, mask_col,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Writes ∂query of a block of queries."""
    number, first = tl.program_id(0), tl.program_id(1) * M
    batch, head = number // heads, number % heads
    query = load_block(qkv, 0, batch, head, first, steps, heads, size, M, D)
    incoming, delta, logs = load_incoming(
        dout, out, sums, number, batch, head, first, steps, heads, size, M, D
    )
    gradient = tl.zeros([M, D], tl.float32)
    for col in tl.range(0, steps, N):
        key = load_block(qkv, 1, batch, head, col, steps, heads, size, N, D)
        value = load_block(qkv, 2, batch, head, col, steps, heads, size, N, D)
        scores = block_scores(
            query, key, allowed, batch, col, steps, scale, mask_batch, mask_col, N
        )  # fmt: skip
        dshares = tl.dot(incoming, tl.trans(value), input_precision="ieee")
        if DROP:
            kept = block_kept(seeds, call, dropped, number, first, col, steps, M, N)
            dshares = tl.where(kept, dshares * upscale(dropped), 0.0)
        dscores = tl.exp2(scores - logs[:, None]) * (dshares - delta[:, None]) * scale
        gradient += tl.dot(dscores.to(key.dtype), key, input_precision="ieee")
    store_gradient(
        gradient, dqkv, parts, stride, 0, batch, head, first, steps, heads, size, M, D
    )  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS)
def long_attention_key_backward(
    dout, out, qkv, allowed, seeds, sums, dqkv, parts,
    stride, steps, call, dropped, scale, heads, size, mask_batch, mask_col,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Writes ∂key and ∂value of a block of keys."""
    number, col = tl.program_id(0), tl.program_id(1) * N
    batch, head = number // heads, number % heads
    key = load_block(qkv, 1, batch, head, col, steps, heads, size, N, D)
    value = load_block(qkv, 2, batch, head, col, steps, heads, size, N, D)
    seen = find_seen(allowed, batch, col, steps, mask_batch, mask_col, N)
    of_key = tl.zeros([N, D], tl.float32)
    of_value = tl.zeros([N, D], tl.float32)
    for first in tl.range(0, steps, M):
        query = load_block(qkv, 0, batch, head, first, steps, heads, size, M, D)
        incoming, delta, logs = load_incoming(
            dout, out, sums, number, batch, head, first, steps, heads, size, M, D
        )
        # Turned, (N, M): the products below then need no exchange between threads.
        scores = tl.dot(key, tl.trans(query), input_precision="ieee") * (scale * LOG2_E)
        scores = tl.where(seen[:, None], scores, -float("inf"))
        shares = tl.exp2(scores - logs[None, :])
        dshares = tl.dot(value, tl.trans(incoming), input_precision="ieee")
        left = shares
        if DROP:
            kept = tl.trans(block_kept(seeds, call, dropped, number, first, col, steps, M, N))
            left = tl.where(kept, shares, 0.0)
            dshares = tl.where(kept, dshares * upscale(dropped), 0.0)
        dscores = shares * (dshares - delta[None, :]) * scale
        of_value += tl.dot(left.to(value.dtype), incoming, input_precision="ieee")
        of_key += tl.dot(dscores.to(query.dtype), query, input_precision="ieee")
    if DROP:
        of_value *= upscale(dropped)
    store_gradient(of_key, dqkv, parts, stride, 1, batch, head, col, steps, heads, size, N, D)
    store_gradient(of_value, dqkv, parts, stride, 2, batch, head, col, steps, heads, size, N, D)
