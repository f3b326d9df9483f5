"""Processes that train together, or one alone: what both have in common."""

from __future__ import annotations

from typing import TypeVar

from torch import distributed

T = TypeVar("T")


def count_ranks() -> int:
    """How many processes train together."""
    on = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if on else 1


def own_rank() -> int:
    """The number of this process."""
    return distributed.get_rank() if count_ranks() > 1 else 0


def leave() -> None:
    """Ends the connection of the processes, at the end of a program."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def share(value: T) -> T:
    """What rank 0 has; every rank must call it.

    >>> share("alone")
    'alone'
    """
    if count_ranks() == 1:
        return value
    box = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def gather(value: T) -> list[T]:
    """What each rank has, on every rank.

    >>> gather("alone")
    ['alone']
    """
    if count_ranks() == 1:
        return [value]
    box = [value] * count_ranks()
    distributed.all_gather_object(box, value)
    return box
