"""One optimizer step of the Trainer, as its micro-batches come in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import distributed

if TYPE_CHECKING:
    from collections.abc import Sequence


class Counted(NamedTuple):
    """Labels of a micro-batch, or of a step: those that the loss counts, and all but −100."""

    seen: int
    given: int


class Step:
    """What is known of a step from the first of its micro-batches, on all ranks.

    Args:
        key: The object that the Trainer passes for every micro-batch of this step.
        items: The number of labels that it says the step has.
        first: The labels of the first micro-batch on this rank.
        before: The step before this one, which is checked.
        device: Where ranks exchange numbers.

    Attributes:
        is_whole: The first micro-batches of all ranks are the whole step.
        multiplied: In a whole step: whether the Trainer multiplies the loss by the number of ranks.
        scale: What turns a sum over labels into this micro-batch's part of the mean; None where
            the Trainer counts other labels than the loss.
    """

    def __init__(
        self, key: Any, items: int, first: Counted, *, before: Step | None, device: torch.device
    ) -> None:
        self.key, self.items, self.counted = key, items, Counted(0, 0)
        self.is_whole: bool
        checked = before is None or before.is_whole
        past = (0, 0, 0) if before is None or checked else (before.items, *before.counted)
        all_items, seen, given, *all_past = gather((items, *first, *past), device)
        _check_counted(*all_past)
        self.multiplied = _add_up(seen, all_items) or _add_up(given, all_items)
        self.is_whole = self.multiplied or all_items in (seen, given)
        self.scale: float | None = 1 / max(items, 1)
        if len(set(all_items)) > 1:
            self.scale = ranks() / max(sum(all_items), 1)
        if self.is_whole and seen != given:
            self.scale = None

    def add(self, micro_batch: Counted) -> None:
        """Takes note of a micro-batch."""
        seen, given = (a + b for a, b in zip(self.counted, micro_batch, strict=True))
        self.counted = Counted(seen, given)


def gather(numbers: Sequence[int], device: torch.device) -> list[list[int]]:
    """Returns for each number those of all ranks."""
    own = torch.tensor(numbers, dtype=torch.int64, device=device)
    if ranks() == 1:
        return [[number] for number in numbers]
    found = [torch.empty_like(own) for _ in range(ranks())]
    distributed.all_gather(found, own)
    columns: list[list[int]] = torch.stack(found, dim=1).tolist()
    return columns


def ranks() -> int:
    """Returns the number of processes that train together."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 1
    return distributed.get_world_size()


def _add_up(parts: list[int], totals: list[int]) -> bool:
    """Returns whether every rank was told the sum over the ranks."""
    return all(total == sum(parts) for total in totals)


def _check_counted(items: list[int], seen: list[int], given: list[int]) -> None:
    """Raises where the Trainer counted labels that the loss does not, or the other way round."""
    if seen == items or _add_up(seen, items):
        return
    too_many = any(own > told for own, told in zip(seen, items, strict=True))
    if too_many or given == items or _add_up(given, items):
        raise ValueError(
            f"the Trainer counted {items} labels in the last step (a number for each process), the "
            f"loss {seen}, so that the step was too small or too large by as much. Usual reasons: "
            "shift=True with a model that the Trainer does not take for one that shifts (GPT-2), "
            "shift_labels in the batch, positions of answers outside of the row. SoftF1Trainer "
            "takes the same compute_loss_func and needs no count"
        )
