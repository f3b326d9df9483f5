"""Fused kernels against torch: forward and backward on one GPU, by graph replay and eagerly.

    PYTHONPATH=src python benchmarks/kernels.py [--output benchmarks/results/kernels.csv] [--quick]
    PYTHONPATH=src python benchmarks/kernels.py --eager [--output .../kernels-eager.csv]
    PYTHONPATH=src python benchmarks/kernels.py --linear [--output .../kernels-linear.csv]
    compute-sanitizer --tool memcheck python benchmarks/kernels.py --check

Times are medians over interleaved rounds. The floor is the time to read the logits twice and write
the gradient once at the copy bandwidth measured in the same run. Peak memory is beside the inputs.
`--eager` times every loss with kernels as people call it, forward and backward by the clock, beside
`F.cross_entropy`, eager and compiled, in under a minute: processes compile the kernels side by side
first. `--linear` measures `softf1.kernels.linear_loss` beside a linear layer followed by the loss;
`--check` runs the kernels of the losses once on small inputs, to be watched by a sanitizer.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from softf1.kernels import linear_loss
from softf1.losses import loss_facts, loss_names, make_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

SHAPES = ((16_384, 9), (262_144, 100), (32_768, 32_768))
SEED, ROUNDS, WORKERS = 0, 15, 14
REFERENCE, COMPILED, LIGER = "F.cross_entropy", "torch.compile of CE", "Liger CE"
NOT_BY_ROW = ("asymmetric", "pauc", "smooth_ap")
"""Losses that have no time beside cross entropy: one refuses classes that exclude each other, two
compare pairs of rows."""


def per_label_loop(logits: Tensor, target: Tensor) -> Tensor:
    """Dice of one class after the other from a one-hot target, as the paper's authors wrote it."""
    p = logits.float().softmax(-1)
    y = functional.one_hot(target, logits.shape[1])
    total = logits.new_zeros((), dtype=torch.float32)
    for c in range(logits.shape[1]):
        overlap, below = 2 * (p[:, c] * y[:, c]).sum(), (p[:, c] ** 2).sum() + y[:, c].sum()
        total = total + 1 - (overlap + 1) / (below + 1)
    return total / logits.shape[1]


def contenders(c: int) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Returns name → loss."""
    ours = {
        "ce": make_loss("ce", backend="triton"),
        "focal": make_loss("focal", backend="triton"),
        "dsc example": make_loss("dsc", backend="triton"),
        "dsc batch": make_loss("dsc", over="batch", backend="triton"),
        "dice example": make_loss("dice", backend="triton"),
        "dice batch": make_loss("dice", over="batch", backend="triton"),
        "tversky batch": make_loss("tversky", over="batch", backend="triton"),
        "dsc example, PyTorch": make_loss("dsc", backend="torch"),
        "dsc batch, PyTorch": make_loss("dsc", over="batch", backend="torch"),
    }
    torch._dynamo.reset()  # noqa: SLF001 — each shape is compiled for itself
    found: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        REFERENCE: functional.cross_entropy,
        COMPILED: torch.compile(functional.cross_entropy, dynamic=False),
        **{f"softf1 {name}": loss for name, loss in ours.items()},
    }
    if c <= 100:
        found["per-label loop"] = per_label_loop
    try:
        from liger_kernel.transformers import LigerCrossEntropyLoss
    except ImportError:
        print("Liger CE: Liger-Kernel is not installed, nothing to compare with")
    else:
        found[LIGER] = LigerCrossEntropyLoss()
    return found


def copy_bandwidth() -> float:
    """Returns bytes a second, read and written, of a large copy."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    sink = torch.empty_like(source)
    times = [_timed(lambda: sink.copy_(source)) for _ in range(12)]
    return 2 * source.numel() / statistics.median(times)


def _timed(function: Callable[[], object], repeats: int = 1) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        function()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / repeats


class Case:
    """One loss at one shape: its step, its captured graph if it can be captured, its memory."""

    def __init__(
        self,
        loss: Callable[[Tensor, Tensor], Tensor],
        logits: Tensor,
        target: Tensor,
        *,
        captured: bool,
    ):
        self.logits = logits.detach().requires_grad_()
        self.step = lambda: self._run(loss, target)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.logits.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self.step()
        torch.cuda.synchronize()
        self.extra_bytes = torch.cuda.max_memory_allocated() - before
        self.logits.grad = None
        self.replay: Callable[[], None] | None = None
        if captured:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.step()
            self.replay = graph.replay

    def _run(self, loss: Callable[[Tensor, Tensor], Tensor], target: Tensor) -> None:
        self.logits.grad = None
        loss(self.logits, target).backward()


