"""Batch level for long rows, two to four parts of classes: each row is read from memory once.

A program loops over its rows and keeps a number of every class in registers: its total in forward,
its slope in backward. Both directions need two passes over a row, because the second uses a sum of
the first. The first pass over a row and the second over the row before take turns, part by part:
while one row comes from memory, the program works on the other, which is still in the cache.

There is one gold term per row. `softmax_batch_long_gold_kernel` adds them to their classes as
integers, whose sum does not depend on the order.
"""

# No `from __future__ import annotations`: Triton reads the annotations.
import triton
import triton.language as tl

from softf1.kernels._formulas import (
    LOW,
    log_reciprocal,
    negative_total,
    numerators,
    overlap_and_total,
    probabilities,
    shares,
    through_decay,
)
from softf1.kernels._read import (
    LOG_R,
    NUMBERS,
    SCALE,
    M,
    load_gold,
    load_kept,
    load_rows,
)
from softf1.kernels._softmax_batch import load_slope
from softf1.kernels._softmax_example import without_padding
from softf1.kernels._softmax_example_long import keep_row, lane_columns, load_row


@triton.jit
def load_wide(x, cols, stop):
    """Returns logits as float32, LOW from column `stop` on, which is 0 for an unwanted row."""
    mask = cols < stop
    if x.dtype.element_ty == tl.float16:  # it cannot hold LOW
        return tl.where(mask, tl.load(x + cols, mask=mask, other=0.0).to(tl.float32), LOW)
    return tl.load(x + cols, mask=mask, other=LOW).to(tl.float32)


@triton.jit
def look_and_add(
    now, stop, m, z, before, stop_before, totals, m_before, log_r, cols, alpha, fp,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, ALPHA_ONE: tl.constexpr,
):  # fmt: skip
    """Adds a part of this row to its softmax sums, and a part of the row before to the totals."""
    part = load_wide(now, cols, stop)
    share = shares(load_wide(before, cols, stop_before), m_before, log_r)
    _, q, _ = probabilities(share, False, log_r, alpha, DECAY, False, ALPHA_ONE)
    totals += negative_total(q, fp, LOSS, POWER)
    new = tl.maximum(m, tl.max(part, axis=1))
    z = z * numerators(m, new) + tl.sum(numerators(part, new[:, None]), axis=1)
    return new, z, totals


