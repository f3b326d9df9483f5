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
from torch import Tensor

from softf1.tasks.base import Batch
from softf1.training.casting import CastOnce
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
        found = self._find(batches[0]) if len(batches) == 1 else None
        if found is None:
            super().step(batches)
            return
        fill(found.batch, batches[0])
        found.graph.replay()
        self.objective.advance()

    def _find(self, batch: Batch) -> Captured | None:
        shape = describe(batch)
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


def describe(batch: Batch) -> Hashable:
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
