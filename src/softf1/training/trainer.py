"""The one training loop, for every task: steps, evaluations, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from softf1.errors import InputError, RunError
from softf1.files import finite
from softf1.models.lora import merge_lora
from softf1.recipe import Recipe, describe_recipe
from softf1.training.batching import MicroBatch, collate_rows, prefetch
from softf1.training.build import (
    is_deterministic,
    make_batch_sampler,
    make_stepper,
    note_consistency,
    quiet_transformers,
    resolve_auto,
    untunable,
    uses_graphs,
)
from softf1.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from softf1.training.datasets import Datasets, load_datasets
from softf1.training.evaluation import Evaluated, predict_logits, read_score
from softf1.training.graphs import wake_triton
from softf1.training.objective import count_steps, rate_factor, set_rate
from softf1.training.processes import (
    Processes,
    Stop,
    choose_precision,
    on_rank_0,
    unwrap,
    watch_signals,
)
from softf1.training.progress import Display, MetricsLog, Monitor, peak_memory
from softf1.training.run_folder import CHECKPOINTS
from softf1.training.state_dict import (
    load_model_tensors,
    load_optimizer_tensors,
    model_tensors,
    optimizer_groups,
    optimizer_tensors,
    random_state,
    set_random_state,
)
from softf1.training.step import LOSS, NORM, RUN, SKIPPED, STEPS

if TYPE_CHECKING:
    from softf1.tasks.base import Batch, Logits

LINES, LEAST = 200, 10
"""About how many step lines `metrics.jsonl` gets, and the least number of steps between two."""

ASK_EVERY = 10
"""Steps after which several processes agree again on saving and stopping."""


class InterruptedRunError(RunError):
    """The training was interrupted by a signal; a checkpoint was saved."""


@dataclass
class TrainState:
    """Progress of a training: with weights and random states, all that resuming needs.

    Attributes:
        step: Optimizer steps done.
        epoch: Epochs done.
        in_epoch: Steps done of this epoch.
        best: The best dev score so far, of the step `best_step` after `best_epoch` epochs.
        stale: Evaluations since the best one.
        score: The last dev score.
        stopped: Whether early stopping has ended the training.
        train_cpu_seconds: CPU time of the training; unlike `train_seconds`, other programs on the
            machine do not lengthen it.
        journal: Bytes of `metrics.jsonl` at the last checkpoint.
    """

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
    train_cpu_seconds: float = 0.0
    evaluate_seconds: float = 0.0
    tokens: int = 0
    examples: int = 0
    warnings: list[str] = field(default_factory=list)
    journal: int = 0

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> TrainState:
        """Restores the state from a checkpoint."""
        return cls(**{**state, "best": -math.inf if state["best"] is None else state["best"]})


class Trainer:
    """Trains a recipe in a folder; continues from a checkpoint if there is one.

    Args:
        recipe: What to train.
        folder: The folder for checkpoints and metrics.
        datasets: What to train on.
        processes: This process and the others of the training.

    Attributes:
        precision: Precision of the computation, such as bf16.
        graphs: Whether steps run as CUDA graphs.
        batch_sampler: The steps of each epoch.
        steps: Optimizer steps if training does not stop early.
        stepper: Model, loss and optimizer.
        deterministic: Whether operations add up in a fixed order; on a CPU they always do.
        state: Progress of the training.
        monitor: Collects warnings.
        best: The weights with the best dev score so far.
    """

    def __init__(
        self, *, recipe: Recipe, folder: Path, datasets: Datasets, processes: Processes
    ) -> None:
        self.recipe, self.folder = recipe, folder
        self.datasets, self.processes, train = datasets, processes, recipe.train
        self.precision = choose_precision(train.precision, processes.device)
        self.graphs = uses_graphs(self)
        self.batch_sampler = make_batch_sampler(self)
        self.steps_per_epoch = len(self.batch_sampler.epoch(0))
        self.steps = count_steps(train, self.steps_per_epoch)
        self.stepper = make_stepper(self)
        self.deterministic = is_deterministic(recipe, self.stepper)
        self.eval_every = max(1, round(train.eval_every * self.steps_per_epoch))
        self.log_every = max(LEAST, self.steps // LINES)
        self.state = TrainState()
        self.monitor = Monitor(datasets.task, recipe.loss)
        self.best: dict[str, Tensor] = {}
        self.display = Display()
        self.log = MetricsLog(None)
        self.stop = Stop()
        self.saved, self.clock = monotonic(), read_clocks()
        self.seen = [0, 0]  # tokens and examples of this process that are not in `state` yet

    @property
    def metric(self) -> str:
        """The primary metric: the dev score that chooses the checkpoint and is reported first."""
        return self.recipe.eval.metric or self.datasets.task.primary_metric

    @property
    def epochs(self) -> float:
        """Epochs done, with the fraction of the current one."""
        return round(self.state.step / self.steps_per_epoch, 4)

    def train(self, display: Display) -> None:
        """Trains to the end, until early stopping, or until a signal."""
        self.display = display
        # Dropout must differ between processes: reseed now that the weights exist.
        torch.manual_seed(self.recipe.train.seed * 1_000_003 + self.processes.rank)
        self._restore(load_checkpoint(self.folder / CHECKPOINTS))
        path = self.folder / "metrics.jsonl" if self.processes.main else None
        self.log = MetricsLog(path, size=self.state.journal)
        self.processes.start_trackers(describe_recipe(self.recipe))
        display.start(step=self.state.step, steps=self.steps, about=self.about())
        self.saved, self.clock = monotonic(), read_clocks()
        try:
            with watch_signals() as self.stop:
                self._run_steps()
        finally:
            self.log.close()

    def _run_steps(self) -> None:
        state = self.state
        while state.step < self.steps and not state.stopped:
            for batches in self._load_epoch():
                self.step(batches)
                if state.step >= self.steps or state.stopped:
                    break
            else:
                state.epoch, state.in_epoch = state.epoch + 1, 0
        self.log.write("end", step=state.step, best=state.best, best_step=state.best_step)

    def _load_epoch(self) -> Iterator[list[Batch]]:
        """Yields the remaining steps of this epoch, collated ahead of time."""
        task, tokenizer, epoch = self.datasets.task, self.datasets.tokenizer, self.state.epoch
        features = self.datasets.features["train"]
        pin = self.processes.device.type == "cuda"

        def load(step: list[MicroBatch]) -> list[Batch]:
            made = (collate_rows(task, features, micro, tokenizer, epoch=epoch) for micro in step)
            return [batch.apply(Tensor.pin_memory) if pin else batch for batch in made]

        left = self.batch_sampler.epoch(epoch)[self.state.in_epoch :]
        # On a CPU a second thread would only compete for cores.
        return prefetch(load, left, depth=4) if pin else map(load, left)

    def step(self, batches: list[Batch]) -> None:
        """Takes a step, then logs, evaluates, saves or stops if it is time."""
        state = self.state
        factor = rate_factor(state.step, steps=self.steps, train=self.recipe.train)
        set_rate(self.stepper.optimizer, factor)
        self.stepper.step(batches)
        state.step, state.in_epoch = state.step + 1, state.in_epoch + 1
        lengths = self.datasets.features["train"]["length"]
        self.seen[0] += sum(int(lengths[batch.items].sum()) for batch in batches)
        self.seen[1] += sum(len(batch.items) for batch in batches)
        last = state.step == self.steps
        if state.step % self.log_every == 0 or last:
            self._log_steps()
        # From the end of the last step: waiting for batches counts as training time.
        spent, spent_cpu = (now - then for now, then in zip(read_clocks(), self.clock, strict=True))
        state.train_seconds += spent
        state.train_cpu_seconds += spent_cpu
        if state.step % self.eval_every == 0 or last:
            self._evaluate(last=last)
        self._save_or_stop(last=last or state.stopped)
        self.clock = read_clocks()

    def _log_steps(self) -> None:
        self._count_seen()
        meter = self.stepper.read_meter()
        taken = meter[STEPS] - meter[SKIPPED]
        loss, norm = (meter[LOSS] / taken, meter[NORM]) if taken else (math.nan, math.nan)
        self._warn(self.monitor.watch_steps(skipped=meter[SKIPPED], run=meter[RUN], loss=loss))
        rate = float(self.stepper.optimizer.param_groups[0]["lr"])
        self.log.write(
            "step",
            step=self.state.step,
            epoch=self.epochs,
            loss=finite(loss),
            norm=finite(norm),
            lr=rate,
            seconds=round(self.state.train_seconds, 3),
        )
        self.processes.track({"loss": loss, "lr": rate}, self.state.step)
        self._show(loss)

    def _count_seen(self) -> None:
        """Adds tokens and examples of all processes to the state; all processes must call this."""
        tokens, examples = self.processes.add(self.seen)
        self.state.tokens += tokens
        self.state.examples += examples
        self.seen = [0, 0]

    def _show(self, loss: float) -> None:
        state, seconds = self.state, max(1e-9, self.state.train_seconds)
        self.display.advance(
            {
                "step": state.step,
                "epoch": self.epochs,
                "loss": loss,
                "score": state.score,
                "metric": self.metric,
                "tokens_per_second": state.tokens / seconds,
                "left": (self.steps - state.step) * seconds / state.step,
                "memory": peak_memory(self.processes.device),
            }
        )

    def predict_logits(self, split: str) -> Logits:
        """Returns the logits of a split, on rank 0; all processes must call this."""
        return predict_logits(
            self.stepper.model,
            self.datasets.task,
            self.datasets.features[split],
            self.datasets.tokenizer,
            device=self.processes.device,
            batch_tokens=self.recipe.eval.batch_tokens,
            autocast=self.stepper.autocast,
            world=self.processes.world,
            rank=self.processes.rank,
        )

    def _evaluate(self, *, last: bool) -> None:
        start, task = monotonic(), self.datasets.task
        features, examples = self.datasets.features["dev"], self.datasets.examples["dev"]
        logits = self.predict_logits("dev")
        evaluated = Evaluated([], {})

        def score() -> float:
            nonlocal evaluated
            predictions = task.decode(logits, features, examples)
            evaluated = Evaluated(predictions, task.score(predictions, examples))
            return read_score(evaluated.scores, self.metric)

        self.state.score = on_rank_0(score)
        self._judge(evaluated, score=self.state.score, last=last)
        self.state.evaluate_seconds += monotonic() - start

    def _judge(self, evaluated: Evaluated, *, score: float, last: bool) -> None:
        state, epochs = self.state, self.epochs
        better = score > state.best or not state.best_step
        kept = better or score == state.best  # on a tie, the later one
        state.stale = 0 if better else state.stale + 1
        scores = {k: v for k, v in evaluated.scores.items() if k != "labels"}
        self.log.write("eval", step=state.step, epoch=epochs, split="dev", scores=scores)
        self.processes.track({f"dev/{self.metric}": score}, state.step)
        self.display.say(
            f"epoch {epochs:.2f} · step {state.step:,} · dev {self.metric} {100 * score:.2f}"
            f"{' · best so far' if kept else ''}"
        )
        if kept:
            state.best, state.best_step, state.best_epoch = score, state.step, epochs
            self.keep_best()
        self._warn(self.monitor.watch_predictions(evaluated.predictions, epoch=epochs, last=last))
        state.stopped = 0 < self.recipe.train.patience <= state.stale

    def _warn(self, messages: list[str]) -> None:
        for message in messages:
            self.log.write("warning", step=self.state.step, message=message)
            self.display.say(f"warning: {message}")

    def keep_best(self) -> None:
        """Keeps a copy of the weights; all processes must call this."""
        tensors = model_tensors(self.stepper.model)
        self.best = {name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}

    def load_best(self) -> None:
        """Loads the best weights and merges LoRA, so that the model is an ordinary one.

        LoRA is merged before the evaluation, so that the scores are those of the published
        weights. Sharded weights are merged when they are published.
        """
        load_model_tensors(self.stepper.model, self.best)
        if self.recipe.encoder.lora is not None and not self.processes.sharded:
            merge_lora(unwrap(self.stepper.model))

    def _save_or_stop(self, *, last: bool) -> None:
        if self.processes.world > 1 and self.state.step % ASK_EVERY and not last:
            return
        stop = self.processes.any(self.stop.asked)
        # The last step alone is no reason to save: resuming repeats one interval at most.
        due = self.processes.any(monotonic() - self.saved >= self.recipe.train.checkpoint_seconds)
        if stop or due or last:
            self._count_seen()
        if stop or due:
            self.state.warnings, self.state.journal = self.monitor.warnings, self.log.size
            self.save()
            self.saved = monotonic()
        if stop and not last:
            raise InterruptedRunError(
                f"stopped at step {self.state.step:,}, saved; --resume continues from there"
            )

    def save(self) -> None:
        """Writes a checkpoint; all processes must call this."""
        model, optimizer = self.stepper.model, self.stepper.optimizer
        objective = self.stepper.objective
        tensors = {
            "model": model_tensors(model),
            "optimizer": optimizer_tensors(model, optimizer),
            "objective": model_tensors(objective),
            "best": self.best,
            "random": random_state(),
        }
        state = {
            "position": finite(asdict(self.state)),
            "scaler": self.stepper.scaler.state_dict(),
            "groups": optimizer_groups(model, optimizer),
            "meter": self.stepper.meter.tolist(),
            "windows": {k: own.tolist() for k, own in objective.running_statistics().items()},
            "data": self._describe_data(),
        }
        save_checkpoint(self.folder / CHECKPOINTS, self.state.step, tensors, state)
        self.processes.wait()

    def _restore(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            return
        for warning in checkpoint.warnings:
            self.display.say(f"warning: {warning}")
        state, tensors, stepper = checkpoint.state, checkpoint.tensors, self.stepper
        if state["data"] != self._describe_data():
            raise InputError("the data has changed since this run began", path=self.folder)
        load_model_tensors(stepper.model, tensors["model"])
        load_optimizer_tensors(
            stepper.model, stepper.optimizer, tensors["optimizer"], state["groups"]
        )
        load_model_tensors(stepper.objective, tensors["objective"])
        stepper.objective.restore_statistics(
            {key: torch.tensor(own) for key, own in state["windows"].items()}
        )
        stepper.meter.copy_(torch.tensor(state["meter"]))
        if stepper.scaler.is_enabled():
            stepper.scaler.load_state_dict(state["scaler"])
        self.best = tensors["best"]
        self.state = TrainState.from_json(state["position"])
        self.monitor.warnings = list(self.state.warnings)
        set_random_state(tensors["random"])

    def _describe_data(self) -> dict[str, list[Any]]:
        sources = self.datasets.sources
        return {name: [one["examples"], one.get("sha256")] for name, one in sources.items()}

    def count_parameters(self) -> tuple[int, int]:
        """Counts all parameters, and those that are trained."""
        every = self.stepper.model.parameters()
        return sum(p.numel() for p in every), sum(p.numel() for p in self.stepper.parameters)

    def about(self) -> str:
        """Describes the training in one line."""
        recipe, examples = self.recipe, self.datasets.examples
        total, trained = self.count_parameters()
        part = "" if trained == total else f", {trained / 1e6:.2f} M of them trained"
        return (
            f"{recipe.name}: {recipe.task.kind}, {recipe.encoder.name} "
            f"({total / 1e6:.1f} M parameters{part}), "
            f"loss {recipe.loss.name}, seed {recipe.train.seed}; "
            + ", ".join(f"{len(own):,} {name}" for name, own in examples.items())
            + f" examples; {self.steps:,} steps on {self.processes.device.type} ({self.precision})"
        )


def read_clocks() -> tuple[float, float]:
    """Seconds by the wall clock, and of CPU time of this process."""
    return monotonic(), process_time()


def make_trainer(
    recipe: Recipe,
    folder: Path,
    processes: Processes,
    load: Callable[[Recipe], Datasets] = load_datasets,
) -> tuple[Trainer, list[str]]:
    """Loads the datasets and makes the trainer; also returns what `auto` chose, and notes."""
    if processes.device.type == "cuda":
        wake_triton(processes.device)
    with quiet_transformers(recipe.encoder.name):
        recipe, datasets, chosen = resolve_auto(recipe, load(recipe))
        trainer = Trainer(recipe=recipe, folder=folder, datasets=datasets, processes=processes)
    for said in note_consistency(trainer.stepper.model, recipe.train.consistency):
        chosen.append(f"note: train.{said}; set it to 0, or encoder.dropout above 0")
    if untunable(recipe, datasets.task):
        chosen.append("note: nothing is tuned on dev: there is no threshold or bias here")
    if recipe.train.deterministic and not trainer.deterministic:
        compiled = 'what train.compile = "inductor" compiles'
        chosen.append(f"note: train.deterministic = true does not cover {compiled} on a GPU")
    return trainer, chosen
