"""What data, checkpoints and messages between GPUs cost per sentence, parameter and class.

    python benchmarks/scale.py                      # results/scale.csv, a few minutes on one core
    python benchmarks/scale.py --table              # writes docs/scale.md's figures from it

Reads and encodes synthetic tagging files of several sizes, each in a process of its own, and fits a
line: the slope is the cost of a sentence, whatever the start costs. (Below 40,000 sentences the
peak of memory is that of imports and of one piece being encoded, which hides what sentences need.)
Saves checkpoints of models of several sizes. Cuts a batch over 8 and 64 ranks in one process and
counts what they would send.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from corpora_table import DOCS, fill
from encoding import write_sentences

from losses import machine
from softf1.losses import make_loss
from softf1.losses.exact import WindowLoss
from softf1.models.encoders import make_tokenizer
from softf1.tasks.registry import make_task
from softf1.training.checkpoint import save_checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

OUTPUT = Path(__file__).parent / "results" / "scale.csv"
STEPS = {
    "softf1": OUTPUT.with_name("training-fused.csv"),
    "softf1-unfused": OUTPUT.with_name("training-fused.csv"),
    "softf1-eager": OUTPUT.with_name("training-cuda.csv"),
}
"""Where the steps of one GPU are: captured, the same without fused layers, and plain ones."""
SIZES = (40_000, 80_000, 160_000, 320_000)
COLUMNS = ("what", "unit", "value", "measured_at", "versions", "machine", "date")


def read_and_encode(path: str) -> dict[str, float]:
    """Returns seconds and memory of this process for one file: examples first, then features."""
    task, tokenizer = make_task("tagging", format="conll"), make_tokenizer("minilm")
    start, before = time.process_time(), held_bytes()
    examples = list(task.read(path))
    read, after = time.process_time(), held_bytes()
    features = task.encode(examples, tokenizer)
    encoded = time.process_time()
    arrays = sum(array.nbytes for array in features.arrays.values())
    return {
        "read_s": read - start,
        "examples_bytes": after - before,
        "encode_s": encoded - read,
        "features_bytes": arrays,
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "file_bytes": Path(path).stat().st_size,
    }


def held_bytes() -> int:
    """Returns the memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()


def measure_data(sizes: Sequence[int]) -> dict[str, float]:
    """Returns the slope of each measure: its cost per sentence."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            path = Path(folder, f"{size}.txt")
            write_sentences(path, size)
            command = [sys.executable, __file__, "--one", str(path)]
            measured = json.loads(subprocess.check_output(command, text=True))
            print(size, measured, flush=True)
            for name, value in measured.items():
                found.setdefault(name, []).append(value)
    return {name: float(np.polyfit(sizes, values, 1)[0]) for name, values in found.items()}


def measure_checkpoint(sizes: Sequence[int] = (100_000, 1_000_000, 4_000_000)) -> float:
    """Returns the bytes of a checkpoint per trained parameter: weights and AdamW's two averages."""
    written = []
    with tempfile.TemporaryDirectory() as folder:
        for step, size in enumerate(sizes):
            layer = torch.nn.Linear(size, 1, bias=False)
            optimizer = torch.optim.AdamW(layer.parameters())
            layer(torch.ones(1, size)).sum().backward()
            optimizer.step()
            averages = {
                name: value
                for name, value in optimizer.state[layer.weight].items()
                if isinstance(value, torch.Tensor)
            }
            tensors = {"model": dict(layer.state_dict()), "optimizer": averages}
            path = save_checkpoint(Path(folder), step, tensors, {})
            written.append(sum(part.stat().st_size for part in path.iterdir()))
    return float(np.polyfit(sizes, written, 1)[0])


