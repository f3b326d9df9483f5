"""State of model, optimizer and random generators as named tensors: saving and loading.

Models may be plain, in DistributedDataParallel or sharded with `fully_shard` (FSDP2): names and
tensors are those of the plain model, so that a run can continue with another number of processes.
Every rank must call these functions; rank 0 gets all tensors when saving and passes all when
loading, other ranks get and pass none.

Where possible, tensors are the live ones, not copies: write them before the next step. Loading
copies into the existing tensors, so that CUDA graphs keep their addresses.
`torch.distributed.checkpoint.state_dict` is not used: it refuses the state of an optimizer in which
some parameter (of a pooler, say) never had a gradient.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, distributed, nn

from softf1.errors import InputError
from softf1.models.encoders import list_frozen
from softf1.training.processes import broadcast, count_ranks, gather, own_rank, unwrap

if TYPE_CHECKING:
    from torch.optim import Optimizer

_OWN = {"params", "fused", "capturable", "foreach", "differentiable"}
"""Options that an optimizer keeps on loading, as it may be on another device than when saved."""


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Returns the parameters and buffers of a module; shared tensors only once.

    Extra state must be a tensor, as that of `WindowLoss` is.
    """
    entries = _entries(model)
    first = _first_names(entries)
    return _collect({name: value for name, value in entries.items() if first[id(value)] == name})