def measure(n: int, c: int, rounds: int) -> list[dict[str, object]]:
    """Returns one row a contender."""
    torch.manual_seed(SEED)
    logits = torch.randn(n, c, device="cuda", dtype=torch.bfloat16)
    target = torch.randint(0, c, (n,), device="cuda")
    floor = 3 * logits.nbytes / copy_bandwidth()
    large = logits.nbytes > 2**30
    found = contenders(c)
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in found}
    memory: dict[str, int] = {}
    # Liger asks the GPU for a number in every call, so it cannot be captured. It also writes the
    # gradient over the logits.
    cases = {
        name: Case(
            loss, logits.clone() if name == LIGER else logits, target, captured=name != LIGER
        )
        for name, loss in found.items()
    }
    repeats = 20 if n * c < 1_000_000 else 1 if large else 3
    for _ in range(5 if large else rounds):
        for name, case in cases.items():
            memory[name] = case.extra_bytes
            if case.replay is not None:
                times[name][0].append(_timed(case.replay, repeats))
            times[name][1].append(_timed(case.step, repeats))
            case.logits.grad = None
    return [
        {
            "n": n,
            "c": c,
            "loss": name,
            "replay_ms": round(statistics.median(replay) * 1e3, 4) if replay else "",
            "eager_ms": round(statistics.median(eager) * 1e3, 4),
            "floor_ms": round(floor * 1e3, 4),
            "share_of_floor": round(floor / statistics.median(replay or eager), 3),
            "extra_mib": round(memory[name] / 2**20, 2),
        }
        for name, (replay, eager) in times.items()
    ]


