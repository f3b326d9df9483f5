"""Kernels of the dice family at batch level: statistics of each class, then the gradient.

Forward: every program adds up overlap and total of each class over its rows and writes them as one
line of `partial`; the lines are added in order, so that the result does not depend on scheduling.
`finish` turns the sums into the loss and its derivatives by both, of_overlap and of_total (C,).
Backward: h = total_growth · of_total + overlap_growth · of_overlap, and back to the logits.
"""

# Triton reads annotations itself: they are not postponed here.
import triton
import triton.language as tl

from softf1.kernels._rows import (
    keep_aux,
    load_gold,
    load_rows,
    load_terms,
    load_tile,
    load_weight,
    next_tile,
    softmax_sums,
    store_tile,
)
from softf1.kernels._tiles import (
    PAPER,
    TINY,
    back_to_logits,
    negative_total,
    overlap_and_total,
    sigmoid_parts,
    softmax_parts,
    through_decay,
)

__all__ = ["backward_kernel", "finish_kernel", "statistics_kernel", "sums_kernel"]


@triton.jit
def sums_kernel(
    x, target, mask, aux, n, c, sx_n, sx_c, st_n, ignore,
    FRACTIONAL: tl.constexpr, HAS_MASK: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Softmax sums of rows longer than a tile, for the statistics to read."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    _, wanted = load_rows(target, mask, rows, n, st_n, ignore, HAS_MASK)
    a, b, u, top, any_class = softmax_sums(
        x, 0.0, rows, n, c, sx_n, sx_c, FRACTIONAL, BLOCK_N, BLOCK_C, TILES
    )
    keep_aux(aux, rows, n, a, b, u, top, tl.where(wanted & any_class, 1.0, 0.0))


@triton.jit
def statistics_kernel(
    x, target, mask, aux, partial, n, c, sx_n, sx_c, st_n, st_c, ignore, alpha, fp, fn,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr,
    ALPHA_ONE: tl.constexpr, SIGMOID: tl.constexpr,
    HAS_MASK: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, TILES: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Overlap and total of the classes of one tile, over the rows of one program."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    cols = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    overlap_sum = tl.zeros([BLOCK_C], tl.float32)
    total_sum = tl.zeros([BLOCK_C], tl.float32)
    for block in tl.range(program, tl.cdiv(n, BLOCK_N), programs, num_stages=STAGES):
        rows = block * BLOCK_N + tl.arange(0, BLOCK_N)
        if SIGMOID:
            value, y, terms = load_terms(
                x, target, mask, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore, HAS_MASK
            )
            _, q, _ = sigmoid_parts(value, alpha, DECAY)
            overlap, total, _, _ = overlap_and_total(q, y, fp, fn, LOSS, POWER)
            overlap_sum += tl.sum(tl.where(terms, overlap, 0.0), axis=0)
            total_sum += tl.sum(tl.where(terms, total, 0.0), axis=0)
        else:
            label, wanted = load_rows(target, mask, rows, n, st_n, ignore, HAS_MASK)
            tile = load_tile(x, rows, cols, n, c, sx_n, sx_c, -float("inf"))
            if TILES == 1:
                a, b, u, top, any_class = softmax_sums(
                    x, tile, rows, n, c, sx_n, sx_c, FRACTIONAL, BLOCK_N, BLOCK_C, TILES
                )
                kept = wanted & any_class
                keep_aux(aux, rows, n, a, b, u, top, tl.where(kept, 1.0, 0.0))
            else:
                a, b, u, top, kept = load_aux(aux, rows, n)
            is_top = cols[None, :] == top[:, None]
            _, q, _ = softmax_parts(tile, is_top, a, b, u, alpha, DECAY, FRACTIONAL, ALPHA_ONE)
            q = tl.where(kept[:, None], q, 0.0)
            gold_x = load_gold(x, rows, label, wanted, sx_n, sx_c)
            gold_top = (label == top)[:, None]
            _gold_p, gold_q, _gold_r = softmax_parts(
                gold_x[:, None], gold_top, a, b, u, alpha, DECAY, FRACTIONAL, ALPHA_ONE
            )
            has_gold = (kept & (gold_x != -float("inf")))[:, None]
            gold_q = tl.where(has_gold, gold_q, 0.0)
            gold_overlap, gold_total, _go, _gt = overlap_and_total(gold_q, 1.0, fp, fn, LOSS, POWER)
            # The gold term is summed as a negative below: what it is more, is added to it.
            more = tl.where(has_gold, gold_total - negative_total(gold_q, fp, POWER), 0.0)
            gold_overlap = tl.where(has_gold, gold_overlap, 0.0)
            here = cols[None, :] == label[:, None]
            overlap_sum += tl.sum(tl.where(here, gold_overlap, 0.0), axis=0)
            total_sum += tl.sum(negative_total(q, fp, POWER) + tl.where(here, more, 0.0), axis=0)
    inside = cols < c
    line = partial + program * 2 * c
    tl.store(line + cols, overlap_sum, mask=inside)
    tl.store(line + c + cols, total_sum, mask=inside)


@triton.jit
def load_aux(aux, rows, n):
    inside = rows < n
    a = tl.load(aux + rows, mask=inside, other=0.0)
    b = tl.load(aux + n + rows, mask=inside, other=0.0)
    u = tl.load(aux + 2 * n + rows, mask=inside, other=0.0)
    top = tl.load(aux + 3 * n + rows, mask=inside, other=0.0).to(tl.int32)
    return a, b, u, top, tl.load(aux + 4 * n + rows, mask=inside, other=0.0) != 0.0


@triton.jit
def finish_kernel(
    partial, weight, value, slopes, lines, c, smooth,
    HAS_WEIGHT: tl.constexpr, MICRO: tl.constexpr, MEAN: tl.constexpr, NONE: tl.constexpr,
    BLOCK_C: tl.constexpr,
):  # fmt: skip
    """One program: adds the lines, and writes the loss and its derivatives by overlap and total."""
    first = tl.arange(0, BLOCK_C)
    shares = 0.0
    overlaps = 0.0
    totals = 0.0
    for start in range(0, c, BLOCK_C):
        cols = start + first
        share = load_weight(weight, cols, c, HAS_WEIGHT)
        overlap, total = add_lines(partial, cols, lines, c)
        shares += tl.sum(share)
        overlaps += tl.sum(share * overlap)
        totals += tl.sum(share * total)
    norm = 1.0 / tl.where(shares > 0.0, shares, 1.0) if MEAN else 1.0
    loss = 0.0
    for start in range(0, c, BLOCK_C):
        cols = start + first
        inside = cols < c
        share = load_weight(weight, cols, c, HAS_WEIGHT)
        overlap, total = add_lines(partial, cols, lines, c)
        if MICRO:
            overlap, total = overlap * 0.0 + overlaps, total * 0.0 + totals
        below = total + smooth
        below = tl.where(below < TINY, 1.0, below)
        ratio = (total - overlap) / below
        if NONE:
            factor = share
            tl.store(value + cols, ratio * share, mask=inside)
        elif MICRO:
            factor = share
            loss = tl.max(ratio)
        else:
            factor = share * norm
            loss += tl.sum(tl.where(inside, ratio * factor, 0.0))
        tl.store(slopes + cols, -factor / below, mask=inside)
        tl.store(slopes + c + cols, factor * (1.0 - ratio) / below, mask=inside)
    if not NONE:
        tl.store(value, loss)


@triton.jit
def add_lines(partial, cols, lines, c):
    overlap = tl.zeros_like(cols).to(tl.float32)
    total = tl.zeros_like(cols).to(tl.float32)
    for line in range(lines):
        place = partial + line * 2 * c + cols
        overlap += tl.load(place, mask=cols < c, other=0.0)
        total += tl.load(place + c, mask=cols < c, other=0.0)
    return overlap, total


@triton.jit
def backward_kernel(
    x, target, mask, aux, slopes, incoming, dx,
    n, c, sx_n, sx_c, st_n, st_c, incoming_stride, ignore, alpha, fp, fn,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr,
    ALPHA_ONE: tl.constexpr, SIGMOID: tl.constexpr,
    HAS_MASK: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, TILES: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """The gradient; `incoming` is one number a class, or one for all with stride 0."""
    first = tl.arange(0, BLOCK_C)
    # Where a row is one tile, its classes' slopes are read once a program, not once a row.
    kept_slopes = load_slope(slopes + c, incoming, incoming_stride, first, c) if TILES == 1 else 0.0
    for block in tl.range(
        tl.program_id(0), tl.cdiv(n, BLOCK_N), tl.num_programs(0), num_stages=STAGES
    ):
        rows = block * BLOCK_N + tl.arange(0, BLOCK_N)
        if SIGMOID:
            for start in range(0, TILES * BLOCK_C, BLOCK_C):
                cols = start + first
                value, y, terms = load_terms(
                    x, target, mask, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore, HAS_MASK
                )
                of_overlap = load_slope(slopes, incoming, incoming_stride, cols, c)
                of_total = load_slope(slopes + c, incoming, incoming_stride, cols, c)
                _, q, factor = sigmoid_parts(value, alpha, DECAY)
                _, _, overlap_growth, total_growth = overlap_and_total(q, y, fp, fn, LOSS, POWER)
                h = overlap_growth * of_overlap[None, :] + total_growth * of_total[None, :]
                store_tile(dx, tl.where(terms, h * factor, 0.0), rows, cols, n, c)
        else:
            label, wanted = load_rows(target, mask, rows, n, st_n, ignore, HAS_MASK)
            a, b, u, top, kept = load_aux(aux, rows, n)
            gold_x = load_gold(x, rows, label, wanted, sx_n, sx_c)
            has_gold = (gold_x != -float("inf")) & kept
            _gold_p, gold_q, _gold_r = softmax_parts(
                gold_x[:, None],
                (label == top)[:, None],
                a,
                b,
                u,
                alpha,
                DECAY,
                FRACTIONAL,
                ALPHA_ONE,
            )
            gold_q = tl.where(has_gold[:, None], gold_q, 0.0)
            _gold_o, _gold_t, gold_overlap, gold_total = overlap_and_total(
                gold_q, 1.0, fp, fn, LOSS, POWER
            )
            of_overlap = load_slope(slopes, incoming, incoming_stride, label, c)
            of_total = load_slope(slopes + c, incoming, incoming_stride, label, c)
            gold_h = gold_overlap * of_overlap[:, None] + gold_total * of_total[:, None]
            tile = load_tile(x, rows, first, n, c, sx_n, sx_c, -float("inf")) if TILES == 1 else 0.0
            summed = tl.zeros([BLOCK_N], tl.float32)
            top_decay = tl.zeros([BLOCK_N], tl.float32)
            if TILES > 1:
                for start in range(0, TILES * BLOCK_C, BLOCK_C):
                    cols = start + first
                    part = load_tile(x, rows, cols, n, c, sx_n, sx_c, -float("inf"))
                    part_slopes = load_slope(slopes + c, incoming, incoming_stride, cols, c)
                    h, p, _, is_top = batch_h(
                        part, part_slopes, cols, label, top, gold_h,
                        a, b, u, alpha, fp, POWER, DECAY, FRACTIONAL, ALPHA_ONE,
                    )  # fmt: skip
                    summed += tl.sum(h, axis=1)
                    if DECAY == PAPER and FRACTIONAL:
                        top_decay += tl.sum(tl.where(is_top, alpha * h * p, 0.0), axis=1)
            for start in range(0, TILES * BLOCK_C, BLOCK_C):
                cols = start + first
                part = next_tile(x, tile, rows, cols, n, c, sx_n, sx_c, TILES)
                if TILES == 1:
                    tile_slopes = kept_slopes
                else:
                    tile_slopes = load_slope(slopes + c, incoming, incoming_stride, cols, c)
                h, p, r, is_top = batch_h(
                    part, tile_slopes, cols, label, top, gold_h,
                    a, b, u, alpha, fp, POWER, DECAY, FRACTIONAL, ALPHA_ONE,
                )  # fmt: skip
                if TILES == 1:
                    summed = tl.sum(h, axis=1)
                    if DECAY == PAPER and FRACTIONAL:
                        top_decay = tl.sum(tl.where(is_top, alpha * h * p, 0.0), axis=1)
                slope = back_to_logits(h, p, r, is_top, summed, top_decay, DECAY, FRACTIONAL)
                store_tile(dx, tl.where(kept[:, None], slope, 0.0), rows, cols, n, c)


@triton.jit
def load_slope(slopes, incoming, incoming_stride, cols, c):
    inside = cols < c
    factor = tl.load(incoming + cols * incoming_stride, mask=inside, other=0.0)
    return tl.load(slopes + cols, mask=inside, other=0.0) * factor


@triton.jit
def batch_h(
    tile, of_total, cols, label, top, gold_h, a, b, u, alpha, fp,
    POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr, ALPHA_ONE: tl.constexpr,
):  # fmt: skip
    """Returns h of every class with its decay factor, p, r, and which is the largest."""
    is_top = cols[None, :] == top[:, None]
    p, q, r = softmax_parts(tile, is_top, a, b, u, alpha, DECAY, FRACTIONAL, ALPHA_ONE)
    h = negative_total(q, fp, POWER) * (POWER * of_total)[None, :]
    h = tl.where(cols[None, :] == label[:, None], gold_h, h)
    return through_decay(h, p, is_top, alpha, DECAY, FRACTIONAL), p, r, is_top
