"""The processes of a training: a single one, or several launched by accelerate or torchrun."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, TypeVar, cast

import torch
from torch import distributed, nn

from softf1.errors import InputError, RunError
from softf1.files import flatten

T = TypeVar("T")

FSDP = "ACCELERATE_USE_FSDP"
"""The variable with which `accelerate launch --use_fsdp` asks for sharded weights."""

MPI = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
LAUNCHED = ("WORLD_SIZE", "LOCAL_RANK", "RANK", "ACCELERATE_MIXED_PRECISION", *MPI)
"""Variables that launchers set: torchrun, `accelerate launch`, and MPI of three kinds."""

CUBLAS, CUBLAS_FIXED = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
"""The variable that fixes cuBLAS's workspace; otherwise the order of sums may change."""

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Processes:
    """This process in a distributed training, and what the processes exchange.

    Attributes:
        device: The device of this process.
        rank: The number of this process; rank 0 writes files.
        world: The number of processes.
        sharded: Weights are split over processes (FSDP) instead of copied to each (DDP).
    """

    def __init__(self, *, trackers: tuple[str, ...] = (), folder: Path | None = None) -> None:
        _check_trackers(trackers)
        # accelerate takes seconds to import, and a single process does not need it.
        launched = any(name in os.environ for name in LAUNCHED)
        needed = launched or trackers or torch.accelerator.is_available()
        self.accelerator = _make_accelerator(trackers, folder) if needed else None
        self.device, self.rank, self.world = torch.device("cpu"), 0, 1
        if self.accelerator is not None:
            self.device = self.accelerator.device
            self.rank = self.accelerator.process_index
            self.world = self.accelerator.num_processes
        self.main: bool = self.rank == 0
        asked = os.environ.get(FSDP, "").lower() in ("1", "true")
        self.sharded = asked and self.world > 1

    def wrap(self, model: nn.Module) -> nn.Module:
        """Puts the model on its device and wraps it to average gradients over processes."""
        model = model.to(self.device)
        if self.world == 1:
            return model
        if self.sharded:
            return shard(model)
        on = [self.device] if self.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(model, device_ids=on)

    def any(self, flag: bool) -> bool:  # noqa: FBT001 - the flag is the question
        """Whether the flag is True on any process; all processes must call this."""
        return self.add([int(flag)]) != [0]

    def add(self, numbers: Sequence[int]) -> list[int]:
        """Sums values over all processes; all processes must call this."""
        if self.world == 1:
            return list(numbers)
        total = torch.tensor(numbers, device=self.device)
        distributed.all_reduce(total)
        sums: list[int] = total.tolist()
        return sums

    def wait(self) -> None:
        """Waits until all processes are here."""
        if self.accelerator is not None:
            self.accelerator.wait_for_everyone()

    def start_trackers(self, config: Mapping[str, Any]) -> None:
        """Starts the trackers of the recipe: TensorBoard, MLflow, W&B."""
        if self.accelerator is None or not self.accelerator.log_with:
            return
        values = flatten(config).items()
        known = {k: v if isinstance(v, int | float | str) else str(v) for k, v in values}
        try:
            self.accelerator.init_trackers("softf1", config=known)
        except Exception as error:  # trackers raise anything without a key or a network
            reason = str(error).strip().partition("\n")[0]
            raise RunError(f"train.trackers: {reason or type(error).__name__}") from error

    def track(self, values: Mapping[str, float], step: int) -> None:
        """Logs numbers to the trackers."""
        if self.accelerator is not None and self.accelerator.log_with:
            self.accelerator.log(dict(values), step=step)

    def end(self) -> None:
        """Closes the trackers; accelerate's own method would close the process group too."""
        for tracker in self.accelerator.trackers if self.accelerator is not None else ():
            tracker.finish()


@contextmanager
def deterministic(*, on: bool) -> Iterator[None]:
    """Context in which a GPU uses deterministic operations only, as far as there are any.

    torch warns of each operation without a deterministic form. On a CPU, runs repeat without it.
    """
    cuda: Any = torch.cuda  # torch.cuda is partly untyped
    if not (on and cuda.is_available()):
        yield
        return
    from softf1.training.fixed_order import DETERMINISTIC, fixed_order

    # torch wants this set for deterministic products. If CUDA has started, it comes too late to
    # change anything; but torch gives each stream a workspace of its own, and products repeat.
    os.environ.setdefault(CUBLAS, CUBLAS_FIXED)
    with DETERMINISTIC, fixed_order():
        yield


