"""Runs a recipe: trains, evaluates the best weights, writes a run folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from softf1.errors import InputError, RunError
from softf1.models.lora import merge_lora
from softf1.recipe import Recipe, describe_recipe, hash_recipe
from softf1.recipe.checking import list_excluded, list_weights
from softf1.training.build import make_model, quiet_transformers, untunable
from softf1.training.datasets import Datasets, load_datasets, read_parts
from softf1.training.evaluation import (
    Evaluated,
    measure_headroom,
    read_score,
    write_headroom,
    write_predictions,
)
from softf1.training.objective import make_objective
from softf1.training.processes import Processes, deterministic, on_rank_0, unwrap
from softf1.training.progress import choose_display, peak_memory
from softf1.training.publish import publish_model
from softf1.training.run_folder import (
    claim,
    find_finished,
    finish_run,
    identify,
    list_changes,
    tidy,
    versions,
)
from softf1.training.trainer import Trainer, make_trainer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from softf1.metrics.operating import Point
    from softf1.tasks.base import Logits, Task


class Outcome(NamedTuple):
    """The outcome of a run.

    Attributes:
        result: The content of `result.json`.
        trained: Whether it was trained now; False if it was finished before.
    """

    result: dict[str, Any]
    trained: bool


class CachingTrainer:
    """Trains recipes one after another and keeps the last datasets in memory.

    Runs of a grid differ in loss and seed, not in data.
    """

    def __init__(self) -> None:
        self.key: object = None
        self.held: Datasets | None = None

    def __call__(self, recipe: Recipe, folder: Path | str, **how: Any) -> dict[str, Any]:
        """Trains as `train_run` does."""
        return train_run(recipe, folder, load=self.load, **how)

    def load(self, recipe: Recipe) -> Datasets:
        """Same as `load_datasets`; from memory if task, encoder and files are unchanged."""
        state = identify(recipe)
        key = (recipe.task, recipe.encoder, state["data"], state["encoder_files"])
        if self.held is None or key != self.key:
            self.held = None  # free the old datasets before loading new ones
            self.key, self.held = key, load_datasets(recipe)
        return self.held


def check_data(recipes: Iterable[Recipe]) -> None:
    """Reads the files of recipes and checks labels and class weights that their losses name.

    Each file is read once, and encoded only where a loss needs to know the labels.

    Raises:
        InputError: A file cannot be read, or an option of a loss does not fit its labels.
    """
    cache = CachingTrainer()
    read: list[Any] = []
    for recipe in recipes:
        loss = recipe.loss
        if list_excluded(loss.options) or list_weights(loss.options):
            with quiet_transformers(recipe.encoder.name):
                datasets = cache.load(recipe)
            counts = datasets.task.class_counts(datasets.features["train"])
            labels = getattr(datasets.task, "labels", ())
            # The other keys of the logits are only known from a model, and have no classes.
            own = replace(loss, keys={})
            make_objective(own, keys=counts, counts=counts, labels=labels, steps=1)
        elif recipe.task not in read:
            read_parts(recipe)
        read.append(recipe.task)


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turns out-of-memory errors of the host or the GPU into one line with advice."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = str(error).partition("\n")[0]
        short = isinstance(error, (MemoryError, torch.OutOfMemoryError))
        if not short and "DefaultCPUAllocator" not in text:
            raise
        advice = "try smaller sizes of the encoder, train.batch_size, batch_tokens or max_length"
        raise RunError(f"not enough memory: {advice} ({text})") from error


def train_run(recipe: Recipe, folder: Path | str, **how: Any) -> dict[str, Any]:
    """Trains a recipe; returns the content of `result.json`.

    Args:
        recipe: What to train.
        folder: The run folder. One that is finished gives its result at once.
        how: Options of `train_or_find`.
    """
    return train_or_find(recipe, folder, **how).result


def train_or_find(
    recipe: Recipe,
    folder: Path | str,
    *,
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    data: Mapping[str, Sequence[Any]] | None = None,
    load: Callable[[Recipe], Datasets] = load_datasets,
) -> Outcome:
    """Trains a recipe, unless the folder already has its result.

    Args:
        recipe: What to train.
        folder: The run folder. One that is finished gives its result at once.
        resume: Continue from the last checkpoint, if there is one.
        force: Delete what an earlier run left in the folder, and start again.
        quiet: Show nothing.
        data: Examples of train, dev and test instead of the recipe's files.
        load: Reads and encodes the recipe's files.

    Raises:
        InputError: The folder is not a run of softf1, or a run of another recipe, other files or
            other versions.
    """
    folder, how = Path(folder), {"resume": resume, "force": force}
    with deterministic(on=bool(recipe.train.deterministic)), ExitStack() as held:
        processes = Processes(trackers=recipe.train.trackers, folder=folder)
        identity = on_rank_0(lambda: identify(recipe, data))
        done = on_rank_0(lambda: find_finished(folder, identity, **how))
        if done is not None:
            on_rank_0(lambda: tidy(folder, identity))
            return Outcome(done, trained=False)
        display = choose_display(quiet=quiet, main=processes.main)
        held.enter_context(memory_errors())
        held.callback(processes.end)
        held.callback(display.stop)
        if data is not None:
            load = partial(load_datasets, given=data)
        trainer, chosen = make_trainer(recipe, folder, processes, load)
        datasets = trainer.datasets
        identity = on_rank_0(lambda: identify_again(identity, recipe, data, datasets))
        for note in (*chosen, *(f"note: {note}" for note in datasets.notes)):
            display.say(note)
        # Only now: a recipe or data error above must not leave a claimed folder behind.
        done = on_rank_0(lambda: claim(folder, trainer.recipe, identity, held, **how))
        if done is not None:
            return Outcome(done, trained=False)
        with deterministic(on=trainer.deterministic):
            trainer.train(display)
        result = conclude(trainer)
        result = on_rank_0(lambda: finish_run(folder, result, identity))
        return Outcome(result, trained=True)


def identify_again(
    identity: Mapping[str, Any],
    recipe: Recipe,
    data: Mapping[str, Sequence[Any]] | None,
    datasets: Datasets,
) -> dict[str, Any]:
    """Identifies the run again after loading: an encoder may be downloaded now, a file changed."""
    now = identify(recipe, data)
    loaded = {**now, "data": {name: datasets.sources[name] for name in now["data"]}}
    changes = list_changes(identity, now) or list_changes(loaded, now)
    if changes:
        raise InputError(f"{changes[0]} while it was read: start again")
    return now


SCHEMA = 1
CPU = f"{sys.platform} cpu"


def conclude(trainer: Trainer) -> dict[str, Any]:
    """Scores the best weights and writes predictions and model; returns the result."""
    start = monotonic()
    trainer.load_best()
    parts: list[str] = [name for name in ("dev", "test") if name in trainer.datasets.examples]
    logits = {name: trainer.predict_logits(name) for name in parts}
    return on_rank_0(lambda: _write_results(trainer, logits, start))


def _write_results(trainer: Trainer, logits: dict[str, Logits], start: float) -> dict[str, Any]:
    task, tuned = trainer.datasets.task, {}
    points: list[Point] = []
    plain = {name: _score(trainer, task, name, own) for name, own in logits.items()}
    score = read_score(plain["dev"].scores, trainer.metric)
    collapsed = trainer.monitor.judge_final(
        plain["dev"].predictions, score=score, epoch=trainer.state.best_epoch
    )
    targets = trainer.recipe.eval.targets
    if targets is not None and not _is_finite(logits["dev"]):
        trainer.monitor.warnings.append(
            "the model gives numbers that are not finite, so nothing was tuned; try a lower "
            "train.lr"
        )
    elif targets is not None and not untunable(trainer.recipe, task):
        dev = logits["dev"], trainer.datasets.features["dev"], trainer.datasets.examples["dev"]
        if trainer.recipe.eval.target is None or not hasattr(task, "operate"):
            task = task.tune(*dev)
        else:
            task, points = task.operate(*dev, targets)
        trainer.monitor.warnings += [said for one in points if (said := one.complain())]
        tuned = {
            name: _score(trainer, task, name, own, ".tuned").scores for name, own in logits.items()
        }
    trainer.state.evaluate_seconds += monotonic() - start
    scores = {name: own.scores for name, own in plain.items()}
    result = describe_result(trainer, scores=scores, tuned=tuned, collapsed=collapsed)
    in_pipeline: Task | None = getattr(task, "in_pipeline", None)
    if in_pipeline is not None:
        result["pipeline_scores"] = _score_all(trainer, in_pipeline, logits)
    if points:
        result["operating_points"] = [point.describe() for point in points]
    publish_model(
        trainer.folder / "model",
        model=_plain_model(trainer),
        task=task,
        tokenizer=trainer.datasets.tokenizer,
        recipe=trainer.recipe,
        result=result,
    )
    try:
        _write_headroom(trainer, task, logits)
    except MemoryError:  # keep the model nevertheless
        trainer.monitor.warnings.append(
            "there was not enough memory to measure the headroom; softf1 headroom tries again"
        )
    return {**result, "warnings": trainer.monitor.warnings}


def _score_all(trainer: Trainer, task: Task, logits: dict[str, Logits]) -> dict[str, float]:
    """The primary score of each split, as `task` decides."""
    data, found = trainer.datasets, {}
    for name, own in logits.items():
        predictions = task.decode(own, data.features[name], data.examples[name])
        found[name] = read_score(task.score(predictions, data.examples[name]), trainer.metric)
    return found


def _is_finite(logits: Logits) -> bool:
    return all(np.isfinite(one).all() for one in logits.values() if one.dtype.kind == "f")


def _write_headroom(trainer: Trainer, task: Task, logits: dict[str, Logits]) -> None:
    """Writes the headroom on the split that the run is judged by."""
    name, own = list(logits.items())[-1]
    features, examples = trainer.datasets.features[name], trainer.datasets.examples[name]
    if _is_finite(own) and hasattr(task, "headroom"):
        which = {"split": name, "primary": trainer.metric}
        headroom = measure_headroom(task, own, features, examples, **which)
        write_headroom(trainer.folder, headroom)


def _plain_model(trainer: Trainer) -> nn.Module:
    """The model with the best weights; a sharded model is gathered into a plain one."""
    if not trainer.processes.sharded:
        return unwrap(trainer.stepper.model)
    with quiet_transformers():
        model = make_model(trainer.recipe, trainer.datasets)
    model.load_state_dict(trainer.best, strict=trainer.recipe.encoder.lora is None)
    merge_lora(model)
    return model


def describe_result(
    trainer: Trainer, *, scores: dict[str, Any], tuned: dict[str, Any], collapsed: bool
) -> dict[str, Any]:
    """The content of `result.json`, which docs/predict.md describes."""
    recipe, state, datasets = trainer.recipe, trainer.state, trainer.datasets
    seconds, device = max(1e-9, state.train_seconds), trainer.processes.device
    counts = datasets.task.class_counts(datasets.features["train"])
    labels = getattr(datasets.task, "labels", ())
    return {
        "schema": SCHEMA,
        "name": recipe.name,
        "hash": hash_recipe(recipe),
        "task": recipe.task.kind,
        "encoder": recipe.encoder.name,
        "loss": recipe.loss.name,
        "loss_options": recipe.loss.options,
        "seed": recipe.train.seed,
        "headline": trainer.metric,
        "scores": scores,
        **({"tuned": tuned} if tuned else {}),
        **({"collapsed": True} if collapsed else {}),
        "best": {"epoch": state.best_epoch, "step": state.best_step, "score": state.best},
        "epochs": trainer.epochs,
        "steps": state.step,
        "examples": state.examples,
        "class_counts": {key: name_counts(own, labels) for key, own in counts.items()},
        "seconds": {
            "total": round(state.train_seconds + state.evaluate_seconds, 3),
            "train": round(state.train_seconds, 3),
            "train_cpu": round(state.train_cpu_seconds, 3),
            "evaluate": round(state.evaluate_seconds, 3),
            "warmup": round(getattr(trainer.stepper, "seconds", 0.0), 3),
        },
        "tokens_per_second": round(state.tokens / seconds, 1),
        "examples_per_second": round(state.examples / seconds, 1),
        "peak_memory": peak_memory(device),
        "warnings": trainer.monitor.warnings,
        "notes": datasets.notes,
        "versions": versions(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else CPU,
        "world": trainer.processes.world,
        "precision": trainer.precision,
        "deterministic": trainer.deterministic,
        "data": datasets.sources,
        "recipe": describe_recipe(recipe),
    }


def _score(trainer: Trainer, task: Task, name: str, logits: Logits, kind: str = "") -> Evaluated:
    examples = trainer.datasets.examples[name]
    predictions = task.decode(logits, trainer.datasets.features[name], examples)
    # Without bars, thresholds and biases have decided already, and every text keeps its label.
    if getattr(task, "bars", {}):
        predictions = [task.abstain(one) for one in predictions]
    path = trainer.folder / f"predictions.{name}{kind}.jsonl"
    write_predictions(path, task, examples, predictions)
    return Evaluated(predictions, task.score(predictions, examples))


def name_counts(counts: NDArray[Any], labels: tuple[str, ...]) -> dict[str, int]:
    """Names the counts of classes; of several sigmoid outputs only the positive ones, of one both.

    >>> import numpy as np
    >>> name_counts(np.array([[9, 1]]), ())
    {'negative': 9, 'positive': 1}
    >>> name_counts(np.array([[9, 1], [5, 5]]), ("A", "B"))
    {'A': 1, 'B': 5}
    """
    if counts.shape == (1, 2):
        return dict(zip(("negative", "positive"), counts[0].tolist(), strict=True))
    own = counts if counts.ndim == 1 else counts[:, 1]
    names = labels if len(labels) == len(own) else tuple(map(str, range(len(own))))
    return dict(zip(names, own.tolist(), strict=True))


def default_folder(recipe: Recipe) -> Path:
    """The default folder of a run.

    >>> from softf1.recipe import build_recipe
    >>> recipe = build_recipe({"name": "mine", "task": {"kind": "tagging", "train": "a.txt"},
    ...                        "encoder": {"name": "bilstm"}, "loss": {"name": "ce+dice"}})
    >>> default_folder(recipe).as_posix()
    'runs/mine-ce+dice-s0'
    """
    return Path("runs") / f"{recipe.name}-{recipe.loss.name}-s{recipe.train.seed}"
