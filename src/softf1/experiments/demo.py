"""The main job on real data: names in spoken Cantonese, cross entropy against the F1 losses."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from softf1.experiments.cells import Cell
from softf1.experiments.comparison import summarize, write_comparison
from softf1.experiments.grid import CELLS, Grid, lock
from softf1.experiments.hkcancor import write_corpus
from softf1.experiments.meter import Meter
from softf1.recipe import build_recipe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from softf1.experiments.cells import Execute
    from softf1.recipe import Recipe

BASELINE = "ce"
SIZES = {"word_size": 64, "char_size": 16, "char_filters": 20, "hidden_size": 128}
OF_THE_SET = {
    "loss.over": "batch",
    "loss.average": "micro",
    "loss.exclude": ["O"],
    "loss.squared": True,
}
ROWS: dict[str, dict[str, Any]] = {
    "ce, zero bias": {"loss.name": "ce", "train.head_bias": "zero"},
    BASELINE: {"loss.name": "ce"},
    "focal": {"loss.name": "focal", "loss.gamma": 1.0},
    "dice": {"loss.name": "dice", **OF_THE_SET},
    "ce+dice": {
        "loss.name": "ce+dice",
        **{key.replace("loss.", "loss.dice."): value for key, value in OF_THE_SET.items()},
    },
    "tversky .7/.3": {
        "loss.name": "tversky",
        "loss.alpha": 0.7,
        "loss.beta": 0.3,
        **OF_THE_SET,
    },
    "tversky .3/.7": {
        "loss.name": "tversky",
        "loss.alpha": 0.3,
        "loss.beta": 0.7,
        **OF_THE_SET,
    },
}
"""What is trained: a start that is not fair, cross entropy, and losses made for F1."""


def run_demo(
    folder: Path,
    *,
    execute: Execute,
    seeds: int = 3,
    rows: Sequence[str] = tuple(ROWS),
    force: bool = False,
    quiet: bool = False,
    **values: Any,
) -> dict[str, Any]:
    """Trains every row with every seed; gives the comparison, and `failed`: errors by cell.

    Args:
        folder: The grid folder.
        execute: Runs the cells.
        seeds: How many seeds.
        rows: Some of `ROWS`.
        force: Start afresh in a folder that holds another grid, or this one.
        quiet: Show no progress.
        values: Changes to `[train]`, for a shorter run.
    """
    cells = [
        Cell(
            id=f"{name_folder(row)}-s{seed}",
            label=row,
            loss=ROWS[row]["loss.name"],
            seed=seed,
            values={**ROWS[row], "train.seed": seed},
            folder=f"{CELLS}/{name_folder(row)}-s{seed}",
        )
        for seed in range(seeds)
        for row in rows
    ]
    with lock(folder, force=force):
        grid = Grid(folder, demo_recipe(folder, **values), execute, keep_models=False)
        grid.open(kind="compare", axis=["loss"], baseline=BASELINE, losses=list(rows))
        grid.content |= {"seeds": list(range(seeds)), "tune": "none"}
        with Meter(float(len(cells)), len(cells), quiet=quiet) as meter:
            grid.run(cells, meter)
        found = summarize(folder)
        write_comparison(folder, found)
    return {**found, "failed": grid.errors}


def demo_recipe(folder: Path, **values: Any) -> Recipe:
    """A small BiLSTM from scratch over the corpus, which is written into the folder."""
    paths = write_corpus(folder / "data")
    return build_recipe(
        {
            "name": "demo",
            "task": {"kind": "tagging", "format": "conll", **{k: str(v) for k, v in paths.items()}},
            "encoder": {"name": "bilstm", **SIZES},
            "train": {"epochs": 3.0, "batch_size": 32, "lr": 1e-2, **values},
        }
    )


def introduce(seeds: int) -> str:
    """What the demonstration does, for those who see it for the first time."""
    return (
        f"Names in spoken Cantonese (HKCanCor): 1.3% of the tokens. A small BiLSTM from scratch, "
        f"{len(ROWS)} ways to train it,\n{seeds} seeds each, about three minutes on two cores. All "
        "but the first row start at the log class prior.\nTversky's alpha weighs false positives "
        "(precision), its beta false negatives (recall).\n"
    )


def name_folder(row: str) -> str:
    """A row's name without what a shell would mind.

    >>> name_folder("tversky .7/.3")
    'tversky-.7-.3'
    """
    return row.replace(", ", "-").replace(" ", "-").replace("/", "-")


def count_jobs() -> int:
    """Runs side by side: a core each, since these are small."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
