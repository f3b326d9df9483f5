"""The losses' formulas on a tile of logits; values of a row come broadcast over the tile.

Softmax. With m the largest logit of a row, e = exp(x − m) and r = 1 / Σ e, p = e · r. Where alpha
is below 1 (FRACTIONAL), the largest class, "the top", is treated apart: m and r are those of the
other classes, and with u = log Σ exp(x_other) − x_top

    p_top = 1 / (1 + e^u)      log(1 − p_top) = u − log(1 + e^u)      p_j = e_j · r · (1 − p_top)

so that log(1 − p) is precise however near p is to 1, and p_j / (1 − p_top) is e_j · r.

Ratio losses, with q = p, or (1 − p)^alpha · p for dsc: l = (total − overlap) / (total + smooth).
h = q · dl/dq follows from the growths q · d(overlap)/dq and q · d(total)/dq, as in
softf1.losses._ratio. Negatives have overlap 0 and total n = fp · q^power, so that
l = n / (n + smooth) and h = power · smooth · l / (n + smooth).

Gradient of the logits: dx_j = h_j − p_j · Σ h for softmax. With decay="paper", h gets the factor
1 − alpha · p / (1 − p), from log q = log p + alpha · log(1 − p). Where alpha is fractional, the top
does not get it; dx gets −alpha · h_top · p_top · (1 at the top, −e_j · r elsewhere) instead.
"""

# No `from __future__ import annotations`: Triton reads the annotations.
import os

import triton
import triton.language as tl

NO_DECAY, DETACHED, PAPER = (tl.constexpr(value) for value in range(3))
ENTROPY, DICE, TVERSKY = (tl.constexpr(value) for value in range(3))
TINY = tl.constexpr(1.1754944e-38)
LOG2E = tl.constexpr(1.4426950408889634)
# Fills places of a tile without a logit. It is finite: 0 · x is NaN only where a logit was −inf.
LOW = tl.constexpr(-3.3895313892515355e38)


if os.environ.get("TRITON_INTERPRET") == "1":

    @triton.jit
    def reciprocal(x):
        return 1.0 / x

    @triton.jit
    def power_of_two(x):
        return tl.exp2(x)

    @triton.jit
    def log_of_two(x):
        return tl.log2(x)

    @triton.jit
    def paired_reciprocal(x):
        return 1.0 / x

    @triton.jit
    def widen(x):
        return x.to(tl.float32)
else:

    @triton.jit
    def reciprocal(x):
        """1 / x in one instruction; a division takes eight, for ranges that do not occur here."""
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )

    @triton.jit
    def power_of_two(x):
        """2^x in one instruction, denormals as 0; with denormal results it takes four."""
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )

    @triton.jit
    def log_of_two(x):
        """log2 x in one instruction, to 22 bits: enough for one value per row, used as exponent."""
        return tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )

    @triton.jit
    def paired_reciprocal(x):
        """1 / a = b / (a · b): one reciprocal for two entries, where reciprocals limit the speed.

        The product must stay within float32, and each thread needs an even number of entries.
        """
        return tl.inline_asm_elementwise(
            "{ .reg .f32 t; mul.f32 t, $2, $3; rcp.approx.ftz.f32 t, t; "
            "mul.f32 $0, t, $3; mul.f32 $1, t, $2; }",
            "=&f,=&f,f,f", [x], dtype=tl.float32, is_pure=True, pack=2,
        )  # fmt: skip

    @triton.jit
    def widen(x):
        """Returns float32; for bfloat16 in pairs, with one instruction per entry instead of two."""
        if x.dtype != tl.bfloat16:
            return x.to(tl.float32)
        return tl.inline_asm_elementwise(
            "{ .reg .b32 t; shl.b32 t, $2, 16; mov.b32 $0, t; "
            "and.b32 t, $2, 0xffff0000; mov.b32 $1, t; }",
            "=&f,=&f,r", [x], dtype=tl.float32, is_pure=True, pack=2,
        )  # fmt: skip


