"""What data, checkpoints and messages between GPUs cost per sentence, parameter and class.

    python benchmarks/scale.py                      # results/scale.csv, a few minutes on one core

Reads and encodes synthetic tagging files of several sizes, each in a process of its own, and fits a
line: the slope is the cost of a sentence, whatever the start costs. Saves checkpoints of models of
several sizes. Cuts a batch over 8 and 64 ranks in one process and counts what they would send.
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
SIZES = (5_000, 10_000, 20_000, 40_000)
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes one line a figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, help="sentences of the files"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
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
