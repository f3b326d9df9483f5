"""A first look: made-up data with 1% positives, several losses, precision, recall and F1."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from softf1.losses import class_weights, make_loss, prior_bias

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS, SHARE, FEATURES, STEPS, BATCH = 20_000, 0.01, 16, 600, 512


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the demonstration: a loss, its options and how the head's bias starts."""

    title: str
    loss: str
    options: dict[str, Any]
    prior: bool = True


ENTRIES = (
    Entry("cross entropy, zero bias", "ce", {}, prior=False),
    Entry("cross entropy", "ce", {}),
    Entry("weighted cross entropy", "wce", {}),
    Entry("focal", "focal", {}),
    Entry("dice, batch level", "dice", {"over": "batch", "exclude": (0,)}),
    Entry("self-adjusting dice", "dsc", {"squared": True, "over": "batch", "exclude": (0,)}),
    Entry(
        "Tversky .7/.3", "tversky", {"alpha": 0.7, "beta": 0.3, "squared": True, "exclude": (0,)}
    ),
    Entry(
        "Tversky .3/.7", "tversky", {"alpha": 0.3, "beta": 0.7, "squared": True, "exclude": (0,)}
    ),
)


@dataclass(frozen=True, slots=True)
class Line:
    """Precision, recall and F1 in percent on held-out rows: means over seeds; F1's deviation."""

    title: str
    precision: float
    recall: float
    f1: float
    deviation: float


def run_demo(*, seeds: int = 3) -> Iterator[Line]:
    """Trains every entry once a seed and yields its line as soon as it is known."""
    for entry in ENTRIES:
        scores = [_train(entry, seed) for seed in range(seeds)]
        precision, recall, f1 = (fmean(column) for column in zip(*scores, strict=True))
        deviation = stdev([f1 for _, _, f1 in scores]) if seeds > 1 else 0.0
        yield Line(entry.title, precision, recall, f1, deviation)


def _made_up(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Positives lie in one of two far corners, a little inside the cloud of negatives."""
    target = (torch.rand(ROWS, generator=generator) < SHARE).long()
    corner = torch.where(torch.rand(ROWS, generator=generator) < 0.5, 1.0, -1.0)
    shift = torch.zeros(ROWS, FEATURES)
    shift[:, 0] = 3.2 * corner
    shift[:, 1] = 1.6
    x = torch.randn(ROWS, FEATURES, generator=generator) + shift * target.unsqueeze(1)
    return x, target


def _train(entry: Entry, seed: int) -> tuple[float, float, float]:
    generator = torch.Generator().manual_seed(seed)
    x, target = _made_up(generator)
    held_out, held_out_target = _made_up(generator)
    counts = torch.bincount(target, minlength=2)
    torch.manual_seed(seed)
    head = nn.Linear(32, 2)
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.GELU(), head)
    with torch.no_grad():
        head.bias.copy_(prior_bias(counts) if entry.prior else torch.zeros(2))
    options = entry.options | ({"weight": class_weights(counts)} if entry.loss == "wce" else {})
    loss = make_loss(entry.loss, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        rows = torch.randint(0, ROWS, (BATCH,), generator=generator)
        optimizer.zero_grad()
        loss(model(x[rows]), target[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        return _scores(model(held_out).argmax(-1), held_out_target)


def _scores(predicted: Tensor, target: Tensor) -> tuple[float, float, float]:
    hits = int((predicted & target).sum())
    precision = 100 * hits / max(int(predicted.sum()), 1)
    recall = 100 * hits / max(int(target.sum()), 1)
    f1 = 200 * hits / max(int(predicted.sum()) + int(target.sum()), 1)
    return precision, recall, f1
