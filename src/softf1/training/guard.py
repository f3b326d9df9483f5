"""Watches a training and says in words what goes wrong and what to try."""

from __future__ import annotations

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


class Guard:
    """Collects warnings; each is given once.

    Attributes:
        warnings: What was said so far.
        skipped: Steps in a row whose gradient was not finite.
    """

    def __init__(self, warnings: Iterable[str] = ()) -> None:
        self.warnings = list(warnings)
        self.skipped = 0

    def watch_steps(self, *, steps: float, skipped: float, loss: float) -> list[str]:
        """Looks at the steps since the last call; raises where nothing is learned any more."""
        self.skipped = self.skipped + int(skipped) if skipped >= steps > 0 else int(skipped)
        if self.skipped >= MOST_SKIPPED:
            raise RunError(
                f"the gradient was not finite in {self.skipped} steps in a row; try a lower "
                'train.lr, train.clip=1.0 or train.precision="fp32"'
            )
        if skipped:
            return self._once(
                "gradient not finite: such steps are left out; if it happens often, try a lower "
                'train.lr, a warm-up or train.precision="fp32"'
            )
        if loss != loss:
            return self._once("the loss is not finite although its gradient is: it is not shown")
        return []

    def watch_predictions(self, predictions: Sequence[Prediction], *, epoch: float) -> list[str]:
        """Looks at what was predicted on dev."""
        if not predictions:
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
