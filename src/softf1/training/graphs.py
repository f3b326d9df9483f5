"""Steps as CUDA graphs: a small encoder is bound by kernel launches, and a graph is one launch.

A step is two graphs: the gradient, captured once for each shape of batch, and the update, which has
one shape. Both work on gradients, weights and optimizer state that stay where they are. A shape is
captured when it comes for the third time: before that it runs as it is, which also warms up what
must not happen for the first time inside a capture. Shapes beyond `MOST` always run as they are, so
that data without recurring shapes costs nothing. The kernels are the same in both ways.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from softf1.tasks.base import Batch
from softf1.training.step import Stepper

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

MOST = 48
"""Graphs kept at once."""

SEEN_BEFORE = 2


@dataclass(frozen=True)
class Captured:
    """A graph, the batch that it reads and the loss that it writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    loss: Tensor


class GraphStepper(Stepper):
    """Steps that are replayed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seen: Counter[Hashable] = Counter()
        self.captured: dict[Hashable, Captured] = {}
        self.updating: tuple[torch.cuda.CUDAGraph, Tensor] | None = None
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream()
        self.seconds = 0.0
        self.steps = 0
        for parameter in self.parameters:  # graphs add to gradients that stay where they are
            parameter.grad = torch.zeros_like(parameter)

    def step(self, batches: Sequence[Batch]) -> None:
        """Takes one step."""
        self.steps += 1
        super().step(batches)

    def whole(self, batch: Batch) -> Tensor:
        """Replays the gradient of this shape, captures it, or runs it as it is."""
        shape = describe(batch)
        self.seen[shape] += 1
        found = self.captured.get(shape)
        if found is None and self.seen[shape] > SEEN_BEFORE and len(self.captured) < MOST:
            found = self.captured[shape] = self._timed(self._capture, batch)
        if found is None:
            return super().whole(batch)
        fill(found.batch, batch)
        found.graph.replay()
        return found.loss

    def update(self, loss: Tensor) -> None:
        """Replays the update, captured after two that ran as they are."""
        if self.updating is None:
            if self.steps <= SEEN_BEFORE:
                super().update(loss)
                return
            self.updating = self._timed(self._capture_update, loss)
        graph, value = self.updating
        value.copy_(loss)
        graph.replay()

    def _capture(self, batch: Batch) -> Captured:
        copies = ({k: v.to(self.device, copy=True) for k, v in part.items()} for part in read(batch))
        own = Batch(batch.items, *copies)
        graph = torch.cuda.CUDAGraph()
        with self._capturing(graph):
            loss = self.objective.whole(self.forward(own), own.targets)
            loss.backward()  # type: ignore[no-untyped-call]
        return Captured(graph, own, loss.detach())

    def _capture_update(self, loss: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        value, graph = loss.clone(), torch.cuda.CUDAGraph()
        with self._capturing(graph):
            super().update(value)
        return graph, value

    def _capturing(self, graph: torch.cuda.CUDAGraph) -> torch.cuda.graph:
        return torch.cuda.graph(graph, pool=self.pool, stream=self.stream)

    def _timed(self, capture: Any, given: Any) -> Any:
        torch.cuda.synchronize()
        start = perf_counter()
        made = capture(given)
        torch.cuda.synchronize()
        self.seconds += perf_counter() - start
        return made


def describe(batch: Batch) -> Hashable:
    """What two batches must share to be read by one graph."""
    return tuple((k, tuple(v.shape), v.dtype) for part in read(batch) for k, v in part.items())


def read(batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """What a gradient depends on: inputs, targets, and places that are masks of the logits."""
    masks = {name: place for name, place in batch.places.items() if place.dtype == torch.bool}
    return batch.inputs, batch.targets, masks


def fill(own: Batch, batch: Batch) -> None:
    """Copies a batch into the one that a graph reads."""
    for ours, theirs in zip(read(own), read(batch), strict=True):
        for key, value in theirs.items():
            ours[key].copy_(value, non_blocking=True)
