"""Trains a small model on made-up data with 1% positives, once a loss, and prints F1 of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the verb."""
    parser.add_argument("--seeds", type=int, default=3, help="runs for each loss (default: 3)")


def run(options: argparse.Namespace) -> int:
    """Runs the demonstration and prints a line a loss as they come."""
    import torch

    from softf1.errors import InputError
    from softf1.experiments.demo import ROWS, SHARE, run_demo

    torch.set_num_threads(1)  # the model is too small to share between cores
    if options.seeds < 1:
        raise InputError(f"wanted --seeds from 1 up, got {options.seeds}")
    print(
        f"Made-up data: {ROWS:,} rows to train on, {ROWS:,} held out, {SHARE:.0%} positive; "
        f"{options.seeds} seeds. Scores of the positive class, held-out rows:\n"
    )
    print(f"{'loss':<26}{'precision':>10}{'recall':>10}{'F1':>10}   ± over seeds")
    for line in run_demo(seeds=options.seeds):
        numbers = f"{line.precision:>10.1f}{line.recall:>10.1f}{line.f1:>10.1f}"
        print(f"{line.title:<26}{numbers}{line.deviation:>10.1f}", flush=True)
    print(
        "\nAll losses but the first start from the log class prior as the head's bias. Tversky's "
        "alpha weighs\nfalse positives (precision), its beta false negatives (recall)."
    )
    return 0