def load_model_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copies the tensors into the module; names and shapes must match."""
    entries, spread = _entries(model), _Spread(model, tensors)
    first = _first_names(entries)
    _check_names(set(first.values()), set(spread.known))
    loaded = {}
    for value in entries.values():
        name = first[id(value)]
        wanted, got = tuple(value.shape), spread.known[name][0]
        if wanted != got and not name.endswith("_extra_state"):
            raise InputError(
                f"the checkpoint is of another model: {name} has shape {got} instead of {wanted}"
            )
        if name not in loaded:
            loaded[name] = spread(name, value)
    whole = {name: loaded[first[id(value)]] for name, value in entries.items()}
    # The names are checked above; the missing ones are frozen parameters.
    unwrap(model).load_state_dict(whole, strict=False)


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors, such as "exp_avg/encoder.weight"; empty before its first step."""
    names = _parameters(model)
    tensors = {
        f"{key}/{names[id(parameter)]}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }
    return _collect(tensors)


def optimizer_groups(model: nn.Module, optimizer: Optimizer) -> list[dict[str, Any]]:
    """The parameter groups for JSON: parameter names, learning rates and other options."""
    names = _parameters(model)
    return [
        group | {"params": [names[id(parameter)] for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]


def load_optimizer_tensors(
    model: nn.Module,
    optimizer: Optimizer,
    tensors: Mapping[str, Tensor],
    groups: Sequence[Mapping[str, Any]],
) -> None:
    """Copies the tensors into the optimizer, and sets the options of its groups."""
    names, spread = _parameters(model), _Spread(model, tensors)
    own = [sorted(names[id(p)] for p in group["params"]) for group in optimizer.param_groups]
    if own != [sorted(group["params"]) for group in groups]:
        raise InputError("the checkpoint is of another optimizer: its groups have other parameters")
    places: dict[str, Any] = {}
    for group, saved in zip(optimizer.param_groups, groups, strict=True):
        for key in group.keys() & saved.keys() - _OWN:
            _set_option(group, key, saved[key])
        places |= {names[id(parameter)]: (parameter, group) for parameter in group["params"]}
    for name in places.keys() - {full.partition("/")[2] for full in spread.known}:
        optimizer.state.pop(places[name][0], None)
    for full, known in spread.known.items():
        key, _, name = full.partition("/")
        parameter, group = places[name]
        state = optimizer.state[parameter]
        if key not in state:
            state[key] = _make(key, parameter, group, *known)
        state[key].copy_(spread(full, state[key]))


def random_state() -> dict[str, Tensor]:
    """The states of all random generators of all ranks: Python, numpy, torch and CUDA."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - other packages may use it
    states = {
        "python": _to_bytes(random.getstate()),
        "numpy": _to_bytes([kind, np.asarray(keys).tolist(), *rest]),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = torch.cuda.get_rng_state()  # each rank has one device
    ranks = gather(states)
    if own_rank():
        return {}
    return {
        f"{name}/{rank}": state for rank, own in enumerate(ranks) for name, state in own.items()
    }


def set_random_state(tensors: Mapping[str, Tensor]) -> None:
    """Restores the saved generators; a rank that did not exist then keeps its own."""
    saved, rank = broadcast(dict(tensors)), own_rank()
    if f"torch/{rank}" not in saved:
        return
    version, keys, normal = _from_bytes(saved[f"python/{rank}"])
    random.setstate((version, tuple(keys), normal))
    np.random.set_state(tuple(_from_bytes(saved[f"numpy/{rank}"])))  # noqa: NPY002
    torch.set_rng_state(saved[f"torch/{rank}"])
    if f"cuda/{rank}" in saved and torch.cuda.is_available():
        torch.cuda.set_rng_state(saved[f"cuda/{rank}"])


def _entries(model: nn.Module) -> dict[str, Tensor]:
    """The live tensors of the state dict; shared ones are the same object.

    Parameters that LoRA freezes are left out: they are in the encoder's own files.
    """
    inner = unwrap(model)
    entries: dict[str, Tensor] = dict(inner.state_dict(keep_vars=True))
    names = list_frozen(inner)
    frozen = {id(p) for name, p in inner.named_parameters() if name in names}
    entries = {name: value for name, value in entries.items() if id(value) not in frozen}
    for name, value in entries.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"wanted a tensor as {name}, got {type(value).__name__}")
    return entries


def _first_names(entries: dict[str, Tensor]) -> dict[int, str]:
    """The first of the names that a tensor has, by its identity."""
    return {id(value): name for name, value in reversed(entries.items())}


def _parameters(model: nn.Module) -> dict[int, str]:
    """The name of each parameter, by its identity."""
    inner = unwrap(model)
    inner.state_dict()  # after an evaluation FSDP holds whole tensors; this restores the shards
    return {id(p): name for name, p in inner.named_parameters()}


def _collect(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Gathers sharded tensors one by one on the host of rank 0."""
    out = {}
    for name, value in tensors.items():
        whole = value.detach()
        if hasattr(whole, "full_tensor"):  # sharded; its class takes a second to import
            whole = whole.full_tensor()  # collective: all ranks must call it
            whole = whole if own_rank() else whole.cpu()
        if not own_rank():
            out[name] = whole
    return out


class _Spread:
    """Broadcasts tensors of rank 0 to every rank.

    Attributes:
        known: Shape and dtype of each tensor.
    """

    def __init__(self, model: nn.Module, tensors: Mapping[str, Tensor]):
        self.tensors = tensors
        self.known = broadcast({k: (tuple(v.shape), v.dtype) for k, v in tensors.items()})
        # The device for collectives; a tensor's own device may not support them.
        self.device = next((p.device for p in model.parameters()), None)

    def __call__(self, name: str, like: Any) -> Tensor:
        """Returns a tensor of rank 0, sharded like `like`, with the saved shape and dtype."""
        shape, dtype = self.known[name]
        if count_ranks() == 1:
            whole = self.tensors[name]
        elif self.device is None:
            return broadcast(self.tensors.get(name, torch.empty(0)))
        elif own_rank():
            whole = torch.empty(shape, dtype=dtype, device=self.device)
        else:
            whole = self.tensors[name].to(self.device)
        if hasattr(like, "full_tensor"):
            from torch.distributed.tensor import distribute_tensor

            return distribute_tensor(whole, like.device_mesh, like.placements)
        if count_ranks() > 1:
            distributed.broadcast(whole, src=0)
        return whole


def _make(
    key: str, parameter: Tensor, group: Mapping[str, Any], shape: tuple[int, ...], dtype: Any
) -> Tensor:
    """An empty tensor for the optimizer's state, on the device the optimizer would use."""
    if shape == tuple(parameter.shape) and key != "step":
        return torch.zeros_like(parameter, dtype=dtype, memory_format=torch.preserve_format)
    on_device = group.get("capturable") or group.get("fused")
    return torch.zeros(shape, dtype=dtype, device=parameter.device if on_device else "cpu")


def _set_option(group: dict[str, Any], key: str, value: Any) -> None:
    old = group[key]
    if isinstance(old, Tensor):
        old.fill_(value)
    else:
        group[key] = tuple(value) if isinstance(old, tuple) else value


def _check_names(wanted: set[str], known: set[str]) -> None:
    if wanted != known:
        missing, more = sorted(wanted - known), sorted(known - wanted)
        which = f"{missing[0]} is missing" if missing else f"{more[0]} is not in the model"
        count = len(missing) + len(more)
        raise InputError(f"the checkpoint is of another model: {which} ({count} such names)")


def _to_bytes(state: Any) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(state).encode()), dtype=torch.uint8)


def _from_bytes(tensor: Tensor) -> Any:
    return json.loads(tensor.numpy().tobytes())
