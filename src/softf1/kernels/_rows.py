"""Kernels of the losses with a value a row: ce, focal, and the dice family at example level.

Forward reads the logits once, writes a value and five numbers a row, and the last program to finish
adds the programs' sums up in their order, so that the result does not depend on the scheduling.
Backward reads the logits again and writes the gradient. Rows longer than a tile are read tile by
tile, from the cache after the first time.
"""

# Triton reads annotations itself: they are not postponed here.
import triton
import triton.language as tl

from softf1.kernels._tiles import (
    DICE,
    ENTROPY,
    PAPER,
    TVERSKY,
    back_to_logits,
    gold_entropy,
    log_or_zero,
    merge_sums,
    negative_terms,
    ratio_terms,
    row_maximum,
    sigmoid_entropy,
    sigmoid_parts,
    softmax_parts,
    through_decay,
)

__all__ = ["AUX", "DICE", "ENTROPY", "TVERSKY", "rows_backward_kernel", "rows_forward_kernel"]

AUX = 5  # numbers kept for each row: a, b, u, the largest class, and the factor of its gradient


@triton.jit
def load_tile(x, rows, cols, n, c, stride_n, stride_c, other):
    inside = (rows < n)[:, None] & (cols < c)[None, :]
    place = rows.to(tl.int64)[:, None] * stride_n + cols.to(tl.int64)[None, :] * stride_c
    return tl.load(x + place, mask=inside, other=other).to(tl.float32)


@triton.jit
def next_tile(x, tile, rows, cols, n, c, stride_n, stride_c, TILES: tl.constexpr):
    """Returns the tile that is there already, or reads the next one of a long row."""
    if TILES == 1:
        return tile
    return load_tile(x, rows, cols, n, c, stride_n, stride_c, -float("inf"))


@triton.jit
def load_rows(target, mask, rows, n, stride_t, ignore, HAS_MASK: tl.constexpr):
    """Returns the label of each row (0 where it does not count) and whether it counts."""
    inside = rows < n
    label = tl.load(target + rows.to(tl.int64) * stride_t, mask=inside, other=0)
    wanted = inside & (label != ignore)
    if HAS_MASK:
        wanted = wanted & (tl.load(mask + rows, mask=inside, other=0) != 0)
    return tl.where(wanted, label, 0).to(tl.int32), wanted


@triton.jit
def load_gold(x, rows, label, wanted, stride_n, stride_c):
    place = rows.to(tl.int64) * stride_n + label.to(tl.int64) * stride_c
    return tl.load(x + place, mask=wanted, other=-float("inf")).to(tl.float32)


@triton.jit
def load_terms(
    x, target, mask, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore, HAS_MASK: tl.constexpr
):
    """Sigmoid: returns logits, targets and which terms count; 0 where they do not."""
    value = load_tile(x, rows, cols, n, c, sx_n, sx_c, -float("inf"))
    y = load_tile(target, rows, cols, n, c, st_n, st_c, 0.0)
    terms = (value != -float("inf")) & (y != ignore)
    if HAS_MASK:
        terms = terms & (tl.load(mask + rows, mask=rows < n, other=0) != 0)[:, None]
    return tl.where(terms, value, 0.0), tl.where(terms, y, 0.0), terms


@triton.jit
def load_weight(weight, cols, c, HAS_WEIGHT: tl.constexpr):
    if HAS_WEIGHT:
        return tl.load(weight + cols, mask=cols < c, other=0.0)
    return tl.where(cols < c, 1.0, 0.0)


