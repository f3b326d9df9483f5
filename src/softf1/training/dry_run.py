"""`--dry-run`: checks recipe, files, labels and loss, and estimates memory and time."""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from softf1.errors import InputError
from softf1.models.encoders import is_at_hand
from softf1.tasks.registry import make_task
from softf1.training.batching import MicroBatch, collate_rows
from softf1.training.build import find_first_loss
from softf1.training.datasets import Datasets, load_datasets
from softf1.training.processes import Processes
from softf1.training.progress import format_bytes, format_seconds
from softf1.training.run_folder import find_finished, identify
from softf1.training.trainer import Trainer, make_trainer

if TYPE_CHECKING:
    from softf1.recipe import Recipe

BYTES_A_WEIGHT = 16
"""Bytes per trained parameter: weight, gradient and AdamW's two averages, in float32."""

BYTES_FROZEN = 4
"""Bytes per frozen parameter: the weight only."""

COPIES_A_LAYER = 17
"""Tensors of the hidden state's size that a transformer layer keeps for its backward pass."""

OUTLIER = 4.0
"""A row is an outlier if it is this many times as long as 99% of the rows."""

UNTIMED = {"cpu": 0, "cuda": 3}
"""Warm-up steps before timing; a GPU captures a graph at the third step of a shape."""

TIMED = 3
"""Timed steps; the fastest counts, since other programs may interrupt the others."""

FORWARD = 1 / 3
"""Time of a forward pass as a share of a training step."""

READ, SAMPLE = 20_000, 500
"""Examples that an estimate reads at most, and how many of these, evenly spread, it encodes."""

QUICK_WORK, QUICK_TOKENS = 10_000_000_000, 256
"""The size of the small step that an estimate times: weights times tokens (about a second on one
core), and the least number of tokens."""


def describe_run(recipe: Recipe, folder: Path, *, resume: bool = False, force: bool = False) -> str:
    """Builds the training and runs its first batch; returns lines that describe the run."""
    if find_finished(folder, identify(recipe), resume=resume, force=force) is not None:
        return f"{folder} is finished: there is nothing to do"
    processes = Processes(trackers=recipe.train.trackers, folder=folder)
    trainer, chosen = make_trainer(recipe, folder, processes)
    datasets, device = trainer.datasets, processes.device
    lines = [*chosen, trainer.about(), f"loss of the first batch: {_first_loss(trainer):.4f}"]
    lines += [f"note: {note}" for note in datasets.notes]
    for key, counts in datasets.task.class_counts(datasets.features["train"]).items():
        positives = counts if counts.ndim == 1 else counts[:, 1]
        rare = (positives / np.maximum(1, counts.sum(-1))).min()
        lines.append(f"{key}: {len(counts)} outputs, the rarest {100 * rare:.2g}% of the targets")
    shapes = trainer.batch_sampler.shapes
    lines.append(f"{trainer.steps:,} steps in rows of {shapes[0][1]} to {shapes[-1][1]} ids")
    lines += find_outliers(datasets)
    fixed, moving = estimate_memory(trainer)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None
    lines.append(
        f"memory: about {format_bytes(fixed + moving)}, {format_bytes(fixed)} of them weights "
        "and optimizer, on top of Python and torch"
        + ("" if free is None else f"; {format_bytes(free)} are free")
    )
    lines.append(f"time: about {format_seconds(estimate_seconds(trainer))}")
    lines.append(f"would write {folder}")
    return "\n".join(lines)


@torch.no_grad()
def _first_loss(trainer: Trainer) -> float:
    """Computes the loss of the first batch."""
    stepper = trainer.stepper
    _, value = find_first_loss(trainer, stepper.model, stepper.objective, stepper.autocast)
    return value.item()


