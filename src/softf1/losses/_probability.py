"""From logits to probabilities, decayed or not, and back with a gradient that never meets 0 · inf.

Forward: q = (1 − p)^alpha · p per class (alpha 0: p itself), 0 where a row or term does not count.
Backward starts from h = q · dL/dq, the derivative by log q, because

    log q_c = log p_c + alpha · log(1 − p_c)

    detached:  softmax dx_j = h_j − p_j · Σ h            sigmoid dx = h · (1 − p)
    paper:     softmax as above with h_c · (1 − alpha · p_c / (1 − p_c)) in place of h_c
               sigmoid dx = h · (1 − p − alpha · p)

With 0 < alpha < 1 the power of a rounded 1 − p is wrong near p = 1: (1e-9)^0.01 is 0.81, but
0^0.01 is 0. Only the largest class of a row can come near 1. With u = logsumexp(others) − largest
logit its 1 − p is sigmoid(u), exact in log-space however small, and the derivative of log(1 − p) by
the other logits is p · softmax(others), which is finite where p_j / (1 − p) is 0 / 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

from softf1.losses._core import sum_classes

if TYPE_CHECKING:
    from torch import Tensor


class Link(NamedTuple):
    """How logits become q: softmax or sigmoid, alpha, and whether the decay is differentiated."""

    softmax: bool
    alpha: float = 0.0
    paper: bool = False

    @property
    def fractional(self) -> bool:
        """True if the largest class of a row needs its 1 − p from log-space."""
        return self.softmax and 0.0 < self.alpha < 1.0

    @property
    def decay_from_logits(self) -> bool:
        """True if q is computed from the logits too, so that a p set to 0 may leave a q above 0."""
        return self.alpha > 0.0 and (self.fractional or not self.softmax)

    def probabilities(self, x: Tensor, *, finite: bool = False) -> Tensor:
        """Returns p (N, C); in fewer passes where all logits are known to be finite."""
        if finite and self.softmax and x.shape[-1] == 2:
            return (x - x.roll(1, -1)).sigmoid_()  # of two, roll swaps as flip does, but faster
        return _softmax(x) if self.softmax else torch.sigmoid(x)

    def decayed(self, p: Tensor, x: Tensor) -> Tensor:
        """Returns q (N, C); p itself where there is no decay."""
        if self.alpha == 0.0:
            return p
        if not self.softmax:
            return torch.exp(functional.logsigmoid(x) + self.alpha * functional.logsigmoid(-x))
        q = 1.0 - p
        q = (q if self.alpha == 1.0 else q.pow_(self.alpha)).mul_(p)
        return _exact_at_the_top(q, x, self.alpha) if self.fractional else q

    def to_logits(self, h: Tensor, p: Tensor, x: Tensor) -> Tensor:
        """Returns dL/dx from h = q · dL/dq, overwriting h."""
        paper = self.paper and self.alpha > 0.0
        if not self.softmax:
            return h.mul_(1.0 - (1.0 + self.alpha if paper else 1.0) * p)
        if not paper:
            return _through_softmax(h, p)
        if self.fractional:
            return _through_fractional_decay(h, p, x, self.alpha)
        return _through_softmax(h.mul_(_decay_share(p, self.alpha)), p)


def _softmax(x: Tensor) -> Tensor:
    # If a row is shorter than a vector register, torch's CPU kernel goes element by element and
    # takes two to five times as long as these five passes.
    if torch.compiler.is_compiling() or x.device.type != "cpu" or x.shape[-1] >= 16:
        return functional.softmax(x, dim=-1)
    p = (x - x.amax(-1, keepdim=True)).exp_()
    return p.div_(sum_classes(p).unsqueeze(-1))


def _through_softmax(h: Tensor, p: Tensor) -> Tensor:
    return h.addcmul_(p, sum_classes(h).unsqueeze(-1), value=-1.0)


def _decay_share(p: Tensor, alpha: float) -> Tensor:
    """Returns 1 − alpha · p / (1 − p), finite at p = 1, where it meets an h of 0."""
    below = (1.0 - p).clamp_min_(torch.finfo(p.dtype).eps / 4)  # 1 − p is a multiple of eps / 2
    return torch.div(p, below, out=below).mul_(-alpha).add_(1.0)


def _others(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the index of the largest logit (N, 1) and the logits without it, relative to it."""
    largest, top = x.max(-1, keepdim=True)
    return top, (x - largest).scatter_(1, top, -torch.inf)


def _exact_at_the_top(q: Tensor, x: Tensor, alpha: float) -> Tensor:
    """Replaces q of each row's largest class by its value from log-space."""
    top, others = _others(x)
    u = torch.logsumexp(others, dim=-1, keepdim=True)
    return q.scatter_(1, top, torch.sigmoid(-u) * torch.exp(alpha * functional.logsigmoid(u)))


def _through_fractional_decay(h: Tensor, p: Tensor, x: Tensor, alpha: float) -> Tensor:
    """Returns dL/dx; for the largest class, ∂ log(1 − p) / ∂x_j is p · softmax(others)_j."""
    top, others = _others(x)
    decay = alpha * h.gather(1, top) * p.gather(1, top)
    h = h.mul_(_decay_share(p, alpha).scatter_(1, top, 1.0))
    dx = _through_softmax(h, p)
    # A class alone in its row has no others: their softmax is NaN, and their part is 0.
    dx.addcmul_(functional.softmax(others, dim=-1).nan_to_num_(0.0), decay)
    return dx.scatter_add_(1, top, -decay)
