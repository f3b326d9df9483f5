"""Monitors a training: warns of problems and says what to try."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from softf1.errors import RunError
from softf1.losses.registry import loss_facts
from softf1.tasks.base import NOTHING, ONE_CLASS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from softf1.recipe import LossSection
    from softf1.tasks.base import Prediction, Task

OUTSIDE = "O"
SECOND = 2.0
"""Epochs before empty predictions count as a collapse; a rare label may need more than one."""
MOST_SKIPPED = 50
"""Training stops after this many skipped steps in a row."""


class Monitor:
    """Collects warnings and reports each of them once.

    Attributes:
        task: The task, which recognises collapsed predictions.
        warnings: Warnings so far.
        advice: What to try against a collapse.
    """

    def __init__(self, task: Task, loss: LossSection, warnings: Iterable[str] = ()) -> None:
        self.task, self.warnings = task, list(warnings)
        self.advice = advise(loss, outside=OUTSIDE in getattr(task, "labels", ()))

    def watch_steps(self, *, skipped: float, run: float, loss: float) -> list[str]:
        """Checks the last steps; raises if too many were skipped in a row.

        Args:
            skipped: Steps since the last call whose gradient was not finite.
            run: How many of them in a row, up to the last step.
            loss: Mean loss of the others.
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
        """Checks the predictions on dev for a collapse; early on they may still be empty."""
        problem = self._find_collapse(predictions)
        if problem is None or (epoch < SECOND and not last):
            return []
        return self._once(self._word(problem, epoch))

    def settle(self, predictions: Sequence[Prediction], *, score: float, epoch: float) -> bool:
        """Checks the model that is kept; replaces earlier collapse warnings by the final verdict.

        Args:
            predictions: Its predictions on dev.
            score: Their score from 0 to 1; at 1 a single class is right, since dev has no other.
            epoch: When the model was saved.
        """
        problem = self._find_collapse(predictions) if score < 1 else None
        self.warnings = [one for one in self.warnings if not one.startswith((NOTHING, ONE_CLASS))]
        if problem is not None:
            self.warnings.append(self._word(problem, epoch))
        return problem is not None or score == 0

    def _find_collapse(self, predictions: Sequence[Prediction]) -> str | None:
        known = predictions and hasattr(self.task, "find_collapse")  # a task of another package
        return self.task.find_collapse(predictions) if known else None

    def _word(self, problem: str, epoch: float) -> str:
        what, comma, rest = problem.partition(",")
        epochs = "1 epoch" if epoch == 1 else f"{epoch:g} epochs"
        return f"{what} after {epochs}{comma}{rest}: {self.advice}"

    def _once(self, message: str) -> list[str]:
        kind = message.split(":")[0].split(" after ")[0]
        if any(kind in known for known in self.warnings):
            return []
        self.warnings.append(message)
        return [message]


def advise(loss: LossSection, *, outside: bool) -> str:
    """Lists remedies against a collapse that the recipe does not use yet.

    Args:
        loss: The recipe's `[loss]`. The gradient of a ratio (a loss with the option `over`)
            vanishes for confident errors, so a bad start is hard to leave.
        outside: Whether one of the labels is O.

    >>> from softf1.recipe import LossSection
    >>> advise(LossSection(name="dice", options={"squared": False}), outside=False)[-33:]
    ' squared=true or a lower train.lr'
    >>> advise(LossSection(name="ce"), outside=False)
    'try class weights (loss.name="wce"), more train.epochs or another train.lr'
    """
    names, options = loss.name.split("+"), loss.options
    defaults = {name: loss_facts(name).options for name in names}
    ratios = [name for name in names if "over" in defaults[name]]
    tips = []
    for name in ratios:
        own = {**defaults[name], **options.get(name, options if len(names) == 1 else {})}
        if len(names) == 1:
            tips.append(
                f'a start with cross entropy (loss.name="ce+{name}", loss.schedule="linear")'
            )
        elif options.get("schedule") is None:
            tips.append('a start with cross entropy (loss.schedule="linear")')
        if own["over"] == "batch":
            tips.append("a larger train.batch_size")
            tips += ['exclude=["O"]'] if outside and not own.get("exclude") else []
        tips += ["a lower alpha"] if "decay" in own else []  # which alpha strengthens
        tips += ["squared=true"] if own.get("squared") is False else []
    if not ratios:
        tips += ['class weights (loss.name="wce")'] if names == ["ce"] else []
        tips.append("more train.epochs")
    tips.append("a lower train.lr" if ratios else "another train.lr")
    return f"try {', '.join(tips[:-1])} or {tips[-1]}" if tips[1:] else f"try {tips[0]}"
