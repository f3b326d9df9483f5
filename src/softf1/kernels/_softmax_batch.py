"""Softmax losses of the dice family at batch level: statistics of each class, then the gradient.

Forward: every program adds up overlap and total of each class over its rows and writes them as one
line of `partial` (lines, 2, C). The last program to finish, or `batch_finish_kernel` if there are
many lines, adds up the lines in their order, so that the result does not depend on scheduling. It
turns the sums into the loss and its derivatives by overlap and total, `slopes` (2, C), which `aux`
holds from `at` on.

Backward: h = total_growth · of_total + overlap_growth · of_overlap, with the two slopes of a class,
and from h the gradient of the logits, as in `_formulas`.
"""

# No `from __future__ import annotations`: Triton reads the annotations.
import triton
import triton.language as tl

from softf1.kernels._formulas import (
    PAPER,
    TINY,
    log_reciprocal,
    negative_total,
    overlap_and_total,
    probabilities,
    reciprocal_or_zero,
    shares,
    through_decay,
)
from softf1.kernels._read import (
    LOG_R,
    NUMBERS,
    SCALE,
    TOP,
    M,
    U,
    empty_tile,
    keep_rows,
    load_gold,
    load_kept,
    load_rows,
    load_tile,
    load_weight,
    spread,
    store_tile,
    sum_row,
    sum_rows,
    tile_columns,
)
from softf1.kernels._softmax_example import softmax_state