@triton.jit
def softmax_sums(
    x,
    tile,
    rows,
    n,
    c,
    sx_n,
    sx_c,
    FRACTIONAL: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
    TILES: tl.constexpr,
):
    """Returns a, b, u, the largest class, and whether a row has any class, of each row."""
    if not FRACTIONAL:
        if TILES > 1:
            m = tl.full([BLOCK_N], -3.0e38, tl.float32)
            z = tl.zeros([BLOCK_N], tl.float32)
            for start in range(0, TILES * BLOCK_C, BLOCK_C):
                cols = start + tl.arange(0, BLOCK_C)
                part = load_tile(x, rows, cols, n, c, sx_n, sx_c, -float("inf"))
                m, z = merge_sums(m, z, part)
        else:
            m = row_maximum(tile)
            z = tl.sum(tl.exp(tile - m[:, None]), axis=1)
        return m, log_or_zero(z), m, tl.zeros([BLOCK_N], tl.int32), z != 0.0
    if TILES > 1:
        m = tl.full([BLOCK_N], -float("inf"), tl.float32)
        top = tl.zeros([BLOCK_N], tl.int32)
        for start in range(0, TILES * BLOCK_C, BLOCK_C):
            cols = start + tl.arange(0, BLOCK_C)
            part = load_tile(x, rows, cols, n, c, sx_n, sx_c, -float("inf"))
            best = tl.max(part, axis=1)
            top = tl.where(best > m, start + tl.argmax(part, axis=1).to(tl.int32), top)
            m = tl.maximum(m, best)
        m2 = tl.full([BLOCK_N], -3.0e38, tl.float32)
        z2 = tl.zeros([BLOCK_N], tl.float32)
        for start in range(0, TILES * BLOCK_C, BLOCK_C):
            cols = start + tl.arange(0, BLOCK_C)
            part = load_tile(x, rows, cols, n, c, sx_n, sx_c, -float("inf"))
            m2, z2 = merge_sums(
                m2, z2, tl.where(cols[None, :] == top[:, None], -float("inf"), part)
            )
    else:
        cols = tl.arange(0, BLOCK_C)
        m = tl.max(tile, axis=1)
        top = tl.argmax(tile, axis=1).to(tl.int32)
        others = tl.where(cols[None, :] == top[:, None], -float("inf"), tile)
        m2 = row_maximum(others)
        z2 = tl.sum(tl.exp(others - m2[:, None]), axis=1)
    log_z2 = log_or_zero(z2)
    return m2, log_z2, tl.where(z2 > 0.0, m2 + log_z2 - m, -float("inf")), top, m != -float("inf")


@triton.jit
def keep_aux(aux, rows, n, a, b, u, top, scale):
    inside = rows < n
    tl.store(aux + rows, a, mask=inside)
    tl.store(aux + n + rows, b, mask=inside)
    tl.store(aux + 2 * n + rows, u, mask=inside)
    tl.store(aux + 3 * n + rows, top.to(tl.float32), mask=inside)
    tl.store(aux + 4 * n + rows, scale, mask=inside)


