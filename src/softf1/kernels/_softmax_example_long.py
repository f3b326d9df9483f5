"""Softmax losses with one value per row, for rows longer than a tile: a program takes row by row.

It reads a row for the softmax sums; every lane of V classes has a maximum of its own, so that lanes
exchange nothing before the row's end. It reads the row again, from the cache, for the loss terms.
"""

# No `from __future__ import annotations`: Triton reads the annotations.
import triton
import triton.language as tl

from softf1.kernels._formulas import (
    ENTROPY,
    LOW,
    PAPER,
    log_reciprocal,
    numerators,
    reciprocal_or_zero,
    shares,
    widen,
)
from softf1.kernels._read import (
    NUMBERS,
    add_up,
    keep_offsets,
    load_weight,
    norm_place,
    split_offsets,
)
from softf1.kernels._softmax_example import (
    beside_top,
    entropy_row,
    gold_terms,
    negative_sums,
    without_padding,
)


@triton.jit
def lane_columns(LANES: tl.constexpr, V: tl.constexpr):
    return tl.arange(0, LANES)[:, None] * V + tl.arange(0, V)[None, :]


@triton.jit
def load_row(target, mask, row, n, stride_t, ignore, HAS_MASK: tl.constexpr):
    label = tl.load(target + row * stride_t.to(tl.int64))
    wanted = label != ignore
    if HAS_MASK:
        wanted = wanted & (tl.load(mask + row) != 0)
    return tl.where(wanted, label, 0).to(tl.int32), wanted


@triton.jit
def load_part(
    x, cols, c, stride_c, UNIT: tl.constexpr, EVEN: tl.constexpr, AGAIN: tl.constexpr, offsets=None
):
    """Returns logits as float32, LOW past the end.

    EVEN: the row is a whole number of parts. AGAIN: it will be read once more, so the cache should
    keep it. `offsets`, one per class or None, are added to the logits.
    """
    policy: tl.constexpr = "evict_last" if AGAIN else "evict_first"
    inside = cols < c
    place = cols if UNIT else cols.to(tl.int64) * stride_c
    if EVEN:
        found = widen(tl.load(x + place, eviction_policy=policy))
    elif x.dtype.element_ty == tl.float16:  # it cannot hold LOW
        found = tl.load(x + place, mask=inside, other=0.0, eviction_policy=policy)
        found = tl.where(inside, found.to(tl.float32), LOW)
    else:
        found = widen(tl.load(x + place, mask=inside, other=LOW, eviction_policy=policy))
    if offsets is not None and EVEN:
        found += tl.load(offsets + cols)
    elif offsets is not None:
        found += tl.load(offsets + cols, mask=inside, other=0.0)
    return found


