"""Progress of a training: a bar on a terminal, plain lines in a pipe, and `metrics.jsonl`."""

from __future__ import annotations

import json
import os
import resource
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import torch

from softf1.errors import printable
from softf1.files import sync

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PLAIN_SECONDS = 15.0
"""Seconds between two plain lines about steps."""


class Display(Protocol):
    """Shows the progress of a training."""

    def start(self, *, step: int, steps: int, about: str) -> None:
        """Called when training starts, or resumes at a step."""

    def advance(self, values: Mapping[str, Any]) -> None:
        """Called with new values: step, epoch, loss, tokens_per_second, memory, score, left."""

    def say(self, message: str) -> None:
        """Shows a message, such as an evaluation or a warning."""

    def stop(self) -> None:
        """Called when training ends."""


class Silent:
    """Shows nothing."""

    def start(self, *, step: int, steps: int, about: str) -> None:
        """Nothing."""

    def advance(self, values: Mapping[str, Any]) -> None:
        """Nothing."""

    def say(self, message: str) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


class Plain:
    """Prints a line every few seconds, on standard error."""

    def __init__(self) -> None:
        self.steps, self.next = 0, 0.0

    def start(self, *, step: int, steps: int, about: str) -> None:
        """Prints what is trained."""
        self.steps, self.next = steps, monotonic() + PLAIN_SECONDS
        self.say(about if not step else f"{about}; going on at step {step:,}")

    def advance(self, values: Mapping[str, Any]) -> None:
        """Prints a line if the last one was some seconds ago."""
        if monotonic() >= self.next:
            self.next = monotonic() + PLAIN_SECONDS
            self.say(f"step {values['step']:,}/{self.steps:,} · {format_values(values)}")

    def say(self, message: str) -> None:
        """Prints a line."""
        print(printable(message), file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Does nothing."""


class Bar:
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
        return Silent()
    return Bar() if sys.stderr.isatty() else Plain()


def format_values(values: Mapping[str, Any], *, epoch: bool = True) -> str:
    """Formats current values in one line.

    >>> format_values({"epoch": 0.5, "loss": 0.25, "tokens_per_second": 1234, "memory": 2**30,
    ...           "score": 0.5, "headline": "f1", "left": 75})
    'epoch 0.50 · loss 0.2500 · dev f1 50.00 · 1,234 tokens/s · 1:15 left · 1.0 GiB'
    """
    parts = [f"epoch {values['epoch']:.2f}"] if epoch else []
    parts.append(f"loss {values['loss']:.4f}")
    if values.get("score") is not None:
        parts.append(f"dev {values['headline']} {100 * values['score']:.2f}")
    parts.append(f"{values['tokens_per_second']:,.0f} tokens/s")
    if values.get("left") is not None:
        parts.append(f"{format_seconds(values['left'])} left")
    parts.append(format_bytes(values["memory"]))
    return " · ".join(parts)


def format_seconds(seconds: float) -> str:
    """Formats seconds as minutes and seconds, with hours if there are any.

    >>> format_seconds(3661), format_seconds(59.4)
    ('1:01:01', '0:59')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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
