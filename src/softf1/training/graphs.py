"""Training steps as CUDA graphs: kernel launches limit small encoders, and a graph is one launch.

A step, from the forward pass to the update of the weights, is captured once for each shape of batch
and replayed from then on. A shape is captured when it comes for the third time: before that it runs
without a graph, which also warms up what must not happen for the first time inside a capture.
Shapes past `MOST` never get a graph, so that data without recurring shapes costs nothing. The
kernels are the same with and without a graph, and fewer than those of a plain step: all weights of
linear layers are cast to half precision together, and the operations between the matrix products
of an encoder layer are fused (`softf1.training.fusing`).
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from softf1.tasks.base import Batch
from softf1.training.evaluation import evaluating
from softf1.training.packing import count_rows
from softf1.training.step import Stepper

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from softf1.training.fusing import FusedLayers

MOST = 48
"""Graphs kept in memory at the same time."""

SEEN_BEFORE = 2

WORTH = 0.8
"""Texts are packed if they then take at most this share of their rows with padding."""

FUSE = find_spec("triton") is not None
"""Whether encoder layers are fused; benchmarks turn it off to compare."""

AHEAD = True
"""Whether the kernels of fused layers are compiled together before the first step; benchmarks turn
it off to compare."""


@cache
def wake_triton(device: torch.device) -> Future[None] | None:
    """Starts what Triton does once in a process, in a thread that compiles a small kernel.

    It imports modules, hashes its own files and builds a library in C. Meanwhile data and model are
    loaded.

    Args:
        device: The GPU.

    Returns:
        The end of it, or None if there is nothing to wake.
    """
    if not (FUSE and AHEAD):
        return None
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(_compile_one, device)
    finally:
        pool.shutdown(wait=False)


def _compile_one(device: torch.device) -> None:
    from softf1.kernels._encoder import sum_parts  # Triton is not everywhere
    from softf1.kernels._launch import INTERPRETED, start

    blank = torch.empty(64, device="meta")
    with torch.cuda.device(device):
        if not INTERPRETED:
            start(sum_parts, (1,), blank, blank, blank, 2, 64, 64, R=64, W=32)


@dataclass(frozen=True)
class Captured:
    """A CUDA graph and the batch it reads from."""

    graph: torch.cuda.CUDAGraph
    batch: Batch


class GraphStepper(Stepper):
    """Runs steps and replays them as CUDA graphs.

    Args:
        args: As `Stepper` takes them.
        widths: The widths of the batches to come, in ids, to compile their kernels ahead.
        packs: Whether encoders leave out the padding of batches that have much.
        options: As `Stepper` takes them.

    Attributes:
        seconds: Time spent on capturing.
        repeats: Whether deterministic operations cost no time: fused layers have their own.
        compiling: Whether kernels are being compiled, in threads, when the stepper is new.
    """

    compiling = False

    def __init__(
        self, *args: Any, widths: Iterable[int] = (), packs: bool = False, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.seen: Counter[Hashable] = Counter()
        self.captured: dict[Hashable, Captured] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.seconds = 0.0
        self.layers: FusedLayers | None = None
        self.divide = self.fused and self.device.type == "cuda"
        with self.autocast():
            half = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        if half is not None:
            self.run = CastOnce(self.model, half)
        if FUSE and self.device.type == "cuda":
            from softf1.training.fusing import FusedLayers  # Triton is not everywhere

            layers = FusedLayers(self.model, self.run, half or torch.float32, packs=packs)
            self.run = self.layers = layers
            self.repeats = layers.whole and half is not None
            if AHEAD:
                if (awake := wake_triton(self.device)) is not None:
                    awake.exception()  # the kernels of this training would raise it again
                self.compiling = layers.compile_ahead(widths, self.device)

    def rehearse(self, batch: Batch) -> None:
        """Computes the loss of a batch, so that its kernels are compiled beside those of layers."""
        batch = batch.to(self.device)
        # Without dropout, the random generator stays as it is.
        with evaluating(self.model), torch.no_grad():
            logits = self.forward(batch)
        leaves = {key: value.detach().requires_grad_() for key, value in logits.items()}
        self.objective.whole(leaves, batch.targets)

    def step(self, batches: Sequence[Batch]) -> None:
        """Replays, captures or runs the step, depending on how often its shape was seen."""
        with self._packing(batches):
            captured = self._find_graph(batches[0]) if len(batches) == 1 else None
            if captured is None:
                super().step(batches)
                return
            copy_batch(captured.batch, batches[0])
            captured.graph.replay()
            self.objective.advance()

    @contextmanager
    def _packing(self, batches: Sequence[Batch]) -> Iterator[None]:
        """Packs texts inside, if they have much padding."""
        mask = batches[0].inputs.get("attention_mask")
        if self.layers is None or mask is None or len(batches) > 1:
            yield
            return
        self.layers.room = self._find_room(self.layers, mask)
        try:
            yield
        finally:
            self.layers.room = 0

    def _find_room(self, layers: FusedLayers, mask: Tensor) -> int:
        """The rows to pack texts into; 0 if that saves little, or changes a text's first output."""
        if not layers.packs(mask.shape[1]) or not mask[:, 0].all():  # padding on the left
            return 0
        times = 2 if self.objective.consistency else 1
        places = times * mask.numel()
        room = count_rows(times * int(mask.count_nonzero()), places)
        return room if room <= WORTH * places else 0

    def _clip(self) -> Tensor:
        """Clips by letting a fused AdamW divide the gradients, which it reads anyway."""
        if not (self.divide and self.clip > 0):
            return super()._clip()
        norm = nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        self.optimizer.grad_scale = ((norm + 1e-6) / self.clip).clamp(min=1.0)  # type: ignore[attr-defined]
        return norm

    def _find_graph(self, batch: Batch) -> Captured | None:
        shape = shapes_of(batch), self.layers and self.layers.room
        self.seen[shape] += 1
        if shape not in self.captured and self.seen[shape] > SEEN_BEFORE:
            if len(self.captured) >= MOST:
                return None
            self.captured[shape] = self._capture(batch)
        return self.captured.get(shape)

    def _capture(self, batch: Batch) -> Captured:
        if self.compiling:  # nothing is loaded while a graph is captured
            from softf1.kernels._launch import await_kernels

            await_kernels()
            self.compiling = False
        torch.cuda.synchronize()
        start = perf_counter()
        copies = (
            {k: v.to(self.device, copy=True) for k, v in part.items()} for part in tensors_of(batch)
        )
        own = Batch(batch.items, *copies)
        graph = torch.cuda.CUDAGraph()
        self.model.train()
        self.optimizer.zero_grad()
        # The thread that collates batches may pin memory during the capture.
        mode = "thread_local"
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode=mode):
            self.update(self.gradient([own]))
        torch.cuda.synchronize()
        self.seconds += perf_counter() - start
        return Captured(graph, own)


