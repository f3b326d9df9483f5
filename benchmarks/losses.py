"""Time and memory of every loss, forward and backward, against torch, peers and a Python loop.

    python benchmarks/losses.py                  # the whole grid, results/losses.csv
    python benchmarks/losses.py --quick          # tiny sizes, seconds
    python benchmarks/losses.py --threads 2 --shortest 100 --rows 4096   # on a busy machine
    python benchmarks/losses.py --device cuda --short --output benchmarks/results/losses-cuda.csv

All cases of a cell take turns, so that a busy moment of the machine hits them alike, and the
ratio to `F.cross_entropy` is taken within the cell. Labels are not checked, nothing is mined.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import importlib
import importlib.metadata
import json
import os
import platform
import random
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

import softf1
from softf1 import losses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor

    Loss = Callable[[Tensor, Tensor], Tensor]

REFERENCE = "F.cross_entropy"
LOOP = "per-label loop"
OUTPUT = Path(__file__).parent / "results" / "losses.csv"


@dataclass(frozen=True, slots=True)
class Case:
    """A loss at a level; `ours` are those that the bars are for."""

    loss: str
    level: str
    function: Loss
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: `blocks` of `rounds`, each sample at least `sample_s` long."""

    rows: tuple[int, ...] = (4096, 65536)
    classes: tuple[int, ...] = (2, 9, 50, 300)
    blocks: int = 5
    rounds: int = 15
    sample_s: float = 0.002
    case_s: float = 8.0  # a case that would take longer gets fewer samples


# About a minute on a GPU, where the loop over 300 labels alone takes 100 ms a step.
SHORT = Effort(blocks=3, rounds=5, case_s=0.3)
QUICK = Effort(rows=(256,), classes=(2, 300), blocks=1, rounds=3, sample_s=0.0)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the CSV."""

    device: str
    dtype: str
    loss: str
    level: str
    n: int
    c: int
    median_ms: float
    ratio_to_ce: float
    peak_buffers: float
    seed: int
    threads: int
    versions: str
    machine: str
    date: str
    ours: bool


def our_cases(weight: Tensor) -> list[Case]:
    """Returns every loss and level that takes one label a row and adds up rows or their sums.

    The ranking losses sort all rows, and the asymmetric loss takes several labels a row.
    """
    plain = {
        "ce": losses.cross_entropy_loss,
        "wce": partial(losses.cross_entropy_loss, weight=weight),
        "la": partial(losses.logit_adjusted_loss, weight=weight),
        "focal": losses.focal_loss,
        "wfocal": partial(losses.focal_loss, weight=weight),
        "zlpr": losses.zlpr_loss,
    }
    cases = [
        Case(name, "example", partial(function, check_labels=False), ours=True)
        for name, function in plain.items()
    ]
    family = {
        "dice": losses.dice_loss,
        "tversky": losses.tversky_loss,
        "dsc": losses.self_adjusting_dice_loss,
    }
    for name, function in family.items():
        for level in ("example", "batch"):
            bound = partial(function, over=level, check_labels=False)
            cases.append(Case(name, level, bound, ours=True))
    return cases


def peer_cases() -> list[Case]:
    """Returns the peers that are installed; says which are not."""
    cases = []
    if sadice := _import("sadice"):
        cases.append(Case("sadice", "example", sadice.SelfAdjDiceLoss()))
    if monai := _import("monai.losses"):
        # MONAI's classes are axis 1, so (N, C) logits need no transpose; labels (N, 1) are a view.
        # Its sums without a spatial axis are over everything: batch=False is no example level.
        for batch in (True, False):
            dice = monai.DiceLoss(softmax=True, to_onehot_y=True, batch=batch)
            cases.append(
                Case(
                    "MONAI DiceLoss",
                    "batch" if batch else "example",
                    lambda logits, target, dice=dice: dice(logits, target.unsqueeze(1)),
                )
            )
    return cases


def _import(name: str) -> object | None:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"skipped: {name} ({error})")
        return None


def per_label_loop(logits: Tensor, target: Tensor, smooth: float = 1.0) -> Tensor:
    """Dice one class at a time, as the paper's authors wrote it: a one-hot target, then a loop."""
    probabilities = torch.softmax(logits, dim=1)
    one_hot = functional.one_hot(target, logits.shape[1])
    loss = logits.new_zeros(())
    for label in range(logits.shape[1]):
        p, y = probabilities[:, label], one_hot[:, label]
        loss = loss + 1 - (2 * (p * y).sum() + smooth) / (p.square().sum() + y.sum() + smooth)
    return loss / logits.shape[1]


