"""Progress of a training, and its problems.

A bar on a terminal, plain lines in a pipe, and `metrics.jsonl`; a monitor warns of problems and
says what to try.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

from softf1.errors import RunError, printable
from softf1.files import sync
from softf1.losses.registry import loss_facts
from softf1.tasks.base import NOTHING, ONE_CLASS, Prediction, Task

if TYPE_CHECKING:
    from softf1.recipe import LossSection

PLAIN_SECONDS = 15.0
"""Seconds between two plain lines about steps."""


class Display:
    """Shows the progress of a training; this one shows nothing, others override its methods."""

    def start(self, *, step: int, steps: int, about: str) -> None:
        """Called when training starts, or resumes at a step."""

    def advance(self, values: Mapping[str, Any]) -> None:
        """Called with new values, those that `format_values` shows."""

    def say(self, message: str) -> None:
        """Shows a message, such as an evaluation or a warning."""

    def stop(self) -> None:
        """Called when training ends."""


class Plain(Display):
    """Prints a line every few seconds, on standard error."""

    def __init__(self) -> None:
        self.steps, self.next = 0, 0.0

    def start(self, *, step: int, steps: int, about: str) -> None:
        """Prints what is trained."""
        self.steps, self.next = steps, monotonic() + PLAIN_SECONDS
        self.say(about if not step else f"{about}; continuing at step {step:,}")

    def advance(self, values: Mapping[str, Any]) -> None:
        """Prints a line if the last one was some seconds ago."""
        if monotonic() >= self.next:
            self.next = monotonic() + PLAIN_SECONDS
            self.say(f"step {values['step']:,}/{self.steps:,} · {format_values(values)}")

    def say(self, message: str) -> None:
        """Prints a line."""
        print(printable(message), file=sys.stderr, flush=True)


class Bar(Display):
    """A progress bar with the numbers beside it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self.progress = Progress(
            TextColumn("epoch {task.fields[epoch]:.1f}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}", markup=False),
            console=Console(stderr=True),
        )
        self.bar = self.progress.add_task("training", total=None, epoch=0.0, numbers="")

    def start(self, *, step: int, steps: int, about: str) -> None:
        """Shows the bar."""
        self.say(about)
        self.progress.update(self.bar, total=steps, completed=step)
        self.progress.start()

    def advance(self, values: Mapping[str, Any]) -> None:
        """Moves the bar."""
        self.progress.update(
            self.bar,
            completed=values["step"],
            epoch=values["epoch"],
            numbers=format_values(values, epoch=False),
        )

    def say(self, message: str) -> None:
        """Prints a line above the bar."""
        self.progress.console.print(printable(message), markup=False, highlight=False)

    def stop(self) -> None:
        """Stops the bar and leaves it on the screen."""
        self.progress.stop()


class MetricsLog:
    """Writes `metrics.jsonl`, one line per event; a resumed run drops what it will repeat.

    Args:
        path: The file; None writes nothing, as on ranks other than 0.
        size: Bytes of the existing file to keep.
    """

    def __init__(self, path: Path | None, *, size: int = 0) -> None:
        self.file = None
        if path is not None:
            self.file = path.open("ab")
            self.file.truncate(min(size, path.stat().st_size))
            self.file.seek(0, os.SEEK_END)

    def write(self, event: str, **values: Any) -> None:
        """Appends a line."""
        if self.file is not None:
            line = json.dumps({"event": event, **values}, ensure_ascii=False)
            self.file.write(line.encode() + b"\n")
            self.file.flush()

    @property
    def size(self) -> int:
        """Bytes written so far; flushes them to disk."""
        if self.file is None:
            return 0
        sync(self.file)
        return self.file.tell()

    def close(self) -> None:
        """Flushes and closes the file."""
        if self.file is not None:
            sync(self.file)
            self.file.close()


def choose_display(*, quiet: bool, main: bool) -> Display:
    """Chooses a bar on a terminal and plain lines elsewhere; only rank 0 shows progress."""
    if quiet or not main:
        return Display()
    return Bar() if sys.stderr.isatty() else Plain()


def format_values(values: Mapping[str, Any], *, epoch: bool = True) -> str:
    """Formats current values in one line.

    >>> format_values({"epoch": 0.5, "loss": 0.25, "tokens_per_second": 1234, "memory": 2**30,
    ...           "score": 0.5, "metric": "f1", "left": 75})
    'epoch 0.50 · loss 0.2500 · dev f1 50.00 · 1,234 tokens/s · 75 s left · 1.0 GiB'
    """
    parts = [f"epoch {values['epoch']:.2f}"] if epoch else []
    parts.append(f"loss {values['loss']:.4f}")
    if values.get("score") is not None:
        parts.append(f"dev {values['metric']} {100 * values['score']:.2f}")
    parts.append(f"{values['tokens_per_second']:,.0f} tokens/s")
    parts += [f"{format_seconds(values['left'])} left", format_bytes(values["memory"])]
    return " · ".join(parts)


def format_seconds(seconds: float) -> str:
    """Formats a duration.

    >>> format_seconds(42.3), format_seconds(125), format_seconds(7_300)
    ('42 s', '2 min', '2 h 2 min')
    """
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: of the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024


def format_bytes(size: float) -> str:
    """Formats a size in GiB, or in MiB below 1 GiB.

    >>> format_bytes(3 * 2**29), format_bytes(3 * 2**19)
    ('1.5 GiB', '1.5 MiB')
    """
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


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

    def __init__(self, task: Task, loss: LossSection) -> None:
        self.task = task
        self.warnings: list[str] = []
        outside = OUTSIDE in getattr(task, "labels", ())
        texts = getattr(task, "head", None) == "text"
        self.advice = advise(loss, outside=outside, texts=texts)

    def watch_steps(self, *, skipped: float, run: float, loss: float) -> list[str]:
        """Checks the last steps; raises if too many were skipped in a row.

        Args:
            skipped: Steps since the last call whose gradient was not finite.
            run: How many steps in a row were skipped, up to the last step.
            loss: Mean loss of the steps that were not skipped.
        """
        if run >= MOST_SKIPPED:
            raise RunError(
                f"the gradient was not finite in {run:.0f} steps in a row; try a lower "
                'train.lr, train.clip=1.0 or train.precision="fp32"'
            )
        if skipped:
            return self._once(
                "gradient not finite: such steps are skipped; if it happens often, try a lower "
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

    def judge_final(self, predictions: Sequence[Prediction], *, score: float, epoch: float) -> bool:
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


def advise(loss: LossSection, *, outside: bool, texts: bool = True) -> str:
    """Lists remedies against a collapse that the recipe does not use yet.

    Args:
        loss: The recipe's `[loss]`. The gradient of a ratio (a loss with the option `over`)
            vanishes for confident errors, so a bad start is hard to leave.
        outside: Whether one of the labels is O.
        texts: Whether whole texts are labelled. Class weights make taggers and readers worse.

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
        tips += ["a lower alpha"] if "decay" in own else []  # alpha strengthens the decay
        tips += ["squared=true"] if own.get("squared") is False else []
    if not ratios:
        tips += ['class weights (loss.name="wce")'] if names == ["ce"] and texts else []
        tips.append("more train.epochs")
    tips.append("a lower train.lr" if ratios else "another train.lr")
    return f"try {', '.join(tips[:-1])} or {tips[-1]}" if tips[1:] else f"try {tips[0]}"
