"""Steps as CUDA graphs: a small encoder is bound by kernel launches, and a graph is one launch.

A step, from the forward pass to the update of the weights, is captured once for each shape of batch
and replayed from then on. A shape is captured when it comes for the third time: before that it runs
as it is, which also warms up what must not happen for the first time inside a capture. Shapes past
`MOST` always run as they are, so that data without recurring shapes costs nothing. The kernels are
the same in both ways, but for the weights of linear layers: autocast turns each of them to half
precision on its own, a captured step all of them together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from softf1.tasks.base import Batch
from softf1.training.step import Stepper

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

MOST = 48
"""Graphs kept at once."""

SEEN_BEFORE = 2


@dataclass(frozen=True)
class Captured:
    """A graph and the batch that it reads."""

    graph: torch.cuda.CUDAGraph
    batch: Batch


class GraphStepper(Stepper):
    """Steps that are replayed.

    Attributes:
        seconds: What capturing took.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seen: Counter[Hashable] = Counter()
        self.captured: dict[Hashable, Captured] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.seconds = 0.0
        with self.autocast():
            half = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        if half is not None:
            self.run = CastOnce(self.model, half)

    def step(self, batches: Sequence[Batch]) -> None:
        """Replays the step of this shape, captures it first, or runs it as it is."""
        captured = self._find_graph(batches[0]) if len(batches) == 1 else None
        if captured is None:
            super().step(batches)
            return
        fill(captured.batch, batches[0])
        captured.graph.replay()
        self.objective.advance()

    def _find_graph(self, batch: Batch) -> Captured | None:
        shape = shapes_of(batch)
        self.seen[shape] += 1
        if shape not in self.captured and self.seen[shape] > SEEN_BEFORE:
            if len(self.captured) >= MOST:
                return None
            self.captured[shape] = self._capture(batch)
        return self.captured.get(shape)

    def _capture(self, batch: Batch) -> Captured:
        torch.cuda.synchronize()
        start = perf_counter()
        copies = (
            {k: v.to(self.device, copy=True) for k, v in part.items()} for part in read(batch)
        )
        own = Batch(batch.items, *copies)
        graph = torch.cuda.CUDAGraph()
        self.model.train()
        self.optimizer.zero_grad()
        # The thread that puts batches together may pin memory in the meantime.
        mode = "thread_local"
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode=mode):
            self.update(self.gradient([own]))
        torch.cuda.synchronize()
        self.seconds += perf_counter() - start
        return Captured(graph, own)


def shapes_of(batch: Batch) -> Hashable:
    """What two batches must share to be read by one graph."""
    return tuple((k, tuple(v.shape), v.dtype) for part in read(batch) for k, v in part.items())


def read(batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """What a step depends on: inputs, targets, and places that are masks of the logits."""
    masks = {name: place for name, place in batch.places.items() if place.dtype == torch.bool}
    return batch.inputs, batch.targets, masks


def fill(own: Batch, batch: Batch) -> None:
    """Copies a batch into the one that a graph reads."""
    for ours, theirs in zip(read(own), read(batch), strict=True):
        for key, value in theirs.items():
            ours[key].copy_(value, non_blocking=True)


class CastOnce(nn.Module):
    """Calls a model with its linear layers in half precision; to be used inside autocast.

    Autocast turns each weight and bias to half precision in a kernel of its own, and its gradient
    back in another: two hundred launches a step for six layers. The numbers are the same here.

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
        self.names = [name for name, p in named.items() if p.requires_grad]
        # What is frozen never changes, and is cast once for all steps.
        self.frozen = {n: p.detach().to(dtype) for n, p in named.items() if not p.requires_grad}

    def forward(self, **inputs: Any) -> Any:
        """What the model gives."""
        parameters = dict(self.model.named_parameters())
        half = Cast.apply(self.dtype, *(parameters[n] for n in self.names))  # type: ignore[no-untyped-call]
        chosen = self.frozen | dict(zip(self.names, half, strict=True))
        return torch.func.functional_call(self.model, chosen, kwargs=inputs)


class Cast(torch.autograd.Function):
    """Tensors to another type and their gradients back, a launch or two each way."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Copies in the other type."""
        ctx.dtypes = [tensor.dtype for tensor in tensors]
        return tuple(copy_all(tensors, [dtype] * len(tensors)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients in the type of the tensors; none where there is none."""
        there = [g for g in gradients if g is not None]
        types = [d for d, g in zip(ctx.dtypes, gradients, strict=True) if g is not None]
        made = iter(copy_all(there, types))
        return (None, *(None if g is None else next(made) for g in gradients))


def copy_all(tensors: Any, dtypes: list[torch.dtype]) -> list[Tensor]:
    """Copies of all tensors in other types."""
    out = [torch.empty_like(t, dtype=dtype) for t, dtype in zip(tensors, dtypes, strict=True)]
    torch._foreach_copy_(out, list(tensors))
    return out
