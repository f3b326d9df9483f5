"""Makes `(logits, target)` for a loss from the outputs of a model and a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

IGNORE = -100
ANSWER = ("start_positions", "end_positions")


def pair_up(
    outputs: Any, labels: Tensor, *, shift: bool | None, attention_mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Returns logits (..., C) and the target that belongs to them.

    Question answering: the start and the end of an answer are two rows of positions, (B, 2, L)
    against (B, 2); `attention_mask`, if given, excludes padding.

    Args:
        outputs: The model's output: a `ModelOutput`, a dict, or the logits themselves.
        labels: Classes (...), 0/1 of the shape of the logits, or (start, end).
        shift: Each position predicts the label after it, as causal language models do. None means
            no, and is refused if the output is that of a causal language model.
        attention_mask: (B, L), 0 where a position is padding; for question answering.
    """
    named = outputs if isinstance(outputs, Mapping) else {"logits": outputs}
    if "start_logits" in named:
        return _answers(named["start_logits"], named["end_logits"], labels, attention_mask)
    logits = named.get("logits")
    if not isinstance(logits, torch.Tensor):
        got = ", ".join(named) if "logits" not in named else type(logits).__name__
        raise TypeError(f"wanted a model that gives logits, or start_logits, in a dict, got {got}")
    if shift is None and "CausalLM" in type(outputs).__name__:
        raise ValueError(
            f"a {type(outputs).__name__} predicts the next token: wanted shift=True for labels "
            "that are aligned with their own token, or shift=False for labels shifted already"
        )
    return (logits[..., :-1, :], labels[..., 1:]) if shift else (logits, labels)


def take_labels(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Tensor]:
    """Splits a batch into inputs and labels; (start, end) for answers."""
    rest = dict(inputs)
    if "labels" in rest:
        labels: Tensor = rest.pop("labels")
        return rest, labels
    if not all(name in rest for name in ANSWER):
        got = ", ".join(rest)
        raise ValueError(f"wanted labels, or start_positions and end_positions, got {got}")
    return rest, torch.stack([rest.pop(name) for name in ANSWER], dim=1)


def keep_inside(positions: Tensor, width: int) -> Tensor:
    """Returns positions with -100 for those outside the row, which cannot be predicted."""
    outside = (positions < 0) | (positions >= width)
    return positions.masked_fill(outside, IGNORE)


def _answers(
    start: Tensor, end: Tensor, labels: Tensor, attention_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    logits = torch.stack([start, end], dim=1)
    if labels.shape != logits.shape[:2]:
        wanted, got = tuple(logits.shape[:2]), tuple(labels.shape)
        raise ValueError(f"wanted labels (start, end) of each question, {wanted}, got {got}")
    target = keep_inside(labels, logits.shape[-1])
    if attention_mask is not None:
        padding = attention_mask == 0
        logits = logits.masked_fill(padding.unsqueeze(1), -torch.inf)
        # An answer in the padding counts as outside the row.
        target = target.masked_fill(padding.gather(1, target.clamp(min=0)), IGNORE)
    return logits, target


@dataclass(frozen=True, slots=True)
class AnswerLabels:
    """A data collator that adds `labels` (B, 2): the start and end of each answer.

    The Trainer passes only `labels` to a `compute_loss_func`, nothing else of a batch.

    Attributes:
        collate: The data collator to build on, such as `default_data_collator`.

    >>> from transformers import default_data_collator
    >>> collate = AnswerLabels(default_data_collator)
    >>> batch = collate([{"input_ids": [5, 6, 7], "start_positions": 1, "end_positions": 3}])
    >>> batch["labels"]  # the end is outside of the row
    tensor([[   1, -100]])
    """

    collate: Callable[[list[Any]], Any]

    def __call__(self, features: list[Any]) -> Any:
        """Returns the batch with its labels."""
        batch = self.collate(features)
        positions = torch.stack([torch.as_tensor(batch[name]) for name in ANSWER], dim=1)
        batch["labels"] = keep_inside(positions, batch["input_ids"].shape[1])
        return batch