@triton.jit
def numerators(x, m):
    """Returns exp(x − m); subtracts first: the difference is exact where x is near m."""
    return power_of_two((x - m) * LOG2E)


@triton.jit
def shares(x, m, log_r):
    """Returns exp(x − m) · r from log2 r, which is −inf for r = 0."""
    return power_of_two((x - m) * LOG2E + log_r)


@triton.jit
def log_reciprocal(z):
    """Returns log2(1 / z), −inf for z = 0."""
    return tl.where(z == 0.0, -float("inf"), -log_of_two(z))


@triton.jit
def reciprocal_or_zero(z):
    """Returns 1 / z, 0 for 0; NaN stays NaN."""
    return tl.where(z == 0.0, 0.0, reciprocal(z))


@triton.jit
def power_of(base, exponent):
    """Returns base^exponent for base ≥ 0 and exponent > 0."""
    return tl.exp(exponent * tl.log(base))


@triton.jit
def log_sigmoids(x):
    """Returns log p and log(1 − p) of p = sigmoid(x)."""
    small = tl.exp(-tl.abs(x))
    # log(1 + small), also where 1 + small rounds to 1
    extra = tl.where(small < 1e-4, small - 0.5 * small * small, tl.log(1.0 + small))
    return tl.minimum(x, 0.0) - extra, tl.minimum(-x, 0.0) - extra


@triton.jit
def missing_from(log_p):
    """Returns 1 − p from log p, exact near p = 1."""
    near = -log_p * (1.0 + log_p * (0.5 + log_p * 0.16666667))
    return tl.where(log_p > -0.01, near, 1.0 - tl.exp(log_p))


@triton.jit
def decayed(p, alpha, ALPHA_ONE: tl.constexpr):
    """Returns (1 − p)^alpha · p for alpha ≥ 1."""
    if ALPHA_ONE:
        return p - p * p
    return p * tl.where(p < 1.0, power_of(tl.maximum(1.0 - p, 1e-8), alpha), 0.0)


@triton.jit
def probabilities(
    share, is_top, u, alpha,
    DECAY: tl.constexpr, FRACTIONAL: tl.constexpr, ALPHA_ONE: tl.constexpr,
):  # fmt: skip
    """Returns p, q and, if fractional, the share among the classes below the top (0 at the top).

    `share` is e · r, which is p itself unless alpha is fractional.
    """
    if FRACTIONAL:
        other = tl.where(is_top, 0.0, share)
        raised = tl.exp(u)  # u is −inf where the row has one class only
        p = tl.where(is_top, 1.0 / (1.0 + raised), other * (raised / (1.0 + raised)))
        log_not_p = tl.where(is_top, u - tl.log(1.0 + raised), tl.log(1.0 - tl.minimum(p, 0.5)))
        return p, p * tl.exp(alpha * log_not_p), other
    if DECAY == NO_DECAY:
        return share, share, share
    return share, decayed(share, alpha, ALPHA_ONE), share


@triton.jit
def overlap_and_total(q, y, fp, fn, LOSS: tl.constexpr, POWER: tl.constexpr):
    """Returns overlap, total and their growths for any target y."""
    if LOSS == DICE:
        overlap = 2.0 * q * y
        if POWER == 2:
            return overlap, q * q + y * y, overlap, 2.0 * q * q
        return overlap, q + y, overlap, q
    if POWER == 2:
        missed = 1.0 - q
        overlap = q * (2.0 - q) * y
        total = overlap + fp * q * q * (1.0 - y) + fn * missed * missed * y
        growth = 2.0 * q * (fp * q * (1.0 - y) + (1.0 - fn) * missed * y)
        return overlap, total, 2.0 * q * missed * y, growth
    overlap = q * y
    growth = q * (fp + (1.0 - fp - fn) * y)
    return overlap, growth + fn * y, overlap, growth


