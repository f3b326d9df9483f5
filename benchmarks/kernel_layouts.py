"""Times the kernels under many layouts on one GPU, to choose the numbers in softf1/kernels/_launch.

    PYTHONPATH=src python benchmarks/kernel_layouts.py [--output layouts.csv] [--shape 262144x100]
    PYTHONPATH=src python benchmarks/kernel_layouts.py --registers [--shape 262144x100]

Every layout's loss and gradient are compared with those of the present layout. Kernels are compiled
by several processes first, then timed by one, by graph replay. `both` is the forward kernel that
writes the gradient as well; `check` is the backward kernel that finds it made already; `anew` the
same kernel where the loss was scaled, so that the gradient has to be made again. The share is that
of the floor, two reads and one write of the logits at the bandwidth of a copy.

`--registers` compiles the layouts of `both` for an H100 or H200, without one: registers of a
thread, bytes that did not fit into them, and how many warps a multiprocessor then has room for.
"""

from __future__ import annotations

import argparse
import csv
import re
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from kernels import copy_bandwidth
from softf1.kernels import _launch, batch_level, example_level
from softf1.kernels._launch import Lanes
from softf1.kernels._numbers import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORKERS = 14
DSC = Numbers(1, 1, 1, 1.0, 1.0, 1.0, 1.0, -100)
Layout = tuple[str, str, Any]  # the pass, the function of _launch, what it returns instead


