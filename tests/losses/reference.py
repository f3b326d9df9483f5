"""The losses once more, as plainly as possible: Python loops over rows and classes, no tensors.

With `Exact` numbers (mpmath, 60 digits, exponents without end) it is the oracle at extreme logits;
with floats it is quick enough for property tests. 1 − p is always a sum of the other classes.
"""

from __future__ import annotations

import math

import mpmath

IGNORED = -100
NOTHING = -math.inf


class Float:
    exp = staticmethod(math.exp)
    log = staticmethod(math.log)
    number = staticmethod(float)


class Exact:
    exp = staticmethod(mpmath.exp)
    log = staticmethod(mpmath.log)
    number = staticmethod(mpmath.mpf)


def _softmax_row(row, m):
    """Returns (p, 1 − p, log p) for each class; None where the logit is −inf."""
    alive = [c for c, x in enumerate(row) if x != NOTHING]
    if not alive:
        return [None] * len(row)
    top = max(row[c] for c in alive)
    raised = {c: m.exp(m.number(row[c]) - m.number(top)) for c in alive}
    total = sum(raised.values())
    out = []
    for c in range(len(row)):
        if c not in raised:
            out.append(None)
            continue
        others = sum(value for k, value in raised.items() if k != c)
        log_p = m.number(row[c]) - m.number(top) - m.log(total)
        out.append((raised[c] / total, others / total, log_p))
    return out


def _sigmoid_row(row, m):
    out = []
    for x in row:
        if x == NOTHING:
            out.append(None)
            continue
        small = m.exp(-abs(m.number(x)))
        large_share, small_share = 1 / (1 + small), small / (1 + small)
        p, not_p = (large_share, small_share) if x >= 0 else (small_share, large_share)
        log_p = -m.log(1 + small) + min(m.number(x), 0)
        out.append((p, not_p, log_p))
    return out


def terms(logits, target, *, mask=None, ignore_index=IGNORED, m=Float):
    """Returns (row, class, p, 1 − p, log p, y) of every term that counts, and such rows."""
    found, kept = [], []
    for i, row in enumerate(logits):
        sigmoid = isinstance(target[i], list | tuple) or len(row) == 1
        if mask is not None and not mask[i]:
            continue
        if not sigmoid and target[i] == ignore_index:
            continue
        values = _sigmoid_row(row, m) if sigmoid else _softmax_row(row, m)
        labels = target[i] if isinstance(target[i], list | tuple) else [target[i]]
        before = len(found)
        for c, value in enumerate(values):
            if value is None or (sigmoid and labels[c] == ignore_index):
                continue
            y = labels[c] if sigmoid else int(target[i] == c)
            found.append((i, c, *value, y))
        if len(found) > before:
            kept.append(i)
    return found, kept


def entropy(
    logits,
    target,
    *,
    gamma=0.0,
    weight=None,
    label_smoothing=0.0,
    reduction="mean",
    m=Float,
    **what,
):
    """ce (gamma 0) and focal."""
    found, kept = terms(logits, target, m=m, **what)
    values, counts = [m.number(0)] * len(logits), [m.number(0)] * len(logits)
    for i in range(len(logits)):
        row = [term for term in found if term[0] == i]
        if i not in kept:
            continue
        classes = len(logits[i])
        w = [m.number(1)] * classes if weight is None else [m.number(v) for v in weight]
        if isinstance(target[i], list | tuple) or classes == 1:
            value = m.number(0)
            for _, c, p, not_p, log_p, y in row:
                y = y * (1 - label_smoothing) + label_smoothing / 2  # noqa: PLW2901
                log_not_p = log_p - m.number(logits[i][c])
                value -= w[c] * y * _power(not_p, gamma, m) * log_p
                value -= (1 - y) * _power(p, gamma, m) * log_not_p
            values[i], counts[i] = value / len(row), m.number(1)
        else:
            gold = [term for term in row if term[5] == 1]
            if not gold:
                continue
            _, c, _, not_p, log_p, _ = gold[0]
            spread = -sum(w[k] * lp for _, k, _, _, lp, _ in row) / len(row)
            hard = -w[c] * _power(not_p, gamma, m) * log_p
            values[i] = (1 - label_smoothing) * hard + label_smoothing * spread
            counts[i] = w[c]
    return _fold(values, counts, reduction)


