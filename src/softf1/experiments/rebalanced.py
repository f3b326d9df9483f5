"""Training pairs re-balanced as in the ablation on QQP, written in QQP's own format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from softf1.data import read
from softf1.data.rebalance import rebalance
from softf1.files import new_file

if TYPE_CHECKING:
    from pathlib import Path

    from softf1.data.examples import PairExample
    from softf1.recipe import Recipe

HEADS = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")


def write_rebalanced(recipe: Recipe, variant: Any, path: Path) -> Path:
    """Write the re-balanced training file of a recipe of pairs.

    It is written each time: one that is there may be of an earlier version of the pairs.

    Args:
        recipe: Names the training and dev files; no added row may equal one of dev.
        variant: As `softf1.data.rebalance` has them.
        path: Where it goes.
    """
    format = recipe.task.options.get("format")  # noqa: A001 - the word of recipes
    pairs, held_out = (
        cast("list[PairExample]", read(name, format=format, task="pairs").examples)
        for name in (recipe.task.train, recipe.task.dev or recipe.task.train)
    )
    positive = recipe.task.options.get("positive", "1")
    made = rebalance(pairs, variant, seed=0, positive=positive, held_out=held_out)
    with new_file(path) as file:
        file.write(("\t".join(HEADS) + "\n").encode())
        for number, pair in enumerate(made):
            file.write(_line(number, pair).encode())
    return path


def _line(number: int, pair: PairExample) -> str:
    texts = (" ".join(text.split()) for text in (pair.first, pair.second))
    return "\t".join([str(number), "0", "0", *texts, str(pair.label)]) + "\n"
