"""Model folders: weights, tokenizer, task and model card, for softf1 and for plain transformers.

A tuned threshold or bias that is added to a logit is added to the bias of the head when the model
is written, so that whoever loads it, a pipeline of transformers for one, gets the tuned answers.
softf1 puts the trained bias back when it loads the folder and adds the same in its task, where it
can be seen and left out. What cannot be part of a bias is in the config, under `softf1_decision`.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from softf1.errors import InputError, RunError
from softf1.files import new_folder
from softf1.models.crf import NAME as TRANSITIONS
from softf1.models.encoders import make_tokenizer
from softf1.models.tokenizers import FastTokenizer
from softf1.tasks.card import DECISION
from softf1.tasks.registry import FILE, load_plain_bias, load_task, read_files, save_task
from softf1.training.build import quiet_transformers
from softf1.training.card import write_card
from softf1.training.checkpoint import check_file, describe_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

    from softf1.models.tokenizers import Tokenizer
    from softf1.recipe import Recipe
    from softf1.tasks.base import Task

WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"


class Loaded(NamedTuple):
    """All that is needed to predict; the model is in evaluation mode, in float32, on the CPU."""

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
    """Write a model folder; it takes the place of an older one once it is complete.

    What was tuned is in the saved weights, where it can be: `fold_decision`.

    Args:
        folder: Where to, `model` of a run.
        model: As `task.build_model` made it, not wrapped.
        task: With its labels, thresholds and biases.
        tokenizer: Tokenizer or vocabulary.
        recipe: For the card, as a value or as TOML.
        result: What `result.json` holds, for the card.
    """
    with new_folder(Path(folder)) as made:
        try:
            with quiet_transformers(), fold_decision(model, task) as plain_bias:
                model.save_pretrained(made)
                tokenizer.save_pretrained(made)
        except SafetensorError as error:  # of a full disk, too
            raise RunError(f"{folder}: the model could not be written: {error}") from error
        save_task(task, made, plain_bias=plain_bias, files=_describe_files(made))
        write_card(made, task=task, model=model, recipe=recipe, result=result)


def find_model(folder: Path | str) -> Path:
    """The model folder of a run, or the folder itself where it is one."""
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
    """The model of a run or of a model folder; no code from the folder is ever run.

    Its logits are those of the training: what was tuned is in the task, which decides by it.
    `replace(task, thresholds=(), biases=())` decides without.

    Raises:
        InputError: The folder is no model of softf1, or it is damaged.
    """
    path = find_model(folder)
    try:
        _check_files(path)
        task = load_task(path)
        with quiet_transformers(path):
            tokenizer = make_tokenizer(path)
            model = task.build_model(path, tokenizer)
        _check_tokenizer(tokenizer, path)
        _check_ids(tokenizer, model, path)
        _check_head(model, task, path)
        unfold_decision(model, task, load_plain_bias(path))
    except Exception as error:  # whatever files that were changed by hand lead to
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if str(path) in reason:
            raise InputError(reason) from error
        raise InputError(f"wanted a whole model, got {reason}", path=path) from error
    return Loaded(model.eval(), task, tokenizer)


@contextmanager
def fold_decision(model: Any, task: Task) -> Iterator[dict[str, list[float]]]:
    """The model with what was tuned in the bias of its heads, or in its config, while inside.

    Args:
        model: With trained biases; it has them again afterwards.
        task: With thresholds and biases; one of another package may have no `shifts`.

    Yields:
        The trained bias of each head that was changed, by key.
    """
    shifts = task.shifts() if hasattr(task, "shifts") else {}
    heads = task.heads(model) if shifts else {}
    able = {key: shift for key, shift in shifts.items() if heads[key].layer.bias is not None}
    plain = {key: heads[key].layer.bias[heads[key].rows].detach().clone() for key in able}
    decision = _left_over(task, folded=len(able) == len(shifts))
    vars(model.config).pop(DECISION, None)  # of a model that this one was trained from
    if decision:
        setattr(model.config, DECISION, decision)
    _set_biases(model, task, {k: plain[k].double().cpu() + torch.tensor(able[k]) for k in able})
    try:
        yield {key: value.tolist() for key, value in plain.items()}
    finally:
        vars(model.config).pop(DECISION, None)
        _set_biases(model, task, plain)


def unfold_decision(model: nn.Module, task: Task, plain_bias: Mapping[str, list[float]]) -> None:
    """Puts the trained biases back into a loaded model."""
    _set_biases(model, task, {key: torch.tensor(value) for key, value in plain_bias.items()})


@torch.no_grad()
def _set_biases(model: nn.Module, task: Task, values: Mapping[str, torch.Tensor]) -> None:
    heads = task.heads(model) if values else {}
    for key, value in values.items():
        layer, rows = heads[key]
        if layer.bias[rows].shape != value.shape:
            raise ValueError(f"a bias of {len(layer.bias)} for {key}, got {len(value)} numbers")
        layer.bias[rows] = value.to(layer.bias)


def _left_over(task: Any, *, folded: bool) -> dict[str, Any]:
    """What was tuned and is in no bias: bars, a threshold of no answer, or for want of a bias."""
    bars = {"bars": dict(task.bars)} if getattr(task, "bars", {}) else {}
    if getattr(task, "no_answer", False):
        return bars | {"null_threshold": task.null_threshold}
    if folded:
        return bars
    if getattr(task, "multi_label", False):
        return {"thresholds": list(task.thresholds)}
    (shift,) = task.shifts().values()
    return {"biases": shift.tolist()}


def _describe_files(folder: Path) -> dict[str, Any]:
    """Size and checksum of the weights and of the tokenizer."""
    paths = sorted([*folder.glob("*.safetensors"), *folder.glob(TOKENIZER)])
    return {path.name: describe_file(path) for path in paths}


def _check_files(folder: Path) -> None:
    """Weights that were damaged or exchanged would change predictions without a word."""
    for name, known in read_files(folder).items():
        wrong = check_file(folder / name, known)
        if wrong:
            raise InputError(
                f"{wrong}: damaged, or changed since it was written (without its entry under "
                f'"files" in {FILE} it is taken as it is)',
                path=folder,
            )


def _check_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """The tokenizer is in the folder: transformers would make up an empty one."""
    if isinstance(tokenizer, FastTokenizer) and not (folder / TOKENIZER).is_file():
        raise InputError("wanted a tokenizer, got none", path=folder / TOKENIZER)


def _check_ids(tokenizer: Any, model: Any, folder: Path) -> None:
    """Every id of a vocabulary has its vector."""
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
    """The head is in the file: transformers would make up what is not."""
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
    """The names of the weights of a folder, in one file or in several."""
    index = folder / f"{WEIGHTS}.index.json"
    if index.is_file():
        return set(json.loads(index.read_text("utf-8"))["weight_map"])
    with safe_open(folder / WEIGHTS, "pt") as file:
        return set(file.keys())
