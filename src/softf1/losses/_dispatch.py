"""Chooses between the PyTorch form of a loss and its fused kernel."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from softf1.losses._core import Backend, Reduction, check_tensor, under_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
    """Returns whether the kernel should run: by default on CUDA, elsewhere only if forced.

    Args:
        logits: The loss's logits.
        target: Its targets.
        weight: Its class weights.
        backend: None to choose; "torch" or "triton" to force.
        reduction: Its reduction.
        obstacle: Why the kernels cannot run with these options, in words; None if they can.

    Raises:
        ValueError: The kernel is forced and cannot run; the message says why.
    """
    if backend == "torch" or (backend is None and not getattr(logits, "is_cuda", False)):
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
    check_tensor("logits", logits)
    check_tensor("target", target)
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
    """Runs the kernel of the dice family; imported here, because Triton may not be installed."""
    from softf1.kernels.fused import family_loss

    return family_loss(*arguments, **options)


def fused_entropy(*arguments: Any, **options: Any) -> Tensor:
    """Runs the kernel of cross entropy and focal loss."""
    from softf1.kernels.fused import entropy_loss

    return entropy_loss(*arguments, **options)


def fused_zlpr(*arguments: Any, **options: Any) -> Tensor:
    """Runs the kernel of ZLPR."""
    from softf1.kernels.fused import log_sum_exp_loss

    return log_sum_exp_loss(*arguments, **options)


class Shortcuts:
    """A cache of kernels, for a loss whose options stay the same.

    All that a call checks and lays out depends on the options and on the kind of the tensors: their
    shapes, strides, dtypes and device. If a loss was called with tensors of this kind before, and
    its kernel took them as they were, the kernel is called at once. That saves a third of the
    host's work, which on a small batch takes longer than the device's. Logits (texts, tokens, C)
    become (rows, C) before: their kernels take no others.
    """

    MOST = 1_024  # kinds; a data loader with ever new shapes must not fill the memory

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.known: dict[tuple[Any, ...], Callable[..., Tensor]] = {}
        self.looks_at_labels = options.get("check_labels")
        self.forced = options.get("backend") == "triton"
        self.reduces = options.get("reduction") != "none"

    def may_take(self, logits: Tensor, target: Tensor) -> bool:
        """True if a call depends on the kind of the tensors only, not on their values."""
        on_gpu = getattr(logits, "is_cuda", False)
        unseen = not self.looks_at_labels if on_gpu else self.looks_at_labels is False
        return (
            unseen
            and (on_gpu or self.forced)
            and isinstance(logits, Tensor)  # the loss itself refuses what is no tensor
            and isinstance(target, Tensor)
            and not torch.compiler.is_compiling()
            and not under_transform()
        )

    def take(
        self,
        function: Callable[..., Tensor],
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        options: Mapping[str, Any],
    ) -> Tensor:
        """Returns `function(logits, target, weight=weight, **options)`."""
        last = logits.dim() - 2  # of the axes that are rows
        if last > 0 and self.reduces and target.shape in (logits.shape, logits.shape[:-1]):
            logits, target = logits.flatten(0, last), target.flatten(0, last)
        kind = (
            type(logits), logits.shape, logits.stride(), logits.dtype, logits.device,
            target.shape, target.stride(), target.dtype, target.device, target.requires_grad,
            None if weight is None else (
                weight.shape, weight.stride(), weight.dtype, weight.device, weight.requires_grad,
            ),
        )  # fmt: skip
        kernels = self.known.get(kind)
        if kernels is not None:
            return kernels(logits, target, None, weight)
        value = function(logits, target, weight=weight, **options)
        if value.grad_fn is not None:
            from softf1.kernels.fused import kernels_of

            kernels = kernels_of(value, (logits, target, None, weight))
            if kernels is not None:
                if len(self.known) == self.MOST:
                    self.known.clear()
                self.known[kind] = kernels
        return value
