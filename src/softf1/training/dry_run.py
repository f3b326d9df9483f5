"""Everything that can be checked before a training: recipe, files, labels, loss, memory, steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from softf1.training.engine import Engine
from softf1.training.folder import look
from softf1.training.identity import identify
from softf1.training.material import load_material
from softf1.training.processes import Processes
from softf1.training.progress import format_bytes
from softf1.training.quiet import quiet_transformers

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from softf1.training.recipe import Recipe

BYTES_A_WEIGHT = 16
"""Weight, gradient and AdamW's two averages, in float32."""

COPIES_A_LAYER = 17
"""Numbers of the size of the hidden state that a transformer layer keeps for its backward pass."""


def describe_run(recipe: Recipe, folder: Path, *, resume: bool = False, force: bool = False) -> str:
    """Builds all that a training needs and runs its first batch; says what would be done."""
    if look(folder, identify(recipe), resume=resume, force=force) is not None:
        return f"{folder} is finished: there is nothing to do"
    processes = Processes(trackers=recipe.train.trackers, folder=folder)
    with quiet_transformers():
        material = load_material(recipe)
        engine = Engine(recipe=recipe, folder=folder, material=material, processes=processes)
    lines = [engine.about(), f"loss of the first batch: {engine.try_batch():.4f}"]
    lines += [f"note: {note}" for note in material.notes]
    for key, counts in material.task.class_counts(material.features["train"]).items():
        rare = counts.min() / max(1, counts.sum()) if counts.ndim == 1 else _positive(counts)
        lines.append(f"{key}: {len(counts)} outputs, the rarest {100 * rare:.2g}% of the targets")
    shapes = engine.plan.shapes
    lines.append(f"{engine.steps:,} steps in rows of {shapes[0][1]} to {shapes[-1][1]} ids")
    model = engine.stepper.model
    fixed = BYTES_A_WEIGHT * sum(p.numel() for p in model.parameters() if p.requires_grad)
    moving = max(rows * width for rows, width in shapes) * activation_bytes(model, shapes[-1][1])
    lines.append(
        f"memory: about {format_bytes(fixed + moving)}, {format_bytes(fixed)} of them weights "
        f"and optimizer{_free(engine.processes.device)}"
    )
    lines.append(f"would write {folder}")
    return "\n".join(lines)


def activation_bytes(model: nn.Module, width: int) -> int:
    """About what a token takes in a training step: activations of every layer, and attention."""
    config = getattr(model, "config", None)
    hidden = int(getattr(config, "hidden_size", 256) or 256)
    layers = int(getattr(config, "num_hidden_layers", 1) or 1)
    heads = int(getattr(config, "num_attention_heads", 0) or 0)
    return 4 * layers * (COPIES_A_LAYER * hidden + 2 * heads * width)


def _positive(counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> float:
    return float((counts[:, 1] / np.maximum(1, counts.sum(1))).min())


def _free(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    free, _ = torch.cuda.mem_get_info(device)
    return f"; {format_bytes(free)} are free"
