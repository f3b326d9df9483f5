"""Softmax losses with one value per row: ce, focal, and the dice family at example level.

Forward reads the logits once and keeps these values of each row, so that backward maps each logit
to its derivative without another sum over the row:

    M, LOG_R       largest logit m, and log2 of 1 / Σ exp(x − m)
    SCALE          1 / the weight of the row's terms (ce and focal: the gold class's weight);
                   0 if the row does not count
    SUMMED, GOLD   Σ h, and h of the gold class
    U, TOP, DECAYED_TOP    fractional alpha only: u, the largest class, and alpha · h · p there;
                   see softf1.kernels._formulas

For `la`, the offsets that it adds to the logits of each class come before them.

The last program to finish adds up the sums of all programs in their order, so that the result does
not depend on scheduling.
"""

# No `from __future__ import annotations`: Triton reads the annotations.
import triton
import triton.language as tl

from softf1.kernels._formulas import (
    ENTROPY,
    LOW,
    PAPER,
    gold_entropy,
    log_reciprocal,
    negative_terms,
    numerators,
    probabilities,
    ratio_terms,
    reciprocal_or_zero,
    shares,
    through_decay,
)
from softf1.kernels._read import (
    DECAYED_TOP,
    GOLD,
    LOG_R,
    NUMBERS,
    SCALE,
    SUMMED,
    TOP,
    M,
    U,
    add_up,
    keep_offsets,
    keep_rows,
    load_gold,
    load_kept,
    load_rows,
    load_tile,
    load_weight,
    max_row,
    min_row,
    norm_place,
    split_offsets,
    spread,
    store_tile,
    sum_row,
    tile_columns,
)


@triton.jit
def softmax_state(tile, cols, FRACTIONAL: tl.constexpr):
    """Returns e (tile), m, Σ e, u, the top, and whether any logit of the row is above −inf."""
    largest = max_row(tile)
    top = tl.zeros_like(largest).to(tl.int32)
    m = tl.maximum(largest, LOW)  # avoids inf − inf where all logits are −inf
    if FRACTIONAL:
        at_top = tl.where(tile == spread(largest), cols, 2**30)
        top = min_row(at_top)
        tile = tl.where(cols == spread(top), LOW, tile)
        m = tl.maximum(max_row(tile), LOW)
    e = numerators(tile, spread(m))
    z = without_padding(m, sum_row(e))
    u, any_class = beside_top(m, z, largest, FRACTIONAL)
    return e, m, z, u, top, any_class


@triton.jit
def without_padding(m, z):
    """Returns z, but 0 where no logit is above LOW: there z counts the fillers. NaN stays NaN."""
    return tl.where((m > LOW) | (z != z), z, 0.0)


@triton.jit
def beside_top(m, z, largest, FRACTIONAL: tl.constexpr):
    """Returns u, and whether any logit of a row is above −inf."""
    if FRACTIONAL:
        u = m - largest + tl.log(tl.where(z == 0.0, 1.0, z))
        return tl.where(z == 0.0, -float("inf"), u), (largest > LOW) | (z != z)
    return m, z != 0.0


@triton.jit
def entropy_row(
    gold_x, m, z, weight, label, wanted, gamma, FOCAL: tl.constexpr, HAS_WEIGHT: tl.constexpr
):
    """Returns the loss of each row, its derivative by log p, and the row's weight."""
    has_gold = gold_x != -float("inf")
    log_z = tl.log(tl.where(z == 0.0, 1.0, z))
    total, slope = gold_entropy(tl.where(has_gold, gold_x - m - log_z, 0.0), gamma, FOCAL)
    scale = tl.where(has_gold, 1.0, 0.0)
    if HAS_WEIGHT:
        scale *= tl.load(weight + label, mask=wanted, other=0.0)
    return total, tl.where(has_gold, slope, 0.0), scale


