"""Kernels of sigmoid losses: every (row, class) term is independent, and rows may be of any length.

Forward keeps one number per row at example level, 1 / the weight of its terms; none at batch level.
"""

# No `from __future__ import annotations`: Triton reads the annotations.
import triton
import triton.language as tl

from softf1.kernels._formulas import (
    ENTROPY,
    overlap_and_total,
    ratio_terms,
    reciprocal_or_zero,
    sigmoid_entropy,
    sigmoid_parts,
)
from softf1.kernels._read import (
    NUMBERS,
    add_up,
    empty_tile,
    keep_offsets,
    load_terms,
    load_weight,
    split_offsets,
    spread,
    store_tile,
    sum_row,
    sum_rows,
    tile_columns,
)
from softf1.kernels._softmax_batch import finish_last, load_slope, write_line


@triton.jit(do_not_specialize=NUMBERS)
def sigmoid_example_forward_kernel(
    x, target, mask, weight, aux, counter, value, dx,
    n, units, sx_n, sx_c, st_n, st_c, ignore, alpha, fp, fn, smooth,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FOCAL: tl.constexpr,
    ADJUSTED: tl.constexpr,
    HAS_MASK: tl.constexpr, HAS_WEIGHT: tl.constexpr, MEAN: tl.constexpr, NONE: tl.constexpr,
    VECTOR: tl.constexpr, S: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
    PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Writes the rows' losses, or their sum or mean; for ce and focal, alpha is gamma, fp tau."""
    c = units * VECTOR
    offsets = None
    if ADJUSTED:
        offsets, aux = split_offsets(aux, c)
        keep_offsets(offsets, weight, c, fp)
    first = tile_columns(0, S, W)
    value_sum = tl.zeros([N], tl.float32)
    count_sum = tl.zeros([N], tl.float32)
    blocks = tl.cdiv(n, N)
    for block in tl.range(tl.program_id(0), blocks, tl.num_programs(0), num_stages=1):
        rows = block * N + tl.arange(0, N)
        total = tl.zeros([N], tl.float32)
        shares = tl.zeros([N], tl.float32)
        terms_here = tl.zeros([N], tl.float32)
        for start in tl.range(0, c, S * W, num_stages=1):
            cols = start + first
            logit, y, terms = load_terms(
                x, target, mask, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore, HAS_MASK, VECTOR,
                offsets,
            )  # fmt: skip
            share = load_weight(weight, cols, c, HAS_WEIGHT)
            if LOSS == ENTROPY:
                loss, _ = sigmoid_entropy(logit, y, share, alpha, FOCAL)
                share = share * 0.0 + 1.0
            else:
                _, q, _ = sigmoid_parts(logit, alpha, DECAY)
                loss, _ = ratio_terms(q, y, fp, fn, smooth, LOSS, POWER)
                loss *= share
            total += sum_row(tl.where(terms, loss, 0.0))
            shares += sum_row(tl.where(terms, share, 0.0))
            terms_here += sum_row(tl.where(terms, 1.0, 0.0))
        scale = reciprocal_or_zero(shares)
        row_value = tl.where(scale != 0.0, total * scale, 0.0)
        tl.store(aux + rows, scale, mask=rows < n)
        if NONE:
            tl.store(value + rows, row_value, mask=rows < n)
        value_sum += row_value
        count_sum += tl.where(terms_here > 0.0, 1.0, 0.0)
    if not NONE:
        value_sum, count_sum = tl.sum(value_sum), tl.sum(count_sum)
        add_up(counter, value, aux + n, value_sum, count_sum, MEAN, PROGRAMS)


@triton.jit(do_not_specialize=NUMBERS)
def sigmoid_example_backward_kernel(
    x, target, mask, weight, aux, incoming, dx,
    n, units, sx_n, sx_c, st_n, st_c, ignore, alpha, fp, fn, smooth,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FOCAL: tl.constexpr,
    ADJUSTED: tl.constexpr, HAS_MASK: tl.constexpr, HAS_WEIGHT: tl.constexpr, NONE: tl.constexpr,
    VECTOR: tl.constexpr, S: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Writes the gradient; `incoming` is one number per row, or one for all."""
    c = units * VECTOR
    offsets = None
    if ADJUSTED:
        offsets, aux = split_offsets(aux, c)
    norm = 1.0
    if not NONE:
        norm = tl.load(aux + n) * tl.load(incoming)
    tiles = tl.cdiv(c, S * W)
    for block in tl.range(
        tl.program_id(0), tl.cdiv(n, N) * tiles, tl.num_programs(0), num_stages=1
    ):
        rows = block // tiles * N + tl.arange(0, N)
        cols = tile_columns(block % tiles * (S * W), S, W)
        scale = tl.load(aux + rows, mask=rows < n, other=0.0) * norm
        if NONE:
            scale *= tl.load(incoming + rows, mask=rows < n, other=0.0)
        logit, y, terms = load_terms(
            x, target, mask, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore, HAS_MASK, VECTOR,
            offsets,
        )  # fmt: skip
        share = load_weight(weight, cols, c, HAS_WEIGHT)
        if LOSS == ENTROPY:
            _, slope = sigmoid_entropy(logit, y, share, alpha, FOCAL)
        else:
            _, q, factor = sigmoid_parts(logit, alpha, DECAY)
            _, h = ratio_terms(q, y, fp, fn, smooth, LOSS, POWER)
            slope = h * factor * share
        store_tile(dx, tl.where(terms, slope * spread(scale), 0.0), rows, cols, n, c)


@triton.jit(do_not_specialize=NUMBERS)
def sigmoid_batch_statistics_kernel(
    x, target, mask, weight, aux, partial, counter, value,
    n, units, sx_n, sx_c, st_n, st_c, ignore, alpha, fp, fn, smooth, at, lines_at,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, HAS_MASK: tl.constexpr,
    VECTOR: tl.constexpr, S: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
    FINISH: tl.constexpr, HAS_WEIGHT: tl.constexpr, MICRO: tl.constexpr, MEAN: tl.constexpr,
    NONE: tl.constexpr, LINES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums overlap and total of the classes of one tile over the rows of one program."""
    c = units * VECTOR
    cols = tile_columns(tl.program_id(1) * (S * W), S, W)
    overlaps = empty_tile(S, N, W)
    totals = empty_tile(S, N, W)
    blocks = tl.cdiv(n, N)
    for block in tl.range(tl.program_id(0), blocks, tl.num_programs(0), num_stages=1):
        rows = block * N + tl.arange(0, N)
        logit, y, terms = load_terms(
            x, target, mask, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore, HAS_MASK, VECTOR
        )
        _, q, _ = sigmoid_parts(logit, alpha, DECAY)
        overlap, total, _, _ = overlap_and_total(q, y, fp, fn, LOSS, POWER)
        overlaps += tl.where(terms, overlap, 0.0)
        totals += tl.where(terms, total, 0.0)
    partial += lines_at
    write_line(partial, cols, c, sum_rows(overlaps), sum_rows(totals))
    if FINISH:
        finish_last(
            partial, counter, weight, value, aux + at, c, smooth,
            HAS_WEIGHT, MICRO, MEAN, NONE, LINES, BLOCK,
        )  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS)
def sigmoid_batch_backward_kernel(
    x, target, mask, slopes, incoming, dx,
    n, units, sx_n, sx_c, st_n, st_c, incoming_stride, at, ignore, alpha, fp, fn,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, HAS_MASK: tl.constexpr,
    VECTOR: tl.constexpr, S: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Writes the gradient; `incoming` is one number per class, or one for all with stride 0."""
    c = units * VECTOR
    slopes += at
    tiles = tl.cdiv(c, S * W)
    for block in tl.range(
        tl.program_id(0), tl.cdiv(n, N) * tiles, tl.num_programs(0), num_stages=1
    ):
        rows = block // tiles * N + tl.arange(0, N)
        cols = tile_columns(block % tiles * (S * W), S, W)
        logit, y, terms = load_terms(
            x, target, mask, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore, HAS_MASK, VECTOR
        )
        of_overlap = load_slope(slopes, incoming, incoming_stride, cols, c)
        of_total = load_slope(slopes + c, incoming, incoming_stride, cols, c)
        _, q, factor = sigmoid_parts(logit, alpha, DECAY)
        _, _, overlap_growth, total_growth = overlap_and_total(q, y, fp, fn, LOSS, POWER)
        h = overlap_growth * of_overlap + total_growth * of_total
        store_tile(dx, tl.where(terms, h * factor, 0.0), rows, cols, n, c)
