"""Microseconds of the host in one forward and backward of the fused losses, layer by layer.

    PYTHONPATH=src python benchmarks/host_cost.py [--rows 16384] [--classes 9] [--profile]

On a GPU the kernels are started as always and nobody waits for them. Without one they are replaced
by nothing, on CPU tensors, which leaves what Python and torch do around them; `F.cross_entropy` on
two logits is then the yardstick. Every figure is the least of many short rounds: other processes
only add to it.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import timeit
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

from softf1.kernels import _launch
from softf1.kernels._numbers import Numbers
from softf1.kernels.batch_level import lay_out_batch
from softf1.kernels.example_level import lay_out_example
from softf1.losses import make_loss

if TYPE_CHECKING:
    from collections.abc import Callable

DSC = Numbers(1, 1, 1, 1.0, 1.0, 1.0, 1.0, -100)
CALLS, ROUNDS = 20, 400


class Nothing:
    """Stands for a compiled kernel, and for what Triton finds it by."""

    function = packed_metadata = None

    def __getitem__(self, grid: Any) -> Callable[..., Nothing]:
        """Returns what starts it."""
        return lambda *_, **__: self

    def run(self, *_: Any) -> None:
        """Starts nothing."""


def start_nothing() -> None:
    """Makes every plan start nothing, by the way that a GPU takes."""
    make = _launch.Plan.__init__
    slot = torch.zeros(4, dtype=torch.int32)
    _launch.DIRECT = True
    _launch.Plan.__init__ = lambda self, _, *rest: make(self, Nothing(), *rest)  # type: ignore[method-assign]
    _launch.counter = lambda _: slot
    stream = SimpleNamespace(get_current_stream=lambda _: 0)
    _launch.triton.runtime.driver = SimpleNamespace(active=stream)  # type: ignore[assignment]


def microseconds(step: Callable[[], object]) -> float:
    """Returns the least mean of a round."""
    for _ in range(3 * CALLS):
        step()
    return min(timeit.repeat(step, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


def train_step(loss: Callable[..., torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> None:
    """Runs forward and backward."""
    x.grad = None
    loss(x, y).backward()


def layers(n: int, c: int, device: str) -> dict[str, Callable[[], object]]:
    """Returns what to time, from a step down to one start of a kernel."""
    torch.manual_seed(0)
    x = torch.randn(n, c, device=device, dtype=torch.bfloat16, requires_grad=True)
    y = torch.randint(0, c, (n,), device=device)
    small = (x, y) if device == "cuda" else (torch.randn(1, 2, requires_grad=True), y[:1] % 2)
    free, one = x.detach(), torch.ones((), device=device)
    texts = (free[None].requires_grad_(), y[None])
    weight = torch.linspace(0.5, 1.5, c)
    found: dict[str, Callable[[], object]] = {
        "F.cross_entropy, forward and backward": lambda: train_step(
            functional.cross_entropy, *small
        ),
        "F.cross_entropy, forward": lambda: functional.cross_entropy(*small),
    }
    for name, options in (
        ("ce", {}),
        ("wce", {"weight": weight}),
        ("la", {"weight": weight}),
        ("dsc example", {}),
        ("dsc batch", {"over": "batch"}),
    ):
        loss = make_loss(name.split()[0], backend="triton", check_labels=False, **options)
        loss.to(device)
        found |= {
            f"{name}, forward and backward": lambda loss=loss: train_step(loss, x, y),
            f"{name}, the same of (texts, tokens, C)": lambda loss=loss: train_step(loss, *texts),
            f"{name}, forward": lambda loss=loss: loss(x, y),
            f"{name}, forward without gradient": lambda loss=loss: loss(free, y),
        }
    given = (free, y, None, None)
    for name, kernels in (
        ("example", lay_out_example(*given, DSC, "mean")),
        ("batch", lay_out_batch(*given, DSC, "mean", micro=False)),
    ):
        _, aux, foreseen = kernels.value_and_gradient(*given)
        found |= {
            f"{name}: allocate and start forward": lambda k=kernels: k.value_and_gradient(*given),
            f"{name}: allocate and start backward": lambda k=kernels, a=aux, f=foreseen: k.gradient(
                one, *given, a, f
            ),
        }
        plan, tensors = kernels.backward, (free, y, free if name == "example" else aux)
        tensors += (aux, one, torch.empty_like(free))
        found[f"{name}: start one kernel"] = lambda p=plan, t=tensors: _launch.launch(p, *t)
    found["find the layout"] = lambda: lay_out_example(*given, DSC, "mean")
    found["a counter"] = lambda: _launch.counter(free)
    found["torch.empty"] = lambda: torch.empty(100, dtype=torch.float32, device=free.device)
    return found


def main() -> None:
    """Prints a line a layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--classes", type=int, default=9)
    parser.add_argument("--profile", action="store_true", help="by function, of a step of dsc")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)
        start_nothing()
    steps = layers(options.rows or (16_384 if device == "cuda" else 16), options.classes, device)
    print(f"torch {torch.__version__}, {device}; microseconds of the host")
    for name, step in steps.items():
        print(f"{microseconds(step):8.1f}  {name}", flush=True)
        if device == "cuda":
            torch.cuda.synchronize()
    if options.profile:
        step = steps["dsc example, forward and backward"]
        with cProfile.Profile() as profile:
            for _ in range(3_000):
                step()
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
