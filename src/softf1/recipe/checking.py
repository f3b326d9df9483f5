"""Checks the options of task, reader, encoder and loss before any data is read."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.options import OptionError, convert_value, named, nearest, option_types, say_unknown
from softf1.recipe.auto import AUTO
from softf1.recipe.loading import find_recipe_file, load_toml, locate, parse_override

if TYPE_CHECKING:
    from torch import nn

    from softf1.recipe.sections import EncoderSection, LossSection, Recipe
    from softf1.tasks.base import Task

OF_TRAINING = ("ignore_index", "mask", "reduction")
"""Options of losses that training sets itself."""
CLASSES = 3
"""The number of classes when a loss is called to check it; real labels are only known from data."""
TROUBLE = (TypeError, ValueError, RuntimeError, AttributeError, IndexError)
"""Errors that a loss may raise for invalid options."""


def check_recipe(
    recipe: Recipe, *, path: Path | str | None = None, overrides: Sequence[str] = ()
) -> None:
    """Checks the options of task, reader, encoder and loss; loads torch.

    Checks that need data come later: labels, files, `eval.metric`, `loss.keys`.

    Args:
        recipe: The recipe.
        path: Its path or name; if given, errors name the line.
        overrides: The `key=value` words it was read with.

    Raises:
        InputError: Names the key.
    """
    try:
        task = _check_task(recipe)
        _check_reader(task)
        _check_encoder(recipe.encoder, task)
        _check_loss(recipe, softmax=task.softmax)
        check_eval_target(recipe, task)
    except OptionError as error:
        if path is None:
            raise
        file = find_recipe_file(path)
        given = dict(parse_override(word) for word in overrides)
        raise locate(error, file, load_toml(file)[1], given) from error


def check_eval_target(recipe: Recipe, task: Task) -> None:
    """Raises if a task cannot be tuned for `eval.target`; a fitted task also checks its labels."""
    targets = recipe.eval.targets
    if targets is None or recipe.eval.tunes_f1:  # every task has `tune`
        return
    if not hasattr(task, "operate"):
        raise OptionError("eval.target", f'wanted "f1" for task {task.kind}, which has no other')
    try:
        task.check_target(targets)
    except InputError as error:
        raise OptionError("eval.target", str(error)) from error


def _check_task(recipe: Recipe) -> Task:
    from softf1.tasks import list_tasks, make_task

    kind, options = recipe.task.kind, recipe.task.options
    if kind not in list_tasks():
        raise OptionError("task.kind", say_unknown(f"task {kind!r}", kind, list_tasks()))
    try:
        task = make_task(kind, **options)
    except InputError as error:
        if error.path is not None:  # it is about a file of queries, and names it
            raise
        raise OptionError(named("task", options, str(error)), str(error)) from error
    for field in dataclasses.fields(task):  # type: ignore[arg-type]  # every task is a dataclass
        if field.metadata.get("learned") and field.name in options:
            raise OptionError(f"task.{field.name}", "comes from the training data, not the recipe")
    return task


def _check_reader(task: Task) -> None:
    """Checks format and options of the reader; reads nothing."""
    from softf1.data.problems import Problems
    from softf1.data.registry import open_corpus

    if task.format is None:  # detected from the file
        return
    options = dict(task.reader)
    try:
        open_corpus("", Problems(), format=task.format, task=task.file_kind, **options)
    except InputError as error:
        key = "task.reader" if any(name in str(error) for name in options) else "task.format"
        raise OptionError(key, str(error)) from error


def _check_encoder(encoder: EncoderSection, task: Task) -> None:
    from softf1.models.encoders import check_sizes, find_scratch, list_encoders
    from softf1.models.lora import find_peft

    name, options = encoder.name, encoder.options
    scratch = name in list_encoders()
    for key in ("lora", "gradient_checkpointing"):
        if scratch and getattr(encoder, key):
            message = f"wanted a pretrained encoder, got {name}, which trains from scratch"
            raise OptionError(f"encoder.{key}", message)
    if encoder.lora is not None:
        find_peft()
    if not scratch:
        for option in options:
            known = " or ".join(list_encoders())
            raise OptionError(f"encoder.{option}", f"wanted options for {known} only, got one here")
        return
    head = find_scratch(name).head
    if task.head != head:
        fitting = [own for own in list_encoders() if find_scratch(own).head == task.head]
        wanted = " or ".join([*fitting, "a pretrained encoder (minilm, a folder, a Hub name)"])
        raise OptionError("encoder.name", f"wanted {wanted} for task {task.kind}, got {name}")
    try:
        check_sizes(name, options)
    except InputError as error:
        key = named("encoder", options, str(error))
        said = f"option {key.removeprefix('encoder.')} of encoder {name}: "
        raise OptionError(key, str(error).removeprefix(said)) from error


def _check_loss(recipe: Recipe, *, softmax: bool) -> None:
    """Builds the loss and calls it once, to check the values of its options."""
    import torch

    from softf1.losses import WindowLoss, make_loss

    loss = recipe.loss
    if loss.name == AUTO:
        for key in (*loss.options, *(["weights"] if loss.weights else [])):
            advice = "wanted the name of a loss beside its options"
            raise OptionError(f"loss.{key}", f'{advice}, got loss.name = "{AUTO}"')
        return
    _check_names(loss)
    weights = list_weights(loss.options)
    for key, own in weights:
        convert_value(own, tuple[float, ...], key=f"loss.{key}")
        if loss.scheme is not None:
            message = f"wanted no weights of your own for {loss.name}: they come from the data"
            raise OptionError(f"loss.{key}", f"{message}, as loss.weights says")
    try:
        options = replace_excluded(loss.options, lambda _: (0,))
        if options.get("schedule") is not None:
            options.setdefault("schedule_steps", 1)
        classes = max(2, *(len(own) for _, own in weights)) if weights else CLASSES
        if loss.scheme is not None:
            options["weight"] = torch.ones(classes)
        made = make_loss(loss.name, **options)
        _check_types(made, loss.options)
        target = torch.tensor([0, 1, 1, 0])
        binary = target[:, None].float().expand(-1, classes)
        made(torch.zeros(4, classes), target if softmax else binary)
        if recipe.train.accumulate > 1:
            WindowLoss(made, statistics=loss.statistics)  # raises if it needs the whole batch
    except OptionError:
        raise
    except TROUBLE as error:
        text = str(error).strip().partition("\n")[0]
        key = named("loss", dict(list_dotted(loss.options)), text)
        raise OptionError(key, text + _hint(key.rpartition(".")[2], text)) from error


def check_loss_name(name: str) -> None:
    """Raises for a name that is neither a loss, nor a sum of losses, nor `auto`."""
    from softf1.losses import loss_names

    names = (AUTO, *loss_names())
    for part in name.split("+"):
        if part not in names:
            raise InputError(say_unknown(f"loss {part!r}", part, names))
        if part == AUTO != name:
            raise InputError(f"wanted {AUTO} alone, got it in the sum {name!r}")


def _check_names(loss: LossSection) -> None:
    try:
        check_loss_name(loss.name)
    except InputError as error:
        raise OptionError("loss.name", str(error)) from error
    for part in loss.name.split("+"):
        if not isinstance(loss.options.get(part, {}), dict):
            raise OptionError(f"loss.{part}", f"wanted a table, got {loss.options[part]!r}")
    for key, value in list_excluded(loss.options):
        labels = value if isinstance(value, list) else [value]
        if not all(isinstance(one, (str, int)) and not isinstance(one, bool) for one in labels):
            raise OptionError(f"loss.{key}", f"wanted labels or their numbers, got {value!r}")
    for name in OF_TRAINING:
        if name in loss.options:
            raise OptionError(f"loss.{name}", "training sets this itself")


def replace_excluded(options: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Replaces every `exclude`, also in the tables of the losses of a sum."""

    def replace(name: str, value: Any) -> Any:
        if name == "exclude":
            return change(value)
        return replace_excluded(value, change) if isinstance(value, dict) else value

    return {name: replace(name, value) for name, value in options.items()}


