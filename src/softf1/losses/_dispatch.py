"""Chooses between the PyTorch form of a loss and its fused kernel."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from softf1.losses._core import under_transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from softf1.losses._core import Backend, Reduction

FUSED_TYPES = (torch.float32, torch.float16, torch.bfloat16)
HAS_TRITON = importlib.util.find_spec("triton") is not None


def use_kernel(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | Sequence[float] | None,
    *,
    backend: Backend | None,
    reduction: Reduction,
    obstacle: str | None = None,
) -> bool:
    """Says whether the kernel is to run: by itself on CUDA, elsewhere only where forced.

    Args:
        logits: The loss's logits.
        target: Its targets.
        weight: Its class weights.
        backend: None to choose; "torch" or "triton" to force.
        reduction: Its reduction.
        obstacle: An option that the kernels do not have, in words.

    Raises:
        ValueError: The kernel is forced and cannot run; the message says why.
    """
    if backend == "torch" or (backend is None and not logits.is_cuda):
        return False
    reason = obstacle or _reason_against(logits, target, weight, reduction)
    if backend is None:
        return reason is None
    if reason is not None:
        raise ValueError(f'backend="triton" cannot run here: {reason}')
    return True


def _reason_against(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | Sequence[float] | None,
    reduction: Reduction,
) -> str | None:
    if not HAS_TRITON:
        return "Triton is not installed"
    if reduction == "sums" and torch.compiler.is_compiling():
        return 'reduction="sums" has the PyTorch form only under torch.compile'
    if target.requires_grad or (isinstance(weight, Tensor) and weight.requires_grad):
        return "targets and weights that require a gradient have the PyTorch form only"
    if under_transform():
        return "the transforms of torch.func have the PyTorch form only"
    if logits.dtype not in FUSED_TYPES:
        return f"the kernels take float32, float16 and bfloat16, got {logits.dtype}"
    if not logits.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the logits are on {logits.device.type}, wanted cuda"
    return None


def fused_family(*arguments: Any, **options: Any) -> Tensor:
    """Runs the kernel of the dice family; imported here, as Triton is not everywhere."""
    from softf1.kernels.fused import family_loss

    return family_loss(*arguments, **options)


def fused_entropy(*arguments: Any, **options: Any) -> Tensor:
    """Runs the kernel of cross entropy and focal loss."""
    from softf1.kernels.fused import entropy_loss

    return entropy_loss(*arguments, **options)
