"""Watches a training and says in words what goes wrong and what to try."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, Any

from softf1.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from softf1.tasks.base import Prediction

OUTSIDE = "O"
REMEDIES = (
    'try a start with cross entropy (loss.name="ce+dice" with loss.schedule="linear"), a larger '
    'train.batch_size, exclude=["O"] at batch level, a lower alpha, squared=true or a lower lr'
)
MOST_SKIPPED = 50
"""Steps in a row without an update before a training gives up."""


class Guard:
    """Collects warnings; each is given once.

    Attributes:
        warnings: What was said so far.
    """

    def __init__(self, warnings: Iterable[str] = ()) -> None:
        self.warnings = list(warnings)

    def watch_steps(self, *, skipped: float, run: float, loss: float) -> list[str]:
        """Looks at some steps; raises where nothing is learned any more.

        Args:
            skipped: Steps since the last call whose gradient was not finite.
            run: How many in a row there were, up to the last step.
            loss: Mean of the others.
        """
        if run >= MOST_SKIPPED:
            raise RunError(
                f"the gradient was not finite in {run:.0f} steps in a row; try a lower "
                'train.lr, train.clip=1.0 or train.precision="fp32"'
            )
        if skipped:
            return self._once(
                "gradient not finite: such steps are left out; if it happens often, try a lower "
                'train.lr, a warm-up or train.precision="fp32"'
            )
        if not math.isfinite(loss):
            return self._once("the loss is not finite although its gradient is: it is not shown")
        return []

    def watch_predictions(
        self, predictions: Sequence[Prediction], *, epoch: float, last: bool = False
    ) -> list[str]:
        """Looks at what was predicted on dev; before the first epoch is over, nothing may be."""
        if not predictions or (epoch < 1 and not last):
            return []
        found = set(chain.from_iterable(map(said, predictions)))
        if not found or (found == {OUTSIDE} and "tags" in predictions[0]):
            return self._once(f"no label is predicted after {epoch:g} epochs: {REMEDIES}")
        if len(found) == 1 and _is_choice(predictions[0]):
            return self._once(
                f"collapse to one class after {epoch:g} epochs, all is {next(iter(found))!r}: "
                f"{REMEDIES}"
            )
        return []

    def _once(self, message: str) -> list[str]:
        kind = message.split(":")[0].split(" after ")[0]
        if any(kind in known for known in self.warnings):
            return []
        self.warnings.append(message)
        return [message]


def said(prediction: Prediction) -> set[Any]:
    """What a prediction names: its tags, labels, or that there is a span or an answer.

    >>> said({"tags": ["O", "B-PER"]}) == {"O", "B-PER"}
    True
    >>> said({"label": "PER", "spans": []})
    set()
    """
    if "tags" in prediction:
        return set(prediction["tags"])
    if "spans" in prediction:
        return {"span"} if prediction["spans"] else set()
    if "labels" in prediction:
        return set(prediction["labels"])
    if "label" in prediction:
        return {prediction["label"]}
    return {"answer"} if prediction.get("answer") else set()


def _is_choice(prediction: Prediction) -> bool:
    """Whether several classes compete, so that one alone is a collapse."""
    return "tags" in prediction or ("label" in prediction and "spans" not in prediction)
