"""Random numbers that can be drawn a second time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


def keep_random_state() -> Callable[[], None]:
    """Returns a function that sets torch's generators back, of the CPU and of the accelerator.

    >>> replay = keep_random_state()
    >>> first = torch.rand(3)
    >>> replay()
    >>> torch.equal(first, torch.rand(3))
    True
    """
    on_host = torch.get_rng_state()
    if not torch.accelerator.is_available():
        return partial(torch.set_rng_state, on_host)
    device = torch.get_device_module()
    every = "_all" if hasattr(device, "get_rng_state_all") else ""  # a model may lie on several
    on_device = getattr(device, f"get_rng_state{every}")()

    def replay() -> None:
        torch.set_rng_state(on_host)
        getattr(device, f"set_rng_state{every}")(on_device)

    return replay
