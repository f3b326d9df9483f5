"""Kernels of an encoder layer: all between two matrix products in one kernel, forward and backward.

With z = dense(x), r the residual, m a dropout mask that is 0 or 1 / (1 − p):

    norm    s = r + m·z,  x̂ = (s − mean) / √(variance + ε),  y = x̂·γ + β
            with h = γ·∂y,  ∂r = (h − mean(h) − x̂·mean(h·x̂)) / √(variance + ε),  ∂z = m·∂r,
            ∂γ = Σ ∂y·x̂,  ∂β = Σ ∂y,  ∂bias = Σ ∂z          sums over rows
    gelu    y = z·Φ(z),  ∂z = ∂y·(Φ(z) + z·φ(z)),  ∂bias = Σ ∂z
    pack    ∂z = [∂query, ∂key, ∂value],  ∂bias = Σ ∂z

Sums over rows are made in two steps, always in the same order: each program writes a line of sums
to `parts`, whose lines are `stride` apart, and `sum_parts` adds up the lines. The dropout mask is
never stored: forward and backward draw the same numbers from the same seed. Kernels compute in
float32, whatever dtype they read and write.
"""

# No `from __future__ import annotations`: Triton reads the annotations.
import triton
import triton.language as tl

ROUNDS = tl.constexpr(7)  # of Philox; Salmon et al. (2011): seven pass every test of BigCrush
# These differ from call to call. Triton must not specialize on them: it would compile a kernel
# again, maybe while a CUDA graph is captured.
NUMBERS = (
    "rows", "call", "lines", "steps", "stride", "mask_batch", "mask_row", "mask_col", "ids",
    "padding", "dropped",
)  # fmt: skip