@triton.jit
def rows_forward_kernel(
    x, target, mask, weight, values, aux, partial, counter, result,
    n, c, sx_n, sx_c, st_n, st_c, ignore, alpha, fp, fn, smooth,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr,
    ALPHA_ONE: tl.constexpr, FOCAL: tl.constexpr,
    SIGMOID: tl.constexpr, HAS_MASK: tl.constexpr, HAS_WEIGHT: tl.constexpr, MEAN: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, TILES: tl.constexpr, STAGES: tl.constexpr,
    PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Values, their sum and their count; alpha is gamma for the entropy losses."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    first = tl.arange(0, BLOCK_C)
    value_sum = tl.zeros([BLOCK_N], tl.float32)
    count_sum = tl.zeros([BLOCK_N], tl.float32)
    for block in tl.range(program, tl.cdiv(n, BLOCK_N), programs, num_stages=STAGES):
        rows = block * BLOCK_N + tl.arange(0, BLOCK_N)
        total = tl.zeros([BLOCK_N], tl.float32)
        shares = tl.zeros([BLOCK_N], tl.float32)
        terms_here = tl.zeros([BLOCK_N], tl.float32)
        if SIGMOID:
            for start in range(0, TILES * BLOCK_C, BLOCK_C):
                cols = start + first
                value, y, terms = load_terms(
                    x, target, mask, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore, HAS_MASK
                )
                share = load_weight(weight, cols, c, HAS_WEIGHT)[None, :]
                if LOSS == ENTROPY:
                    loss, _ = sigmoid_entropy(value, y, share, alpha, FOCAL)
                    total += tl.sum(tl.where(terms, loss, 0.0), axis=1)
                else:
                    _, q, _ = sigmoid_parts(value, alpha, DECAY)
                    loss, _ = ratio_terms(q, y, fp, fn, smooth, LOSS, POWER)
                    total += tl.sum(tl.where(terms, loss * share, 0.0), axis=1)
                    shares += tl.sum(tl.where(terms, share, 0.0), axis=1)
                terms_here += tl.sum(tl.where(terms, 1.0, 0.0), axis=1)
            if LOSS == ENTROPY:
                shares = terms_here
            kept = terms_here > 0.0
            a, b, u = total, total, total
            top = tl.zeros([BLOCK_N], tl.int32)
            count = tl.where(kept, 1.0, 0.0)
            scale = tl.where(shares > 0.0, 1.0 / shares, 0.0)
        else:
            label, wanted = load_rows(target, mask, rows, n, st_n, ignore, HAS_MASK)
            tile = load_tile(x, rows, first, n, c, sx_n, sx_c, -float("inf")) if TILES == 1 else 0.0
            a, b, u, top, any_class = softmax_sums(
                x, tile, rows, n, c, sx_n, sx_c, FRACTIONAL, BLOCK_N, BLOCK_C, TILES
            )
            gold_x = load_gold(x, rows, label, wanted, sx_n, sx_c)
            has_gold = gold_x != -float("inf")
            kept = wanted & any_class
            if LOSS == ENTROPY:
                total, _gold = gold_entropy(tl.where(has_gold, gold_x - a - b, 0.0), alpha, FOCAL)
                scale = tl.where(has_gold, 1.0, 0.0)
                if HAS_WEIGHT:
                    scale *= tl.load(weight + label, mask=wanted, other=0.0)
                count = scale
            else:
                gold_top = (label == top)[:, None]
                _gold_p, gold_q, _gold_r = softmax_parts(
                    gold_x[:, None], gold_top, a, b, u, alpha, DECAY, FRACTIONAL, ALPHA_ONE
                )
                y = tl.where(has_gold, 1.0, 0.0)[:, None]
                gold_q = tl.where(has_gold[:, None], gold_q, 0.0)
                gold_loss, _gold = ratio_terms(gold_q, y, fp, fn, smooth, LOSS, POWER)
                for start in range(0, TILES * BLOCK_C, BLOCK_C):
                    cols = start + first
                    part = next_tile(x, tile, rows, cols, n, c, sx_n, sx_c, TILES)
                    is_top = cols[None, :] == top[:, None]
                    _, q, _ = softmax_parts(
                        part, is_top, a, b, u, alpha, DECAY, FRACTIONAL, ALPHA_ONE
                    )
                    loss, _ = negative_terms(q, fp, smooth, POWER)
                    if HAS_WEIGHT:
                        share = load_weight(weight, cols, c, HAS_WEIGHT)[None, :]
                        loss *= share
                        shares += tl.sum(tl.where(part != -float("inf"), share, 0.0), axis=1)
                    else:
                        shares += tl.sum(tl.where(part != -float("inf"), 1.0, 0.0), axis=1)
                    total += tl.sum(loss, axis=1)
                # The gold term was summed as a negative: put right once a row, not in every tile.
                as_negative, _gold_h = negative_terms(gold_q, fp, smooth, POWER)
                change = tl.sum(gold_loss - as_negative, axis=1)
                if HAS_WEIGHT:
                    change *= tl.load(weight + label, mask=wanted, other=0.0)
                total += change
                count = tl.where(kept, 1.0, 0.0)
                scale = tl.where(kept & (shares > 0.0), 1.0 / shares, 0.0)
        value = tl.where(scale > 0.0, total * scale, 0.0)
        tl.store(values + rows, value, mask=rows < n)
        keep_aux(aux, rows, n, a, b, u, top, scale)
        value_sum += value
        count_sum += count
    tl.store(partial + program, tl.sum(value_sum))
    tl.store(partial + programs + program, tl.sum(count_sum))
    tl.debug_barrier()
    if tl.atomic_add(counter, 1, sem="acq_rel") == programs - 1:
        every = tl.arange(0, PROGRAMS)
        there = every < programs
        summed = tl.sum(tl.load(partial + every, mask=there, other=0.0, volatile=True))
        counted = tl.sum(tl.load(partial + programs + every, mask=there, other=0.0, volatile=True))
        norm = (
            tl.where(counted > 0.0, 1.0 / tl.where(counted > 0.0, counted, 1.0), 0.0)
            if MEAN
            else 1.0
        )
        tl.store(result, summed * norm)
        tl.store(result + 1, norm)


@triton.jit
def rows_backward_kernel(
    x, target, mask, weight, aux, result, incoming, dx,
    n, c, sx_n, sx_c, st_n, st_c, incoming_stride, ignore, alpha, fp, fn, smooth,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr,
    ALPHA_ONE: tl.constexpr, FOCAL: tl.constexpr,
    SIGMOID: tl.constexpr, HAS_MASK: tl.constexpr, HAS_WEIGHT: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, TILES: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The gradient; `incoming` is one number a row, or one for all with stride 0."""
    norm = tl.load(result + 1)
    first = tl.arange(0, BLOCK_C)
    for block in tl.range(
        tl.program_id(0), tl.cdiv(n, BLOCK_N), tl.num_programs(0), num_stages=STAGES
    ):
        rows = block * BLOCK_N + tl.arange(0, BLOCK_N)
        inside = rows < n
        scale = tl.load(aux + 4 * n + rows, mask=inside, other=0.0)
        scale *= norm * tl.load(
            incoming + rows.to(tl.int64) * incoming_stride, mask=inside, other=0.0
        )
        if SIGMOID:
            for start in range(0, TILES * BLOCK_C, BLOCK_C):
                cols = start + first
                value, y, terms = load_terms(
                    x, target, mask, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore, HAS_MASK
                )
                share = load_weight(weight, cols, c, HAS_WEIGHT)[None, :]
                if LOSS == ENTROPY:
                    _, slope = sigmoid_entropy(value, y, share, alpha, FOCAL)
                else:
                    _, q, factor = sigmoid_parts(value, alpha, DECAY)
                    _, h = ratio_terms(q, y, fp, fn, smooth, LOSS, POWER)
                    slope = h * factor * share
                store_tile(dx, tl.where(terms, slope * scale[:, None], 0.0), rows, cols, n, c)
        else:
            label, wanted = load_rows(target, mask, rows, n, st_n, ignore, HAS_MASK)
            a = tl.load(aux + rows, mask=inside, other=0.0)
            b = tl.load(aux + n + rows, mask=inside, other=0.0)
            u = tl.load(aux + 2 * n + rows, mask=inside, other=0.0)
            top = tl.load(aux + 3 * n + rows, mask=inside, other=0.0).to(tl.int32)
            gold_x = load_gold(x, rows, label, wanted, sx_n, sx_c)
            has_gold = gold_x != -float("inf")
            gold_top = (label == top)[:, None]
            tile = load_tile(x, rows, first, n, c, sx_n, sx_c, -float("inf")) if TILES == 1 else 0.0
            summed = tl.zeros([BLOCK_N], tl.float32)
            top_decay = tl.zeros([BLOCK_N], tl.float32)
            if LOSS == ENTROPY:
                _gold, gold_slope = gold_entropy(
                    tl.where(has_gold, gold_x - a - b, 0.0), alpha, FOCAL
                )
                gold_h = tl.where(has_gold, gold_slope, 0.0)[:, None]
                summed = tl.sum(gold_h, axis=1)
            else:
                _gold_p, gold_q, _gold_r = softmax_parts(
                    gold_x[:, None], gold_top, a, b, u, alpha, DECAY, FRACTIONAL, ALPHA_ONE
                )
                y = tl.where(has_gold, 1.0, 0.0)[:, None]
                gold_q = tl.where(has_gold[:, None], gold_q, 0.0)
                _gold, gold_h = ratio_terms(gold_q, y, fp, fn, smooth, LOSS, POWER)
                if TILES > 1:
                    for start in range(0, TILES * BLOCK_C, BLOCK_C):
                        cols = start + first
                        part = load_tile(x, rows, cols, n, c, sx_n, sx_c, -float("inf"))
                        h, p, _, is_top = ratio_h(
                            part, weight, cols, label, top, gold_h, a, b, u, alpha, c, fp, smooth,
                            POWER, DECAY, FRACTIONAL, ALPHA_ONE, HAS_WEIGHT,
                        )  # fmt: skip
                        summed += tl.sum(h, axis=1)
                        if DECAY == PAPER and FRACTIONAL:
                            top_decay += tl.sum(tl.where(is_top, alpha * h * p, 0.0), axis=1)
            for start in range(0, TILES * BLOCK_C, BLOCK_C):
                cols = start + first
                part = next_tile(x, tile, rows, cols, n, c, sx_n, sx_c, TILES)
                if LOSS == ENTROPY:
                    is_top = cols[None, :] == top[:, None]
                    p, _, r = softmax_parts(
                        part, is_top, a, b, u, alpha, DECAY, FRACTIONAL, ALPHA_ONE
                    )
                    h = tl.where(cols[None, :] == label[:, None], gold_h, 0.0)
                else:
                    h, p, r, is_top = ratio_h(
                        part, weight, cols, label, top, gold_h, a, b, u, alpha, c, fp, smooth,
                        POWER, DECAY, FRACTIONAL, ALPHA_ONE, HAS_WEIGHT,
                    )  # fmt: skip
                    if TILES == 1:
                        summed = tl.sum(h, axis=1)
                        if DECAY == PAPER and FRACTIONAL:
                            top_decay = tl.sum(tl.where(is_top, alpha * h * p, 0.0), axis=1)
                slope = back_to_logits(h, p, r, is_top, summed, top_decay, DECAY, FRACTIONAL)
                slope = tl.where(scale[:, None] != 0.0, slope * scale[:, None], 0.0)
                store_tile(dx, slope, rows, cols, n, c)


@triton.jit
def ratio_h(
    tile, weight, cols, label, top, gold_h, a, b, u, alpha, c, fp, smooth,
    POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr,
    ALPHA_ONE: tl.constexpr, HAS_WEIGHT: tl.constexpr,
):  # fmt: skip
    """Returns h of every class with its weight and decay factor, p, r, and which is the largest."""
    is_top = cols[None, :] == top[:, None]
    p, q, r = softmax_parts(tile, is_top, a, b, u, alpha, DECAY, FRACTIONAL, ALPHA_ONE)
    _, h = negative_terms(q, fp, smooth, POWER)
    h = tl.where(cols[None, :] == label[:, None], gold_h, h)
    h *= load_weight(weight, cols, c, HAS_WEIGHT)[None, :]
    return through_decay(h, p, is_top, alpha, DECAY, FRACTIONAL), p, r, is_top


@triton.jit
def store_tile(dx, value, rows, cols, n, c):
    place = rows.to(tl.int64)[:, None] * c + cols.to(tl.int64)[None, :]
    tl.store(
        dx + place, value.to(dx.dtype.element_ty), mask=(rows < n)[:, None] & (cols < c)[None, :]
    )
