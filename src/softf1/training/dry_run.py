"""Everything that can be checked before a training: recipe, files, labels, loss, memory, time."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
import torch

from softf1.training.build import quiet_transformers, settle
from softf1.training.datasets import load_datasets
from softf1.training.loading import collate_rows
from softf1.training.processes import Processes
from softf1.training.progress import format_bytes, format_seconds
from softf1.training.run_folder import identify, look
from softf1.training.trainer import Trainer

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from softf1.recipe import Recipe
    from softf1.training.batching import MicroBatch
    from softf1.training.datasets import Datasets

BYTES_A_WEIGHT = 16
"""Weight, gradient and AdamW's two averages, in float32."""

BYTES_FROZEN = 4
"""The weight alone."""

COPIES_A_LAYER = 17
"""Numbers of the size of the hidden state that a transformer layer keeps for its backward pass."""

OUTLIER = 4.0
"""A row that is as many times as long as 99% of the rows is named."""

UNTIMED = {"cpu": 0, "cuda": 3}
"""Steps before the one that is timed; a GPU captures a graph at the third of a shape."""

FORWARD = 1 / 3
"""A forward pass, as part of a step."""


def describe_run(recipe: Recipe, folder: Path, *, resume: bool = False, force: bool = False) -> str:
    """Builds all that a training needs and runs its first batch; says what would be done."""
    if look(folder, identify(recipe), resume=resume, force=force) is not None:
        return f"{folder} is finished: there is nothing to do"
    processes = Processes(trackers=recipe.train.trackers, folder=folder)
    with quiet_transformers(recipe.encoder.name):
        datasets = load_datasets(recipe)
        settled, chosen = settle(recipe, datasets)
        trainer = Trainer(recipe=settled, folder=folder, datasets=datasets, processes=processes)
    lines = [*chosen, trainer.about(), f"loss of the first batch: {trainer.try_batch():.4f}"]
    lines += [f"note: {note}" for note in datasets.notes]
    for key, counts in datasets.task.class_counts(datasets.features["train"]).items():
        rare = counts.min() / max(1, counts.sum()) if counts.ndim == 1 else _positive(counts)
        lines.append(f"{key}: {len(counts)} outputs, the rarest {100 * rare:.2g}% of the targets")
    shapes = trainer.batch_sampler.shapes
    lines.append(f"{trainer.steps:,} steps in rows of {shapes[0][1]} to {shapes[-1][1]} ids")
    lines += find_outliers(datasets)
    model, (total, trained) = trainer.stepper.model, trainer.count_parameters()
    fixed = BYTES_A_WEIGHT * trained + BYTES_FROZEN * (total - trained)
    moving = max(rows * width * activation_bytes(model, width) for rows, width in shapes)
    lines.append(
        f"memory: about {format_bytes(fixed + moving)}, {format_bytes(fixed)} of them weights "
        f"and optimizer{_free(trainer.processes.device)}"
    )
    lines.append(f"time: about {format_seconds(estimate_seconds(trainer))}")
    lines.append(f"would write {folder}")
    return "\n".join(lines)


def find_outliers(datasets: Datasets) -> list[str]:
    """A sentence about the longest row of train where it is far longer than others."""
    lengths = datasets.features["train"]["length"]
    usual, longest = float(np.quantile(lengths, 0.99, method="lower")), int(lengths.max())
    if longest < OUTLIER * usual:
        return []
    examples, where = datasets.examples["train"], ""
    if len(examples) == len(lengths):
        line = getattr(examples[int(lengths.argmax())], "line", 0)
        where = f" (line {line})" if line else ""
    said = f"the longest row has {longest:,} ids{where}, 99% have at most {usual:,.0f}"
    cure = "train.micro_tokens bounds the memory of its step, task.max_length cuts the text"
    return [f"note: train: {said}; {cure}"]


def estimate_seconds(trainer: Trainer) -> float:
    """Times a step of usual size on this machine, and reckons what all of them take.

    The weights change by it: a dry run has no further use for them.
    """
    epoch = trainer.batch_sampler.epoch(0)
    sizes = np.array([_padded(step) for step in epoch])
    usual = int(np.argsort(sizes)[len(sizes) // 2])
    datasets, device = trainer.datasets, trainer.processes.device
    features = datasets.features["train"]
    batches = [
        collate_rows(datasets.task, features, micro, datasets.tokenizer) for micro in epoch[usual]
    ]
    for _ in range(UNTIMED.get(device.type, 1)):
        trainer.stepper.step(batches)
    _wait(device)
    start = monotonic()
    trainer.stepper.step(batches)
    _wait(device)
    a_token = (monotonic() - start) / sizes[usual]
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


def _padded(step: list[MicroBatch]) -> int:
    return sum(micro.rows * micro.width for micro in step)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def activation_bytes(model: nn.Module, width: int) -> int:
    """About what a token takes in a training step: activations of every layer, and attention."""
    config = getattr(model, "config", None)
    hidden = int(getattr(config, "hidden_size", 256) or 256)
    layers = int(getattr(config, "num_hidden_layers", 1) or 1)
    heads = int(getattr(config, "num_attention_heads", 0) or 0)
    a_layer = COPIES_A_LAYER * hidden + 2 * heads * width
    # With gradient checkpointing the input of each layer is kept, and one layer at a time is whole.
    again = getattr(model, "is_gradient_checkpointing", False)
    return 4 * (layers * hidden + a_layer if again else layers * a_layer)


def _positive(counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> float:
    return float((counts[:, 1] / np.maximum(1, counts.sum(1))).min())


def _free(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    free, _ = torch.cuda.mem_get_info(device)
    return f"; {format_bytes(free)} are free"
