"""Tasks: each reads, encodes, collates, decodes and scores; see `softf1.tasks.base`."""

from softf1.tasks.base import Batch, Features, Task, join
from softf1.tasks.registry import find_task, list_tasks, load_task, make_task, save_task

__all__ = [
    "Batch",
    "Features",
    "Task",
    "find_task",
    "join",
    "list_tasks",
    "load_task",
    "make_task",
    "save_task",
]