def family(  # noqa: C901
    logits,
    target,
    *,
    kind="dice",
    alpha=None,
    beta=0.5,
    smooth=1.0,
    squared=None,
    decay_of=None,
    over="example",
    average="macro",
    exclude=(),
    weight=None,
    ohem_ratio=None,
    min_kept=1,
    reduction="mean",
    m=Float,
    **what,
):
    """dice, tversky and dsc; `decay_of(i, c)` is the weight of a term held constant."""
    squared = {"dice": True, "tversky": False, "dsc": False}[kind] if squared is None else squared
    alpha = {"dice": 0, "tversky": 0.5, "dsc": 1.0}[kind] if alpha is None else alpha
    found, kept = terms(logits, target, m=m, **what)
    classes = len(logits[0])
    w = [m.number(1)] * classes if weight is None else [m.number(v) for v in weight]
    counted = [c for c in range(classes) if c not in exclude]
    if ohem_ratio is not None:
        found = _hard(found, classes, ohem_ratio, min_kept)

    def parts(term):
        i, c, p, not_p, _, y = term
        if kind == "tversky":
            fp, fn, tp = p * (1 - y), not_p * y, p * y
            if squared:
                fp, fn = p * p * (1 - y), not_p * not_p * y
                tp = y - fn
            return tp, tp + alpha * fp + beta * fn
        q = p * (decay_of(i, c) if decay_of else _power(not_p, alpha if kind == "dsc" else 0, m))
        return 2 * q * y, (q * q + y * y if squared else q + y)

    def ratio(over_sum, total):
        return 1 - (over_sum + smooth) / (total + smooth) if total + smooth != 0 else m.number(0)

    if over == "example":
        values = [m.number(0)] * len(logits)
        for i in kept:
            row = [term for term in found if term[0] == i and term[1] in counted]
            shares = sum(w[term[1]] for term in row)
            if shares:
                values[i] = sum(w[term[1]] * ratio(*parts(term)) for term in row) / shares
        return _fold(values, [m.number(int(i in kept)) for i in range(len(logits))], reduction)
    sums = [[m.number(0), m.number(0)] for _ in range(classes)]
    for term in found:
        for k, value in enumerate(parts(term)):
            sums[term[1]][k] += value
    if average == "micro":
        return ratio(*(sum(w[c] * sums[c][k] for c in counted) for k in (0, 1)))
    losses = [ratio(*sums[c]) if c in counted else m.number(0) for c in range(classes)]
    if reduction == "none":
        return losses
    total = sum(w[c] * losses[c] for c in counted)
    shares = sum(w[c] for c in counted)
    return total if reduction == "sum" else (total / shares if shares else m.number(0))


def detached_decay(logits, target, alpha, m=Float, **what):
    """Returns decay_of(i, c) = (1 − p)^alpha at these logits."""
    table = {
        (i, c): _power(not_p, alpha, m)
        for i, c, _, not_p, _, _ in terms(logits, target, m=m, **what)[0]
    }
    return lambda i, c: table[i, c]


def gradient(function, logits):
    """Returns the derivative of function(logits) by every logit, by differences in 60 digits."""
    step = mpmath.mpf(10) ** -25
    out = []
    for i, row in enumerate(logits):
        out.append([])
        for c, x in enumerate(row):
            if x == NOTHING:
                out[i].append(0.0)
                continue
            up, down = ([list(r) for r in logits] for _ in range(2))
            up[i][c], down[i][c] = mpmath.mpf(x) + step, mpmath.mpf(x) - step
            out[i].append(float((function(up) - function(down)) / (2 * step)))
    return out


def _power(base, exponent, m):
    if exponent == 0:
        return m.number(1)
    return m.number(0) if base == 0 else m.exp(exponent * m.log(base))


def _hard(found, classes, ratio, min_kept):
    out = []
    for c in range(classes):
        column = [term for term in found if term[1] == c]
        positive = [term for term in column if term[5] >= 0.5]
        negative = sorted((t for t in column if t[5] < 0.5), key=lambda t: (-t[2], t[0]))
        out += positive + negative[: max(min_kept, math.ceil(ratio * len(positive)))]
    return out


def _fold(values, counts, reduction):
    if reduction == "none":
        return values
    total = sum(values)
    if reduction == "sum":
        return total
    return total / sum(counts) if sum(counts) else total * 0