def make_inputs(n: int, c: int, *, device: str, seed: int) -> tuple[Tensor, Tensor]:
    """Returns random logits (N, C) and labels (N,), four of five of them class 0."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2.0 * torch.randn(n, c, generator=generator)
    labels = torch.randint(0, c, (n,), generator=generator)
    labels[torch.rand(n, generator=generator) < 0.8] = 0
    return logits.to(device).requires_grad_(), labels.to(device)


def step(function: Loss, logits: Tensor, target: Tensor) -> None:
    """One forward and backward."""
    logits.grad = None
    function(logits, target).backward()


def sample(function: Loss, logits: Tensor, target: Tensor, calls: int) -> float:
    """Returns the seconds of one step, as the mean of `calls` in a row."""
    _wait(logits)
    start = time.perf_counter()
    for _ in range(calls):
        step(function, logits, target)
    _wait(logits)
    return (time.perf_counter() - start) / calls


def shortest(function: Loss, logits: Tensor, target: Tensor) -> float:
    """Returns the seconds of the fastest of a few calls; the first is slower than the rest."""
    seconds = [sample(function, logits, target, 1) for _ in range(2)]
    if seconds[-1] < 0.1:  # one that was interrupted would set too few calls for a sample
        seconds += [sample(function, logits, target, 1) for _ in range(8)]
    return min(seconds)


def _wait(like: Tensor) -> None:
    if like.is_cuda:
        torch.cuda.synchronize()


def time_cases(
    cases: Sequence[Case], logits: Tensor, target: Tensor, effort: Effort, seed: int
) -> list[float]:
    """Returns each case's milliseconds: the lowest of the blocks' medians.

    The cases take turns in a new order every round.
    """
    calls, rounds = [], []
    for case in cases:
        once = shortest(case.function, logits, target)
        calls.append(max(1, round(effort.sample_s / once)))
        affordable = effort.case_s / (effort.blocks * calls[-1] * once)
        rounds.append(max(1, min(effort.rounds, int(affordable))))
    order = list(range(len(cases)))
    shuffle = random.Random(seed).shuffle
    medians: list[list[float]] = [[] for _ in cases]
    for _ in range(effort.blocks):
        seconds: list[list[float]] = [[] for _ in cases]
        for turn in range(effort.rounds):
            shuffle(order)
            for i in order:
                if turn < rounds[i]:
                    seconds[i].append(sample(cases[i].function, logits, target, calls[i]))
        for i, values in enumerate(seconds):
            medians[i].append(statistics.median(values))
    return [1000.0 * min(values) for values in medians]


def peak_buffers(function: Loss, logits: Tensor, target: Tensor) -> float:
    """Returns the most memory that a step holds beside its inputs, in float32 buffers of N × C.

    The gradient counts. Every allocation is counted, those inside torch's operators too.
    """
    logits.grad = None
    size = 4 * logits.numel()
    if logits.is_cuda:
        _wait(logits)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(function, logits, target)
        return (torch.cuda.max_memory_allocated() - before) / size
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step(function, logits, target)
    held = peak = 0
    for size_change in _allocations(profiler):
        held += size_change
        peak = max(peak, held)
    return peak / size


def _allocations(profiler: profile) -> Iterable[int]:
    """Yields the bytes of every allocation (positive) and release (negative) in order."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    memory = [event for event in events if event["name"] == "[memory]"]
    return [event["args"]["Bytes"] for event in sorted(memory, key=lambda event: event["ts"])]


def run(effort: Effort, *, device: str, seed: int) -> list[Row]:
    """Measures every case in every cell of the grid."""
    facts = {
        "device": device,
        "dtype": "float32",
        "seed": seed,
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "machine": machine(device),
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
    }
    peers = [
        Case(REFERENCE, "example", functional.cross_entropy),
        Case(LOOP, "batch", per_label_loop),
        *peer_cases(),
    ]
    rows = []
    for n in effort.rows:
        for c in effort.classes:
            print(f"measuring {n} x {c}", flush=True)
            logits, target = make_inputs(n, c, device=device, seed=seed)
            cases = [*peers, *our_cases(torch.linspace(0.5, 1.5, c, device=device))]
            times = time_cases(cases, logits, target, effort, seed)
            for case, milliseconds in zip(cases, times, strict=True):
                rows.append(
                    Row(
                        loss=case.loss,
                        level=case.level,
                        n=n,
                        c=c,
                        median_ms=round(milliseconds, 4),
                        ratio_to_ce=round(milliseconds / times[0], 3),
                        peak_buffers=round(peak_buffers(case.function, logits, target), 2),
                        ours=case.ours,
                        **facts,
                    )
                )
    return rows


