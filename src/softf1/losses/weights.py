"""Class weights and the initial bias of a head, from the label counts of the training data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from softf1.losses._core import Scheme, check_choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def class_weights(
    counts: Tensor | Sequence[float] | Sequence[Sequence[float]],
    scheme: Scheme = "balanced",
    *,
    k: float = 1.0,
    beta: float = 0.999,
    sigmoid: bool = False,
) -> Tensor:
    """Returns a weight for each class from how often it occurs; a class with count 0 gets 0.

    Args:
        counts: How often each of the C classes occurs, `n_t`; their sum is `n`. With `sigmoid`,
            `(negative, positive)` for one logit or C such pairs for C logits.
        scheme: `balanced`: n / (C · n_t), as in scikit-learn. `inverse`: n / n_t. `log`: the
            paper's log10((n − n_t) / n_t + k). `effective`: (1 − beta) / (1 − beta^n_t), scaled to
            mean 1.
        k: The paper's K in `log`.
        beta: The decay in `effective`; nearer 1 is nearer `inverse`.
        sigmoid: Give w_pos / w_neg for each pair: what `weight` means for sigmoid.

    Returns:
        A float32 tensor (C,).

    >>> class_weights([90, 10])
    tensor([0.5556, 5.0000])
    >>> class_weights([90, 10], sigmoid=True)  # one logit: (negative, positive)
    tensor([9.])
    """
    check_choice("scheme", scheme)
    if sigmoid:
        pairs = [_weights(pair, scheme, k, beta) for pair in _pairs(counts)]
        return torch.stack([_ratio(negative, positive) for negative, positive in pairs]).float()
    return _weights(_checked(counts, dimensions=1), scheme, k, beta).float()


def prior_bias(
    counts: Tensor | Sequence[float] | Sequence[Sequence[float]], *, sigmoid: bool = False
) -> Tensor:
    """Returns the bias that makes an untrained head predict the class prior.

    Softmax: log((n_c + 1) / (n + C)). Sigmoid: the log-odds log((positive + 1) / (negative + 1)).
    With a zero bias, a model first has to unlearn that every other token is an entity; runs of dice
    losses may not recover from that.

    Args:
        counts: As in `class_weights`: C counts, or with `sigmoid` one or C pairs
            `(negative, positive)`.
        sigmoid: The head is sigmoid.

    Returns:
        A float32 tensor (C,), for `head.bias.copy_(…)`.

    >>> prior_bias([97, 1])
    tensor([-0.0202, -3.9120])
    >>> prior_bias([97, 1], sigmoid=True)
    tensor([-3.8918])
    """
    if sigmoid:
        pairs = _pairs(counts)
        return torch.log((pairs[:, 1] + 1) / (pairs[:, 0] + 1)).float()
    checked = _checked(counts, dimensions=1)
    return torch.log((checked + 1) / (checked.sum() + len(checked))).float()


def _weights(counts: Tensor, scheme: Scheme, k: float, beta: float) -> Tensor:
    present = counts > 0
    safe = counts.masked_fill(~present, 1.0)
    total = counts.sum()
    if scheme == "balanced":
        weights = total / (len(counts) * safe)
    elif scheme == "inverse":
        weights = total / safe
    elif scheme == "log":
        weights = torch.log10((total - safe) / safe + k)
    else:
        weights = (1.0 - beta) / (1.0 - beta**safe)
        weights = weights * present.sum() / weights[present].sum()
    return weights.masked_fill(~present, 0.0)


def _ratio(negative: Tensor, positive: Tensor) -> Tensor:
    """Returns positive / negative; 1 where there is no negative to weigh against."""
    return positive / negative if negative > 0 else torch.ones_like(positive)


def _pairs(counts: Tensor | Sequence[float] | Sequence[Sequence[float]]) -> Tensor:
    tensor = torch.as_tensor(counts)
    pairs = _checked(tensor.unsqueeze(0) if tensor.dim() == 1 else tensor, dimensions=2)
    if pairs.shape[1] != 2:
        raise ValueError(f"wanted pairs (negative, positive), got counts {tuple(tensor.shape)}")
    return pairs


def _checked(
    counts: Tensor | Sequence[float] | Sequence[Sequence[float]], *, dimensions: int
) -> Tensor:
    tensor = torch.as_tensor(counts).to(torch.float64)
    if tensor.dim() != dimensions or tensor.numel() == 0:
        raise ValueError(f"wanted one count per class, got counts {tuple(tensor.shape)}")
    if not bool(torch.isfinite(tensor).all()) or bool((tensor < 0).any()):
        raise ValueError("wanted finite counts from 0 up")
    return tensor
