"""Predictions as lines of JSON, which docs/predict.md describes."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softf1.tasks.base import Prediction, Task

SCHEMA = 1
"""Version of the lines."""


def format_line(task: Task, example: Any, prediction: Prediction, *, gold: bool = True) -> bytes:
    """One prediction with its example.

    Args:
        task: Says what to show of an example.
        example: What was read; one without an id has its line number for one.
        prediction: What decoding gave.
        gold: Whether `gold` is there even where it is empty.
    """
    shown = task.show(example)
    if not gold and not shown["gold"]:
        del shown["gold"]
    details = task.details(prediction) if hasattr(task, "details") else {}
    known = {"schema": SCHEMA, "id": example.id or str(example.line)}
    line = known | shown | prediction | details
    try:
        text = json.dumps(line, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(finite(line), ensure_ascii=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold as an escape only
        return json.dumps(finite(line)).encode() + b"\n"


def finite(value: Any) -> Any:
    """The value with null for what JSON has no number for.

    >>> finite({"null_score": math.inf, "spans": [[0, 1]]})
    {'null_score': None, 'spans': [[0, 1]]}
    """
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
