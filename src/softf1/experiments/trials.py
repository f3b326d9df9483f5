"""Short runs that choose settings: their dev scores, and which are as good as the best."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from softf1.errors import InputError
from softf1.experiments.tallies import tally_run
from softf1.tasks.registry import load_task

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray


class Trial(NamedTuple):
    """What a short run found on dev.

    Attributes:
        score: The headline; None where the run failed.
        pseudo: Its jackknife pseudo-values by example; None where it is no ratio over examples.
    """

    score: float | None
    pseudo: NDArray[np.float64] | None = None


def read_trial(folder: Path, result: dict[str, Any] | None) -> Trial:
    """The dev score of a run, with what each dev example adds to it."""
    if result is None:
        return Trial(None)
    headline = result["headline"]
    score = float(result["scores"]["dev"][headline])
    try:
        task = load_task(folder / "model")
        path = folder / "predictions.dev.jsonl"
        tally = tally_run(task, path, headline=headline, score=score)
        return Trial(score, tally.pseudo_values(headline))
    except InputError:  # a score that is no ratio, or files that somebody removed: chosen by score
        return Trial(score)


def raise_equals(trials: Sequence[Trial]) -> list[float | None]:
    """The scores, those within one standard error of the best raised to it.

    Of equals the earlier one wins, so that the usual setting is left only for one that is better by
    more than dev can err: the best of four on a few hundred examples is often luck, and a learning
    rate that is ahead by luck after a third of the steps costs points after all of them.

    >>> raise_equals([Trial(0.80), Trial(0.81), Trial(None)])
    [0.8, 0.81, None]
    """
    known = [t for t in trials if t.score is not None and not math.isnan(t.score)]
    if not known:
        return [trial.score for trial in trials]
    best = max(known, key=lambda trial: trial.score or 0.0)
    return [best.score if _is_equal(trial, best) else trial.score for trial in trials]


def _is_equal(trial: Trial, best: Trial) -> bool:
    if trial.score is None or best.score is None or trial.pseudo is None or best.pseudo is None:
        return False
    if trial.pseudo.shape != best.pseudo.shape or len(best.pseudo) < 2:
        return False
    error = np.std(best.pseudo - trial.pseudo, ddof=1) / math.sqrt(len(best.pseudo))
    return bool(best.score - trial.score <= error)