@triton.jit(do_not_specialize=NUMBERS)
def softmax_batch_long_totals_kernel(
    x, target, mask, aux, partial, n, units, sx_n, st_n, ignore, alpha, fp,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, ALPHA_ONE: tl.constexpr,
    HAS_MASK: tl.constexpr, VECTOR: tl.constexpr, LANES: tl.constexpr, V: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """Writes totals, all classes as negatives, (programs, C), and the softmax sums of each row."""
    c = units * VECTOR
    PART: tl.constexpr = LANES * V
    cols = lane_columns(LANES, V)
    totals_0 = tl.zeros([LANES, V], tl.float32)
    totals_1 = tl.zeros([LANES, V], tl.float32)
    totals_2 = tl.zeros([LANES, V], tl.float32)
    totals_3 = tl.zeros([LANES, V], tl.float32)
    stride = sx_n.to(tl.int64) * VECTOR
    programs = tl.num_programs(0)
    before, stop_before = x, c * 0
    m_before, log_r = LOW * 1.0, LOW * 1.0
    for row in tl.range(tl.program_id(0), n + programs, programs, num_stages=1):
        inside = row < n
        here = tl.minimum(row, n - 1)
        _, wanted = load_row(target, mask, here, n, st_n, ignore, HAS_MASK)
        wanted = wanted & inside
        stop = tl.where(wanted, units, 0) * VECTOR
        now = x + here * stride
        m = tl.full([LANES], LOW, tl.float32)
        z = tl.zeros([LANES], tl.float32)
        m, z, totals_0 = look_and_add(
            now, stop, m, z, before, stop_before, totals_0, m_before, log_r, cols, alpha, fp,
            LOSS, POWER, DECAY, ALPHA_ONE,
        )  # fmt: skip
        m, z, totals_1 = look_and_add(
            now, stop, m, z, before, stop_before, totals_1, m_before, log_r, cols + PART,
            alpha, fp, LOSS, POWER, DECAY, ALPHA_ONE,
        )  # fmt: skip
        if PARTS > 2:
            m, z, totals_2 = look_and_add(
                now, stop, m, z, before, stop_before, totals_2, m_before, log_r,
                cols + 2 * PART, alpha, fp, LOSS, POWER, DECAY, ALPHA_ONE,
            )  # fmt: skip
        if PARTS > 3:
            m, z, totals_3 = look_and_add(
                now, stop, m, z, before, stop_before, totals_3, m_before, log_r,
                cols + 3 * PART, alpha, fp, LOSS, POWER, DECAY, ALPHA_ONE,
            )  # fmt: skip
        m_before = tl.max(m, axis=0)
        summed = without_padding(m_before, tl.sum(z * numerators(m, m_before), axis=0))
        before, stop_before, log_r = now, stop, log_reciprocal(summed)
        if inside:
            scale = tl.where(wanted & (summed != 0.0), 1.0, 0.0)
            keep_row(aux, row, n, m_before, log_r, scale, scale, scale, scale, 0, scale, False)
    line = partial + tl.program_id(0).to(tl.int64) * c
    tl.store(line + cols, totals_0, mask=cols < c)
    tl.store(line + cols + PART, totals_1, mask=cols + PART < c)
    if PARTS > 2:
        tl.store(line + cols + 2 * PART, totals_2, mask=cols + 2 * PART < c)
    if PARTS > 3:
        tl.store(line + cols + 3 * PART, totals_3, mask=cols + 3 * PART < c)


@triton.jit(do_not_specialize=NUMBERS)
def softmax_batch_long_gold_kernel(
    x, target, mask, aux, counts, n, c, sx_n, st_n, ignore, alpha, fp, fn, unit,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, ALPHA_ONE: tl.constexpr,
    HAS_MASK: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Adds the gold terms to `counts` (2, C), integers in units of 1 / unit.

    These are the overlap, and how much the total is above that of a negative.
    """
    rows = tl.program_id(0) * N + tl.arange(0, N)
    label, wanted = load_rows(target, mask, rows, n, st_n, ignore, HAS_MASK)
    gold_x = load_gold(x, rows, label, wanted, sx_n, 1, 1)
    kept = wanted & (load_kept(aux, SCALE, rows, n, rows < n, False) != 0.0)
    m = load_kept(aux, M, rows, n, kept, False)
    share = shares(gold_x, m, load_kept(aux, LOG_R, rows, n, kept, False))
    _, q, _ = probabilities(share, False, m, alpha, DECAY, False, ALPHA_ONE)
    overlap, total, _, _ = overlap_and_total(q, 1.0, fp, fn, LOSS, POWER)
    more = total - negative_total(q, fp, LOSS, POWER)
    kept = kept & (gold_x != -float("inf"))
    tl.atomic_add(counts + label, (overlap * unit).to(tl.int64), mask=kept, sem="relaxed")
    tl.atomic_add(counts + c + label, (more * unit).to(tl.int64), mask=kept, sem="relaxed")


@triton.jit(do_not_specialize=NUMBERS)
def softmax_batch_long_collect_kernel(
    partial, counts, sums, lines, c, unit, LINES: tl.constexpr, BLOCK: tl.constexpr
):
    """Writes overlap and total of each class (2, C), summed from programs' totals and `counts`."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    totals = tl.zeros([LINES, BLOCK], tl.float32)
    for start in tl.range(0, lines, LINES, num_stages=1):
        line = start + tl.arange(0, LINES)
        place = partial + line.to(tl.int64)[:, None] * c + cols[None, :]
        totals += tl.load(place, mask=(line < lines)[:, None] & (cols < c)[None, :], other=0.0)
    inside = cols < c
    overlap = tl.load(counts + cols, mask=inside, other=0).to(tl.float32) / unit
    more = tl.load(counts + c + cols, mask=inside, other=0).to(tl.float32) / unit
    tl.store(sums + cols, overlap, mask=inside)
    tl.store(sums + c + cols, tl.sum(totals, axis=0) + more, mask=inside)


@triton.jit
def gold_slope(
    x, label, kept, slopes, incoming, incoming_stride, c, m, log_r, alpha, fp, fn,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, ALPHA_ONE: tl.constexpr,
):  # fmt: skip
    """Returns h of the gold class, and by how much it exceeds its h as a negative."""
    gold_x = tl.load(x + label, mask=kept, other=-float("inf")).to(tl.float32)
    share = shares(gold_x, m, log_r)
    p, q, _ = probabilities(share, False, m, alpha, DECAY, False, ALPHA_ONE)
    _, _, overlap_growth, total_growth = overlap_and_total(q, 1.0, fp, fn, LOSS, POWER)
    of_overlap = load_slope(slopes, incoming, incoming_stride, label, c)
    of_total = load_slope(slopes + c, incoming, incoming_stride, label, c)
    h = overlap_growth * of_overlap + total_growth * of_total
    h = through_decay(h, p, False, alpha, DECAY, False)
    before = negative_total(q, fp, LOSS, POWER) * (POWER * of_total)
    return h, h - through_decay(before, p, False, alpha, DECAY, False)


@triton.jit
def look_and_write(
    now, stop, m, log_r, sums, before, stop_before, m_before, log_r_before,
    dx, write, label, gold, summed, slope, cols, alpha, fp,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, ALPHA_ONE: tl.constexpr,
):  # fmt: skip
    """Adds h of a part of this row to its sums, and writes dx of a part of the row before."""
    part = load_wide(now, cols, stop)
    share = shares(load_wide(before, cols, stop_before), m_before, log_r_before)
    p, q, _ = probabilities(share, False, log_r, alpha, DECAY, False, ALPHA_ONE)
    h = negative_total(q, fp, LOSS, POWER) * slope
    h = tl.where(cols == label, gold, through_decay(h, p, False, alpha, DECAY, False))
    tl.store(dx + cols, (h - p * summed).to(dx.dtype.element_ty), mask=cols < write)
    p, q, _ = probabilities(shares(part, m, log_r), False, log_r, alpha, DECAY, False, ALPHA_ONE)
    h = negative_total(q, fp, LOSS, POWER) * slope
    return sums + tl.sum(through_decay(h, p, False, alpha, DECAY, False), axis=1)


@triton.jit(do_not_specialize=NUMBERS)
def softmax_batch_long_backward_kernel(
    x, target, aux, slopes, incoming, dx, n, units, sx_n, st_n, incoming_stride, at, alpha, fp, fn,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, ALPHA_ONE: tl.constexpr,
    VECTOR: tl.constexpr, LANES: tl.constexpr, V: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Writes the gradient; `incoming` is one number per class, or one for all with stride 0."""
    c = units * VECTOR
    PART: tl.constexpr = LANES * V
    cols = lane_columns(LANES, V)
    slopes += at
    of_total = slopes + c
    slope_0 = POWER * load_slope(of_total, incoming, incoming_stride, cols, c)
    slope_1 = POWER * load_slope(of_total, incoming, incoming_stride, cols + PART, c)
    slope_2, slope_3 = slope_0, slope_0
    if PARTS > 2:
        slope_2 = POWER * load_slope(of_total, incoming, incoming_stride, cols + 2 * PART, c)
    if PARTS > 3:
        slope_3 = POWER * load_slope(of_total, incoming, incoming_stride, cols + 3 * PART, c)
    stride, wide = sx_n.to(tl.int64) * VECTOR, n.to(tl.int64)
    programs = tl.num_programs(0)
    stop_before, write, before, dx_before, label_before = c * 0, c * 0, x, dx, 0
    m_before, log_r_before, gold_before, summed_before = LOW * 1.0, LOW * 1.0, 0.0, 0.0
    for row in tl.range(tl.program_id(0), n + programs, programs, num_stages=1):
        inside = row < n
        here = wide * 0 + tl.minimum(row, n - 1)
        now = x + here * stride
        kept = (tl.load(aux + here * 4 + SCALE) != 0.0) & inside
        m = tl.load(aux + here * 4 + M)
        log_r = tl.load(aux + here * 4 + LOG_R)
        label = tl.load(target + here * st_n, mask=kept, other=0).to(tl.int32)
        gold, more = gold_slope(
            now, label, kept, slopes, incoming, incoming_stride, c, m, log_r, alpha, fp, fn,
            LOSS, POWER, DECAY, ALPHA_ONE,
        )  # fmt: skip
        stop = tl.where(kept, units, 0) * VECTOR
        sums = tl.zeros([LANES], tl.float32)
        sums = look_and_write(
            now, stop, m, log_r, sums, before, stop_before, m_before, log_r_before,
            dx_before, write, label_before, gold_before, summed_before, slope_0, cols,
            alpha, fp, LOSS, POWER, DECAY, ALPHA_ONE,
        )  # fmt: skip
        sums = look_and_write(
            now, stop, m, log_r, sums, before, stop_before, m_before, log_r_before,
            dx_before, write, label_before, gold_before, summed_before, slope_1, cols + PART,
            alpha, fp, LOSS, POWER, DECAY, ALPHA_ONE,
        )  # fmt: skip
        if PARTS > 2:
            sums = look_and_write(
                now, stop, m, log_r, sums, before, stop_before, m_before, log_r_before,
                dx_before, write, label_before, gold_before, summed_before, slope_2,
                cols + 2 * PART, alpha, fp, LOSS, POWER, DECAY, ALPHA_ONE,
            )  # fmt: skip
        if PARTS > 3:
            sums = look_and_write(
                now, stop, m, log_r, sums, before, stop_before, m_before, log_r_before,
                dx_before, write, label_before, gold_before, summed_before, slope_3,
                cols + 3 * PART, alpha, fp, LOSS, POWER, DECAY, ALPHA_ONE,
            )  # fmt: skip
        before, dx_before, label_before, gold_before = now, dx + here * c, label, gold
        m_before, log_r_before, stop_before = m, log_r, stop
        write = tl.where(inside, units, 0) * VECTOR
        summed_before = tl.sum(sums, axis=0) + more
