"""Masked language modelling on the training texts of a recipe, before anything is fine-tuned.

    python benchmarks/warm_up.py RECIPE OUT [--steps 1000] [key=value …]

Gururangan et al. 2020 (arXiv 2004.10964) call it task-adaptive pretraining. It trains the encoder
of the recipe on the rows that a training would see (those of dev and test are left out, a dev part
that is split off train too), with new output layers on top: a transform and the word embeddings
themselves. OUT is an encoder folder as transformers loads it, with `warm-up.json` beside the
weights: settings, losses, seconds. Give it to a recipe as `encoder.name`.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from itertools import chain, count
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from softf1.files import new_folder
from softf1.models.encoders import build_model, make_tokenizer
from softf1.recipe import TrainSection, read_recipe
from softf1.tasks.registry import make_task
from softf1.training.batching import BatchSampler
from softf1.training.build import quiet_transformers
from softf1.training.datasets import read_parts
from softf1.training.objective import AdamW, rate_factor, set_rate
from softf1.training.processes import choose_precision, make_autocast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from softf1.recipe import Recipe

NOTES = "warm-up.json"
MASK_ID, RANDOM_ID = 0.8, 0.5
"""Of the chosen pieces, 80% become the mask; half of the others some other piece."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to warm up.

    Attributes:
        steps: Optimizer steps; 0 copies the encoder.
        batch_size: Rows of a step.
        lr: The peak learning rate of the encoder.
        head_lr: That of the new layers on top, which have all to learn.
        frozen: The share of steps in which only they learn: untrained, they would pull the encoder
            anywhere.
        share: The share of pieces to predict.
        seed: The seed of order, masks, dropout and new layers.
    """

    steps: int = 1000
    batch_size: int = 64
    lr: float = 2e-4
    head_lr: float = 1e-3
    frozen: float = 0.2
    share: float = 0.15
    seed: int = 0


class MaskedHead(nn.Module):
    """A transform, and the word embeddings as output layer."""

    def __init__(self, embeddings: nn.Embedding) -> None:
        super().__init__()
        pieces, size = embeddings.weight.shape
        self.transform = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.LayerNorm(size))
        self.bias = nn.Parameter(torch.zeros(pieces))

    def forward(self, hidden: Tensor, embeddings: Tensor) -> Tensor:
        """Returns the logits of all pieces."""
        return functional.linear(self.transform(hidden), embeddings, self.bias)


def mask_pieces(
    ids: Tensor, maskable: Tensor, *, mask: int, pieces: int, share: float, draw: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Returns ids with some replaced, and which of them are to be predicted.

    Args:
        ids: (B, L).
        maskable: Whether each may be chosen: neither padding nor a special token.
        mask: The id of the mask.
        pieces: How many ids there are.
        share: The share to choose.
        draw: Where random numbers come from.
    """

    def happens(probability: float) -> Tensor:
        return torch.rand(ids.shape, generator=draw, device=ids.device) < probability

    chosen = maskable & happens(share)
    masked = chosen & happens(MASK_ID)
    replaced = chosen & ~masked & happens(RANDOM_ID)
    others = torch.randint(pieces, ids.shape, generator=draw, device=ids.device)
    return torch.where(masked, mask, torch.where(replaced, others, ids)), chosen


def iterate_rows(recipe: Recipe, tokenizer: Any, settings: Settings) -> Iterator[dict[str, Tensor]]:
    """Yields the encoder's inputs of one step after the other, epoch by epoch, without end."""
    task = make_task(recipe.task.kind, **recipe.task.options)
    features = task.encode(read_parts(recipe)["train"], tokenizer)
    task = task.fit(features)
    batches = BatchSampler(
        features["length"], batch_size=settings.batch_size, seed=settings.seed, max_buckets=0
    )
    for micro in chain.from_iterable(chain.from_iterable(map(batches.epoch, count()))):
        batch = task.collate(features, micro.items.tolist(), tokenizer, width=micro.width)
        yield {name: batch.inputs[name] for name in tokenizer.names if name in batch.inputs}