@triton.jit
def ratio_terms(q, y, fp, fn, smooth, LOSS: tl.constexpr, POWER: tl.constexpr):
    """Returns l and h for any target y."""
    overlap, total, overlap_growth, total_growth = overlap_and_total(q, y, fp, fn, LOSS, POWER)
    below = reciprocal(tl.maximum(total + smooth, TINY))
    loss = (total - overlap) * below
    return loss, ((overlap + smooth) * below * total_growth - overlap_growth) * below


@triton.jit
def negative_total(q, fp, LOSS: tl.constexpr, POWER: tl.constexpr):
    total = q * q if POWER == 2 else q
    return total if LOSS == DICE else fp * total


@triton.jit
def negative_terms(
    q, fp, smooth, LOSS: tl.constexpr, POWER: tl.constexpr, SMOOTH: tl.constexpr,
    PAIRED: tl.constexpr = False,
):  # fmt: skip
    """Returns l of negatives, and h without its factor power · smooth."""
    total = negative_total(q, fp, LOSS, POWER)
    below = total + smooth
    if not SMOOTH:  # smooth is 0, and the total may be 0 too
        below = tl.maximum(below, TINY)
    below = paired_reciprocal(below) if PAIRED else reciprocal(below)
    loss = total * below
    # Without smooth the factor of h is 0, but 1 / total may be infinite.
    return loss, loss * (below if SMOOTH else 0.0)


@triton.jit
def gold_entropy(log_p, gamma, FOCAL: tl.constexpr):
    """Returns −(1 − p)^gamma · log p of the gold class and its derivative by log p."""
    if not FOCAL:
        return -log_p, log_p * 0.0 - 1.0
    missing = missing_from(log_p)
    faded = tl.where(missing > 0.0, power_of(tl.maximum(missing, TINY), gamma), 0.0)
    slope = tl.where(missing > 0.0, log_p / tl.maximum(missing, TINY), -1.0)
    return -faded * log_p, faded * (gamma * tl.exp(log_p) * slope - 1.0)


@triton.jit
def sigmoid_entropy(x, y, positive, gamma, FOCAL: tl.constexpr):
    """Returns the (focal) binary cross entropy of each term and its derivative by x."""
    log_p, log_not_p = log_sigmoids(x)
    p, not_p = tl.exp(log_p), tl.exp(log_not_p)
    up, down = positive * y, 1.0 - y
    if not FOCAL:
        return -(up * log_p + down * log_not_p), down * p - up * not_p
    up *= tl.exp(gamma * log_not_p)
    down *= tl.exp(gamma * log_p)
    slope = up * (not_p - gamma * p * log_p) + down * (gamma * not_p * log_not_p - p)
    return -(up * log_p + down * log_not_p), -slope


@triton.jit
def sigmoid_parts(x, alpha, DECAY: tl.constexpr):
    """Returns p, q, and the factor that turns h into the derivative by x."""
    log_p, log_not_p = log_sigmoids(x)
    p, not_p = tl.exp(log_p), tl.exp(log_not_p)
    if DECAY == NO_DECAY:
        return p, p, not_p
    q = tl.exp(log_p + alpha * log_not_p)
    if DECAY == PAPER:
        return p, q, not_p - alpha * p
    return p, q, not_p


@triton.jit
def through_decay(h, p, is_top, alpha, DECAY: tl.constexpr, FRACTIONAL: tl.constexpr):
    """Multiplies h by 1 − alpha · p / (1 − p) for decay="paper"; not at the top if fractional."""
    if DECAY == PAPER:
        if FRACTIONAL:
            return tl.where(is_top, h, h * (1.0 - alpha * p / (1.0 - tl.minimum(p, 0.5))))
        return h * (1.0 - alpha * p / tl.maximum(1.0 - p, 3e-8))
    return h
