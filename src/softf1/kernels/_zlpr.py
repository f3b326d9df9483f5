"""Kernels of ZLPR: per row, a log-sum-exp of the negatives and one of the positives.

    loss = log(1 + Σ down · exp(margin + x)) + log(1 + Σ up · exp(margin − x))

with down = 1 − y and up = weight · y for classes that count, else 0. Each sum is kept as s · exp(m)
with its largest exponent m, at least 0, which is that of the 1. Forward keeps m and log2(1 / s) of
both sums of a row (N, 4); with them, backward maps each logit to its derivative,

    dx = down · exp(margin + x) / (1 + Σ …) − up · exp(margin − x) / (1 + Σ …).

Targets are labels (N,) or numbers from 0 to 1 (N, C); rows may be of any length.
"""

# No `from __future__ import annotations`: Triton reads the annotations.
import triton
import triton.language as tl

from softf1.kernels._formulas import LOG2E, LOW, log_reciprocal, numerators, power_of_two, shares
from softf1.kernels._read import (
    NUMBERS,
    add_up,
    load_rows,
    load_terms,
    load_tile,
    load_weight,
    max_row,
    spread,
    store_four,
    store_tile,
    sum_row,
    tile_columns,
)


@triton.jit
def load_factors(
    x, target, mask, weight, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore,
    LABELS: tl.constexpr, HAS_MASK: tl.constexpr, HAS_WEIGHT: tl.constexpr,
    VECTOR: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Returns the logits of a tile, down, up, and which of them count."""
    if LABELS:
        label, wanted = load_rows(target, mask, rows, n, st_n, ignore, HAS_MASK)
        logit = load_tile(x, rows, cols, wanted, c, sx_n, sx_c, VECTOR, UNIT)
        terms = spread(wanted) & (cols < c) & (logit != -float("inf"))
        logit = tl.where(terms, logit, 0.0)
        y = tl.where(cols == spread(label), 1.0, 0.0)
    else:
        logit, y, terms = load_terms(
            x, target, mask, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore, HAS_MASK, VECTOR
        )
    up = y * load_weight(weight, cols, c, HAS_WEIGHT)
    return logit, tl.where(terms, 1.0 - y, 0.0), tl.where(terms, up, 0.0), terms


@triton.jit
def add_powers(m, s, exponents, factors):
    """Returns m and s after Σ factors · exp(exponents) of a tile is added to s · exp(m)."""
    exponents = tl.where(factors > 0.0, exponents, LOW)
    higher = tl.maximum(m, max_row(exponents))
    added = sum_row(factors * numerators(exponents, spread(higher)))
    return higher, s * power_of_two((m - higher) * LOG2E) + added


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
        m_down, m_up = tl.zeros([N], tl.float32), tl.zeros([N], tl.float32)
        s_down, s_up = m_down + 1.0, m_up + 1.0
        counts = tl.zeros([N], tl.float32)
        for start in tl.range(0, c, S * W, num_stages=1):
            logit, down, up, terms = load_factors(
                x, target, mask, weight, rows, start + first, n, c, sx_n, sx_c, st_n, st_c, ignore,
                LABELS, HAS_MASK, HAS_WEIGHT, VECTOR, UNIT,
            )  # fmt: skip
            m_down, s_down = add_powers(m_down, s_down, margin + logit, down)
            m_up, s_up = add_powers(m_up, s_up, margin - logit, up)
            counts = tl.maximum(counts, max_row(tl.where(terms, 1.0, 0.0)))
        store_four(aux, rows, n, m_down, log_reciprocal(s_down), m_up, log_reciprocal(s_up))
        row_value = m_down + tl.log(s_down) + m_up + tl.log(s_up)  # 0 without terms
        if NONE:
            tl.store(value + rows, row_value, mask=rows < n)
        value_sum += row_value
        count_sum += counts
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
    for block in tl.range(
        tl.program_id(0), tl.cdiv(n, N) * tiles, tl.num_programs(0), num_stages=1
    ):
        rows = block // tiles * N + tl.arange(0, N)
        cols = tile_columns(block % tiles * (S * W), S, W)
        inside = rows < n
        if NONE:
            scale = tl.load(incoming + rows, mask=inside, other=0.0)
        else:
            norm = tl.load(aux + n.to(tl.int64) * 4) * tl.load(incoming)
            scale = tl.where(inside, norm, 0.0)
        logit, down, up, _terms = load_factors(
            x, target, mask, weight, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore,
            LABELS, HAS_MASK, HAS_WEIGHT, VECTOR, UNIT,
        )  # fmt: skip
        kept = aux + rows.to(tl.int64) * 4
        m_down = tl.load(kept, mask=inside, other=0.0)
        log_r_down = tl.load(kept + 1, mask=inside, other=0.0)
        m_up = tl.load(kept + 2, mask=inside, other=0.0)
        log_r_up = tl.load(kept + 3, mask=inside, other=0.0)
        # No exponent without a factor: it may be far above m, and ∞ · 0 is not 0.
        lowered = tl.where(down > 0.0, margin + logit, LOW)
        raised = tl.where(up > 0.0, margin - logit, LOW)
        slope = down * shares(lowered, spread(m_down), spread(log_r_down))
        slope -= up * shares(raised, spread(m_up), spread(log_r_up))
        store_tile(dx, slope * spread(scale), rows, cols, n, c)
