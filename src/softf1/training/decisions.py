"""How a task decides, in words: where softf1 and a plain argmax of transformers differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from softf1.tasks.base import Task

NOT_TUNED = "No threshold or bias is used"


def describe_decisions(task: Task, *, pieces: bool = True) -> Iterator[str]:
    """Paragraphs about thresholds and biases, tuned or not.

    Args:
        task: With what it learned.
        pieces: Whether the encoder cuts words into pieces.
    """
    about: Any = task
    if task.kind in ("classification", "pairs"):
        yield from _labels(about)
    elif task.kind == "tagging":
        yield from _tags(about, pieces=pieces)
    elif task.kind == "qa":
        yield from _answers(about)
    else:
        yield f"{NOT_TUNED}: a span is given where every head finds it likelier than not."


def _labels(task: Any) -> Iterator[str]:
    if task.multi_label:
        yield (
            "Each label has a probability of its own (sigmoid), and a text gets every label that "
            "reaches its threshold. Pipelines of transformers give the probabilities and leave the "
            "decision to you."
        )
        if task.thresholds:
            pairs = zip(task.labels, task.thresholds, strict=True)
            yield "Thresholds tuned on dev: " + _listed(pairs)
        else:
            yield f"{NOT_TUNED}: every threshold is 0.5."
    elif task.thresholds:
        yield (
            f"`{task.positive_label}` is given from a probability of {task.thresholds[0]:.4g} on, "
            "tuned on dev; the best label of a pipeline of transformers changes at 0.5."
        )
    elif task.biases:
        yield from _biases(task)
    else:
        yield f"{NOT_TUNED}: the label with the largest logit is given, here and in transformers."


def _tags(task: Any, *, pieces: bool) -> Iterator[str]:
    unit = "character" if task.unit != "word" else "word"
    if pieces:
        same = '`aggregation_strategy="first"` in a pipeline'
        yield f"A {unit} has the tag of its first piece ({same})."
    if task.biases:
        yield from _biases(task)
    else:
        yield f"{NOT_TUNED}: the tag with the largest logit is given."


def _biases(task: Any) -> Iterator[str]:
    added = [pair for pair in zip(task.labels, task.biases, strict=True) if pair[1]]
    yield (
        "softf1 adds to the logits, before it takes the largest, what was tuned on dev (nothing to "
        "labels that are not named); pipelines of transformers do not: " + _listed(added)
    )


def _answers(task: Any) -> Iterator[str]:
    length = task.max_answer or task.longest
    yield f"The best start and end of all windows, at most {length} tokens apart, are the answer."
    if task.no_answer:
        threshold = task.null_threshold
        yield (
            f"No answer is given where its score is greater by more than {threshold:.4g} "
            f"({'not tuned' if threshold == 0 else 'tuned on dev'})."
        )


def _listed(values: Any) -> str:
    return ", ".join(f"`{label}` {value:.4g}" for label, value in values) + "."