@triton.jit
def find_top(
    x, stop, c, stride_c,
    UNIT: tl.constexpr, EVEN: tl.constexpr, LANES: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """Returns the largest logit and the first class that has it."""
    first = lane_columns(LANES, V)
    m = tl.full([LANES], LOW, tl.float32)
    top = tl.zeros([LANES], tl.int32)
    for start in tl.range(0, stop, LANES * V, num_stages=1):
        cols = start + first
        part = load_part(x, cols, c, stride_c, UNIT, EVEN, True)
        best = tl.max(part, axis=1)
        at = tl.min(tl.where(part == best[:, None], cols, 2**30), axis=1)
        top = tl.where(best > m, at, top)
        m = tl.maximum(m, best)
    largest = tl.max(m, axis=0)
    return largest, tl.min(tl.where(m == largest, top, 2**30), axis=0)


@triton.jit
def sum_lanes(
    x, top, stop, c, stride_c, offsets,
    UNIT: tl.constexpr, EVEN: tl.constexpr, LANES: tl.constexpr, V: tl.constexpr,
    WITHOUT_TOP: tl.constexpr,
):  # fmt: skip
    """Returns m and Σ exp(x − m) of all classes, or all but the top, and `look`.

    `look` is NaN if a logit is −inf. `offsets`, one per class or None, are added to the logits.
    """
    first = lane_columns(LANES, V)
    m = tl.full([LANES], LOW, tl.float32)
    z = tl.zeros([LANES], tl.float32)
    look = tl.zeros([LANES], tl.float32)
    for start in tl.range(0, stop, LANES * V, num_stages=1):
        cols = start + first
        part = load_part(x, cols, c, stride_c, UNIT, EVEN, True, offsets)
        look += tl.sum(part * 0.0, axis=1)
        if WITHOUT_TOP:
            part = tl.where(cols == top, LOW, part)
        new = tl.maximum(m, tl.max(part, axis=1))
        z = z * numerators(m, new) + tl.sum(numerators(part, new[:, None]), axis=1)
        m = new
    m, z, look = tl.reduce((m, z, look), 0, merge_lanes)
    return m, without_padding(m, z), look


@triton.jit
def merge_sums(m, z, other_m, other_z):
    largest = tl.maximum(m, other_m)
    return largest, z * numerators(m, largest) + other_z * numerators(other_m, largest)


@triton.jit
def merge_lanes(m, z, look, other_m, other_z, other_look):
    """Merges three values in one exchange between threads, for which all warps have to wait."""
    m, z = merge_sums(m, z, other_m, other_z)
    return m, z, look + other_look


@triton.jit
def add_pairs(first, second, other_first, other_second):
    return first + other_first, second + other_second


@triton.jit
def row_state(
    x, stop, c, stride_c, offsets,
    FRACTIONAL: tl.constexpr, UNIT: tl.constexpr, EVEN: tl.constexpr, LANES: tl.constexpr,
    V: tl.constexpr,
):  # fmt: skip
    """Returns m, Σ e, u, the top, whether any logit is above −inf, and `look` of `sum_lanes`."""
    largest, top = 0.0, -1
    if FRACTIONAL:
        largest, top = find_top(x, stop, c, stride_c, UNIT, EVEN, LANES, V)
    m, z, look = sum_lanes(x, top, stop, c, stride_c, offsets, UNIT, EVEN, LANES, V, FRACTIONAL)
    u, any_class = beside_top(m, z, largest, FRACTIONAL)
    return m, z, u, top, any_class, look


@triton.jit
def count_terms(
    x, weight, stop, c, stride_c,
    UNIT: tl.constexpr, EVEN: tl.constexpr, HAS_WEIGHT: tl.constexpr, LANES: tl.constexpr,
    V: tl.constexpr,
):  # fmt: skip
    """Returns the summed weight of the classes whose logit is not −inf."""
    first = lane_columns(LANES, V)
    found = tl.zeros([LANES], tl.float32)
    for start in tl.range(0, stop, LANES * V, num_stages=1):
        cols = start + first
        part = load_part(x, cols, c, stride_c, UNIT, EVEN, True)
        weights = load_weight(weight, cols, c, HAS_WEIGHT)
        found += tl.sum(tl.where(part != -float("inf"), weights, 0.0), axis=1)
    return tl.sum(found, axis=0)


@triton.jit
def keep_row(aux, row, n, m, log_r, scale, summed, gold, u, top, of_top, FRACTIONAL: tl.constexpr):
    """Writes what `softf1.kernels._read.keep_rows` writes, for one row."""
    wide = n.to(tl.int64)
    place = aux + (wide * 0 + row) * 4
    tl.store(place, m)
    tl.store(place + 1, log_r)
    tl.store(place + 2, scale)
    tl.store(place + 3, summed)
    if FRACTIONAL:
        place = aux + (wide + row) * 4
        tl.store(place, gold)
        tl.store(place + 1, u)
        tl.store(place + 2, top.to(tl.float32))
        tl.store(place + 3, of_top)
    else:
        tl.store(aux + wide * 4 + row, gold)


@triton.jit(do_not_specialize=NUMBERS)
def softmax_example_long_forward_kernel(
    x, target, mask, weight, aux, counter, value, dx,
    n, units, sx_n, sx_c, st_n, ignore, alpha, fp, fn, smooth, factor,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr,
    ALPHA_ONE: tl.constexpr, SMOOTH: tl.constexpr, FOCAL: tl.constexpr, ADJUSTED: tl.constexpr,
    HAS_MASK: tl.constexpr, HAS_WEIGHT: tl.constexpr, MEAN: tl.constexpr, NONE: tl.constexpr,
    VECTOR: tl.constexpr, UNIT: tl.constexpr, EVEN: tl.constexpr, LANES: tl.constexpr,
    V: tl.constexpr, PAIRED: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Does what `softmax_example_forward_kernel` does, for rows of any length; no gradient."""
    c = units * VECTOR
    offsets = None
    if ADJUSTED:
        offsets, aux = split_offsets(aux, c)
        keep_offsets(offsets, weight, c, fp, LANES * V)
    first = lane_columns(LANES, V)
    all_weights = c.to(tl.float32)
    if HAS_WEIGHT:
        all_weights = tl.sum(sum_weights(weight, c, LANES), axis=0)
    value_sum, count_sum = 0.0, 0.0
    stride = sx_n.to(tl.int64) * VECTOR
    next_label, next_wanted = load_row(target, mask, tl.program_id(0), n, st_n, ignore, HAS_MASK)
    for row in tl.range(tl.program_id(0), n, tl.num_programs(0), num_stages=1):
        label, wanted = next_label, next_wanted
        start_of_row = x + row * stride
        next_row = tl.minimum(row + tl.num_programs(0), n - 1)
        next_label, next_wanted = load_row(target, mask, next_row, n, st_n, ignore, HAS_MASK)
        stop = tl.where(wanted, c, 0)  # a row that does not count is not read
        gold_x = tl.load(
            start_of_row + label.to(tl.int64) * sx_c, mask=wanted, other=-float("inf")
        ).to(tl.float32)
        if ADJUSTED:
            gold_x += tl.load(offsets + label)
        m, z, u, top, any_class, look = row_state(
            start_of_row, stop, c, sx_c, offsets, FRACTIONAL, UNIT, EVEN, LANES, V
        )
        log_r = log_reciprocal(z)
        if LOSS == ENTROPY:
            total, gold, scale = entropy_row(
                gold_x, m, z, weight, label, wanted, alpha, FOCAL, HAS_WEIGHT
            )
            summed, count, of_top = gold, scale, gold
        else:
            r = reciprocal_or_zero(z)
            gold, more, more_h, gold_of_top = gold_terms(
                gold_x, label, wanted, top, m, r, u, weight, alpha, fp, fn, smooth, factor,
                LOSS, POWER, DECAY, FRACTIONAL, ALPHA_ONE, SMOOTH, HAS_WEIGHT,
            )  # fmt: skip
            losses = tl.zeros([LANES], tl.float32)
            slopes = tl.zeros([LANES], tl.float32)
            tops = tl.zeros([LANES], tl.float32)
            for start in tl.range(0, stop, LANES * V, num_stages=1):
                cols = start + first
                part = load_part(start_of_row, cols, c, sx_c, UNIT, EVEN, False)
                weights = load_weight(weight, cols, c, HAS_WEIGHT)
                loss, h, of_tops = negative_sums(
                    shares(part, m, log_r), cols == top, u, weights, alpha, fp, smooth,
                    LOSS, POWER, DECAY, FRACTIONAL, ALPHA_ONE, SMOOTH, HAS_WEIGHT, PAIRED,
                )  # fmt: skip
                losses += tl.sum(loss, axis=1)
                slopes += tl.sum(h, axis=1)
                if DECAY == PAPER and FRACTIONAL:
                    tops += tl.sum(of_tops, axis=1)
            total, summed = tl.reduce((losses, slopes), 0, add_pairs)
            total, summed = total + more, summed * factor + more_h
            of_top = total
            if DECAY == PAPER and FRACTIONAL:
                of_top = tl.where(label == top, gold_of_top, tl.sum(tops, axis=0) * factor)
            weight_here = all_weights
            if look != look:
                weight_here = count_terms(
                    start_of_row, weight, stop, c, sx_c, UNIT, EVEN, HAS_WEIGHT, LANES, V
                )
            kept = wanted & any_class
            scale = tl.where(kept, reciprocal_or_zero(weight_here), 0.0)
            count = tl.where(kept, 1.0, 0.0)
        row_value = tl.where(scale != 0.0, total * scale, 0.0)
        keep_row(aux, row, n, m, log_r, scale, summed, gold, u, top, of_top, FRACTIONAL)
        if NONE:
            tl.store(value + row, row_value)
        value_sum += row_value
        count_sum += count
    if not NONE:
        norm = norm_place(aux, n, FRACTIONAL)
        add_up(counter, value, norm, value_sum, count_sum, MEAN, PROGRAMS)


@triton.jit
def sum_weights(weight, c, LANES: tl.constexpr):
    found = tl.zeros([LANES], tl.float32)
    for start in tl.range(0, c, LANES, num_stages=1):
        cols = start + tl.arange(0, LANES)
        found += tl.load(weight + cols, mask=cols < c, other=0.0)
    return found


@triton.jit(do_not_specialize=NUMBERS)
def softmax_batch_long_state_kernel(
    x, target, mask, aux, n, units, sx_n, sx_c, st_n, ignore,
    FRACTIONAL: tl.constexpr, HAS_MASK: tl.constexpr,
    VECTOR: tl.constexpr, UNIT: tl.constexpr, EVEN: tl.constexpr, LANES: tl.constexpr,
    V: tl.constexpr,
):  # fmt: skip
    """Writes the softmax sums of each row, which the statistics at batch level read."""
    c = units * VECTOR
    for row in tl.range(tl.program_id(0), n, tl.num_programs(0), num_stages=1):
        _, wanted = load_row(target, mask, row, n, st_n, ignore, HAS_MASK)
        start_of_row = x + row * (sx_n.to(tl.int64) * VECTOR)
        m, z, u, top, any_class, _look = row_state(
            start_of_row, tl.where(wanted, c, 0), c, sx_c, None, FRACTIONAL, UNIT, EVEN, LANES, V
        )
        scale = tl.where(wanted & any_class, 1.0, 0.0)
        keep_row(aux, row, n, m, log_reciprocal(z), scale, z, z, u, top, z, FRACTIONAL)