def versions() -> str:
    """Returns the versions of everything measured."""
    found = [f"python {platform.python_version()}", f"softf1 {softf1.__version__}"]
    for name in ("torch", "numpy", "sadice", "monai"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return "; ".join(found)


def machine(device: str) -> str:
    """Returns the model of the processor that does the work."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Writes one line a case and cell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def by_case(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Groups the rows by loss and level, in their order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row.loss} {row.level}", []).append(row)
    return groups


def table(rows: Sequence[Row]) -> str:
    """Returns ratios to cross entropy: a line a case, a column a cell, then mean and memory."""
    groups = by_case(rows)
    cells = [(row.n, row.c) for row in next(iter(groups.values()))]
    head = f"{'times F.cross_entropy':24}" + "".join(f"{f'{n}x{c}':>11}" for n, c in cells)
    lines = [f"{head}{'geo. mean':>11}{'buffers':>9}"]
    for name, group in groups.items():
        ratios = "".join(f"{row.ratio_to_ce:11.2f}" for row in group)
        buffers = max(row.peak_buffers for row in group)
        lines.append(f"{name:24}{ratios}{_mean_ratio(group):11.2f}{buffers:9.1f}")
    reference = "".join(f"{row.median_ms:11.3f}" for row in next(iter(groups.values())))
    return "\n".join([*lines, f"{f'{REFERENCE}, ms':24}{reference}"])


def _mean_ratio(group: Sequence[Row]) -> float:
    return statistics.geometric_mean(row.ratio_to_ce for row in group)


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Returns a line for each bar: what it is, whether it holds, and the worst that was measured.

    The bars are for the CPU; elsewhere the lines are for information.
    """
    ours = [row for row in rows if row.ours]
    mean, slowest = max((_mean_ratio(group), name) for name, group in by_case(ours).items())
    ratio, where = _worst((row.ratio_to_ce, row) for row in ours)
    lines = [
        _verdict("geometric mean at most 3 times F.cross_entropy", mean, slowest, holds=mean <= 3),
        _verdict("no cell above 3 times", ratio, where, holds=ratio <= 3),
    ]
    loop = {row.n: row.median_ms for row in rows if row.loss == LOOP and row.c == 300}
    if loop:
        share, where = _worst((r.median_ms / loop[r.n], r) for r in ours if r.c == 300)
        bar = "at C = 300 at least 10 times faster than the per-label loop"
        lines.append(_verdict(bar, 1 / share, where, holds=share <= 0.1))
    most = max(row.c for row in ours)
    for fewest in sorted({min(row.c for row in ours), most, min(9, most)}):
        memory, where = _worst((row.peak_buffers, row) for row in ours if row.c >= fewest)
        bar = f"from C = {fewest} up at most 4 buffers of N x C"
        lines.append(_verdict(bar, memory, where, holds=memory <= 4))
    return lines


def _worst(measured: Iterable[tuple[float, Row]]) -> tuple[float, str]:
    value, row = max(measured, key=lambda pair: pair[0])
    return value, f"{row.loss} {row.level}, {row.n} x {row.c}"


def _verdict(bar: str, worst: float, where: str, *, holds: bool) -> str:
    return f"{'holds' if holds else 'FAILS'}: {bar}; worst {worst:.2f} ({where})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, writes the CSV, prints table and verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes, seconds")
    parser.add_argument("--short", action="store_true", help="the whole grid, few samples")
    parser.add_argument(
        "--shortest", type=int, metavar="N", help="take the shortest of N steps, not a median"
    )
    parser.add_argument("--rows", type=int, nargs="+", help="of the logits (default: 4096 65536)")
    parser.add_argument("--classes", type=int, nargs="+", help="(default: 2 9 50 300)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the CSV to write")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's lines on every start and stop
    effort = QUICK if options.quick else SHORT if options.short else Effort()
    if options.shortest:  # blocks of one step, of which the lowest counts
        effort = replace(effort, blocks=options.shortest, rounds=1, sample_s=0.0)
    effort = replace(
        effort,
        rows=tuple(options.rows or effort.rows),
        classes=tuple(options.classes or effort.classes),
    )
    rows = run(effort, device=options.device, seed=options.seed)
    write_csv(rows, options.output)
    print(table(rows), *verdicts(rows), f"wrote {options.output}", sep="\n")


if __name__ == "__main__":
    main()
