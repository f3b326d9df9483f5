"""How kernels read and write: tiles of N rows and S · W classes, and values of rows.

A row's classes lie in S pieces of W. One thread holds the same place of all S pieces, so that a sum
over a row is made in its registers first and only then between the few threads that share W
classes: with all classes spread over threads, that exchange costs more than everything else.

Numbers of classes and strides are given in units of VECTOR, a constant that divides them: Triton
then knows that it may load VECTOR entries at once.
"""

# No `from __future__ import annotations`: Triton reads the annotations.
import triton
import triton.language as tl

from softf1.kernels._formulas import LOW, reciprocal_or_zero, widen

# Which of a row's kept values is which; `_softmax_example` explains them.
M, LOG_R, SCALE, SUMMED, GOLD, U, TOP, DECAYED_TOP = (tl.constexpr(plane) for plane in range(8))


# The axis of a tile that has the pieces: the last one that Triton distributes over threads.
PIECES = tl.constexpr(0 if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 7) else 1)
# These differ from call to call: Triton must not specialize on them, or it would compile again.
NUMBERS = (
    "n", "c", "units", "lines", "sx_n", "sx_c", "st_n", "st_c", "incoming_stride", "ignore", "at",
    "lines_at",
)  # fmt: skip


@triton.jit
def tile_columns(start, S: tl.constexpr, W: tl.constexpr):
    pieces, width = tl.arange(0, S) * W, tl.arange(0, W)[None, None, :]
    place = pieces[:, None, None] if PIECES == 0 else pieces[None, :, None]
    return start + place + width


@triton.jit
def empty_tile(S: tl.constexpr, N: tl.constexpr, W: tl.constexpr):
    return tl.zeros([S, N, W], tl.float32) if PIECES == 0 else tl.zeros([N, S, W], tl.float32)


@triton.jit
def spread(values):
    """Reshapes one value per row so that it broadcasts over a tile."""
    return values[None, :, None] if PIECES == 0 else values[:, None, None]


@triton.jit
def sum_row(tile):
    return tl.sum(tl.sum(tile, axis=PIECES), axis=1)


@triton.jit
def max_row(tile):
    return tl.max(tl.max(tile, axis=PIECES), axis=1)


@triton.jit
def min_row(tile):
    return tl.min(tl.min(tile, axis=PIECES), axis=1)


@triton.jit
def sum_rows(tile):
    """Returns (S, W), the sums of the classes over the rows."""
    return tl.sum(tile, axis=1 - PIECES)


@triton.jit
def load_offsets(offsets, cols, tile, inside):
    """Returns the offset of each logit of a tile.

    They are loaded for every row anew, so that a thread gets those of its own logits.
    """
    return tl.load(offsets + tl.broadcast_to(cols, tile.shape), mask=inside, other=0.0)


@triton.jit
def load_tile(
    x, rows, cols, wanted, c, stride_n, stride_c,
    VECTOR: tl.constexpr, UNIT: tl.constexpr, EVEN: tl.constexpr = False, offsets=None,
):  # fmt: skip
    """Returns logits as float32, LOW where there is none; EVEN: all columns are below c.

    `offsets`, one per class or None, are added to the logits.
    """
    inside = spread(wanted)
    if not EVEN:
        inside = inside & (cols < c)
    start = rows.to(tl.int64) * (stride_n.to(tl.int64) * VECTOR)
    place = cols if UNIT else cols.to(tl.int64) * stride_c
    pointers = x + spread(start) + place
    if x.dtype.element_ty == tl.float16:  # it cannot hold LOW
        found = tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
        found = tl.where(inside, found, LOW)
    else:
        found = tl.load(pointers, mask=inside, other=LOW)
        found = found.to(tl.float32) if VECTOR == 1 else widen(found)
    return found if offsets is None else found + load_offsets(offsets, cols, found, inside)


@triton.jit
def store_tile(dx, value, rows, cols, n, c, EVEN: tl.constexpr = False):
    place = spread(rows.to(tl.int64) * c) + cols
    inside = spread(rows < n)
    if not EVEN:
        inside = inside & (cols < c)
    tl.store(dx + place, value.to(dx.dtype.element_ty), mask=inside)


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
def load_gold(x, rows, label, wanted, stride_n, stride_c, VECTOR: tl.constexpr):
    place = rows.to(tl.int64) * (stride_n.to(tl.int64) * VECTOR) + label.to(tl.int64) * stride_c
    return tl.load(x + place, mask=wanted, other=-float("inf")).to(tl.float32)


