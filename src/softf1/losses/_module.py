"""The thin module around a loss function: it holds the options and the weight, nothing else."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from softf1.losses._core import CHOICES, check_choice, check_weight_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

GIVEN_AT_CALL = ("logits", "target", "mask")


class LossModule(nn.Module):
    """A loss function with its options fixed; call it with `(logits, target, mask=None)`.

    `weight` becomes a buffer, so it follows the module to its device.
    """

    function: Callable[..., Tensor]
    weight: Tensor | None

    def __init__(self, *, weight: Any = None, **options: Any) -> None:
        super().__init__()
        check_options(type(self).function, options)
        if weight is not None:
            weight = torch.as_tensor(weight)
            if weight.device.type != "meta" and not torch.compiler.is_compiling():
                check_weight_values(weight)  # here a wait for the device costs nothing
            weight = weight.to(torch.float32)
        self.register_buffer("weight", weight, persistent=False)
        self.options = options

    def forward(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the loss of `logits (..., C)` against `target`."""
        return type(self).function(logits, target, mask=mask, weight=self.weight, **self.options)

    def extra_repr(self) -> str:
        """Shows the options that were given."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


def check_options(function: Callable[..., Tensor], options: dict[str, Any]) -> None:
    """Raises on an option that `function` does not have, or on a choice that it does not offer."""
    known = set(inspect.signature(function).parameters).difference(GIVEN_AT_CALL)
    for name in options:
        if name not in known:
            raise TypeError(
                f"{function.__name__} has no option {name!r}; it has {', '.join(sorted(known))}"
            )
    for name in CHOICES.keys() & options.keys():
        check_choice(name, options[name])
