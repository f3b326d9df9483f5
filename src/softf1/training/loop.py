"""The one loop: steps, evaluations, checkpoints, for every task."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from softf1.errors import RunError
from softf1.training.batching import collate_rows, prefetch
from softf1.training.evaluation import Evaluated, find
from softf1.training.metric import read_score
from softf1.training.optimizer import rate_factor, set_rate
from softf1.training.progress import peak_memory
from softf1.training.step import LOSS, NORM, RUN, SKIPPED, STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from softf1.recipe import TrainSection
    from softf1.tasks.base import Batch
    from softf1.training.batching import MicroBatch
    from softf1.training.engine import Engine
    from softf1.training.journal import Journal
    from softf1.training.progress import Display
    from softf1.training.signals import Stop

LINES, LEAST = 200, 10
"""Lines of steps in `metrics.jsonl`, about, and steps between two of them at least."""

ASK_EVERY = 10
"""Steps between two agreements of several processes on saving or stopping."""


@dataclass
class Position:
    """Where a training is; with weights and random states it is all that going on needs."""

    step: int = 0
    epoch: int = 0
    in_epoch: int = 0
    best: float = -math.inf
    best_step: int = 0
    best_epoch: float = 0.0
    stale: int = 0
    score: float | None = None
    stopped: bool = False
    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0
    tokens: int = 0
    examples: int = 0
    warnings: list[str] = field(default_factory=list)
    journal: int = 0


class InterruptedRunError(RunError):
    """Somebody asked to stop; what was done is saved."""


class Loop:
    """Trains until the last step, from wherever the engine is.

    Args:
        engine: What is trained, with what and on what; writes checkpoints.
        journal: Takes down what happens.
        display: Shows it.
        stop: Says when somebody asks to stop.
    """

    def __init__(self, engine: Engine, *, journal: Journal, display: Display, stop: Stop) -> None:
        self.engine, self.journal, self.display, self.stop = engine, journal, display, stop
        self.recipe, self.material, self.plan = engine.recipe, engine.material, engine.plan
        self.stepper, self.processes = engine.stepper, engine.processes
        self.at, self.guard, self.steps = engine.at, engine.guard, engine.steps
        self.per_epoch = len(self.plan.epoch(0))
        self.eval_every = max(1, round(self.recipe.train.eval_every * self.per_epoch))
        self.log_every = max(LEAST, self.steps // LINES)
        self.saved = self.clock = monotonic()
        self.own = [0, 0]  # tokens and examples of this process that `at` does not know yet

    @property
    def metric(self) -> str:
        """The dev score that decides; the one that is reported."""
        return self.recipe.eval.metric or self.material.task.headline

    def run(self) -> None:
        """Trains to the end, to early stopping, or until asked to stop."""
        while self.at.step < self.steps and not self.at.stopped:
            for batches in self._epoch():
                self.step(batches)
                if self.at.step >= self.steps or self.at.stopped:
                    break
            else:
                self.at.epoch, self.at.in_epoch = self.at.epoch + 1, 0
        self.journal.write("end", step=self.at.step, best=self.at.best, best_step=self.at.best_step)

    def _epoch(self) -> Iterator[list[Batch]]:
        """The rest of this epoch, put together ahead of time."""
        features, codec, epoch = self.material.features["train"], self.material.codec, self.at.epoch
        pin = self.processes.device.type == "cuda"

        def make(step: list[MicroBatch]) -> list[Batch]:
            made = (
                collate_rows(self.material.task, features, micro, codec, epoch=epoch)
                for micro in step
            )
            return [pinned(batch) if pin else batch for batch in made]

        work = self.plan.epoch(epoch)[self.at.in_epoch :]
        # On a CPU a second thread would only take cores from the first.
        return prefetch(make, work, depth=4) if pin else map(make, work)

    def step(self, batches: list[Batch]) -> None:
        """Takes a step, then logs, evaluates, saves and stops where it is time."""
        at = self.at
        set_rate(
            self.stepper.optimizer,
            rate_factor(at.step, steps=self.steps, train=self.recipe.train),
        )
        self.stepper.step(batches)
        at.step, at.in_epoch = at.step + 1, at.in_epoch + 1
        lengths = self.material.features["train"]["length"]
        self.own[0] += sum(int(lengths[batch.items].sum()) for batch in batches)
        self.own[1] += sum(len(batch.items) for batch in batches)
        last = at.step == self.steps
        if at.step % self.log_every == 0 or last:
            self._log()
        # From the end of the step before: waiting for batches is training too.
        at.train_seconds += monotonic() - self.clock
        if at.step % self.eval_every == 0 or last:
            self._evaluate(last=last)
        self._save_or_stop(last=last or at.stopped)
        self.clock = monotonic()

    def _count(self) -> None:
        """Adds what all processes did since the last time; all take part."""
        tokens, examples = self.processes.add(self.own)
        self.at.tokens, self.at.examples = self.at.tokens + tokens, self.at.examples + examples
        self.own = [0, 0]

    def _log(self) -> None:
        self._count()
        meter = self.stepper.read_meter()
        taken = meter[STEPS] - meter[SKIPPED]
        loss = meter[LOSS] / taken if taken else math.nan
        self._warn(self.guard.watch_steps(skipped=meter[SKIPPED], run=meter[RUN], loss=loss))
        rate = self.stepper.optimizer.param_groups[0]["lr"]
        values = {"step": self.at.step, "epoch": self._epochs(), "loss": finite(loss)}
        values |= {"norm": finite(meter[NORM]), "lr": float(rate)}
        self.journal.write("step", **values, seconds=round(self.at.train_seconds, 3))
        self.processes.track({"loss": loss, "lr": float(rate)}, self.at.step)
        self._show(loss)

    def _show(self, loss: float) -> None:
        at, seconds = self.at, max(1e-9, self.at.train_seconds)
        self.display.advance(
            {
                "step": at.step,
                "epoch": self._epochs(),
                "loss": loss,
                "score": at.score,
                "headline": self.metric,
                "tokens_per_second": at.tokens / seconds,
                "left": (self.steps - at.step) * seconds / at.step,
                "memory": peak_memory(self.processes.device),
            }
        )

    def _evaluate(self, *, last: bool) -> None:
        start, task, codec = monotonic(), self.material.task, self.material.codec
        features, examples = self.material.features["dev"], self.material.examples["dev"]
        found = find(self.stepper.model, task, features, codec, **self.engine.how)
        evaluated = Evaluated([], {})

        def score() -> float:
            nonlocal evaluated
            predictions = task.decode(found, features, examples)
            evaluated = Evaluated(predictions, task.score(predictions, examples))
            return read_score(evaluated.scores, self.metric)

        self.at.score = self.processes.agree(score)
        self._judge(evaluated, score=self.at.score, last=last)
        self.at.evaluate_seconds += monotonic() - start

    def _judge(self, found: Evaluated, *, score: float, last: bool) -> None:
        at, epochs = self.at, self._epochs()
        better = score > at.best or not at.best_step
        kept = better or score == at.best  # of equals the one that was trained longer
        at.stale = 0 if better else at.stale + 1
        plain = {k: v for k, v in found.scores.items() if k != "labels"}
        self.journal.write("eval", step=at.step, epoch=epochs, split="dev", scores=plain)
        self.processes.track({f"dev/{self.metric}": score}, at.step)
        self.display.say(
            f"epoch {epochs:.2f} · step {at.step:,} · dev {self.metric} {100 * score:.2f}"
            f"{' · best so far' if better else ''}"
        )
        if kept:
            at.best, at.best_step, at.best_epoch = score, at.step, epochs
            self.engine.keep_best()
        self._warn(self.guard.watch_predictions(found.predictions, epoch=epochs, last=last))
        at.stopped = 0 < self.recipe.train.patience <= at.stale

    def _save_or_stop(self, *, last: bool) -> None:
        if self.processes.world > 1 and self.at.step % ASK_EVERY and not last:
            return
        stop = self.processes.any(self.stop.asked)
        # The end is no reason to save: what it would keep is less than a checkpoint's interval.
        due = self.processes.any(monotonic() - self.saved >= self.recipe.train.checkpoint_seconds)
        if stop or due or last:
            self._count()
        if stop or due:
            self.at.warnings, self.at.journal = self.guard.warnings, self.journal.size
            self.engine.save()
            self.saved = monotonic()
        if stop and not last:
            raise InterruptedRunError(
                f"stopped at step {self.at.step:,}, saved; --resume goes on from there"
            )

    def _warn(self, messages: list[str]) -> None:
        for message in messages:
            self.journal.write("warning", step=self.at.step, message=message)
            self.display.say(f"warning: {message}")

    def _epochs(self) -> float:
        return round(self.at.step / self.per_epoch, 4)


def count_steps(train: TrainSection, per_epoch: int) -> int:
    """Optimizer steps of a training without early stopping."""
    steps = max(1, round(train.epochs * per_epoch))
    return min(steps, train.max_steps) if train.max_steps else steps


def pinned(batch: Batch) -> Batch:
    """The batch in memory that a GPU copies from without waiting."""

    def pin(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: value.pin_memory() for name, value in tensors.items()}

    return type(batch)(batch.items, pin(batch.inputs), pin(batch.targets), pin(batch.places))


def finite(value: float) -> float | None:
    """The number, or None where JSON has none."""
    return value if math.isfinite(value) else None


def as_state(at: Position) -> dict[str, Any]:
    """The position as JSON takes it."""
    return {k: finite(v) if isinstance(v, float) else v for k, v in asdict(at).items()}


def from_state(state: dict[str, Any]) -> Position:
    """The position of a checkpoint."""
    return Position(**{**state, "best": -math.inf if state["best"] is None else state["best"]})