@triton.jit
def load_terms(
    x, target, mask, rows, cols, n, c, sx_n, sx_c, st_n, st_c, ignore,
    HAS_MASK: tl.constexpr, VECTOR: tl.constexpr, offsets=None,
):  # fmt: skip
    """Returns logits and targets of sigmoid, 0 where a term does not count, and which count."""
    inside = spread(rows < n) & (cols < c)
    start, column = rows.to(tl.int64), cols.to(tl.int64)
    place = spread(start * (sx_n.to(tl.int64) * VECTOR)) + column * sx_c
    value = tl.load(x + place, mask=inside, other=-float("inf")).to(tl.float32)
    if offsets is not None:
        value += load_offsets(offsets, cols, value, inside)
    place = spread(start * st_n) + column * st_c
    y = tl.load(target + place, mask=inside, other=0).to(tl.float32)
    terms = (value != -float("inf")) & (y != ignore)
    if HAS_MASK:
        terms = terms & spread(tl.load(mask + rows, mask=rows < n, other=0) != 0)
    return tl.where(terms, value, 0.0), tl.where(terms, y, 0.0), terms


@triton.jit
def load_weight(weight, cols, c, HAS_WEIGHT: tl.constexpr):
    if HAS_WEIGHT:
        return tl.load(weight + cols, mask=cols < c, other=0.0)
    return tl.where(cols < c, 1.0, 0.0)


@triton.jit
def split_offsets(aux, c):
    """Returns the addresses of the classes' offsets and, behind them, of the rows' values.

    The rows' values start at a multiple of 16 bytes. The offsets end there, so that all that Triton
    knows of their address is that it is a multiple of VECTOR, as for logits: it then gives a thread
    the same classes of both. With other classes, threads would have to exchange them.
    """
    rows = aux + (c + 3) // 4 * 4
    return rows - c, rows


@triton.jit
def keep_offsets(offsets, weight, c, tau, BLOCK: tl.constexpr = 1024):
    """Writes −tau · log weight of each class; a class of weight 0, never seen, is as the rarest.

    Every program writes all of them, the same numbers, so that none has to wait for another.
    """
    largest = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, c, BLOCK, num_stages=1):
        cols = start + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, load_weight(weight, cols, c, True))
    rarest = tl.max(largest, axis=0)
    for start in tl.range(0, c, BLOCK, num_stages=1):
        cols = start + tl.arange(0, BLOCK)
        found = load_weight(weight, cols, c, True)
        offset = -tau * tl.log(tl.where(found > 0.0, found, rarest))
        tl.store(offsets + cols, offset, mask=cols < c)
    tl.debug_barrier()


@triton.jit
def keep_rows(
    aux, rows, n, m, log_r, scale, summed, gold, u, top, of_top, FRACTIONAL: tl.constexpr
):
    """Writes the rows' values that backward needs: (N, 4), then (N,), or (N, 4) if FRACTIONAL."""
    store_four(aux, rows, n, m, log_r, scale, summed)
    aux += n.to(tl.int64) * 4
    if FRACTIONAL:
        store_four(aux, rows, n, gold, u, top.to(tl.float32), of_top)
    else:
        tl.store(aux + rows, gold, mask=rows < n)


@triton.jit
def store_four(aux, rows, n, first, second, third, fourth):
    """Writes four values per row in one store: four stores would move data between threads each."""
    values = tl.join(tl.join(first, third), tl.join(second, fourth))
    values = tl.reshape(values, [values.shape[0], 4])
    place = rows.to(tl.int64)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(aux + place, values, mask=(rows < n)[:, None])


@triton.jit
def load_kept(aux, plane: tl.constexpr, rows, n, inside, FRACTIONAL: tl.constexpr):
    """Returns one of the values that `keep_rows` wrote, 0 where not inside."""
    rows = rows.to(tl.int64)
    place = rows * 4 + plane
    if plane >= 4:
        place = n.to(tl.int64) * 4 + (rows * 4 + (plane - 4) if FRACTIONAL else rows)
    return tl.load(aux + place, mask=inside, other=0.0)


@triton.jit
def norm_place(aux, n, FRACTIONAL: tl.constexpr):
    """Returns where the reduction's factor (1, or 1 / count) is kept: after the rows' values."""
    return aux + n.to(tl.int64) * (8 if FRACTIONAL else 5)


@triton.jit
def add_up(
    counter, value, norm_after, value_sum, count_sum, MEAN: tl.constexpr, PROGRAMS: tl.constexpr
):
    """Writes this program's sums; the last program to get here adds up those of all.

    It writes the loss, and behind the rows' values the reduction's factor and the count.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    partial = norm_after + 2
    tl.store(partial + program, value_sum)
    tl.store(partial + programs + program, count_sum)
    tl.debug_barrier()
    if tl.atomic_add(counter, 1, sem="acq_rel") == programs - 1:
        every = tl.arange(0, PROGRAMS)
        there = every < programs
        summed = tl.sum(tl.load(partial + every, mask=there, other=0.0, volatile=True))
        counted = tl.sum(tl.load(partial + programs + every, mask=there, other=0.0, volatile=True))
        norm = reciprocal_or_zero(counted) if MEAN else 1.0
        tl.store(value, summed * norm)
        tl.store(norm_after, norm)
        tl.store(norm_after + 1, counted)
        tl.store(counter, 0)  # the next launch expects 0