def simulate(ranks: int, *, rows: int, classes: int, seed: int = 0) -> tuple[int, float]:
    """Returns the bytes that each rank adds up in a step, and the error of the gradient.

    The batch is cut over the ranks in unequal parts; the error is the largest difference from the
    gradient of the whole batch in one place, beside the largest entry of that.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    target = torch.randint(0, classes, (rows,), generator=generator)
    loss = make_loss("dsc", over="batch")
    whole = logits.clone().requires_grad_()
    loss(whole, target).backward()
    cuts = torch.randperm(rows - 1, generator=generator)[: ranks - 1].add(1).sort().values
    parts = torch.tensor_split(torch.arange(rows), cuts)
    own = logits.clone().requires_grad_()
    window = WindowLoss(loss)
    for part in parts:
        window.collect(logits[part], target[part])
    window.reduce()
    for part in parts:
        window(own[part], target[part]).backward()
    window.finish()
    sums = make_loss("dsc", over="batch", reduction="sums")(
        logits[parts[0]].float(), target[parts[0]]
    )
    error = (own.grad - whole.grad).abs().max() / whole.grad.abs().max()
    return sums.numel() * sums.element_size(), float(error)


def collect(sizes: Sequence[int]) -> list[tuple[str, str, float, str]]:
    """Returns what was measured: name, unit, value, and where."""
    slopes = measure_data(sizes)
    at = f"slope over {', '.join(f'{size:,}' for size in sizes)} sentences, one core"
    lines = [
        ("read", "CPU seconds per sentence", slopes["read_s"], at),
        ("encode", "CPU seconds per sentence", slopes["encode_s"], at),
        ("file", "bytes per sentence", slopes["file_bytes"], at),
        ("examples in memory", "bytes per sentence", slopes["examples_bytes"], at),
        ("features in memory", "bytes per sentence", slopes["features_bytes"], at),
        ("peak of the process", "bytes per sentence", slopes["peak_bytes"], at),
        ("checkpoint", "bytes per parameter", measure_checkpoint(), "slope over three sizes"),
    ]
    for ranks in (8, 64):
        for classes in (9, 300):
            sent, error = simulate(ranks, rows=64 * ranks, classes=classes)
            where = f"dsc over the batch, {classes} classes, {ranks} ranks in one process"
            lines.append(("sums of a rank", "bytes per step", sent, where))
            lines.append(("gradient, cut beside whole", "relative error", error, where))
    return lines


MODELS = {"MiniLM": 22.7e6, "BERT-base": 110e6}
"""Parameters of the models."""
CAPTURED = {"en-minilm-l6": "MiniLM", "bert-base": "BERT-base"}
PLAIN = {"minilm-6l": "MiniLM", "bert-base": "BERT-base"}
"""Their names in the files of steps."""
BATCH = 32
LINKS = {"200 GB/s": 200e9, "25 GB/s": 25e9}
"""NVLink and a network of 200 Gbit/s; assumed."""


def read_costs(path: Path = OUTPUT) -> dict[str, float]:
    """Returns the measured costs by name."""
    with path.open(encoding="utf-8", newline="") as file:
        return {row["what"]: float(row["value"]) for row in csv.DictReader(file)}


def read_steps(case: str = "softf1") -> dict[str, float]:
    """Returns the seconds of a step of each model on one GPU."""
    names = PLAIN if case == "softf1-eager" else CAPTURED
    with STEPS[case].open(encoding="utf-8", newline="") as file:
        return {
            names[row["encoder"]]: float(row["step_ms"]) / 1000
            for row in csv.DictReader(file)
            if row["case"] == case
        }


def ring_bytes(model: str, gpus: int) -> float:
    """Returns what a ring sends through each link to add up the gradient, in float32."""
    return 2 * (gpus - 1) / gpus * 4 * MODELS[model]


def make_costs() -> str:
    """The measured costs."""
    costs, steps = read_costs(), read_steps()
    sentence = {
        "read a tagging file": f"{1e6 * costs['read']:.1f} µs",
        "encode it": f"{1e6 * costs['encode']:.0f} µs",
        "the file on disk": f"{costs['file']:.0f} bytes",
        "examples in memory": f"{costs['examples in memory']:,.0f} bytes",
        "features in memory": f"{costs['features in memory']:,.0f} bytes",
        "peak of the process: both, and what encoding needs": (
            f"{costs['peak of the process']:,.0f} bytes"
        ),
    }
    lines = [f"| {what} | {cost} per sentence |" for what, cost in sentence.items()]
    lines.append(
        "| checkpoint: weights and AdamW's two averages | "
        f"{costs['checkpoint']:.0f} bytes per trained parameter |"
    )
    shapes = {"MiniLM": "6 layers of 384 (MiniLM)", "BERT-base": "BERT-base"}
    lines += [
        f"| a step on one H200, {shapes[model]} | {1000 * step:.2f} ms, "
        f"{BATCH / step:,.0f} sentences/s |"
        for model, step in steps.items()
    ]
    return "\n".join(["| what | cost |", "|---|---|", *lines])


def make_epoch() -> str:
    """Time, memory and disk of one epoch, and how many sentences fit into memory."""
    costs, steps = read_costs(), read_steps()
    heads = [f"one H200, {model}" for model in steps]
    lines = [
        ["sentences", "file", "read and encode, one core", "memory", *heads],
        ["---"] * (4 + len(heads)),
    ]
    for millions in (1, 10, 100):
        count = millions * 1e6
        times = [count * (costs["read"] + costs["encode"])]
        times += [count * step / BATCH for step in steps.values()]
        first, *others = map(show_time, times)
        gigabytes = [count * costs[name] / 1e9 for name in ("file", "peak of the process")]
        file, memory = (f"{size:.1f} GB" for size in gigabytes)
        lines.append([f"{millions} million", file, first, memory, *others])
    most = 256e9 / costs["peak of the process"] / 1e6
    return (
        "\n".join(f"| {' | '.join(line)} |" for line in lines)
        + "\n\n**The limit is memory.** Every process holds all sentences of a run, so 8 processes "
        "on one machine take 8 times the memory. A machine of 256 GB holds about "
        f"{most:.0f} million sentences with one process, {most / 8:.0f} million with eight."
    )


def show_time(seconds: float) -> str:
    """Seconds below 100, minutes below 60, or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def make_ring() -> str:
    """What adding up the gradient costs, and the speed of 8 and 64 GPUs."""
    one, device, plain = (read_steps(f"softf1{case}") for case in ("", "-unfused", "-eager"))
    near, far = LINKS.values()
    sent = {gpus: ring_bytes("MiniLM", gpus) for gpus in (8, 64)}
    text = (
        "`train.batch_size` counts the examples of a step on all GPUs. A ring sends "
        f"2 · (G − 1) / G times the gradient through each link: {sent[8] / 1e6:.0f} MB for 8 "
        f"processes, {sent[64] / 1e6:.0f} MB for 64. At 200 GB/s (NVLink, assumed) that is "
        f"{1000 * sent[8] / near:.1f} to {1000 * sent[64] / near:.1f} ms per step; at 25 GB/s (a "
        f"network of 200 Gbit/s, assumed) {1000 * sent[8] / far:.0f} to "
        f"{1000 * sent[64] / far:.0f} ms. DDP hides a part of it behind the backward pass; the "
        "table hides nothing. It is for cross entropy: a loss over the batch adds its message and "
        "a forward pass.\n\n"
        "**CUDA graphs and fused layers run in one process only.** Several processes take plain "
        f"steps, {1000 * plain['MiniLM']:.1f} ms for MiniLM and {1000 * plain['BERT-base']:.1f} ms "
        "for BERT-base on one H200 ([training-cuda.csv](../benchmarks/results/training-cuda.csv), "
        "softf1 0.1.0, torch 2.11.0, 2026-11-15). "
        "Most of that time goes into launching kernels, so a larger step need not take longer. For "
        "256 sentences per GPU we take the longer of two times: a plain step of 32, or eight times "
        "a captured step of 32 without fused layers "
        f"({1000 * device['MiniLM']:.1f} and {1000 * device['BERT-base']:.1f} ms, 2026-11-16)."
    )
    lines = ["| GPUs, sentences per step | links | step | sentences/s |", "|---|---|---|---|"]
    for model, step in one.items():
        shown = f"{1000 * step:.2f} ms | {BATCH / step:,.0f}"
        lines.append(f"| 1, {BATCH}, {model}, captured | | {shown} |")
    cases = [(8, BATCH, "200 GB/s"), (8, 8 * BATCH, "200 GB/s"), (64, 8 * BATCH, "25 GB/s")]
    for model in MODELS:
        for gpus, rows, link in cases:
            alone = max(plain[model], device[model] * rows / BATCH)
            step = alone + ring_bytes(model, gpus) / LINKS[link]
            lines.append(
                f"| {gpus}, {gpus * rows:,}, {model} | {link} | {1000 * step:.0f} ms | "
                f"{round(gpus * rows / step, -3):,.0f} |"
            )
    after = (
        "With steps this small one GPU is faster than eight. Use several for large batches or "
        "large models; independent runs (`softf1 compare --jobs`, `--on ray`) use all GPUs fully."
    )
    return "\n\n".join([text, "\n".join(lines), after])


TABLES = {"costs": make_costs, "epoch": make_epoch, "ring": make_ring}
"""What stands between the marks of docs/scale.md."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes one line a figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, help="sentences of the files"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--table", action="store_true", help="write the page from the file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.table:
        for mark, make in TABLES.items():
            fill(DOCS / "scale.md", mark, make())
        return
    if options.one:
        print(json.dumps(read_and_encode(options.one)))
        return
    facts: dict[str, Any] = {
        "versions": f"torch {torch.__version__}; transformers {version('transformers')}",
        "machine": machine("cpu"),
        "date": datetime.now(tz=UTC).date().isoformat(),
    }
    lines = collect(options.sizes)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with options.output.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for what, unit, value, where in lines:
            row = {"what": what, "unit": unit, "value": f"{value:.4g}", "measured_at": where}
            table.writerow(row | facts)
            print(f"{what:28}{value:12.4g} {unit} ({where})")


if __name__ == "__main__":
    main()
