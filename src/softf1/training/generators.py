"""The random generators of every rank, saved and set again."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from softf1.training.ranks import gather, own_rank, share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


def random_state() -> dict[str, Tensor]:
    """The state of every generator of every rank, as bytes: Python's, numpy's, torch's, CUDA's."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - others may draw from it
    found = {
        "python": _to_bytes(random.getstate()),
        "numpy": _to_bytes([kind, np.asarray(keys).tolist(), *rest]),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        found["cuda"] = torch.cuda.get_rng_state()  # each rank has one device
    ranks = gather(found)
    if own_rank():
        return {}
    return {
        f"{name}/{rank}": state for rank, own in enumerate(ranks) for name, state in own.items()
    }


def set_random_state(tensors: Mapping[str, Tensor]) -> None:
    """Go on with the saved generators; a rank that there was not keeps its own."""
    everything, rank = share(dict(tensors)), own_rank()
    own = {
        name: everything[f"{name}/{rank}"]
        for name in ("python", "numpy", "torch", "cuda")
        if f"{name}/{rank}" in everything
    }
    if "python" in own:
        version, keys, normal = _from_bytes(own["python"])
        random.setstate((version, tuple(keys), normal))
    if "numpy" in own:
        np.random.set_state(tuple(_from_bytes(own["numpy"])))  # noqa: NPY002
    if "torch" in own:
        torch.set_rng_state(own["torch"])
    if "cuda" in own and torch.cuda.is_available():
        torch.cuda.set_rng_state(own["cuda"])


def _to_bytes(state: Any) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(state).encode()), dtype=torch.uint8)


def _from_bytes(tensor: Tensor) -> Any:
    return json.loads(tensor.numpy().tobytes())