@triton.jit
def gold_terms(
    gold_x, label, wanted, top, m, r, u, weight, alpha, fp, fn, smooth, factor,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr,
    ALPHA_ONE: tl.constexpr, SMOOTH: tl.constexpr, HAS_WEIGHT: tl.constexpr,
):  # fmt: skip
    """Returns h of the gold class, how far l and h exceed a negative's, and alpha · h · p."""
    has_gold = gold_x != -float("inf")
    is_top = label == top
    p, q, _ = probabilities(
        numerators(gold_x, m) * r, is_top, u, alpha, DECAY, FRACTIONAL, ALPHA_ONE
    )
    p, q = tl.where(has_gold, p, 0.0), tl.where(has_gold, q, 0.0)
    loss, h = ratio_terms(q, tl.where(has_gold, 1.0, 0.0), fp, fn, smooth, LOSS, POWER)
    loss_before, h_before = negative_terms(q, fp, smooth, LOSS, POWER, SMOOTH)
    more, h_before = loss - loss_before, h_before * factor
    if HAS_WEIGHT:
        share = tl.load(weight + label, mask=wanted, other=0.0)
        more, h, h_before = more * share, h * share, h_before * share
    of_top = alpha * h * p
    h_before = through_decay(h_before, p, is_top, alpha, DECAY, FRACTIONAL)
    h = through_decay(h, p, is_top, alpha, DECAY, FRACTIONAL)
    return h, more, h - h_before, of_top


@triton.jit
def negative_sums(
    share_of_e, is_top, u, weights, alpha, fp, smooth,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr,
    ALPHA_ONE: tl.constexpr, SMOOTH: tl.constexpr, HAS_WEIGHT: tl.constexpr,
    PAIRED: tl.constexpr = False,
):  # fmt: skip
    """Returns l, h and alpha · h · p at the top, all classes as negatives; h lacks its factor."""
    p, q, _ = probabilities(share_of_e, is_top, u, alpha, DECAY, FRACTIONAL, ALPHA_ONE)
    loss, h = negative_terms(q, fp, smooth, LOSS, POWER, SMOOTH, PAIRED)
    if HAS_WEIGHT:
        loss, h = loss * weights, h * weights
    of_top = h
    if DECAY == PAPER and FRACTIONAL:
        of_top = tl.where(is_top, alpha * h * p, 0.0)
    return loss, through_decay(h, p, is_top, alpha, DECAY, FRACTIONAL), of_top


@triton.jit
def weight_of_terms(tile, weight, cols, c, all_weights, HAS_WEIGHT: tl.constexpr):
    """Returns the summed weight of the classes of each row whose logit is not −inf.

    Such logits are rare: classes are counted only in tiles that have one.
    """
    look = sum_row(tile * 0.0)
    found = tl.zeros_like(look) + all_weights
    look = tl.sum(look)
    if look != look:
        weights = load_weight(weight, cols, c, HAS_WEIGHT)
        found = sum_row(tl.where(tile != -float("inf"), weights, 0.0))
    return found