def measure_linear(c: int, *, unfused: bool, rounds: int) -> list[dict[str, object]]:
    """Returns one row a level and form: 32,768 rows, hidden size 768."""
    torch.manual_seed(SEED)
    n, h = 32_768, 768
    hidden = torch.randn(n, h, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(c, h, device="cuda", dtype=torch.bfloat16).mul_(0.02).requires_grad_()
    target = torch.randint(0, c, (n,), device="cuda")

    def step(form: str, over: str) -> None:
        hidden.grad = weight.grad = None
        loss = make_loss("dsc", over=over)
        if form == "linear_loss":
            linear_loss(hidden, weight, target, loss).backward()
        else:
            loss(functional.linear(hidden, weight), target).backward()

    forms = ("linear_loss", "linear, then loss")[: 2 if unfused else 1]
    cases = [(form, over) for over in ("example", "batch") for form in forms]
    times: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    memory: dict[tuple[str, str], int] = {}
    for turn in range(rounds + 1):
        for case in cases:
            hidden.grad = weight.grad = None
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            seconds = _timed(lambda case=case: step(*case))
            memory[case] = torch.cuda.max_memory_allocated()
            if turn:  # the first compiles
                times[case].append(seconds)
    return [
        {
            "n": n,
            "h": h,
            "c": c,
            "form": form,
            "over": over,
            "ms": round(statistics.median(times[form, over]) * 1e3, 3),
            "peak_gib": round(memory[form, over] / 2**30, 3),
        }
        for form, over in cases
    ]


def every_loss(c: int) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Returns every loss with kernels by name and level, as a user makes them."""
    weight = torch.linspace(0.5, 1.5, c, device="cuda")
    found: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
    for name in loss_names():
        facts = loss_facts(name)
        if name in NOT_BY_ROW:
            continue
        options = {"weight": weight} if facts.needs_counts else {}
        for over in ("example", "batch") if "over" in facts.options else ("",):
            level = {"over": over} if over else {}
            found[f"{name} {over}".strip()] = make_loss(name, **options, **level)
    return found


def eager_inputs(n: int, c: int) -> tuple[Tensor, Tensor]:
    """Returns bfloat16 logits that want a gradient, and labels."""
    torch.manual_seed(SEED)
    logits = torch.randn(n, c, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    return logits, torch.randint(0, c, (n,), device="cuda")


def eager_step(
    loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor, calls: int = 1
) -> float:
    """Returns the seconds of one forward and backward by the clock, as the mean of `calls`."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        logits.grad = None
        loss(logits, target).backward()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def compile_kernels(share: int) -> None:
    """Runs every WORKERS-th loss once at each shape: its kernels are then in Triton's cache."""
    for n, c in SHAPES:
        logits, target = eager_inputs(n, c)
        for loss in list(every_loss(c).values())[share::WORKERS]:
            eager_step(loss, logits, target)


def measure_eager(n: int, c: int, rounds: int) -> list[dict[str, object]]:
    """Returns one row a contender: milliseconds, and times `F.cross_entropy` and compiled."""
    logits, target = eager_inputs(n, c)
    torch._dynamo.reset()  # noqa: SLF001 — each shape is compiled for itself
    found = {
        REFERENCE: functional.cross_entropy,
        COMPILED: torch.compile(functional.cross_entropy, dynamic=False),
        **every_loss(c),
    }
    calls = 1 if logits.nbytes > 2**30 else 50
    times: dict[str, list[float]] = {name: [] for name in found}
    for loss in found.values():  # what is compiled at first use, and the allocator
        eager_step(loss, logits, target, 3)
    for _ in range(rounds):
        for name, loss in found.items():
            times[name].append(eager_step(loss, logits, target, calls))
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    return [
        {
            "n": n,
            "c": c,
            "loss": name,
            "eager_ms": round(seconds * 1e3, 4),
            "times_eager_ce": round(seconds / medians[REFERENCE], 2),
            "times_compiled_ce": round(seconds / medians[COMPILED], 2),
        }
        for name, seconds in medians.items()
    ]


def run_eager(output: Path, setting: dict[str, object]) -> None:
    """Compiles, measures every shape, writes and prints it, with a verdict for each bar."""
    started = time.perf_counter()
    command = [sys.executable, __file__, "--eager", "--share"]
    workers = [subprocess.Popen([*command, str(share)]) for share in range(WORKERS)]
    failed = [worker for worker in workers if worker.wait()]
    if failed:
        raise SystemExit("compiling the kernels failed")
    print(f"compiled in {time.perf_counter() - started:.0f} s", flush=True)
    rows: list[dict[str, object]] = []
    for n, c in SHAPES:
        found = measure_eager(n, c, 7)
        rows += [row | setting for row in found]
        _write(output, rows)
        for row in found:
            print("  ".join(f"{row[key]!s:>{width}}" for key, width in _EAGER_COLUMNS))
        bar = "times_eager_ce" if (n, c) == SHAPES[0] else "times_compiled_ce"
        ours = [row for row in found if row["loss"] not in (REFERENCE, COMPILED)]
        worst = max(ours, key=lambda row: float(str(row[bar])))
        holds = "holds" if float(str(worst[bar])) <= 1.0 else "FAILS"
        print(f"{holds}: {bar} at most 1 at {n} x {c}; worst {worst[bar]} ({worst['loss']})")
        print(f"{time.perf_counter() - started:.0f} s", flush=True)


def check() -> None:
    """Runs the kernels of every loss once, on shapes with ragged ends."""
    for n, c in ((37, 9), (70, 100), (5, 9_001), (600, 16_384), (3, 40_000)):
        logits = torch.randn(n, c, device="cuda", dtype=torch.bfloat16)
        labels = torch.randint(0, c, (n,), device="cuda")
        labels[1] = -100
        terms = torch.randint(0, 2, (n, c), device="cuda")
        prior = torch.linspace(0.5, 1.5, c, device="cuda")
        names: list[tuple[str, dict[str, object]]] = [("ce", {}), ("focal", {}), ("zlpr", {})]
        names += [("la", {"weight": prior}), ("wfocal", {"weight": prior})]
        for over in ("example", "batch"):
            names += [("dsc", {"over": over}), ("dsc", {"over": over, "alpha": 0.3})]
        for name, options in names:
            for target in (labels, terms) if n * c < 100_000 else (labels,):
                x = logits.detach().requires_grad_()
                make_loss(name, backend="triton", **options)(x, target).backward()
        torch.cuda.synchronize()
        print(f"{n} x {c} ran", flush=True)


def main() -> None:
    """Measures, prints a table and writes a tidy CSV."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--quick", action="store_true", help="small shapes only")
    parser.add_argument("--eager", action="store_true", help="every loss as people call it")
    parser.add_argument("--share", type=int, help=argparse.SUPPRESS)  # what a worker compiles
    parser.add_argument("--linear", action="store_true", help="the linear layer with its loss")
    parser.add_argument("--check", action="store_true", help="run the kernels of the losses once")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing measured")
        return
    if options.check:
        check()
        return
    if options.share is not None:
        compile_kernels(options.share)
        return
    import triton

    kind = "-linear" if options.linear else "-eager" if options.eager else ""
    name = f"kernels{kind}.csv"
    output = options.output or Path("benchmarks/results") / name

    setting: dict[str, object] = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "seed": SEED,
        "date": datetime.now(tz=UTC).date().isoformat(),
    }
    rows: list[dict[str, object]] = []
    if options.eager:
        run_eager(output, setting)
        return
    if options.linear:
        for c, unfused in ((32_768, True), (131_072, False)):
            found = measure_linear(c, unfused=unfused, rounds=5)
            rows += [row | setting for row in found]
            print(*found, sep="\n", flush=True)
        _write(output, rows)
        return
    for n, c in SHAPES[: 2 if options.quick else 3]:
        started = time.perf_counter()
        for row in measure(n, c, 5 if options.quick else ROUNDS):
            rows.append(row | setting)
            print("  ".join(f"{row[key]!s:>{width}}" for key, width in _COLUMNS), flush=True)
        print(f"{n} x {c} took {time.perf_counter() - started:.0f} s", flush=True)
        _write(output, rows)


def _write(output: Path, rows: list[dict[str, object]]) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


_EAGER_COLUMNS = (
    ("n", 7),
    ("c", 6),
    ("loss", 22),
    ("eager_ms", 9),
    ("times_eager_ce", 6),
    ("times_compiled_ce", 6),
)
_COLUMNS = (
    ("n", 7),
    ("c", 6),
    ("loss", 22),
    ("replay_ms", 9),
    ("eager_ms", 9),
    ("floor_ms", 8),
    ("share_of_floor", 6),
    ("extra_mib", 9),
)

if __name__ == "__main__":
    main()
