"""Kernels of ZLPR: per row, a log-sum-exp of the negatives and one of the positives.

    loss = log(1 + Σ down · exp(margin + x)) + log(1 + Σ up · exp(margin − x))

with down = 1 − y and up = weight · y for classes that count, else 0. Each sum is kept as
s · exp(m), where m is its largest exponent, at least 0, which is that of the 1. Forward keeps m and
log2(1 / s) of both sums of a row (N, 4); with them, backward maps each logit to its derivative,

    dx = down · exp(margin + x) / (1 + Σ …) − up · exp(margin − x) / (1 + Σ …).

Targets are labels (N,), so that each row has one positive, or numbers from 0 to 1 (N, C). Rows may
be of any length.
"""

# No `from __future__ import annotations`: Triton reads the annotations.
import triton
import triton.language as tl

from softf1.kernels._formulas import LOG2E, LOW, log_reciprocal, numerators, power_of_two, shares
from softf1.kernels._read import (
    NUMBERS,
    PIECES,
    add_up,
    load_gold,
    load_rows,
    load_terms,
    load_tile,
    load_weight,
    spread,
    store_four,
    store_tile,
    tile_columns,
)


@triton.jit
def load_positive(
    x, target, mask, weight, rows, n, sx_n, sx_c, st_n, ignore, margin,
    HAS_MASK: tl.constexpr, HAS_WEIGHT: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """Returns the label of each row, whether it counts, and exponent and factor of its positive."""
    label, wanted = load_rows(target, mask, rows, n, st_n, ignore, HAS_MASK)
    gold_x = load_gold(x, rows, label, wanted, sx_n, sx_c, VECTOR)
    up = tl.where(gold_x != -float("inf"), 1.0, 0.0)
    if HAS_WEIGHT:
        up *= tl.load(weight + label, mask=wanted, other=0.0)
    return label, wanted, tl.where(up > 0.0, margin - gold_x, LOW), up


@triton.jit
def load_negatives(
    x, rows, cols, label, wanted, c, sx_n, sx_c, margin, VECTOR: tl.constexpr, UNIT: tl.constexpr
):
    """Returns the exponents of the negatives of labelled rows, LOW elsewhere, and which count."""
    logit = load_tile(x, rows, cols, wanted, c, sx_n, sx_c, VECTOR, UNIT)
    terms = spread(wanted) & (cols < c) & (logit != -float("inf"))
    negative = terms & (cols != spread(label))
    return tl.where(negative, margin + logit, LOW), terms


@triton.jit
def load_both(
    x, target, mask, weight, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore, margin,
    HAS_MASK: tl.constexpr, HAS_WEIGHT: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """Returns exponents and factors of the negatives and of the positives, and which count.

    Where a factor is 0 the exponent is LOW: it could be far above m otherwise, and ∞ · 0 is not 0.
    """
    logit, y, terms = load_terms(
        x, target, mask, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore, HAS_MASK, VECTOR
    )
    down = tl.where(terms, 1.0 - y, 0.0)
    up = tl.where(terms, y * load_weight(weight, cols, c, HAS_WEIGHT), 0.0)
    below = tl.where(down > 0.0, margin + logit, LOW)
    return below, down, tl.where(up > 0.0, margin - logit, LOW), up, terms


@triton.jit
def add_powers(m, s, exponents, factors):
    """Adds factors · exp(exponents) of a tile to s · exp(m), whose lanes are summed at the end."""
    higher = tl.maximum(m, tl.max(exponents, axis=PIECES))
    own = higher[None, :, :] if PIECES == 0 else higher[:, None, :]
    added = tl.sum(factors * numerators(exponents, own), axis=PIECES)
    return higher, s * power_of_two((m - higher) * LOG2E) + added


@triton.jit
def add_one(m, s):
    """Returns m and s of rows from those of their lanes, with the 1 added."""
    highest = tl.max(m, axis=1)
    summed = tl.sum(s * power_of_two((m - highest[:, None]) * LOG2E), axis=1)
    return highest, summed + power_of_two(-highest * LOG2E)


@triton.jit(do_not_specialize=NUMBERS)
def zlpr_forward_kernel(
    x, target, mask, weight, aux, counter, value, dx,
    n, units, sx_n, sx_c, st_n, st_c, ignore, margin,
    LABELS: tl.constexpr, HAS_MASK: tl.constexpr, HAS_WEIGHT: tl.constexpr, MEAN: tl.constexpr,
    NONE: tl.constexpr, VECTOR: tl.constexpr, UNIT: tl.constexpr,
    S: tl.constexpr, N: tl.constexpr, W: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Writes the rows' losses, or their sum or mean, and what backward needs."""
    c = units * VECTOR
    first = tile_columns(0, S, W)
    value_sum = tl.zeros([N], tl.float32)
    count_sum = tl.zeros([N], tl.float32)
    for block in tl.range(tl.program_id(0), tl.cdiv(n, N), tl.num_programs(0), num_stages=1):
        rows = block * N + tl.arange(0, N)
        m_down, s_down = tl.zeros([N, W], tl.float32), tl.zeros([N, W], tl.float32)
        m_up, s_up = tl.zeros([N, W], tl.float32), tl.zeros([N, W], tl.float32)
        counts = tl.zeros([N, W], tl.float32)
        if LABELS:
            label, wanted, above, up = load_positive(
                x, target, mask, weight, rows, n, sx_n, sx_c, st_n, ignore, margin,
                HAS_MASK, HAS_WEIGHT, VECTOR,
            )  # fmt: skip
        for start in tl.range(0, c, S * W, num_stages=1):
            cols = start + first
            if LABELS:
                below, terms = load_negatives(
                    x, rows, cols, label, wanted, c, sx_n, sx_c, margin, VECTOR, UNIT
                )
                m_down, s_down = add_powers(m_down, s_down, below, 1.0)
            else:
                below, down, above, up, terms = load_both(
                    x, target, mask, weight, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore,
                    margin, HAS_MASK, HAS_WEIGHT, VECTOR,
                )  # fmt: skip
                m_down, s_down = add_powers(m_down, s_down, below, down)
                m_up, s_up = add_powers(m_up, s_up, above, up)
            counts = tl.maximum(counts, tl.max(tl.where(terms, 1.0, 0.0), axis=PIECES))
        m_below, s_below = add_one(m_down, s_down)
        if LABELS:
            m_above = tl.maximum(above, 0.0)
            s_above = up * numerators(above, m_above) + power_of_two(-m_above * LOG2E)
        else:
            m_above, s_above = add_one(m_up, s_up)
        store_four(aux, rows, n, m_below, log_reciprocal(s_below), m_above, log_reciprocal(s_above))
        row_value = m_below + tl.log(s_below) + m_above + tl.log(s_above)  # 0 without terms
        if NONE:
            tl.store(value + rows, row_value, mask=rows < n)
        value_sum += row_value
        count_sum += tl.max(counts, axis=1)
    if not NONE:
        place = aux + n.to(tl.int64) * 4
        add_up(counter, value, place, tl.sum(value_sum), tl.sum(count_sum), MEAN, PROGRAMS)


@triton.jit(do_not_specialize=NUMBERS)
def zlpr_backward_kernel(
    x, target, mask, weight, aux, incoming, dx,
    n, units, sx_n, sx_c, st_n, st_c, ignore, margin,
    LABELS: tl.constexpr, HAS_MASK: tl.constexpr, HAS_WEIGHT: tl.constexpr, NONE: tl.constexpr,
    VECTOR: tl.constexpr, UNIT: tl.constexpr, S: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Writes the gradient; `incoming` is one number per row, or one for all."""
    c = units * VECTOR
    tiles = tl.cdiv(c, S * W)
    norm = 1.0
    if not NONE:
        norm = tl.load(aux + n.to(tl.int64) * 4) * tl.load(incoming)
    for block in tl.range(
        tl.program_id(0), tl.cdiv(n, N) * tiles, tl.num_programs(0), num_stages=1
    ):
        rows = block // tiles * N + tl.arange(0, N)
        cols = tile_columns(block % tiles * (S * W), S, W)
        inside = rows < n
        scale = tl.where(inside, norm, 0.0)
        if NONE:
            scale = tl.load(incoming + rows, mask=inside, other=0.0)
        kept = aux + rows.to(tl.int64) * 4
        m_below = tl.load(kept, mask=inside, other=0.0)
        log_r_below = tl.load(kept + 1, mask=inside, other=0.0)
        m_above = tl.load(kept + 2, mask=inside, other=0.0)
        log_r_above = tl.load(kept + 3, mask=inside, other=0.0)
        if LABELS:
            label, wanted, above, up = load_positive(
                x, target, mask, weight, rows, n, sx_n, sx_c, st_n, ignore, margin,
                HAS_MASK, HAS_WEIGHT, VECTOR,
            )  # fmt: skip
            below, _terms = load_negatives(
                x, rows, cols, label, wanted, c, sx_n, sx_c, margin, VECTOR, UNIT
            )
            slope = shares(below, spread(m_below), spread(log_r_below))
            raised = up * shares(above, m_above, log_r_above)
            slope = tl.where(cols == spread(label), -spread(raised), slope)
        else:
            below, down, above, up, _terms = load_both(
                x, target, mask, weight, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore,
                margin, HAS_MASK, HAS_WEIGHT, VECTOR,
            )  # fmt: skip
            slope = down * shares(below, spread(m_below), spread(log_r_below))
            slope -= up * shares(above, spread(m_above), spread(log_r_above))
        store_tile(dx, slope * spread(scale), rows, cols, n, c)
