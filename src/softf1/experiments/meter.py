"""Progress of a whole grid with the time left: a bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
from time import monotonic
from typing import Any, Self

from softf1.training.progress import format_seconds


class Meter:
    """Counts finished runs by cost and estimates the time left.

    Args:
        total: The total cost, in full runs.
        runs: The number of runs.
        quiet: Show nothing.
    """

    def __init__(self, total: float, runs: int, *, quiet: bool = False) -> None:
        self.total, self.runs, self.quiet = total, runs, quiet
        self.done, self.count, self.worked = 0.0, 0, 0.0
        self.start = monotonic()
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> Self:
        """Shows a bar on a terminal."""
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[left]}"),
            )
            self.bar = Progress(*columns, console=Console(stderr=True))
            self.task = self.bar.add_task("", total=self.total, left="")
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the bar."""
        if self.bar is not None:
            self.bar.stop()

    def expect(self, cost: float, runs: int) -> None:
        """Adds runs to the total."""
        self.total += cost
        self.runs += runs
        if self.bar is not None:
            self.bar.update(self.task, total=self.total)

    def skip(self, cost: float) -> None:
        """Counts a run that was finished before; it does not change the time estimate."""
        self.done += cost
        self.count += 1

    def advance(self, cost: float, said: str) -> None:
        """Counts a finished run, prints the line `said` about it, and estimates the time left."""
        self.skip(cost)
        self.worked += cost
        said, left = f"[{self.count}/{self.runs}] {said}", "done"
        if self.total - self.done > 1e-9:
            seconds = (monotonic() - self.start) / self.worked * (self.total - self.done)
            left = f"about {format_seconds(seconds)} left"
        self.say(said if self.bar is not None else f"{said}, {left}")
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, left=left)

    def say(self, said: str) -> None:
        """Prints a line."""
        if self.bar is not None:
            self.bar.print(said, markup=False, highlight=False)
        elif not self.quiet:
            print(said, file=sys.stderr, flush=True)
