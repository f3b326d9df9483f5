"""How far the gradient of an accumulated batch is from that of the whole batch.

    python benchmarks/accumulation.py [--steps 60] [--seeds 3]

A small tagger learns made-up data, 9 tags of which O has 85%, with the exact gradient. At every
step the gradient of the same rows cut into micro-batches is compared with that of the rows in one
place: |difference| / |whole|. `naive` is the mean of the micro-batches' losses, `running` keeps an
average of past steps' statistics, `exact` has a first pass. The figures are medians over the
second half of the steps and over the seeds; `cosine` is between both gradients, `worst` the largest
error of any step after the first, `cosine_large` is with the gradient of a batch 16 times as large.
`forwards` are the forward passes of a micro-batch in a step.
Writes benchmarks/results/accumulation.csv.
"""

from __future__ import annotations

import argparse
import csv
import platform
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from softf1.losses import WindowLoss, backward_exact, make_loss

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results" / "accumulation.csv"
TAGS, FEATURES, ROWS = 9, 32, 512
DECAYS = (0.5, 0.9, 0.99)
CLASS_WEIGHTS = [0.2] + [1.0] * (TAGS - 1)
LOSSES: dict[str, tuple[str, dict[str, object]]] = {
    "dice, macro without O": ("dice", {"over": "batch", "exclude": (0,)}),
    "dice, micro without O": ("dice", {"over": "batch", "exclude": (0,), "average": "micro"}),
    "tversky .3/.7, macro": ("tversky", {"over": "batch", "alpha": 0.3, "beta": 0.7}),
    "dsc, macro": ("dsc", {"over": "batch"}),
    "ce + dice": ("ce+dice", {"dice": {"over": "batch", "exclude": (0,)}}),
    "wce, uneven padding": ("wce", {"weight": CLASS_WEIGHTS}),
}


class Rows(NamedTuple):
    """Features (N, F), tags (N,), which rows count (N,)."""

    x: Tensor
    y: Tensor
    mask: Tensor

    def cut(self, pieces: int) -> list[Rows]:
        """Returns equal pieces; the padding makes them uneven."""
        return [Rows(*parts) for parts in zip(*(part.chunk(pieces) for part in self), strict=True)]


class Data:
    """Tags around centres that overlap; rare ones more often together in one text than apart."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.centres = torch.randn(TAGS, FEATURES, generator=self.generator, dtype=torch.float64)

    def draw(self) -> Rows:
        """Returns the rows of one optimizer step: texts of 32 tokens, padded by 0 to 24."""
        texts = ROWS // 32
        favourite = torch.randint(1, TAGS, (texts, 1), generator=self.generator)
        named = torch.rand(texts, 32, generator=self.generator) < 0.15
        y = torch.where(named, favourite, 0)
        noise = torch.randn(texts, 32, FEATURES, generator=self.generator, dtype=torch.float64)
        lengths = torch.randint(8, 33, (texts, 1), generator=self.generator)
        mask = torch.arange(32) < lengths
        return Rows((self.centres[y] + 2 * noise).flatten(0, 1), y.flatten(), mask.flatten())


def flat_gradient(model: nn.Module, run: Callable[[], object]) -> Tensor:
    """Returns the gradient that `run` leaves in the model, as one vector."""
    model.zero_grad()
    run()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


class Found(NamedTuple):
    """How a gradient compares with that of the whole batch, and with that of a large one."""

    error: float
    cosine: float
    cosine_large: float


def compare(gradient: Tensor, whole: Tensor, large: Tensor) -> Found:
    """Returns the error relative to `whole`, and the cosines."""
    error = (gradient - whole).norm() / whole.norm()
    cosines = [torch.cosine_similarity(gradient, other, dim=0) for other in (whole, large)]
    return Found(error.item(), *(cosine.item() for cosine in cosines))


def follow(key: str, pieces: int, steps: int, seed: int) -> dict[str, list[Found]]:
    """Trains, and returns how each method's gradient compares at every step."""
    torch.manual_seed(seed)
    data, name, options = Data(seed), *LOSSES[key]
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, TAGS)).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = make_loss(name, **options)
    windows = {"exact": WindowLoss(loss)} | {
        f"running, decay {decay}": WindowLoss(loss, statistics="running", decay=decay)
        for decay in DECAYS
    }
    found: dict[str, list[Found]] = {"naive": [], **{method: [] for method in windows}}
    for _ in range(steps):
        rows = data.draw()
        parts = rows.cut(pieces)

        def forward(piece: Rows) -> tuple[Tensor, Tensor, Tensor]:
            return model(piece.x), piece.y, piece.mask

        whole = flat_gradient(model, lambda: loss(*forward(rows)).backward())  # noqa: B023
        mean = lambda: [(loss(*forward(p)) / pieces).backward() for p in parts]  # noqa: B023, E731
        gradients = {"naive": flat_gradient(model, mean)}
        for method, window in windows.items():
            run = lambda: backward_exact(window, forward, parts)  # noqa: B023, E731
            gradients[method] = flat_gradient(model, run)
        many = Rows(*map(torch.cat, zip(*(data.draw() for _ in range(16)), strict=True)))
        large = flat_gradient(model, lambda: loss(*forward(many)).backward())  # noqa: B023
        for method, gradient in gradients.items():
            found[method].append(compare(gradient, whole, large))
        flat_gradient(model, lambda: loss(*forward(rows)).backward())  # noqa: B023
        optimizer.step()
    return found


def measure(key: str, pieces: int, steps: int, seeds: int) -> list[dict[str, object]]:
    """One line for each method."""
    runs = [follow(key, pieces, steps, seed) for seed in range(seeds)]
    lines: list[dict[str, object]] = []
    for method in runs[0]:
        late = [found for run in runs for found in run[method][steps // 2 :]]
        worst = max(found.error for run in runs for found in run[method][1:])
        lines.append(
            {
                "loss": key,
                "micro_batches": pieces,
                "method": method,
                "forwards": 2 if method == "exact" else 1,
                "error": f"{statistics.median(found.error for found in late):.2e}",
                "worst": f"{worst:.2e}",
                "cosine": f"{statistics.median(found.cosine for found in late):.3f}",
                "cosine_large": f"{statistics.median(found.cosine_large for found in late):.3f}",
            }
        )
    return lines


def main() -> None:
    """Measure, print a table, write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        line
        for key in LOSSES
        for pieces in (4, 8)
        for line in measure(key, pieces, options.steps, options.seeds)
    ]
    setting = {
        "steps": options.steps,
        "seeds": options.seeds,
        "rows": ROWS,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*lines[0], *setting])
        writer.writeheader()
        writer.writerows({**line, **setting} for line in lines)
    for line in lines:
        print(
            f"{line['loss']:<24}{line['micro_batches']:>3}  {line['method']:<20}"
            f"error {line['error']}  worst {line['worst']}  cosine {line['cosine']}"
            f"  large {line['cosine_large']}"
        )


if __name__ == "__main__":
    main()
