"""The end of a run: the best weights evaluated, and all that others need written down."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from softf1.recipe import describe_recipe, hash_recipe
from softf1.training.evaluation import find, write_predictions
from softf1.training.identity import versions
from softf1.training.metric import read_score
from softf1.training.model import make_model
from softf1.training.processes import unwrap
from softf1.training.progress import peak_memory
from softf1.training.publish import publish_model
from softf1.training.quiet import quiet_transformers

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from softf1.tasks.base import Found, Task
    from softf1.training.engine import Engine

SCHEMA = 1


def conclude(engine: Engine) -> dict[str, Any]:
    """Scores the best weights, writes predictions and model; gives the content of the result."""
    start = monotonic()
    engine.take_best()
    parts: list[str] = [name for name in ("dev", "test") if name in engine.material.examples]
    found = {name: _find(engine, name) for name in parts}
    return engine.processes.agree(lambda: _write(engine, found, start))


def _write(engine: Engine, found: dict[str, Found], start: float) -> dict[str, Any]:
    task, tuned = engine.material.task, {}
    plain = {name: _score(engine, task, name, own) for name, own in found.items()}
    collapsed = _settle(engine, found["dev"], plain["dev"])
    finite = all(np.isfinite(one).all() for one in found["dev"].values() if one.dtype.kind == "f")
    if engine.recipe.eval.tune and not finite:
        engine.guard.warnings.append(
            "the model gives numbers that are not finite, so that nothing was tuned; try a lower "
            "train.lr"
        )
    elif engine.recipe.eval.tune:
        features, examples = engine.material.features["dev"], engine.material.examples["dev"]
        task = task.tune(found["dev"], features, examples)
        tuned = {name: _score(engine, task, name, own, ".tuned") for name, own in found.items()}
    engine.at.evaluate_seconds += monotonic() - start
    result = describe_result(engine, scores=plain, tuned=tuned, collapsed=collapsed)
    publish_model(
        engine.folder / "model",
        model=_plain_model(engine),
        task=task,
        codec=engine.material.codec,
        recipe=engine.recipe,
        result=result,
    )
    return result


def _settle(engine: Engine, found: Found, scores: dict[str, Any]) -> bool:
    """Whether the model that is kept gives nothing, or one class alone, on dev."""
    task, features = engine.material.task, engine.material.features["dev"]
    predictions = task.decode(found, features, engine.material.examples["dev"])
    score = read_score(scores, engine.recipe.eval.metric or task.headline)
    return engine.guard.settle(predictions, score=score, epoch=engine.at.best_epoch)


def _plain_model(engine: Engine) -> nn.Module:
    """The model with the best weights; of one that is sharded, another that is not."""
    if not engine.processes.sharded:
        return unwrap(engine.stepper.model)
    with quiet_transformers():
        model = make_model(engine.recipe, engine.material)
    model.load_state_dict(engine.best)
    return model


def describe_result(
    engine: Engine, *, scores: dict[str, Any], tuned: dict[str, Any], collapsed: bool
) -> dict[str, Any]:
    """The content of `result.json`, which docs/predict.md describes."""
    recipe, at, material = engine.recipe, engine.at, engine.material
    seconds = max(1e-9, at.train_seconds)
    return {
        "schema": SCHEMA,
        "name": recipe.name,
        "hash": hash_recipe(recipe),
        "task": recipe.task.kind,
        "encoder": recipe.encoder.name,
        "loss": recipe.loss.name,
        "loss_options": recipe.loss.options,
        "seed": recipe.train.seed,
        "headline": recipe.eval.metric or material.task.headline,
        "scores": scores,
        **({"tuned": tuned} if tuned else {}),
        **({"collapsed": True} if collapsed else {}),
        "best": {"epoch": at.best_epoch, "step": at.best_step, "score": at.best},
        "epochs": round(at.step / len(engine.plan.epoch(0)), 4),
        "steps": at.step,
        "examples": at.examples,
        "class_counts": _class_counts(engine),
        "seconds": {
            "total": round(at.train_seconds + at.evaluate_seconds, 3),
            "train": round(at.train_seconds, 3),
            "evaluate": round(at.evaluate_seconds, 3),
            "warmup": round(getattr(engine.stepper, "seconds", 0.0), 3),
        },
        "tokens_per_second": round(at.tokens / seconds, 1),
        "examples_per_second": round(at.examples / seconds, 1),
        "peak_memory": peak_memory(engine.processes.device),
        "warnings": engine.guard.warnings,
        "notes": material.notes,
        "versions": versions(),
        "device": device_name(engine.processes.device),
        "world": engine.processes.world,
        "precision": engine.precision,
        "data": material.sources,
        "recipe": describe_recipe(recipe),
    }


def device_name(device: torch.device) -> str:
    """The device in words."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else sys.platform + " cpu"


def _find(engine: Engine, name: str) -> Found:
    material = engine.material
    model, features = engine.stepper.model, material.features[name]
    return find(model, material.task, features, material.codec, **engine.how)


def _score(engine: Engine, task: Task, name: str, found: Found, kind: str = "") -> dict[str, Any]:
    examples = engine.material.examples[name]
    predictions = task.decode(found, engine.material.features[name], examples)
    path = engine.folder / f"predictions.{name}{kind}.jsonl"
    write_predictions(path, task, examples, predictions)
    return task.score(predictions, examples)


def _class_counts(engine: Engine) -> dict[str, Any]:
    """Targets of each class, by label; of one output alone, negative and positive ones."""
    task = engine.material.task
    labels: tuple[str, ...] = getattr(task, "labels", ())
    found = task.class_counts(engine.material.features["train"])
    return {key: name_counts(counts, labels) for key, counts in found.items()}


def name_counts(counts: NDArray[Any], labels: tuple[str, ...]) -> dict[str, int]:
    """Counts by name; of several sigmoids the positive ones.

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