def count_ranks() -> int:
    """The number of processes that train together."""
    on = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if on else 1


def own_rank() -> int:
    """The number of this process."""
    return distributed.get_rank() if count_ranks() > 1 else 0


def close_process_group() -> None:
    """Closes the process group at the end of a program."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def broadcast(value: T) -> T:
    """Returns the value of rank 0 on every rank; every rank must call it.

    >>> broadcast("alone")
    'alone'
    """
    if count_ranks() == 1:
        return value
    box = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def on_rank_0(call: Callable[[], T]) -> T:
    """Calls a function on rank 0; all ranks return its result, or raise its error."""
    result: T | Exception | None = None
    if own_rank() == 0:
        try:
            result = call()
        except (InputError, OSError, RunError) as error:
            result = error
    result = broadcast(result)
    if isinstance(result, Exception):
        raise result
    return cast("T", result)


def gather(value: T) -> list[T]:
    """Returns the values of all ranks on every rank.

    >>> gather("alone")
    ['alone']
    """
    if count_ranks() == 1:
        return [value]
    box = [value] * count_ranks()
    distributed.all_gather_object(box, value)
    return box


def _make_accelerator(trackers: tuple[str, ...], folder: Path | None) -> Any:
    from accelerate import Accelerator

    sharded = os.environ.pop(FSDP, None)  # we shard ourselves, and accelerate's FSDP needs GPUs
    # Without `cpu` it silently treats several CPU processes as separate trainings.
    cpu, log_with = not torch.accelerator.is_available(), list(trackers) or None
    try:
        return Accelerator(cpu=cpu, log_with=log_with, project_dir=folder)
    except (ValueError, ImportError) as error:
        raise InputError(f"train.trackers: {error}") from error
    finally:
        if sharded is not None:
            os.environ[FSDP] = sharded


def _check_trackers(names: tuple[str, ...]) -> None:
    """Raises for unknown or missing trackers, which accelerate would silently skip."""
    if not names:
        return
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    for name in names:
        if name not in LOGGER_TYPE_TO_CLASS:
            known = ", ".join(LOGGER_TYPE_TO_CLASS)
            raise InputError(f"train.trackers: wanted some of {known}, got {name!r}")
        if name not in map(str, get_available_trackers()):
            raise InputError(f"train.trackers: the package of {name} is not installed")


def choose_precision(wanted: str, device: torch.device) -> str:
    """Resolves the precision `auto` for a device.

    >>> choose_precision("auto", torch.device("cpu"))
    'fp32'
    """
    if wanted == "fp16" and device.type == "cpu":
        raise InputError("precision fp16 needs a GPU; use bf16 or fp32")
    if wanted != "auto":
        return wanted
    able = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if able else "fp32"


def make_autocast(
    precision: str, device: torch.device
) -> Callable[[], AbstractContextManager[Any]]:
    """Returns a function that makes the autocast context of a forward pass."""
    if precision == "fp32":
        return nullcontext
    return partial(torch.autocast, device.type, dtype=DTYPES[precision])


def shard(model: nn.Module) -> nn.Module:
    """Shards the weights over the processes, layer by layer (FSDP2)."""
    from torch.distributed.fsdp import fully_shard

    # It warns of in-place changes to a model's outputs, which do not happen here.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    layers = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) > 1]
    for layer in max(layers, key=len, default=()):
        fully_shard(layer)
    fully_shard(model)
    return model


def freeze_unused(model: nn.Module, loss: torch.Tensor) -> None:
    """Freezes parameters that no loss reaches, such as a pooler; DDP would wait for them."""
    loss.backward()  # type: ignore[no-untyped-call]
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.requires_grad_(False)  # noqa: FBT003 - torch's own
    model.zero_grad()


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside DDP; any other model as it is."""
    ddp = isinstance(model, nn.parallel.DistributedDataParallel)
    return cast("nn.Module", model.module) if ddp else model


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """A flag that is set when a signal asks the training to stop."""

    asked = False


@contextmanager
def watch_signals() -> Iterator[Stop]:
    """Context in which the first SIGINT or SIGTERM sets a flag; a second one acts as usual."""
    stop = Stop()
    before: dict[int, Any] = {}

    def ask(number: int, frame: Any) -> None:  # noqa: ARG001 - the signature of a handler
        stop.asked = True
        for known, handler in before.items():
            signal.signal(known, handler)

    if current_thread() is main_thread():  # Python installs handlers in the main thread only
        before.update({number: signal.signal(number, ask) for number in SIGNALS})
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
