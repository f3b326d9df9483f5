"""How a task decides: what was tuned becomes part of the saved model, and is said in words.

A tuned threshold or bias that is added to a logit is added to the bias of the head when the model
is written, so that whoever loads it, a pipeline of transformers for one, gets the tuned answers.
softf1 puts the trained bias back when it loads the folder and adds the same in its task, where it
can be seen and left out. What cannot be part of a bias is in the config, under `softf1_decision`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

    from softf1.tasks.base import Task

KEY = "softf1_decision"
"""Where a config holds thresholds and biases that are not in the weights."""

NOT_TUNED = "No threshold or bias is used"
IN_WEIGHTS = (
    "The bias of the head has it already, so a pipeline of transformers gives the tuned answers; "
    "softf1 keeps the trained bias in `softf1.json`."
)


@contextmanager
def folded(model: Any, task: Task) -> Iterator[dict[str, list[float]]]:
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
    vars(model.config).pop(KEY, None)  # of a model that this one was trained from
    if decision:
        setattr(model.config, KEY, decision)
    _set_biases(model, task, {k: plain[k].double().cpu() + torch.tensor(able[k]) for k in able})
    try:
        yield {key: value.tolist() for key, value in plain.items()}
    finally:
        vars(model.config).pop(KEY, None)
        _set_biases(model, task, plain)


def unfold(model: nn.Module, task: Task, plain_bias: Mapping[str, list[float]]) -> None:
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
    """What was tuned and is in no bias: by a threshold of no answer, or for want of a bias."""
    if getattr(task, "no_answer", False):
        return {"null_threshold": task.null_threshold}
    if folded:
        return {}
    if getattr(task, "multi_label", False):
        return {"thresholds": list(task.thresholds)}
    (shift,) = task.shifts().values()
    return {"biases": shift.tolist()}


def describe_decisions(task: Task, *, pieces: bool = True, bias: bool = True) -> Iterator[str]:
    """Paragraphs about thresholds and biases, tuned or not.

    Args:
        task: With what it learned.
        pieces: Whether the encoder cuts words into pieces.
        bias: Whether the head has a bias, and so what was tuned.
    """
    about: Any = task
    if task.kind in ("classification", "pairs"):
        yield from _labels(about, bias=bias)
    elif task.kind == "tagging":
        yield from _tags(about, pieces=pieces, bias=bias)
    elif task.kind == "qa":
        yield from _answers(about)
    else:
        yield f"{NOT_TUNED}: a span is given where every head finds it likelier than not."


def _labels(task: Any, *, bias: bool) -> Iterator[str]:
    if task.multi_label:
        yield (
            "Each label has a probability of its own (sigmoid), and a text gets every label that "
            "reaches its threshold."
        )
        if task.thresholds:
            pairs = zip(task.labels, task.thresholds, strict=True)
            yield "Thresholds tuned on dev, for the probabilities of the training: " + _listed(
                pairs
            )
            yield _where(bias=bias, how="take every label from 0.5 on")
        else:
            yield f"{NOT_TUNED}: every threshold is 0.5."
    elif task.thresholds:
        yield (
            f"`{task.positive_label}` is given from a probability of {task.thresholds[0]:.4g} on, "
            "tuned on dev."
        )
        yield _where(bias=bias)
    elif task.biases:
        yield from _biases(task, bias=bias)
    else:
        yield f"{NOT_TUNED}: the label with the largest logit is given, here and in transformers."


def _tags(task: Any, *, pieces: bool, bias: bool) -> Iterator[str]:
    unit = "character" if task.unit != "word" else "word"
    if pieces:
        same = '`aggregation_strategy="first"` in a pipeline'
        yield f"A {unit} has the tag of its first piece ({same})."
    if task.biases:
        yield from _biases(task, bias=bias)
    else:
        yield f"{NOT_TUNED}: the tag with the largest logit is given."


def _biases(task: Any, *, bias: bool) -> Iterator[str]:
    added = [pair for pair in zip(task.labels, task.biases, strict=True) if pair[1]]
    yield (
        "Tuned on dev, this is added to the logits before the largest is taken (nothing to labels "
        "that are not named): " + _listed(added)
    )
    yield _where(bias=bias)


def _where(*, bias: bool, how: str = "") -> str:
    if bias:
        return f"{IN_WEIGHTS}{f' There, {how}.' if how else ''}"
    return (
        "This head has no bias, so a pipeline of transformers does not know it: "
        f"`softf1.integrations.transformers.decide(logits, model.config)` reads it from `{KEY}` "
        "in `config.json`."
    )


def _answers(task: Any) -> Iterator[str]:
    length = task.max_answer or task.longest
    yield f"The best start and end of all windows, at most {length} tokens apart, are the answer."
    if task.no_answer:
        threshold = task.null_threshold
        yield (
            f"No answer is given where its score is greater by more than {threshold:.4g} "
            f"({'not tuned' if threshold == 0 else 'tuned on dev'}); the number is in "
            f"`config.json`, under `{KEY}`."
        )


def _listed(values: Any) -> str:
    return ", ".join(f"`{label}` {value:.4g}" for label, value in values) + "."
