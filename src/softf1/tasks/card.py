"""The task's part of a model card: use in transformers, how the task decides, its limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

DECISION = "softf1_decision"
"""The key in `config.json` of thresholds and biases that are not in the weights."""

NOT_TUNED = "No threshold or bias is used"
SEEN_ONLY = "A label that is not in the training data is never predicted."


@dataclass(frozen=True, slots=True)
class CardText:
    """The parts of a model card that depend on the task.

    Attributes:
        decision: Paragraphs on how logits become predictions, tuned thresholds and biases included.
        pipeline: The pipeline tag on the Hub; None if the Hub has none.
        code: Python that uses the model in plain transformers; None if that is not possible.
        limits: Sentences about what the model cannot do.
    """

    decision: Sequence[str]
    pipeline: str | None = None
    code: str | None = None
    limits: Sequence[str] = field(default=())


def describe_biases(
    labels: Sequence[str], biases: Sequence[float], *, folded: bool
) -> tuple[str, str]:
    """Two paragraphs: the tuned biases of the labels, and where the saved model has them."""
    added = [pair for pair in zip(labels, biases, strict=True) if pair[1]]
    text = (
        "These biases, tuned on dev, are added to the logits before the best label is chosen (0 "
        f"for labels that are not listed): {list_values(added)}"
    )
    return text, describe_place(folded=folded)


def describe_bars(bars: Mapping[str, float]) -> str:
    """A paragraph about the minimum confidence of each label."""
    return (
        "`softf1 predict --abstain` leaves out predictions below these confidences, which were "
        f"chosen on dev: {list_values(bars.items())} Without `--abstain` you get all predictions. "
        f"The numbers are in `config.json`, under `{DECISION}`."
    )


def describe_place(*, folded: bool, hint: str = "") -> str:
    """A paragraph about where a saved model has its tuned values: in the weights or the config."""
    if folded:
        return (
            "The bias of the head includes it, so transformers pipelines give the tuned "
            "predictions; softf1 keeps the trained bias in `softf1.json`."
            + (f" There, {hint}." if hint else "")
        )
    return (
        "This head has no bias, so transformers pipelines do not use it: "
        "`softf1.integrations.transformers.decide(logits, model.config)` reads it from "
        f"`{DECISION}` in `config.json`."
    )


def list_values(values: Iterable[tuple[str, float]]) -> str:
    """Lists labels with their values.

    >>> list_values([("PER", 0.25), ("LOC", -1)])
    '`PER` 0.25, `LOC` -1.'
    """
    return ", ".join(f"`{label}` {value:.4g}" for label, value in values) + "."