@lru_cache(maxsize=2)
def make_inputs(n: int, c: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns random logits and labels; without a GPU, tensors without data."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "meta"
    x = torch.randn(n, c, device=device, dtype=torch.bfloat16)
    return x, torch.randint(0, c, (n,), device=device)


def layouts(n: int, c: int) -> Iterator[Layout]:
    """Yields what to try at a shape."""
    many, vector = (
        _launch.processors(torch.device("cuda")),
        _launch.shape_of(_launch.kind_of(*make_inputs(n, c)))[0].vector,
    )
    if c > _launch.LONGEST_TILE:
        yield from _long_layouts(n, c, many)
        return
    few = c <= _launch.FEW
    for entries in (16, 4) if few else (8, 16, 32):
        for warps in (1, 4) if few else (2, 4):
            for together in (8,) if few else (8, 12, 15):
                tile = _launch.choose_tile(
                    n, c, vector, entries=entries, warps=warps, together=together, many=many
                )
                yield "forward", "forward_tile", tile
                yield "both", "ready_tile", tile
                yield "statistics", "statistics_tile", tile
                yield "batch backward", "batch_backward_tile", tile
            tile = _launch.choose_tile(
                n, c, vector, entries=entries, warps=warps, together=0, many=many
            )
            yield "backward", "backward_tile", tile
            yield "batch backward", "batch_backward_tile", tile


def _long_layouts(n: int, c: int, many: int) -> Iterator[Layout]:
    for lanes, warps in ((512, 8), (1024, 8), (1024, 16)):
        for together in (2, 3, 4):
            yield "forward", "long_lanes", Lanes(lanes, 8, warps, many * together)
    for pieces, warps in ((1, 4), (2, 4), (4, 4)):
        tile = _launch.Tile(pieces, 1, 256 * warps, warps, n * (c // (pieces * 256 * warps)))
        yield "backward", "backward_tile", tile
    for warps in (16, 32):
        wide = Lanes(1024, 8, warps, many)
        yield "statistics", "wide_lanes", wide
        yield "batch backward", "wide_lanes", wide


@contextmanager
def using(function: str, layout: Any) -> Iterator[None]:
    """Makes a function of _launch answer with this layout; plans are made anew."""
    forget_plans()
    with patch.object(_launch, function, lambda *_: layout):
        yield
    forget_plans()


def forget_plans() -> None:
    """Empties the caches of plans."""
    for function in (*vars(example_level).values(), *vars(batch_level).values()):
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def passes(n: int, c: int, numbers: Numbers) -> dict[str, Callable[[], Any]]:
    """Returns the passes of both levels; the backward ones start from what forward kept.

    Plans are looked up in every call, so that a layout may be put in their place.
    """
    x, target = make_inputs(n, c)
    given = (x, target, None, None)
    one, two = torch.ones((), device="cuda"), torch.full((), 2.0, device="cuda")

    def example() -> example_level.ExampleLevel:
        return example_level.lay_out_example(*given, numbers, "mean")

    _, aux, foreseen = example().value_and_gradient(*given)
    found = {
        "forward": lambda: example().value(*given)[0],
        "backward": lambda: example().gradient(one, *given, aux),
        "both": lambda: example().value_and_gradient(*given)[2],
        "check": lambda: example().gradient(one, *given, aux, foreseen),
        "anew": lambda: example().gradient(two, *given, aux, foreseen),
    }
    if foreseen is None:
        found = {name: found[name] for name in ("forward", "backward")}
    if numbers.loss:

        def batch() -> batch_level.BatchLevel:
            return batch_level.lay_out_batch(*given, numbers, "mean", micro=False)

        _, rows = batch().value(*given)
        found |= {
            "statistics": lambda: batch().value(*given)[0],
            "batch backward": lambda: batch().gradient(one, *given, rows),
        }
    return found


def replay_ms(step: Callable[[], Any], repeats: int) -> float:
    """Returns the median milliseconds of a step, many in one graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            step()
    times = []
    for _ in range(7):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / repeats)
    return statistics.median(times)


def sweep(n: int, c: int) -> list[dict[str, Any]]:
    """Returns a row a layout, and prints the best of each pass."""
    steps = passes(n, c, DSC)
    expected = {name: step().float() for name, step in steps.items()}
    repeats = 20 if n * c < 1e8 else 3
    rows = []
    for name, function, layout in layouts(n, c):
        with using(function, layout):
            row = {"n": n, "c": c, "pass": name, "layout": str(layout), "ms": -1.0, "note": ""}
            try:
                got = steps[name]().float()
                close = torch.allclose(got, expected[name], rtol=2e-2, atol=1e-6)
                row["ms"] = round(replay_ms(steps[name], repeats), 5)
                row["note"] = "" if close else "DIFFERS"
            except Exception as error:  # noqa: BLE001 — a layout that does not fit is a result
                row["note"] = str(error).splitlines()[0][:80]
            rows.append(row)
    for name in steps:
        print(f"{n}x{c} {name}: present {replay_ms(steps[name], repeats):.4f}")
        found = [row for row in rows if row["pass"] == name and row["ms"] > 0]
        for row in sorted(found, key=lambda row: row["ms"])[:4]:
            print(f"    {row['ms']:.4f} {row['layout']} {row['note']}")
    floor = 3e3 * make_inputs(n, c)[0].nbytes / copy_bandwidth()
    for label, names in (
        ("example", ("both", "check")),
        ("example, scaled", ("both", "anew")),
        ("example, gradient in backward", ("forward", "backward")),
        ("batch", ("statistics", "batch backward")),
    ):
        if steps.keys() >= set(names):
            ms = replay_ms(lambda names=names: [steps[name]() for name in names], repeats)
            print(f"{n}x{c} {label}: {ms:.4f} ms, {floor / ms:.2f} of the floor")
    return rows


def compile_share(n: int, c: int, share: int) -> None:
    """Runs a share of the layouts once: their kernels are then in Triton's cache."""
    steps = passes(n, c, DSC)
    for i, (name, function, layout) in enumerate(layouts(n, c)):
        if i % WORKERS == share:
            with using(function, layout):
                try:
                    steps[name]()
                except Exception as error:  # noqa: BLE001 — the sweep will say so
                    print(layout, str(error).splitlines()[0][:200])
    torch.cuda.synchronize()


H200 = {"multiprocessors": 132, "registers": 65_536, "warps": 64}
BOTH = ("*bf16", "*i64", "*bf16", "*bf16", "*fp32", "*i32", "*fp32", "*bf16")  # tensors of `both`


def show_registers(n: int, c: int) -> None:
    """Prints a line for each layout of `both`."""
    seen = set()
    with patch.object(_launch, "processors", lambda _: H200["multiprocessors"]):
        for name, function, layout in layouts(n, c):
            key = name == "both" and layout._replace(programs=0)
            if not key or key in seen:
                continue
            seen.add(key)
            with using(function, layout):
                plan = example_level.lay_out_example(*make_inputs(n, c), None, None, DSC, "mean")
            registers, stack = count_registers(plan.both)
            # Registers are given out to warps, eight of each thread at a time.
            of_program = -(-registers // 8) * 8 * 32 * layout.warps
            warps = min(H200["registers"] // of_program * layout.warps, H200["warps"])
            print(f"{n}x{c} {registers:4} registers {stack:5} bytes {warps:3} warps  {layout}")


def count_registers(plan: _launch.Plan) -> tuple[int, int]:
    """Returns the registers of a thread and the bytes of its stack, compiled for sm_90."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    values = dict(zip(plan.kernel.arg_names, (*BOTH, *plan.arguments), strict=True))
    constants = {one.name: values[one.name] for one in plan.kernel.params if one.is_constexpr}
    signature = {
        name: value if isinstance(value, str) else "fp32" if isinstance(value, float) else "i32"
        for name, value in values.items()
    } | dict.fromkeys(constants, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(BOTH))}
    source = ASTSource(plan.kernel, signature, constants, aligned)
    how = {"target": GPUTarget("cuda", 90, 32), "options": {"num_warps": plan.warps}}
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(triton.compile(source, **how).asm["cubin"])
        file.flush()
        command = [str(tool), "-res-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", said).groups()
    return int(registers), int(stack)


def main() -> None:
    """Compiles, times, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", nargs="+", default=["16384x9", "262144x100", "32768x32768"])
    parser.add_argument("--output", type=Path, default=Path("kernel_layouts.csv"))
    parser.add_argument("--compile", type=int, help="compile this share only")
    parser.add_argument("--registers", action="store_true", help="needs no GPU")
    options = parser.parse_args()
    shapes = [tuple(int(size) for size in shape.split("x")) for shape in options.shape]
    if options.registers:
        for n, c in shapes:
            show_registers(n, c)
        return
    if options.compile is not None:
        for n, c in shapes:
            compile_share(min(n, 2048 if c > 1000 else n), c, options.compile)
        return
    command = [sys.executable, __file__, "--shape", *options.shape, "--compile"]
    workers = [subprocess.Popen([*command, str(share)]) for share in range(WORKERS)]
    for worker in workers:
        worker.wait()
    rows = [row for n, c in shapes for row in sweep(n, c)]
    with options.output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