def shapes_of(batch: Batch) -> Hashable:
    """The shapes and types that batches of one graph share."""
    return tuple(
        (k, tuple(v.shape), v.dtype) for part in tensors_of(batch) for k, v in part.items()
    )


def tensors_of(batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """The tensors a step reads: inputs, targets, and boolean places, which mask the logits."""
    masks = {name: place for name, place in batch.places.items() if place.dtype == torch.bool}
    return batch.inputs, batch.targets, masks


def copy_batch(own: Batch, batch: Batch) -> None:
    """Copies a batch into the tensors that a graph reads."""
    for ours, theirs in zip(tensors_of(own), tensors_of(batch), strict=True):
        for key, value in theirs.items():
            ours[key].copy_(value, non_blocking=True)


ALIGNED = 8  # entries; cuBLAS's fast kernels read 16 bytes at a time


class CastOnce(nn.Module):
    """Calls a model with its linear layers cast to half precision; for use inside autocast.

    Autocast casts each weight and bias in a kernel of its own, and each gradient back in another:
    two hundred launches per step for six layers. The results are the same.

    >>> model = nn.Linear(2, 2)
    >>> half = CastOnce(model, torch.bfloat16)
    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     torch.equal(half(input=torch.ones(1, 2)), model(torch.ones(1, 2)))
    True
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype
        linear = {id(p) for m in model.modules() if type(m) is nn.Linear for p in m.parameters()}
        named = {name: p for name, p in model.named_parameters() if id(p) in linear}
        trained = [name for name, p in named.items() if p.requires_grad]
        # Matrices before vectors: weights of query, key and value then lie side by side.
        self.names = sorted(trained, key=lambda name: -named[name].ndim)
        # Frozen weights never change: cast them once for all steps.
        self.frozen = {n: p.detach().to(dtype) for n, p in named.items() if not p.requires_grad}

    def forward(self, **inputs: Any) -> Any:
        """Returns the model's output."""
        parameters = dict(self.model.named_parameters())
        half = Cast.apply(self.dtype, *(parameters[n] for n in self.names))  # type: ignore[no-untyped-call]
        chosen = self.frozen | dict(zip(self.names, half, strict=True))
        return torch.func.functional_call(self.model, chosen, kwargs=inputs)


class Cast(torch.autograd.Function):
    """Casts tensors to another dtype and their gradients back, in one or two launches each way."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Returns copies in the other dtype, one after the other in memory."""
        ctx.dtypes = [tensor.dtype for tensor in tensors]
        ctx.set_materialize_grads(False)
        sizes = [-(-tensor.numel() // ALIGNED) * ALIGNED for tensor in tensors]
        parts = torch.split(torch.empty(sum(sizes), dtype=dtype, device=tensors[0].device), sizes)
        out = [p[: t.numel()].view(t.shape) for p, t in zip(parts, tensors, strict=True)]
        torch._foreach_copy_(out, list(tensors))
        return tuple(out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Returns gradients in the dtype of the tensors."""
        there = [g for g in gradients if g is not None]
        types = [d for d, g in zip(ctx.dtypes, gradients, strict=True) if g is not None]
        out = [torch.empty_like(g, dtype=dtype) for g, dtype in zip(there, types, strict=True)]
        torch._foreach_copy_(out, there)
        made = iter(out)
        return (None, *(None if g is None else next(made) for g in gradients))
