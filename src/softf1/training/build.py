"""Builds model, batch sampler, loss and optimizer from a recipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor, nn

from softf1.errors import InputError
from softf1.losses import prior_bias
from softf1.models.encoders import find_encoders, import_encoder, list_encoders
from softf1.models.lora import add_lora
from softf1.recipe import Recipe, with_values
from softf1.recipe.auto import AUTO, HARDENING, choose_values
from softf1.recipe.checking import check_eval_target
from softf1.training.adversarial import find_embeddings
from softf1.training.batching import MAX_BUCKETS, BatchSampler, collate_rows, find_strata
from softf1.training.evaluation import check_metric
from softf1.training.graphs import GraphStepper
from softf1.training.objective import Objective, make_objective, make_optimizer, parameter_groups
from softf1.training.processes import Processes, freeze_unused, make_autocast, unwrap
from softf1.training.step import Attack, Stepper

if TYPE_CHECKING:
    from softf1.tasks.base import Batch, Task
    from softf1.training.datasets import Datasets

MICRO_TOKENS = {"cpu": 4096}
"""Default of `train.micro_tokens` by device type: padded tokens per forward pass at most."""

MICRO_TOKENS_ELSEWHERE = 65536

SCRATCH_LR = 1e-3
"""The usual learning rate of an encoder from scratch; `softf1 new` proposes it too."""


FREE = ("textcnn",)
"""Encoders whose replayed steps cost no more with deterministic operations of torch."""


class Setup(Protocol):
    """The part of a trainer that its model, loss and optimizer are made from."""

    recipe: Recipe
    datasets: Datasets
    processes: Processes
    precision: str
    graphs: bool
    batch_sampler: BatchSampler
    steps: int


def resolve_auto(recipe: Recipe, datasets: Datasets) -> tuple[Recipe, Datasets, list[str]]:
    """Resolves `loss.name = "auto"` for these data.

    Returns:
        The recipe with the choice, the datasets with a task that has its options, and lines for
        the user: the choice, and a note on a learning rate that does not suit the encoder.
    """
    notes = _note_rate(recipe)
    if recipe.loss.name != AUTO:
        return recipe, datasets, notes
    task, options = datasets.task, recipe.task.options
    sizes = {f"train.{key}": getattr(recipe.train, key) for key in HARDENING}
    positive = getattr(task, "positive_label", None)
    choice = choose_values(
        recipe.task.kind,
        metric=recipe.eval.metric or task.primary_metric,
        counts=task.class_counts(datasets.features["train"]),
        given={key: value for key, value in sizes.items() if value is not None}
        | {f"task.{key}": value for key, value in options.items()},
        positive=1 if positive is None else getattr(task, "labels", ()).index(positive),
        spans=len(getattr(task, "span_labels", ())) or None,
        target="f1" if recipe.eval.tunes_f1 else str(recipe.eval.target or "f1"),
    )
    recipe = with_values(recipe, choice.values)
    chosen = {key: own for key, own in recipe.task.options.items() if options.get(key) != own}
    if chosen:
        changed = replace(task, **chosen)  # type: ignore[type-var]  # every task is a dataclass
        datasets = replace(datasets, task=changed.fit(datasets.features["train"]))
    return recipe, datasets, [choice.line, *notes]


def _note_rate(recipe: Recipe) -> list[str]:
    """A note if the learning rate is one for pretrained weights, and there are none."""
    encoder, lr = recipe.encoder.name, recipe.train.lr
    if encoder not in list_encoders() or lr >= SCRATCH_LR / 5:
        return []
    low = f"train.lr = {lr:g} is low for {encoder}, which trains from scratch"
    return [f"note: {low}; {SCRATCH_LR:g} is usual"]


def untunable(recipe: Recipe, task: Task) -> bool:
    """Whether the recipe tunes decisions for F1, but the task has none to tune."""
    barred = recipe.eval.target is not None and getattr(task, "bars_for_f1", False)
    return recipe.eval.tunes_f1 and not barred and not getattr(task, "tunes", True)


def note_consistency(model: nn.Module, consistency: float | None) -> list[str]:
    """A sentence about a consistency term without dropout, which both predictions then share."""
    if not consistency or any(
        share > 0 for module in model.modules() for share in find_dropout(module).values()
    ):
        return []
    return [f"consistency = {consistency:g} only costs time here: the model has no dropout"]


def uses_graphs(trainer: Setup) -> bool:
    """Whether steps run as CUDA graphs; raises if the recipe asks for graphs that cannot be used.

    Gradient checkpointing cannot be captured: it reads the state of the random generator.
    """
    recipe, processes, precision = trainer.recipe, trainer.processes, trainer.precision
    train = recipe.train
    if processes.sharded and precision == "fp16":
        raise InputError('train.precision="fp16" is not for sharded weights; use "bf16"')
    able = (
        processes.device.type == "cuda"
        and processes.world == 1
        and train.accumulate == 1
        and precision != "fp16"
        and not recipe.encoder.gradient_checkpointing
    )
    if train.compile == "graphs" and not able:
        raise InputError(
            'train.compile="graphs" needs one process with a CUDA GPU, train.accumulate=1, '
            "no fp16 and no gradient checkpointing"
        )
    return able and train.compile != "off"


def make_batch_sampler(trainer: Setup) -> BatchSampler:
    """Makes the batch sampler for the training data."""
    train, datasets, processes = trainer.recipe.train, trainer.datasets, trainer.processes
    features = datasets.features["train"]
    micro_tokens = train.micro_tokens
    if micro_tokens is None:
        micro_tokens = MICRO_TOKENS.get(processes.device.type, MICRO_TOKENS_ELSEWHERE)
    if train.consistency and micro_tokens:
        micro_tokens = max(1, micro_tokens // 2)  # the model sees every row twice
    drawn = train.sampler != "shuffle"
    return BatchSampler(
        features["length"],
        batch_size=train.batch_size,
        batch_tokens=train.batch_tokens,
        accumulate=train.accumulate,
        micro_tokens=micro_tokens,
        sampler=train.sampler,
        strata=find_strata(datasets.task, features) if drawn else None,
        seed=train.seed,
        by_length=train.group_by_length,
        world=processes.world,
        rank=processes.rank,
        # Each bucket is one graph to capture. With batch_tokens the buckets decide which items
        # form a step, and that must not depend on the device.
        max_buckets=MAX_BUCKETS if train.batch_tokens or trainer.graphs else 0,
    )


def make_stepper(trainer: Setup) -> Stepper:
    """Makes model, loss and optimizer, and puts them on their device.

    The batch sampler of the trainer changes only if the loss needs each step in one piece.
    """
    recipe, datasets, processes = trainer.recipe, trainer.datasets, trainer.processes
    train, device = recipe.train, processes.device
    model = make_model(recipe, datasets)
    check_eval_target(recipe, datasets.task)
    check_metric(recipe, datasets, model)
    autocast = make_autocast(trainer.precision, device)
    objective = _make_objective(trainer, model)
    if processes.world > 1 and not processes.sharded:
        model.to(device)
        loss, _ = find_first_loss(trainer, model, objective, autocast)
        freeze_unused(model, loss)
    model = processes.wrap(model)
    if train.compile == "inductor":
        model.compile(dynamic=True)
    optimizer = make_optimizer(
        parameter_groups(unwrap(model), datasets.task, train),
        train,
        fused=not processes.sharded,
        capturable=trainer.graphs,
    )
    epsilon = train.adversarial or train.adversarial_relative
    if epsilon:
        find_embeddings(model)  # raises before the first step
    relative = bool(train.adversarial_relative)
    kind: Callable[..., Stepper] = Stepper
    if trainer.graphs:
        widths = trainer.batch_sampler.buckets.tolist()
        packs = not train.group_by_length and train.compile != "inductor"
        kind = partial(GraphStepper, widths=widths, packs=packs)
    stepper = kind(
        model,
        task=datasets.task,
        objective=objective,
        optimizer=optimizer,
        device=device,
        clip=train.clip,
        alone=processes.world == 1,
        autocast=autocast,
        scaler=torch.amp.GradScaler(device.type, enabled=trainer.precision == "fp16"),
        attack=Attack(epsilon, relative, train.adversarial_direction) if epsilon else None,
    )
    # What inductor compiles would be compiled once more, for eval mode.
    if getattr(stepper, "compiling", False) and train.compile != "inductor":
        stepper.rehearse(first_batch(trainer))  # type: ignore[attr-defined]
    return stepper


def first_batch(trainer: Setup) -> Batch:
    """The first micro-batch of the training."""
    task, features = trainer.datasets.task, trainer.datasets.features["train"]
    micro = trainer.batch_sampler.epoch(0)[0][0]
    return collate_rows(task, features, micro, trainer.datasets.tokenizer)


def is_deterministic(recipe: Recipe, stepper: Stepper) -> bool:
    """Whether sums have a fixed order, as on a CPU; by default where that costs no time."""
    train = recipe.train
    if stepper.device.type == "cpu":
        return True
    if train.compile == "inductor":  # it keeps its own operations
        return False
    if train.deterministic is not None:
        return train.deterministic
    replayed = isinstance(stepper, GraphStepper)
    return stepper.repeats or (replayed and recipe.encoder.name in FREE)


def _make_objective(trainer: Setup, model: nn.Module) -> Objective:
    """Makes the loss, exact over micro-batches if a step may have several."""
    train, processes, batch_sampler = trainer.recipe.train, trainer.processes, trainer.batch_sampler
    task, features = trainer.datasets.task, trainer.datasets.features["train"]
    counts, keys = task.class_counts(features), tuple(task.heads(model))
    expected = None
    if train.step_weights != "equal":
        each = sum(counts[key].sum() / len(features) if key in counts else 1.0 for key in keys)
        epoch = batch_sampler.epoch(0)
        # Ranks have shares of different size, perhaps empty ones.
        (items,) = processes.add([sum(len(micro.items) for step in epoch for micro in step)])
        expected = float(each * (items / len(epoch)))
    objective = make_objective(
        trainer.recipe.loss,
        keys=keys,
        counts=counts,
        labels=getattr(task, "labels", ()),
        steps=trainer.steps,
        expected=expected,
        consistency=train.consistency or 0.0,
    )
    several = processes.world > 1 or train.accumulate > 1
    if several or batch_sampler.splits:
        try:
            objective.open_windows()
        except InputError:
            if several or train.micro_tokens:
                raise
            # The user did not ask for micro-batches, and hard-negative mining needs the whole step.
            batch_sampler.micro_tokens = 0
    return objective.to(processes.device)


def find_first_loss(
    trainer: Setup,
    model: nn.Module,
    objective: Objective,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> tuple[Tensor, Tensor]:
    """The loss of the first micro-batch: the value to differentiate and the value to show."""
    batch = objective.prepare(first_batch(trainer).to(trainer.processes.device))
    with autocast():
        logits = trainer.datasets.task.logits(model(**batch.inputs), batch)
    return objective.whole({k: v.float() for k, v in logits.items()}, batch.targets)


def make_model(recipe: Recipe, datasets: Datasets) -> nn.Module:
    """Makes encoder and head on the CPU; the same seed gives the same weights."""
    torch.manual_seed(recipe.train.seed)
    task, name = datasets.task, recipe.encoder.name
    options = dict(recipe.encoder.options)
    if recipe.encoder.allow_pickle:
        options["allow_pickle"] = True
    model = task.build_model(name, datasets.tokenizer, **options)
    if recipe.encoder.dropout is not None:
        set_dropout(model, recipe.encoder.dropout)
    start_heads(model, datasets, prior=recipe.train.head_bias == "prior")
    if recipe.encoder.lora is not None:
        add_lora(model, **asdict(recipe.encoder.lora))
    if recipe.encoder.gradient_checkpointing:
        checkpoint_gradients(model)
    return model


def checkpoint_gradients(model: nn.Module) -> None:
    """Turns on gradient checkpointing: activations are recomputed in the backward pass."""
    for part in cast("list[Any]", find_encoders(model)):
        try:
            part.gradient_checkpointing_enable()
        except (AttributeError, ValueError) as error:
            kind = type(part).__name__
            message = f"encoder.gradient_checkpointing: {kind} cannot compute its layers again"
            raise InputError(message) from error
        # Enabling makes the embeddings require a gradient, which only the reentrant variant needs.
        part.disable_input_require_grads()
        for module in part.modules():
            if hasattr(module, "config"):
                # The key-value cache is for generation; checkpointing does not allow it.
                module.config.use_cache = False


def set_dropout(model: nn.Module, share: float) -> None:
    """Sets every dropout of the model, in attention and in the configuration too."""
    for module in model.modules():
        for holder in (module, getattr(module, "config", module)):
            for name in find_dropout(holder):
                setattr(holder, name, share)


def find_dropout(holder: Any) -> dict[str, float]:
    """The dropout of a module or a configuration, by attribute.

    Attention and recurrent layers store it as a number, and so does the configuration.
    """
    every = nn.modules.dropout._DropoutNd  # noqa: SLF001 - Dropout, Dropout2d and so on
    own = {"p": holder.p} if isinstance(holder, every) else {}
    return own | {
        name: value
        for name, value in vars(holder).items()
        if ("dropout" in name or name.endswith("pdrop")) and type(value) in (int, float)
    }


@torch.no_grad()
def start_heads(model: nn.Module, datasets: Datasets, *, prior: bool) -> None:
    """Sets output biases to the log class prior, or to 0; positions have no class prior."""
    counts = datasets.task.class_counts(datasets.features["train"])
    for key, (layer, rows) in datasets.task.heads(model).items():
        bias = cast("Tensor | None", layer.bias)
        if bias is None:  # some decoders have no bias
            continue
        bias[rows] = 0.0
        if prior and key in counts:
            own = counts[key]
            bias[rows] = prior_bias(torch.from_numpy(own), sigmoid=own.ndim == 2)


@contextmanager
def quiet_transformers(encoder: str | Path | None = None) -> Iterator[None]:
    """Silences the progress bars and reports of transformers.

    Args:
        encoder: The encoder that is loaded inside. One from scratch does not need transformers,
            which takes seconds to import. None if transformers is imported already.
    """
    if encoder is not None:
        import_encoder(encoder)
    if "transformers" not in sys.modules:
        yield
        return
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers has no types
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