def make_groups(model: nn.Module, head: nn.Module, settings: Settings) -> list[dict[str, Any]]:
    """The parameters by rate; vectors have no weight decay."""
    return [
        {"params": own, "peak": rate, "weight_decay": decay}
        for part, rate in ((model, settings.lr), (head, settings.head_lr))
        for decay, matrices in ((0.01, True), (0.0, False))
        if (own := [p for p in part.parameters() if (p.ndim >= 2) == matrices])
    ]


def find_rate(step: int, steps: int, frozen: int) -> float:
    """The factor of the peak rates: 1 for the head alone, then a rise and a fall for all."""
    if step < frozen:
        return 1.0
    return rate_factor(step - frozen, steps=steps - frozen, train=TrainSection())


def warm_up(recipe: Recipe, out: Path, settings: Settings) -> dict[str, Any]:
    """Trains the encoder of a recipe on its training texts and saves it.

    Returns:
        What `warm-up.json` says.
    """
    start, name = time.monotonic(), recipe.encoder.name
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(settings.seed)
    draw = torch.Generator(device).manual_seed(settings.seed)
    with quiet_transformers(name):
        tokenizer = make_tokenizer(name)
        model = build_model(name, head="none", tokenizer=tokenizer).to(device).train()
    words = model.get_input_embeddings()
    head = MaskedHead(words).to(device)
    inner = tokenizer.tokenizer
    if inner.mask_token_id is None:
        raise SystemExit(f"{name}: wanted a tokenizer with a mask, got {type(inner).__name__}")
    special = torch.tensor(inner.all_special_ids, device=device)
    optimizer = AdamW(make_groups(model, head, settings), lr=settings.lr, fused=True)
    autocast = make_autocast(choose_precision("auto", device), device)
    rows, losses = iterate_rows(recipe, tokenizer, settings), []
    frozen = round(settings.frozen * settings.steps)
    for step in range(settings.steps):
        inputs = {key: value.to(device) for key, value in next(rows).items()}
        ids = inputs["input_ids"]
        maskable = inputs["attention_mask"].bool() & ~torch.isin(ids, special)
        inputs["input_ids"], chosen = mask_pieces(
            ids, maskable, mask=inner.mask_token_id, pieces=len(words.weight), share=settings.share,
            draw=draw,
        )  # fmt: skip
        set_rate(optimizer, find_rate(step, settings.steps, frozen))
        with autocast():
            with torch.set_grad_enabled(step >= frozen):
                hidden = model(**inputs).last_hidden_state[chosen]
            logits = head(hidden, words.weight if step >= frozen else words.weight.detach())
        loss = functional.cross_entropy(logits.float(), ids[chosen], reduction="sum")
        loss = loss / chosen.sum().clamp_min(1)  # short rows may have nothing to predict
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*model.parameters(), *head.parameters()], 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return save(model.eval(), tokenizer, out, settings, losses, time.monotonic() - start)


def save(
    model: Any,
    tokenizer: Any,
    out: Path,
    settings: Settings,
    losses: list[Tensor],
    seconds: float,
) -> dict[str, Any]:
    """Writes the encoder, its tokenizer and what was done."""
    values = torch.stack(losses).tolist() if losses else []
    tenth = max(1, len(values) // 10)
    notes = {
        **asdict(settings),
        "first_loss": round(mean(values[:tenth]), 4) if values else None,
        "last_loss": round(mean(values[-tenth:]), 4) if values else None,
        "seconds": round(seconds, 1),
        "torch": torch.__version__,
    }
    with new_folder(out) as folder, quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / NOTES).write_text(json.dumps(notes, indent=2) + "\n", "utf-8")
    return notes


def main() -> None:
    """Warm up the encoder of a recipe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", help="a file, or the name of a shipped one")
    parser.add_argument("out", type=Path)
    parser.add_argument("values", nargs="*", help="keys of the recipe to change")
    for field, value in asdict(Settings()).items():
        name = f"--{field.replace('_', '-')}"
        parser.add_argument(name, type=type(value), default=value)
    options = parser.parse_intermixed_args()
    settings = Settings(**{field: getattr(options, field) for field in asdict(Settings())})
    recipe = read_recipe(options.recipe, options.values)
    print(f"{options.out}: {json.dumps(warm_up(recipe, options.out, settings))}", flush=True)


if __name__ == "__main__":
    main()