def describe_cost(recipe: Recipe, examples: int) -> str:
    """Estimates time and memory of a run in one line, from a sample of train and one small step.

    It takes seconds, even for a large file, and downloads nothing; if there is no estimate, the
    line says why.

    Args:
        recipe: What would be trained.
        examples: How many examples train has.
    """
    if not is_at_hand(recipe.encoder.name):
        return f"not estimated: {recipe.encoder.name} is not on this machine yet"
    try:
        sample = _read_sample(recipe, examples)
        load = partial(load_datasets, given=sample)
        trainer, _ = make_trainer(recipe, Path(), Processes(), load=load)
    except InputError as error:
        return f"not estimated: {error}"
    parameters = sum(p.numel() for p in trainer.stepper.model.parameters())
    device = trainer.processes.device
    most = None if device.type == "cuda" else max(QUICK_TOKENS, QUICK_WORK // parameters)
    seconds = estimate_seconds(trainer, most_tokens=most) * examples / len(sample["train"])
    return (
        f"about {format_seconds(seconds)} and {format_bytes(sum(estimate_memory(trainer)))} of "
        f"memory on {device.type}, on top of Python and torch"
    )


def _read_sample(recipe: Recipe, examples: int) -> dict[str, list[Any]]:
    """Reads a sample of train, spread over the whole file, since labels may be sorted."""
    task = make_task(recipe.task.kind, **recipe.task.options)
    read = min(examples, READ)
    sample = list(islice(task.read(str(recipe.task.train)), 0, read, max(1, read // SAMPLE)))
    # If dev is a separate file, guess a tenth of the size of train.
    return {"train": sample} | ({"dev": sample[::10]} if recipe.task.dev else {})


def estimate_memory(trainer: Trainer) -> tuple[int, int]:
    """Estimates the bytes of weights and optimizer, and of the largest step."""
    model, (total, trained) = trainer.stepper.model, trainer.count_parameters()
    fixed = BYTES_A_WEIGHT * trained + BYTES_FROZEN * (total - trained)
    shapes = trainer.batch_sampler.shapes
    return fixed, max(rows * width * activation_bytes(model, width) for rows, width in shapes)


def find_outliers(datasets: Datasets) -> list[str]:
    """A note about the longest training row, if it is far longer than the others."""
    lengths = datasets.features["train"]["length"]
    longest, others = int(lengths.max()), np.sort(lengths)[:-1]
    usual = np.quantile(others, 0.99, method="inverted_cdf") if len(others) else longest
    if longest < OUTLIER * usual:
        return []
    examples, where = datasets.examples["train"], ""
    if len(examples) == len(lengths):
        line = getattr(examples[int(lengths.argmax())], "line", 0)
        where = f" (line {line})" if line else ""
    said = f"the longest row has {longest:,} ids{where}, 99% of the others at most {usual:,.0f}"
    cure = "train.micro_tokens bounds the memory of its step, task.max_length cuts the text"
    return [f"note: train: {said}; {cure}"]


def estimate_seconds(trainer: Trainer, *, most_tokens: int | None = None) -> float:
    """Times a step of typical size on this machine and extrapolates to the whole training.

    This changes the weights, which a dry run does not need afterwards.

    Args:
        trainer: What would be trained.
        most_tokens: Shorten the timed step to this many tokens, to save time; None keeps it whole.
    """
    epoch = trainer.batch_sampler.epoch(0)
    sizes = np.array([_padded(step) for step in epoch])
    usual = int(np.argsort(sizes)[len(sizes) // 2])
    datasets, device = trainer.datasets, trainer.processes.device
    features = datasets.features["train"]
    step = epoch[usual] if most_tokens is None else _cut(epoch[usual], most_tokens)
    batches = [collate_rows(datasets.task, features, micro, datasets.tokenizer) for micro in step]
    for _ in range(UNTIMED.get(device.type, 1) or most_tokens is not None):
        trainer.stepper.step(batches)
    _wait(device)
    times = []
    for _ in range(TIMED):
        start = monotonic()
        trainer.stepper.step(batches)
        _wait(device)
        times.append(monotonic() - start)
    a_token = min(times) / _padded(step)
    train = trainer.recipe.train
    evaluations = max(1.0, trainer.steps / len(epoch) / train.eval_every)
    parts = {"dev": evaluations + 1, "test": 1}
    others = sum(
        times * float(datasets.features[name]["length"].sum())
        for name, times in parts.items()
        if name in datasets.features
    )
    steps = trainer.steps * sizes.mean()
    return float(a_token * (steps + FORWARD * others / trainer.processes.world))


def _cut(step: list[MicroBatch], most_tokens: int) -> list[MicroBatch]:
    """The first micro-batch, limited to rows of `most_tokens` in total, at least one row."""
    first = step[0]
    rows = max(1, min(first.rows, most_tokens // first.width))
    return [first._replace(items=first.items[:rows], rows=rows)]


def _padded(step: list[MicroBatch]) -> int:
    return sum(micro.rows * micro.width for micro in step)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def activation_bytes(model: nn.Module, width: int) -> int:
    """Estimates the bytes per token of a training step: activations of all layers and attention."""
    config = getattr(model, "config", None)
    hidden = int(getattr(config, "hidden_size", 256) or 256)
    layers = int(getattr(config, "num_hidden_layers", 1) or 1)
    heads = int(getattr(config, "num_attention_heads", 0) or 0)
    a_layer = COPIES_A_LAYER * hidden + 2 * heads * width
    # Gradient checkpointing keeps the input of each layer, and one whole layer at a time.
    again = getattr(model, "is_gradient_checkpointing", False)
    return 4 * (layers * hidden + a_layer if again else layers * a_layer)
