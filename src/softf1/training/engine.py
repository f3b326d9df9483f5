"""One training in progress: what is built from a recipe, saved, and gone on with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from softf1.errors import InputError
from softf1.recipe import describe_recipe
from softf1.training.batching import Plan, collate_rows, find_strata
from softf1.training.checkpoint import (
    load_checkpoint,
    load_model_tensors,
    load_optimizer_tensors,
    model_tensors,
    optimizer_groups,
    optimizer_tensors,
    random_state,
    save_checkpoint,
    set_random_state,
)
from softf1.training.folder import CHECKPOINTS
from softf1.training.guard import Guard
from softf1.training.journal import Journal
from softf1.training.loop import Loop, Position, as_state, count_steps, from_state
from softf1.training.metric import check_metric
from softf1.training.model import make_model
from softf1.training.objective import make_objective
from softf1.training.optimizer import make_optimizer, parameter_groups
from softf1.training.processes import choose_precision, freeze_unused, make_autocast, unwrap
from softf1.training.signals import watch_signals
from softf1.training.step import Attack, Stepper
from softf1.training.widths import MOST

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from softf1.recipe import Recipe
    from softf1.training.checkpoint import Checkpoint
    from softf1.training.material import Material
    from softf1.training.objective import Objective
    from softf1.training.processes import Processes
    from softf1.training.progress import Display

MICRO_TOKENS = {"cpu": 4096}
"""Padded tokens of a forward pass at most by the kind of device, where the recipe does not say."""

MICRO_TOKENS_ELSEWHERE = 65536


@dataclass
class Engine:
    """Trains a recipe in a folder.

    Attributes:
        recipe: What to train.
        folder: Where checkpoints and metrics go.
        material: What to train on.
        processes: Who else is there.
        at: How far it is.
        guard: Watches.
        best: The weights with the best dev score so far.
        stepper: Model, loss and optimizer.
        precision: Type of the computation.
    """

    recipe: Recipe
    folder: Path
    material: Material
    processes: Processes
    at: Position = field(default_factory=Position)
    guard: Guard = field(init=False)
    best: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Builds model, loss and optimizer."""
        train, device = self.recipe.train, self.processes.device
        self.guard = self._guard()
        self.precision = choose_precision(train.precision, device)
        self.autocast = make_autocast(self.precision, device)
        self.plan = self._plan()
        self.steps = count_steps(train, len(self.plan.epoch(0)))
        self.stepper = self._stepper()

    def train(self, display: Display) -> None:
        """Runs the loop, from a checkpoint where there is one."""
        # Dropout differs between processes; with the weights made, the seed starts it anew.
        torch.manual_seed(self.recipe.train.seed * 1_000_003 + self.processes.rank)
        self._restore(load_checkpoint(self.folder / CHECKPOINTS), display)
        path = self.folder / "metrics.jsonl" if self.processes.main else None
        journal = Journal(path, size=self.at.journal)
        self.processes.start_trackers(describe_recipe(self.recipe))
        display.start(step=self.at.step, steps=self.steps, about=self.about())
        try:
            with watch_signals() as stop:
                Loop(self, journal=journal, display=display, stop=stop).run()
        finally:
            journal.close()

    @property
    def how(self) -> dict[str, Any]:
        """How evaluation runs the model."""
        return {
            "device": self.processes.device,
            "batch_tokens": self.recipe.eval.batch_tokens,
            "autocast": self.autocast,
            "world": self.processes.world,
            "rank": self.processes.rank,
        }

    def save(self) -> None:
        """Writes a checkpoint; all processes take part."""
        model, optimizer = self.stepper.model, self.stepper.optimizer
        tensors = {
            "model": model_tensors(model),
            "optimizer": optimizer_tensors(model, optimizer),
            "objective": model_tensors(self.stepper.objective),
            "best": self.best,
            "random": random_state(),
        }
        state = {
            "position": as_state(self.at),
            "scaler": self.stepper.scaler.state_dict(),
            "groups": optimizer_groups(model, optimizer),
            "meter": self.stepper.meter.tolist(),
            "windows": self.stepper.objective.running(),
            "data": self._data(),
        }
        save_checkpoint(self.folder / CHECKPOINTS, self.at.step, tensors, state)
        self.processes.wait()

    def keep_best(self) -> None:
        """Keeps a copy of the weights; all processes take part."""
        found = model_tensors(self.stepper.model)
        self.best = {name: value.detach().to("cpu", copy=True) for name, value in found.items()}

    def take_best(self) -> None:
        """Puts the best weights into the model."""
        load_model_tensors(self.stepper.model, self.best)

    def _restore(self, checkpoint: Checkpoint | None, display: Display) -> None:
        if checkpoint is None:
            return
        for warning in checkpoint.warnings:
            display.say(f"warning: {warning}")
        if checkpoint.state["data"] != self._data():
            raise InputError("the data are not those that this run began with", path=self.folder)
        tensors, stepper = checkpoint.tensors, self.stepper
        load_model_tensors(stepper.model, tensors["model"])
        load_optimizer_tensors(
            stepper.model, stepper.optimizer, tensors["optimizer"], checkpoint.state["groups"]
        )
        load_model_tensors(stepper.objective, tensors["objective"])
        stepper.objective.go_on(checkpoint.state["windows"])
        stepper.meter.copy_(torch.tensor(checkpoint.state["meter"]))
        if stepper.scaler.is_enabled():
            stepper.scaler.load_state_dict(checkpoint.state["scaler"])
        self.best = tensors["best"]
        self.at = from_state(checkpoint.state["position"])
        self.guard = self._guard()
        set_random_state(tensors["random"])

    def _guard(self) -> Guard:
        outside = "O" in getattr(self.material.task, "labels", ())
        return Guard(self.at.warnings, loss=self.recipe.loss, outside=outside)

    def _data(self) -> dict[str, list[Any]]:
        sources = self.material.sources
        return {name: [one["examples"], one.get("sha256")] for name, one in sources.items()}

    def _plan(self) -> Plan:
        train, features = self.recipe.train, self.material.features["train"]
        drawn = train.sampler != "shuffle"
        return Plan(
            features["length"],
            batch_size=train.batch_size,
            batch_tokens=train.batch_tokens,
            accumulate=train.accumulate,
            micro_tokens=self._micro_tokens(),
            sampler=train.sampler,
            strata=find_strata(self.material.task, features) if drawn else None,
            seed=train.seed,
            world=self.processes.world,
            rank=self.processes.rank,
            # A width is a graph to capture. Where tokens cut the steps, widths decide what is in
            # them, and that must not depend on the device.
            max_widths=MOST if train.batch_tokens or self._uses_graphs() else 0,
        )

    def _stepper(self) -> Stepper:
        train, processes, task = self.recipe.train, self.processes, self.material.task
        model = make_model(self.recipe, self.material)
        check_metric(self.recipe, self.material, model)
        objective = self._objective(model)
        if processes.world > 1 and not processes.sharded:
            model.to(processes.device)
            freeze_unused(model, self._probe(model, objective)[0])
        model = processes.wrap(model)
        graphs = self._uses_graphs()
        if train.compile == "inductor":
            model.compile(dynamic=True)
        optimizer = make_optimizer(
            parameter_groups(unwrap(model), task, train),
            train,
            fused=not processes.sharded,
            capturable=graphs,
        )
        return stepper_class(graphs=graphs)(
            model,
            task=task,
            objective=objective,
            optimizer=optimizer,
            device=processes.device,
            clip=train.clip,
            alone=processes.world == 1,
            autocast=self.autocast,
            scaler=torch.amp.GradScaler(processes.device.type, enabled=self.precision == "fp16"),
            attack=self._attack(),
        )

    def _attack(self) -> Attack | None:
        train = self.recipe.train
        epsilon = train.adversarial or train.adversarial_relative
        if not epsilon:
            return None
        relative = bool(train.adversarial_relative)
        return Attack(epsilon, relative=relative, direction=train.adversarial_direction)

    def _objective(self, model: nn.Module) -> Objective:
        task, features = self.material.task, self.material.features["train"]
        counts, keys = task.class_counts(features), tuple(task.heads(model))
        equal = self.recipe.train.step_weights == "equal"
        each = sum(counts[key].sum() / len(features) if key in counts else 1.0 for key in keys)
        objective = make_objective(
            self.recipe.loss,
            keys=keys,
            counts=counts,
            labels=getattr(task, "labels", ()),
            steps=self.steps,
            expected=None if equal else float(each * self._items_a_step()),
            consistency=self.recipe.train.consistency,
        )
        if self.processes.world > 1 or self.recipe.train.accumulate > 1 or self.plan.splits:
            self._open_windows(objective)
        return objective.to(self.processes.device)

    def _open_windows(self, objective: Objective) -> None:
        """Makes the loss exact over micro-batches; where nobody asked for them, a loss may refuse.

        Hard-negative mining looks at a whole step: its steps are then not cut.
        """
        train = self.recipe.train
        try:
            objective.open_windows()
        except InputError:
            if self.processes.world > 1 or train.accumulate > 1 or train.micro_tokens:
                raise
            self.plan.micro_tokens = 0

    def _micro_tokens(self) -> int:
        own = self.recipe.train.micro_tokens
        if own is not None:
            return own
        return MICRO_TOKENS.get(self.processes.device.type, MICRO_TOKENS_ELSEWHERE)

    def _items_a_step(self) -> float:
        epoch = self.plan.epoch(0)
        own = sum(len(micro.items) for step in epoch for micro in step)
        (total,) = self.processes.add([own])  # shares differ, and may be nothing
        return total / len(epoch)

    @torch.no_grad()
    def try_batch(self) -> float:
        """The loss of the first batch."""
        return self._probe(self.stepper.model, self.stepper.objective)[1].item()

    def _probe(self, model: nn.Module, objective: Objective) -> tuple[Tensor, Tensor]:
        micro = self.plan.epoch(0)[0][0]
        task, features = self.material.task, self.material.features["train"]
        batch = collate_rows(task, features, micro, self.material.codec)
        batch = objective.prepare(batch.to(self.processes.device))
        with self.autocast():
            logits = task.logits(model(**batch.inputs), batch)
        return objective.whole({k: v.float() for k, v in logits.items()}, batch.targets)

    def _uses_graphs(self) -> bool:
        train, wanted = self.recipe.train, self.recipe.train.compile
        if self.processes.sharded and self.precision == "fp16":
            raise InputError('train.precision="fp16" is not for sharded weights; use "bf16"')
        able = (
            self.processes.device.type == "cuda"
            and self.processes.world == 1
            and train.accumulate == 1
            and self.precision != "fp16"
        )
        if wanted == "graphs" and not able:
            raise InputError(
                'train.compile="graphs" needs one process with a CUDA GPU, train.accumulate=1 and '
                "no fp16"
            )
        return able and wanted != "off"

    def about(self) -> str:
        """What is trained, in one line."""
        sizes = {name: f"{len(found):,}" for name, found in self.material.examples.items()}
        model = unwrap(self.stepper.model)
        return (
            f"{self.recipe.name}: {self.recipe.task.kind}, {self.recipe.encoder.name} "
            f"({sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters), "
            f"loss {self.recipe.loss.name}, seed {self.recipe.train.seed}; "
            + ", ".join(f"{size} {name}" for name, size in sizes.items())
            + f" examples; {self.steps:,} steps on {self.processes.device.type} ({self.precision})"
        )


def stepper_class(*, graphs: bool) -> type[Stepper]:
    """Steps as they are, or as CUDA graphs."""
    if not graphs:
        return Stepper
    from softf1.training.graphs import GraphStepper

    return GraphStepper
