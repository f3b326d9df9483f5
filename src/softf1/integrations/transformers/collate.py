"""Batches of questions in the form in which the Trainer counts and hands over labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from softf1.integrations.transformers.targets import ANSWER, keep_inside

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class AnswerLabels:
    """A data collator that also gives `labels` (B, 2): where each answer starts and ends.

    The Trainer hands `labels` to a `compute_loss_func`, and nothing else of a batch.

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