def list_excluded(options: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Lists every `exclude`, also in the tables of the losses of a sum."""
    return [one for one in list_dotted(options) if one[0].rpartition(".")[2] == "exclude"]


def list_weights(options: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """Lists every `weight` that is a list of one number per class, also in the tables of a sum."""
    named = [one for one in list_dotted(options) if one[0].rpartition(".")[2] == "weight"]
    return [(key, value) for key, value in named if isinstance(value, list)]


def _check_types(made: nn.Module, options: Mapping[str, Any]) -> None:
    """Raises if an option of our own losses is not of its declared type."""
    import torch

    keys = dict(list_dotted(options))
    for part in made.modules():
        function, own = getattr(type(part), "function", None), getattr(part, "options", {})
        known = option_types(function) if function else {}
        for name in own.keys() & known.keys():
            if not isinstance(own[name], torch.Tensor):
                convert_value(own[name], known[name], key=named("loss", keys, name))


def list_dotted(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields options and their values; those in tables as `dice.over`."""
    for name, value in options.items():
        yield f"{prefix}{name}", value
        if isinstance(value, dict):
            yield from list_dotted(value, f"{prefix}{name}.")


def _hint(name: str, text: str) -> str:
    """Suggests the nearest of the options that a message lists after its semicolon."""
    known = text.partition(";")[2] if "has no option" in text else ""
    return nearest(name, re.findall(r"\w+", known))