@triton.jit(do_not_specialize=NUMBERS)
def softmax_batch_statistics_kernel(
    x, target, mask, weight, aux, partial, counter, value,
    n, units, sx_n, sx_c, st_n, ignore, alpha, fp, fn, smooth, at, lines_at,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr,
    ALPHA_ONE: tl.constexpr, HAS_MASK: tl.constexpr, VECTOR: tl.constexpr, UNIT: tl.constexpr,
    S: tl.constexpr, N: tl.constexpr, W: tl.constexpr, ONE_TILE: tl.constexpr,
    FINISH: tl.constexpr, HAS_WEIGHT: tl.constexpr, MICRO: tl.constexpr, MEAN: tl.constexpr,
    NONE: tl.constexpr, LINES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums overlap and total of the classes of one tile over the rows of one program.

    If rows are longer than a tile, `softmax_batch_long_state_kernel` has written their softmax sums
    to `aux` before.
    """
    c = units * VECTOR
    cols = tile_columns(tl.program_id(1) * (S * W), S, W)
    overlaps = empty_tile(S, N, W)
    totals = empty_tile(S, N, W)
    blocks = tl.cdiv(n, N)
    for block in tl.range(tl.program_id(0), blocks, tl.num_programs(0), num_stages=1):
        rows = block * N + tl.arange(0, N)
        label, wanted = load_rows(target, mask, rows, n, st_n, ignore, HAS_MASK)
        tile = load_tile(x, rows, cols, wanted, c, sx_n, sx_c, VECTOR, UNIT)
        gold_x = load_gold(x, rows, label, wanted, sx_n, sx_c, VECTOR)
        if ONE_TILE:
            e, m, z, u, top, any_class = softmax_state(tile, cols, FRACTIONAL)
            log_r, kept = log_reciprocal(z), wanted & any_class
            keep_rows(aux, rows, n, m, log_r, tl.where(kept, 1.0, 0.0), z, z, u, top, z, FRACTIONAL)
            share = e * spread(tl.where(kept, reciprocal_or_zero(z), 0.0))
        else:
            kept = load_kept(aux, SCALE, rows, n, rows < n, FRACTIONAL) != 0.0
            m, log_r, u, top = load_state(aux, rows, n, kept, FRACTIONAL)
            share = shares(tile, spread(m), spread(log_r))
        _p, q, _other = probabilities(
            share, cols == spread(top), spread(u), alpha, DECAY, FRACTIONAL, ALPHA_ONE
        )
        if FRACTIONAL:  # q of the top comes from u, and is not 0 in a row that does not count
            q = tl.where(spread(kept), q, 0.0)
        _gold_p, gold_q, _gold_share = probabilities(
            shares(gold_x, m, log_r), label == top, u, alpha, DECAY, FRACTIONAL, ALPHA_ONE
        )
        has_gold = kept & (gold_x != -float("inf"))
        gold_q = tl.where(has_gold, gold_q, 0.0)
        gold_overlap, gold_total, _grows, _grows_too = overlap_and_total(
            gold_q, 1.0, fp, fn, LOSS, POWER
        )
        here = cols == spread(tl.where(has_gold, label, -1))
        overlaps += tl.where(here, spread(gold_overlap), 0.0)
        totals += tl.where(here, spread(gold_total), negative_total(q, fp, LOSS, POWER))
    partial += lines_at
    write_line(partial, cols, c, sum_rows(overlaps), sum_rows(totals))
    if FINISH:
        finish_last(
            partial, counter, weight, value, aux + at, c, smooth,
            HAS_WEIGHT, MICRO, MEAN, NONE, LINES, BLOCK,
        )  # fmt: skip


@triton.jit
def write_line(partial, cols, c, overlap, total):
    """Writes a program's sums (S, W) to its line; `cols` are the columns of its tile."""
    cols = sum_rows(cols)
    line = partial + tl.program_id(0).to(tl.int64) * 2 * c
    tl.store(line + cols, overlap, mask=cols < c)
    tl.store(line + c + cols, total, mask=cols < c)


@triton.jit
def load_state(aux, rows, n, kept, FRACTIONAL: tl.constexpr):
    """Returns m, log2 r, u and the top of each row."""
    m = load_kept(aux, M, rows, n, kept, FRACTIONAL)
    log_r = load_kept(aux, LOG_R, rows, n, kept, FRACTIONAL)
    if FRACTIONAL:
        top = load_kept(aux, TOP, rows, n, kept, FRACTIONAL).to(tl.int32)
        return m, log_r, load_kept(aux, U, rows, n, kept, FRACTIONAL), top
    return m, log_r, m, rows * 0


@triton.jit(do_not_specialize=NUMBERS)
def batch_shorten_kernel(partial, shorter, lines, c, LINES: tl.constexpr, BLOCK: tl.constexpr):
    """Adds up groups of LINES lines (2 · C), where the statistics had many programs."""
    line = tl.program_id(0) * LINES + tl.arange(0, LINES)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < 2 * c
    place = partial + line.to(tl.int64)[:, None] * (2 * c) + cols[None, :]
    found = tl.load(place, mask=(line < lines)[:, None] & inside[None, :], other=0.0)
    here = shorter + tl.program_id(0).to(tl.int64) * (2 * c)
    tl.store(here + cols, tl.sum(found, axis=0), mask=inside)


@triton.jit(do_not_specialize=NUMBERS)
def batch_finish_kernel(
    partial, weight, value, slopes, lines, c, smooth, at,
    HAS_WEIGHT: tl.constexpr, MICRO: tl.constexpr, MEAN: tl.constexpr, NONE: tl.constexpr,
    LINES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Runs `finish`, as a single program."""
    finish(
        partial, weight, value, slopes + at, lines, c, smooth,
        HAS_WEIGHT, MICRO, MEAN, NONE, LINES, BLOCK,
    )  # fmt: skip


@triton.jit
def finish_last(
    partial, counter, weight, value, slopes, c, smooth,
    HAS_WEIGHT: tl.constexpr, MICRO: tl.constexpr, MEAN: tl.constexpr, NONE: tl.constexpr,
    LINES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Runs `finish` in the last program to get here, where there are few lines."""
    tl.debug_barrier()
    lines = tl.num_programs(0)
    if tl.atomic_add(counter, 1, sem="acq_rel") == lines - 1:
        finish(
            partial, weight, value, slopes, lines, c, smooth,
            HAS_WEIGHT, MICRO, MEAN, NONE, LINES, BLOCK,
        )  # fmt: skip
        tl.store(counter, 0)  # the next launch expects 0


@triton.jit
def finish(
    partial, weight, value, slopes, lines, c, smooth,
    HAS_WEIGHT: tl.constexpr, MICRO: tl.constexpr, MEAN: tl.constexpr, NONE: tl.constexpr,
    LINES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds up the lines, and writes the loss and its derivatives by overlap and total."""
    first = tl.arange(0, BLOCK)
    shares_sum, overlaps, totals = 0.0, 0.0, 0.0
    if MICRO or (MEAN and HAS_WEIGHT):
        for start in range(0, c, BLOCK):
            cols = start + first
            share = load_weight(weight, cols, c, HAS_WEIGHT)
            shares_sum += tl.sum(share)
            if MICRO:
                overlap, total = add_partial_sums(partial, cols, lines, c, LINES, BLOCK)
                overlaps += tl.sum(share * overlap)
                totals += tl.sum(share * total)
    else:
        shares_sum += c
    norm = reciprocal_or_zero(shares_sum) if MEAN else 1.0
    loss = 0.0
    for start in range(0, c, BLOCK):
        cols = start + first
        inside = cols < c
        factor = load_weight(weight, cols, c, HAS_WEIGHT)
        if MICRO:
            overlap, total = factor * 0.0 + overlaps, factor * 0.0 + totals
        else:
            overlap, total = add_partial_sums(partial, cols, lines, c, LINES, BLOCK)
            factor *= norm
        below = total + smooth
        below = 1.0 / tl.where(below < TINY, 1.0, below)
        ratio = (total - overlap) * below
        if NONE:
            tl.store(value + cols, ratio * factor, mask=inside)
        elif MICRO:
            loss = tl.max(ratio)
        else:
            loss += tl.sum(tl.where(inside, ratio * factor, 0.0))
        tl.store(slopes + cols, -factor * below, mask=inside)
        tl.store(slopes + c + cols, factor * (1.0 - ratio) * below, mask=inside)
    if not NONE:
        tl.store(value, loss)


@triton.jit
def add_partial_sums(partial, cols, lines, c, LINES: tl.constexpr, BLOCK: tl.constexpr):
    """Returns the sums of overlap and of total (BLOCK,), LINES lines at a time."""
    overlaps = tl.zeros([LINES, BLOCK], tl.float32)
    totals = tl.zeros([LINES, BLOCK], tl.float32)
    for start in range(0, lines, LINES):
        line = start + tl.arange(0, LINES)
        place = partial + line.to(tl.int64)[:, None] * (2 * c) + cols[None, :]
        inside = (line < lines)[:, None] & (cols < c)[None, :]
        overlaps += tl.load(place, mask=inside, other=0.0, volatile=True)
        totals += tl.load(place + c, mask=inside, other=0.0, volatile=True)
    return tl.sum(overlaps, axis=0), tl.sum(totals, axis=0)


@triton.jit
def load_slope(slopes, incoming, incoming_stride, cols, c):
    inside = cols < c
    factor = tl.load(incoming + cols * incoming_stride, mask=inside, other=0.0)
    return tl.load(slopes + cols, mask=inside, other=0.0) * factor


@triton.jit
def batch_h(
    tile, of_total, cols, here, gold_h, top, m, log_r, u, alpha, fp,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr,
    ALPHA_ONE: tl.constexpr,
):  # fmt: skip
    """Returns h of every class, decay included, p, the share, and alpha · h · p at the top."""
    is_top = cols == top
    p, q, other = probabilities(
        shares(tile, m, log_r), is_top, u, alpha, DECAY, FRACTIONAL, ALPHA_ONE
    )
    h = negative_total(q, fp, LOSS, POWER) * (POWER * of_total)
    h = tl.where(here, gold_h, h)
    of_top = h
    if DECAY == PAPER and FRACTIONAL:
        of_top = tl.where(is_top, alpha * h * p, 0.0)
    return through_decay(h, p, is_top, alpha, DECAY, FRACTIONAL), p, other, of_top


@triton.jit(do_not_specialize=NUMBERS)
def softmax_batch_backward_kernel(
    x, target, aux, slopes, incoming, dx,
    n, units, sx_n, sx_c, st_n, incoming_stride, at, alpha, fp, fn,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr,
    ALPHA_ONE: tl.constexpr, VECTOR: tl.constexpr, UNIT: tl.constexpr,
    S: tl.constexpr, N: tl.constexpr, W: tl.constexpr, ONE_TILE: tl.constexpr,
):  # fmt: skip
    """Writes the gradient; `incoming` is one number per class, or one for all with stride 0."""
    c = units * VECTOR
    slopes += at
    first = tile_columns(0, S, W)
    # If a row fits into one tile, each program reads the slopes of all classes only once.
    kept_slopes = load_slope(slopes + c, incoming, incoming_stride, first, c) if ONE_TILE else 0.0
    blocks = tl.cdiv(n, N)
    for step in tl.range(tl.program_id(0), blocks, tl.num_programs(0), num_stages=1):
        block = blocks - 1 - step  # what forward read last is still in the cache
        rows = block * N + tl.arange(0, N)
        kept = load_kept(aux, SCALE, rows, n, rows < n, FRACTIONAL) != 0.0
        label = tl.load(target + rows.to(tl.int64) * st_n, mask=kept, other=0).to(tl.int32)
        m, log_r, u, top = load_state(aux, rows, n, kept, FRACTIONAL)
        gold_x = load_gold(x, rows, label, kept, sx_n, sx_c, VECTOR)
        _gold_p, gold_q, _gold_share = probabilities(
            shares(gold_x, m, log_r), label == top, u, alpha, DECAY, FRACTIONAL, ALPHA_ONE
        )
        gold_q = tl.where(kept & (gold_x != -float("inf")), gold_q, 0.0)
        _overlap, _total, overlap_growth, total_growth = overlap_and_total(
            gold_q, 1.0, fp, fn, LOSS, POWER
        )
        of_overlap = load_slope(slopes, incoming, incoming_stride, label, c)
        of_total = load_slope(slopes + c, incoming, incoming_stride, label, c)
        gold_h = spread(overlap_growth * of_overlap + total_growth * of_total)
        m, log_r, u, top, label = spread(m), spread(log_r), spread(u), spread(top), spread(label)
        if ONE_TILE:
            tile = load_tile(x, rows, first, kept, c, sx_n, sx_c, VECTOR, UNIT)
            h, p, other, of_top = batch_h(
                tile, kept_slopes, first, first == label, gold_h, top, m, log_r, u, alpha, fp,
                LOSS, POWER, DECAY, FRACTIONAL, ALPHA_ONE,
            )  # fmt: skip
            slope = h - p * spread(sum_row(h))
            if DECAY == PAPER and FRACTIONAL:
                is_top = tl.where(first == top, 1.0, 0.0)
                slope += spread(sum_row(of_top)) * (other - is_top)
            if FRACTIONAL:
                slope = tl.where(spread(kept), slope, 0.0)
            store_tile(dx, slope, rows, first, n, c)
        else:
            sums = empty_tile(S, N, W)
            tops = empty_tile(S, N, W)
            for start in tl.range(0, c, S * W, num_stages=1):
                cols = start + first
                tile = load_tile(x, rows, cols, kept, c, sx_n, sx_c, VECTOR, UNIT)
                slope_here = load_slope(slopes + c, incoming, incoming_stride, cols, c)
                h, _p, _other, of_top = batch_h(
                    tile, slope_here, cols, cols == label, gold_h, top, m, log_r, u, alpha, fp,
                    LOSS, POWER, DECAY, FRACTIONAL, ALPHA_ONE,
                )  # fmt: skip
                sums += h
                if DECAY == PAPER and FRACTIONAL:
                    tops += of_top
            summed, of_top = spread(sum_row(sums)), spread(sum_row(tops))
            for start in tl.range(0, c, S * W, num_stages=1):
                cols = start + first
                tile = load_tile(x, rows, cols, kept, c, sx_n, sx_c, VECTOR, UNIT)
                slope_here = load_slope(slopes + c, incoming, incoming_stride, cols, c)
                h, p, other, _of_top = batch_h(
                    tile, slope_here, cols, cols == label, gold_h, top, m, log_r, u, alpha, fp,
                    LOSS, POWER, DECAY, FRACTIONAL, ALPHA_ONE,
                )  # fmt: skip
                slope = h - p * summed
                if DECAY == PAPER and FRACTIONAL:
                    slope += of_top * (other - tl.where(cols == top, 1.0, 0.0))
                if FRACTIONAL:
                    slope = tl.where(spread(kept), slope, 0.0)
                store_tile(dx, slope, rows, cols, n, c)
