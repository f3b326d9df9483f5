"""Model folders: weights, tokenizer, task and model card, for softf1 and for plain transformers.

Tuned thresholds and biases that shift a logit are added to the head's bias when the model is
written, so a plain pipeline of transformers gives the tuned predictions too. When softf1 loads the
folder, it restores the trained bias and applies the shift in the task, where you can see it and
leave it out. Decisions that no bias can express are in the config, under `softf1_decision`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from softf1.errors import InputError, RunError
from softf1.files import new_folder
from softf1.models.crf import NAME as TRANSITIONS
from softf1.models.encoders import make_tokenizer
from softf1.models.tokenizers import FastTokenizer, Tokenizer
from softf1.tasks.card import DECISION
from softf1.tasks.registry import FILE, load_plain_bias, load_task, read_files, save_task
from softf1.training.build import quiet_transformers
from softf1.training.card import write_card
from softf1.training.checkpoint import check_file, describe_file

if TYPE_CHECKING:
    from softf1.recipe import Recipe
    from softf1.tasks.base import Task

WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"


class Loaded(NamedTuple):
    """A loaded model with task and tokenizer; in evaluation mode, in float32, on the CPU."""

    model: nn.Module
    task: Task
    tokenizer: Tokenizer


def publish_model(
    folder: Path | str,
    *,
    model: Any,
    task: Task,
    tokenizer: Tokenizer,
    recipe: Recipe | str,
    result: Mapping[str, Any],
) -> None:
    """Writes a model folder; it replaces an older one once it is complete.

    Tuned decisions become part of the saved weights where possible: `fold_decision`.

    Args:
        folder: The folder to write, such as `model` of a run.
        model: The model from `task.build_model`, not wrapped.
        task: The task, with labels, thresholds and biases.
        tokenizer: The tokenizer or vocabulary.
        recipe: The recipe for the model card, or its TOML text.
        result: The content of `result.json`, for the model card.
    """
    with new_folder(Path(folder)) as made:
        try:
            with quiet_transformers(), fold_decision(model, task) as plain_bias:
                model.save_pretrained(made)
                tokenizer.save_pretrained(made)
        except SafetensorError as error:  # on a full disk, too
            raise RunError(f"{folder}: the model could not be written: {error}") from error
        described = sorted([*made.glob("*.safetensors"), *made.glob(TOKENIZER)])
        files = {path.name: describe_file(path) for path in described}
        save_task(task, made, plain_bias=plain_bias, files=files)
        write_card(made, task=task, model=model, recipe=recipe, result=result)


def find_model(folder: Path | str) -> Path:
    """Returns the model folder of a run, or the folder itself if it is one."""
    path = Path(folder).resolve()
    for one in (path / "model", path):
        if (one / FILE).is_file():
            return one
    if not path.is_dir():
        raise InputError("wanted a run or a model folder, found no such folder", path=folder)
    raise InputError(
        f"wanted a run that has finished or a model folder, found no model/{FILE} and no {FILE}",
        path=folder,
    )


def load_model(folder: Path | str) -> Loaded:
    """Loads the model of a run or of a model folder; never runs code from the folder.

    Its logits are those of training; tuned thresholds and biases are in the task.
    `replace(task, thresholds=(), biases=())` decides without them.

    Raises:
        InputError: The folder is not a model of softf1, or it is damaged.
    """
    path = find_model(folder)
    try:
        _check_files(path)
        task = load_task(path)
        with quiet_transformers(path):
            tokenizer = make_tokenizer(path)
            model = task.build_model(path, tokenizer)
        # transformers would silently make an empty one
        if isinstance(tokenizer, FastTokenizer) and not (path / TOKENIZER).is_file():
            raise InputError("wanted a tokenizer, got none", path=path / TOKENIZER)
        _check_ids(tokenizer, model, path)
        _check_head(model, task, path)
        trained = {key: torch.tensor(value) for key, value in load_plain_bias(path).items()}
        _set_biases(model, task, trained)
    except Exception as error:  # files changed by hand can raise anything
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if str(path) in reason:
            raise InputError(reason) from error
        raise InputError(f"wanted a whole model, got {reason}", path=path) from error
    return Loaded(model.eval(), task, tokenizer)


@contextmanager
def fold_decision(model: Any, task: Task) -> Iterator[dict[str, list[float]]]:
    """Context in which tuned decisions are part of the model: in head biases, or in its config.

    Args:
        model: The model with trained biases, which are restored on exit.
        task: The task with thresholds and biases; one of another package may have no `shifts`.

    Yields:
        The trained bias of each head that was changed, by key.
    """
    shifts = task.shifts() if hasattr(task, "shifts") else {}
    heads = task.heads(model) if shifts else {}
    able = {key: shift for key, shift in shifts.items() if heads[key].layer.bias is not None}
    plain = {key: heads[key].layer.bias[heads[key].rows].detach().clone() for key in able}
    decision = _left_over(task, folded=len(able) == len(shifts))
    vars(model.config).pop(DECISION, None)  # left by a model that this one was fine-tuned from
    if decision:
        setattr(model.config, DECISION, decision)
    _set_biases(model, task, {k: plain[k].double().cpu() + torch.tensor(able[k]) for k in able})
    try:
        yield {key: value.tolist() for key, value in plain.items()}
    finally:
        vars(model.config).pop(DECISION, None)
        _set_biases(model, task, plain)


@torch.no_grad()
def _set_biases(model: nn.Module, task: Task, values: Mapping[str, torch.Tensor]) -> None:
    heads = task.heads(model) if values else {}
    for key, value in values.items():
        layer, rows = heads[key]
        if layer.bias[rows].shape != value.shape:
            raise ValueError(f"a bias of {len(layer.bias)} for {key}, got {len(value)} numbers")
        layer.bias[rows] = value.to(layer.bias)


def _left_over(task: Any, *, folded: bool) -> dict[str, Any]:
    """Tuned decisions that no bias can express: confidence thresholds, the no-answer threshold."""
    bars = {"bars": dict(task.bars)} if getattr(task, "bars", {}) else {}
    if getattr(task, "no_answer", False):
        return bars | {"null_threshold": task.null_threshold}
    if folded:
        return bars
    if getattr(task, "multi_label", False):
        return {"thresholds": list(task.thresholds)}
    (shift,) = task.shifts().values()
    return {"biases": shift.tolist()}


def _check_files(folder: Path) -> None:
    """Raises if weights or tokenizer changed: predictions would silently differ."""
    if [path.name for path in folder.iterdir()] == [FILE]:  # as grid.drop_weights leaves it
        message = "wanted a model, got a run that kept no weights (--no-models, or a tuning trial)"
        again = f"softf1 train {shlex.quote(str(folder.parent / 'recipe.toml'))} trains it again"
        raise InputError(f"{message}; {again}", path=folder)
    for name, known in read_files(folder).items():
        wrong = check_file(folder / name, known)
        if wrong:
            raise InputError(
                f"{wrong}: damaged, or changed since it was written (without its entry under "
                f'"files" in {FILE} it is taken as it is)',
                path=folder,
            )


def _check_ids(tokenizer: Any, model: Any, folder: Path) -> None:
    """Raises if the vocabulary has ids without an embedding."""
    for name, sizes in (
        ("words", ["vocab_size"]),
        ("characters", ["char_vocab_size", "vocab_size"]),
    ):
        size = next((getattr(model.config, one) for one in sizes if hasattr(model.config, one)), 0)
        largest = max(getattr(tokenizer, name, {}).values(), default=-1)
        if largest >= size:
            message = f"wanted ids of {name} below {size}, got {largest}"
            raise InputError(message, path=folder)


def _check_head(model: nn.Module, task: Task, folder: Path) -> None:
    """Raises if the head's weights are missing: transformers would initialise them randomly."""
    heads = {id(head.layer.weight): key for key, head in task.heads(model).items()}
    wanted = {
        name
        for name, weight in model.named_parameters()
        if id(weight) in heads or name == TRANSITIONS
    }
    missing = sorted(wanted - _stored(folder))
    if missing:
        raise InputError(f"wanted weights of {', '.join(missing)}, got none", path=folder)


def _stored(folder: Path) -> set[str]:
    """Names of the weights in a folder, in one file or several."""
    index = folder / f"{WEIGHTS}.index.json"
    if index.is_file():
        return set(json.loads(index.read_text("utf-8"))["weight_map"])
    with safe_open(folder / WEIGHTS, "pt") as file:
        return set(file.keys())
