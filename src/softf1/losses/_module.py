"""The thin module around a loss function: it holds the options and the weight, nothing else."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from softf1.losses._core import CHOICES, check_choice, check_weight_values
from softf1.losses._dispatch import Shortcuts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    Settings = tuple[Mapping[str, Any], ...]

GIVEN_AT_CALL = ("logits", "target", "mask")


class LossModule(nn.Module):
    """A loss function with its options fixed; call it with `(logits, target, mask=None)`.

    `weight` becomes a buffer, so it follows the module to its device.

    The attributes below are facts that commands need to know; `registry.loss_facts` reads them.

    Attributes:
        function: The loss as a function.
        summary: What it is and its own options, in a line, for `softf1 list`.
        needs_counts: True if `weight` must come from the counts of the classes. Such a loss has no
            meaning for positions in a text, which are not classes.
        adds_prior: True if the loss adds the class prior to the logits, so that the bias of the
            head must not start at the prior.
        compares_rows: True if the loss ranks rows against each other. For the loss of a window, a
            micro-batch then gives the scores and labels of its rows, `(2, N, C)`, instead of sums
            `(2, K)`. Such a loss has no meaning for positions in a text either.
        compared: True if `softf1 compare` runs it by default.
        tunes: The settings that `softf1 compare` chooses from, as keys of `[loss]` in a recipe, the
            usual one first.
        tunes_positions: The same for a softmax over the positions of a text, where nothing can be
            summed over a batch; None if they are no different.
    """

    __signature__: ClassVar[inspect.Signature]
    function: Callable[..., Tensor]
    summary: ClassVar[str] = ""
    needs_counts: ClassVar[bool] = False
    adds_prior: ClassVar[bool] = False
    compares_rows: ClassVar[bool] = False
    compared: ClassVar[bool] = False
    tunes: ClassVar[Settings] = ({},)
    tunes_positions: ClassVar[Settings | None] = None
    weight: Tensor | None

    def __init_subclass__(cls, **options: Any) -> None:
        """Gives the class the signature of its function."""
        super().__init_subclass__(**options)
        signature = inspect.signature(cls.function)
        parameters = [p for p in signature.parameters.values() if p.name not in GIVEN_AT_CALL]
        cls.__signature__ = inspect.Signature(parameters)

    def __init__(self, *, weight: Any = None, **options: Any) -> None:
        super().__init__()
        check_module_options(type(self).function, options)
        if weight is not None:
            weight = torch.as_tensor(weight)
            if weight.device.type != "meta" and not torch.compiler.is_compiling():
                check_weight_values(weight)  # once, so that waiting for the device does no harm
            weight = weight.to(torch.float32).contiguous()
        self.register_buffer("weight", weight, persistent=False)
        self.options = options
        self._shortcuts = Shortcuts(options)

    def forward(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the loss of `logits (..., C)` against `target`."""
        weight = self._buffers["weight"]  # faster than nn.Module's attribute lookup
        if mask is None and self._shortcuts.may_take(logits, target):
            return self._shortcuts.take(type(self).function, logits, target, weight, self.options)
        return type(self).function(logits, target, mask=mask, weight=weight, **self.options)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the shortcuts: they hold kernels of this process."""
        return self.__dict__ | {"_shortcuts": Shortcuts(self.options)}

    def extra_repr(self) -> str:
        """Shows the options that were given."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


def check_module_options(function: Callable[..., Tensor], options: dict[str, Any]) -> None:
    """Raises on an option that `function` does not have, or on a choice that it does not offer."""
    known = set(inspect.signature(function).parameters).difference(GIVEN_AT_CALL)
    for name in options:
        if name not in known:
            raise TypeError(
                f"{function.__name__} has no option {name!r}; it has {', '.join(sorted(known))}"
            )
    for name in CHOICES.keys() & options.keys():
        check_choice(name, options[name])