@triton.jit
def draw_kept(seeds, call, start, dropped, R: tl.constexpr, W: tl.constexpr):
    """Returns which entries of a tile dropout keeps.

    One draw of Philox serves eight neighbours in a row, with 16 bits each: `dropped` of 65,536 are
    dropped. `start` (R, 1) numbers the first draw of each row; no other row of the call has them.
    """
    place = start + tl.arange(0, W // 8)[None, :]
    a, b, c, d = tl.randint4x(tl.load(seeds + call), place.to(tl.int32), ROUNDS)
    four = tl.join(tl.join(a, c), tl.join(b, d))
    drawn = tl.reshape(tl.join(four & 0xFFFF, (four >> 16) & 0xFFFF), [R, W])
    return drawn.to(tl.int32) >= dropped


@triton.jit
def upscale(dropped):
    """Returns the factor of what dropout keeps, 1 / (1 − p)."""
    return 65536.0 / (65536 - dropped)


@triton.jit
def draw_mask(seeds, call, start, dropped, R: tl.constexpr, W: tl.constexpr):
    """Returns the dropout mask of a tile: 0, or the factor of what is kept."""
    return tl.where(draw_kept(seeds, call, start, dropped, R, W), upscale(dropped), 0.0)


@triton.jit
def load_masked(source, place, inside):
    return tl.load(source + place, mask=inside, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=NUMBERS)
def norm_forward(
    z, residual, gain, shift, seeds, y, half, statistics,
    rows, call, dropped, eps, width,
    R: tl.constexpr, W: tl.constexpr, DROP: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Writes y in float32 and half precision, and mean and 1 / √(variance + ε) of each row."""
    row = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)
    col = tl.arange(0, W)[None, :]
    inside = (row[:, None] < rows) & (col < width)
    place = row[:, None] * width + col
    s = load_masked(z, place, inside)
    if DROP:
        s *= draw_mask(seeds, call, row[:, None] * (W // 8), dropped, R, W)
    s += load_masked(residual, place, inside)
    mean = tl.sum(s, axis=1) / width
    centred = tl.where(inside, s - mean[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / width + eps)
    out = centred * scale[:, None] * load_masked(gain, col, col < width)
    out += load_masked(shift, col, col < width)
    tl.store(y + place, out, mask=inside)
    if HALF:
        tl.store(half + place, out, mask=inside)
    tl.store(statistics + row, mean, mask=row < rows)
    tl.store(statistics + rows + row, scale, mask=row < rows)


@triton.jit(do_not_specialize=NUMBERS)
def norm_backward(
    dy, dhalf, z, residual, gain, seeds, statistics, dz, dresidual, parts,
    rows, call, dropped, width, stride,
    R: tl.constexpr, W: tl.constexpr, DROP: tl.constexpr, WHOLE: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Writes ∂z, ∂residual and lines of ∂γ, ∂β, ∂bias; ∂y is the sum of both outputs' gradients."""
    col = tl.arange(0, W)[None, :]
    gamma = load_masked(gain, col, col < width)
    dgain = tl.zeros([R, W], tl.float32)
    dshift = tl.zeros([R, W], tl.float32)
    dbias = tl.zeros([R, W], tl.float32)
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, R), tl.num_programs(0)):
        row = (block * R + tl.arange(0, R)).to(tl.int64)
        inside = (row[:, None] < rows) & (col < width)
        place = row[:, None] * width + col
        s = load_masked(z, place, inside)
        if DROP:
            mask = draw_mask(seeds, call, row[:, None] * (W // 8), dropped, R, W)
            s *= mask
        s += load_masked(residual, place, inside)
        mean = load_masked(statistics, row, row < rows)[:, None]
        scale = load_masked(statistics + rows, row, row < rows)[:, None]
        normed = tl.where(inside, (s - mean) * scale, 0.0)
        incoming = tl.zeros([R, W], tl.float32)
        if WHOLE:
            incoming += load_masked(dy, place, inside)
        if HALF:
            incoming += load_masked(dhalf, place, inside)
        dgain += incoming * normed
        dshift += incoming
        h = incoming * gamma
        along = tl.sum(h * normed, axis=1)[:, None] / width
        ds = tl.where(inside, (h - tl.sum(h, axis=1)[:, None] / width - normed * along) * scale, 0)
        tl.store(dresidual + place, ds, mask=inside)
        if DROP:
            ds *= mask
        tl.store(dz + place, ds, mask=inside)
        dbias += ds
    line = parts + tl.program_id(0).to(tl.int64) * stride + tl.arange(0, W)
    there = tl.arange(0, W) < width
    tl.store(line, tl.sum(dgain, axis=0), mask=there)
    tl.store(line + width, tl.sum(dshift, axis=0), mask=there)
    tl.store(line + 2 * width, tl.sum(dbias, axis=0), mask=there)


@triton.jit
def normal_share(z):
    """Returns Φ(z), the cumulative distribution function of the standard normal."""
    return 0.5 * (1.0 + tl.erf(z * 0.7071067811865476))


@triton.jit
def gelu_forward(z, y, size, B: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    x = load_masked(z, place, place < size)
    tl.store(y + place, x * normal_share(x), mask=place < size)


@triton.jit(do_not_specialize=NUMBERS)
def gelu_backward(dy, z, dz, parts, rows, width, stride, R: tl.constexpr, W: tl.constexpr):
    """Writes ∂z and lines of ∂bias."""
    col = tl.program_id(0) * W + tl.arange(0, W)[None, :]
    total = tl.zeros([R, W], tl.float32)
    for block in tl.range(tl.program_id(1), tl.cdiv(rows, R), tl.num_programs(1)):
        row = (block * R + tl.arange(0, R)).to(tl.int64)[:, None]
        inside = (row < rows) & (col < width)
        x = load_masked(z, row * width + col, inside)
        density = 0.3989422804014327 * tl.exp(-0.5 * x * x)
        d = load_masked(dy, row * width + col, inside) * (normal_share(x) + x * density)
        tl.store(dz + row * width + col, d, mask=inside)
        total += d
    line = parts + tl.program_id(1).to(tl.int64) * stride + col
    tl.store(line, tl.sum(total, axis=0)[None, :], mask=col < width)


@triton.jit(do_not_specialize=NUMBERS)
def pack_backward(
    query, key, value, dz, parts, rows, width, stride, query_stride, key_stride, value_stride,
    R: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Writes rows [∂query, ∂key, ∂value], and lines of ∂bias."""
    blocks = tl.cdiv(width, W)
    own = tl.program_id(0) // blocks
    col = tl.program_id(0) % blocks * W + tl.arange(0, W)[None, :]
    total = tl.zeros([R, W], tl.float32)
    for block in tl.range(tl.program_id(1), tl.cdiv(rows, R), tl.num_programs(1)):
        row = (block * R + tl.arange(0, R)).to(tl.int64)[:, None]
        inside = (row < rows) & (col < width)
        if own == 0:
            d = load_masked(query, row * query_stride + col, inside)
        elif own == 1:
            d = load_masked(key, row * key_stride + col, inside)
        else:
            d = load_masked(value, row * value_stride + col, inside)
        tl.store(dz + (row * 3 + own) * width + col, d, mask=inside)
        total += d
    line = parts + tl.program_id(1).to(tl.int64) * stride + own * width + col
    tl.store(line, tl.sum(total, axis=0)[None, :], mask=col < width)


@triton.jit(do_not_specialize=NUMBERS)
def sum_parts(parts, wide, narrow, lines, width, split, R: tl.constexpr, W: tl.constexpr):
    """Adds up the lines: the first `split` columns into `wide`, the others into `narrow`."""
    col = tl.program_id(0) * W + tl.arange(0, W)
    total = tl.zeros([R, W], tl.float32)
    for start in tl.range(0, lines, R):
        line = (start + tl.arange(0, R)).to(tl.int64)[:, None]
        inside = (line < lines) & (col[None, :] < width)
        total += tl.load(parts + line * width + col[None, :], mask=inside, other=0.0)
    sums = tl.sum(total, axis=0)
    tl.store(wide + col, sums, mask=col < split)
    tl.store(narrow + col - split, sums, mask=(col >= split) & (col < width))