@triton.jit(do_not_specialize=NUMBERS)
def softmax_example_forward_kernel(
    x, target, mask, weight, aux, counter, value, dx,
    n, units, sx_n, sx_c, st_n, ignore, alpha, fp, fn, smooth, factor,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr,
    ALPHA_ONE: tl.constexpr, SMOOTH: tl.constexpr, FOCAL: tl.constexpr, ADJUSTED: tl.constexpr,
    HAS_MASK: tl.constexpr, HAS_WEIGHT: tl.constexpr, MEAN: tl.constexpr, NONE: tl.constexpr,
    VECTOR: tl.constexpr, UNIT: tl.constexpr,
    S: tl.constexpr, N: tl.constexpr, W: tl.constexpr, PROGRAMS: tl.constexpr,
    GRADIENT: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Rows that fit into one tile; for ce and focal alpha is gamma; factor is power · smooth.

    ADJUSTED: the loss of `x − tau · log weight`, as they are read; fp is tau.
    GRADIENT: also writes the gradient, which is right if all rows count and the loss is not scaled.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    c = units * VECTOR
    offsets = None
    if ADJUSTED:
        offsets, aux = split_offsets(aux, c)
        keep_offsets(offsets, weight, c, fp)
    cols = tile_columns(0, S, W)
    weights = load_weight(weight, cols, c, HAS_WEIGHT)
    all_weights = c.to(tl.float32)
    if HAS_WEIGHT:
        all_weights = tl.sum(tl.sum(tl.sum(weights, axis=2), axis=1), axis=0)
    value_sum = tl.zeros([N], tl.float32)
    count_sum = tl.zeros([N], tl.float32)
    norm = reciprocal_or_zero(n.to(tl.float32)) if MEAN else 1.0  # the factor where all rows count
    for block in tl.range(program, tl.cdiv(n, N), programs, num_stages=1):
        rows = block * N + tl.arange(0, N)
        label, wanted = load_rows(target, mask, rows, n, st_n, ignore, HAS_MASK)
        tile = load_tile(x, rows, cols, wanted, c, sx_n, sx_c, VECTOR, UNIT, EVEN, offsets)
        gold_x = load_gold(x, rows, label, wanted, sx_n, sx_c, VECTOR)
        if ADJUSTED:
            gold_x += tl.load(offsets + label, mask=wanted, other=0.0)
        weight_here = gold_x
        if LOSS != ENTROPY:  # before the softmax: after it, only e has to stay in registers
            weight_here = weight_of_terms(tile, weight, cols, c, all_weights, HAS_WEIGHT)
        e, m, z, u, top, any_class = softmax_state(tile, cols, FRACTIONAL)
        if LOSS == ENTROPY:
            total, gold, scale = entropy_row(
                gold_x, m, z, weight, label, wanted, alpha, FOCAL, HAS_WEIGHT
            )
            summed, count, of_top = gold, scale, gold
            share = e * spread(reciprocal_or_zero(z))
            h = share
        else:
            r = reciprocal_or_zero(z)
            gold, more, more_h, gold_of_top = gold_terms(
                gold_x, label, wanted, top, m, r, u, weight, alpha, fp, fn, smooth, factor,
                LOSS, POWER, DECAY, FRACTIONAL, ALPHA_ONE, SMOOTH, HAS_WEIGHT,
            )  # fmt: skip
            share = e * spread(r)
            loss, h, of_top = negative_sums(
                share, cols == spread(top), spread(u), weights, alpha, fp, smooth,
                LOSS, POWER, DECAY, FRACTIONAL, ALPHA_ONE, SMOOTH, HAS_WEIGHT,
            )  # fmt: skip
            total, summed = sum_row(loss) + more, sum_row(h) * factor + more_h
            if DECAY == PAPER and FRACTIONAL:
                of_top = tl.where(label == top, gold_of_top, sum_row(of_top) * factor)
            else:
                of_top = total
            kept = wanted & any_class
            scale = tl.where(kept, reciprocal_or_zero(weight_here), 0.0)
            count = tl.where(kept, 1.0, 0.0)
        row_value = tl.where(scale != 0.0, total * scale, 0.0)
        keep_rows(
            aux, rows, n, m, log_reciprocal(z), scale, summed, gold, u, top, of_top, FRACTIONAL
        )
        if NONE:
            tl.store(value + rows, row_value, mask=rows < n)
        value_sum += row_value
        count_sum += count
        if GRADIENT:
            scale *= norm
            here = cols == spread(label)
            p, other = share, share
            if LOSS == ENTROPY:
                h = 0.0
            else:
                h *= spread(scale * factor)
                p, _q, other = probabilities(
                    share, cols == spread(top), spread(u), alpha, DECAY, FRACTIONAL, ALPHA_ONE
                )
            slope = tl.where(here, spread(gold * scale), h) - p * spread(summed * scale)
            if LOSS != ENTROPY and DECAY == PAPER and FRACTIONAL:
                slope += spread(of_top * scale) * (other - tl.where(cols == spread(top), 1.0, 0.0))
            store_tile(dx, slope, rows, cols, n, c, EVEN)
    if not NONE:
        place = norm_place(aux, n, FRACTIONAL)
        value_sum, count_sum = tl.sum(value_sum), tl.sum(count_sum)
        add_up(counter, value, place, value_sum, count_sum, MEAN, PROGRAMS)


@triton.jit(do_not_specialize=NUMBERS)
def softmax_example_backward_kernel(
    x, target, weight, aux, incoming, dx,
    n, units, sx_n, sx_c, st_n, alpha, fp, smooth, factor,
    LOSS: tl.constexpr, POWER: tl.constexpr, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr,
    ALPHA_ONE: tl.constexpr, SMOOTH: tl.constexpr, ADJUSTED: tl.constexpr, HAS_WEIGHT: tl.constexpr,
    MEAN: tl.constexpr, NONE: tl.constexpr, VECTOR: tl.constexpr, UNIT: tl.constexpr,
    S: tl.constexpr, N: tl.constexpr, W: tl.constexpr, TILES: tl.constexpr, READY: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of rows of any length; `incoming` is one number per row, or one for all.

    READY: forward wrote the gradient to `dx`, assuming that all rows count and the loss is not
    scaled. If that holds, which only the device knows, nothing is left to do.
    """
    c = units * VECTOR
    offsets = None
    if ADJUSTED:
        offsets, aux = split_offsets(aux, c)
    blocks = tl.cdiv(n, N) * TILES
    norm = 1.0
    if not NONE:
        place = norm_place(aux, n, FRACTIONAL)
        factor_of_loss = tl.load(incoming)
        norm = tl.load(place) * factor_of_loss
        if READY:
            done = factor_of_loss == 1.0
            if MEAN:
                done = done & (tl.load(place + 1) == n.to(tl.float32))
            blocks = tl.where(done, 0, blocks)
    for step in tl.range(tl.program_id(0), blocks, tl.num_programs(0), num_stages=1):
        block = blocks - 1 - step  # what forward read last is still in the cache
        rows = block // TILES * N + tl.arange(0, N)
        cols = tile_columns(block % TILES * (S * W), S, W)
        scale = load_kept(aux, SCALE, rows, n, rows < n, FRACTIONAL)
        kept = scale != 0.0
        label = tl.load(target + rows.to(tl.int64) * st_n, mask=kept, other=0).to(tl.int32)
        tile = load_tile(x, rows, cols, kept, c, sx_n, sx_c, VECTOR, UNIT, False, offsets)
        m = load_kept(aux, M, rows, n, kept, FRACTIONAL)
        log_r = load_kept(aux, LOG_R, rows, n, kept, FRACTIONAL)
        summed = load_kept(aux, SUMMED, rows, n, kept, FRACTIONAL)
        gold = summed if LOSS == ENTROPY else load_kept(aux, GOLD, rows, n, kept, FRACTIONAL)
        scale *= norm
        if NONE:
            scale *= tl.load(incoming + rows, mask=kept, other=0.0)
        here = cols == spread(label)
        share = shares(tile, spread(m), spread(log_r))
        gold, summed = spread(gold * scale), spread(summed * scale)
        if LOSS == ENTROPY:
            slope = tl.where(here, gold, 0.0) - share * summed
        else:
            u, is_top = m, here
            if FRACTIONAL:
                u = load_kept(aux, U, rows, n, kept, FRACTIONAL)
                is_top = cols == spread(load_kept(aux, TOP, rows, n, kept, FRACTIONAL).to(tl.int32))
            p, q, other = probabilities(
                share, is_top, spread(u), alpha, DECAY, FRACTIONAL, ALPHA_ONE
            )
            _, h = negative_terms(q, fp, smooth, LOSS, POWER, SMOOTH)
            if HAS_WEIGHT:
                h *= load_weight(weight, cols, c, HAS_WEIGHT)
            h = through_decay(h * spread(scale * factor), p, is_top, alpha, DECAY, FRACTIONAL)
            slope = tl.where(here, gold, h) - p * summed
            if DECAY == PAPER and FRACTIONAL:
                of_top = spread(load_kept(aux, DECAYED_TOP, rows, n, kept, FRACTIONAL) * scale)
                slope += of_top * (other - tl.where(is_top, 1.0, 0.0))
        store_tile(dx, slope, rows, cols, n, c)
