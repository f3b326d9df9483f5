"""Class weights from a dataset, in one call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from softf1.integrations.transformers.targets import IGNORE
from softf1.losses import class_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from softf1.losses._core import Scheme

CHUNK = 10_000
"""Rows per chunk: few enough for memory, many enough for speed."""


def class_weights_from(
    dataset: Iterable[Mapping[str, Any]],
    *,
    column: str = "labels",
    scheme: Scheme = "balanced",
    classes: int | Sequence[str] | None = None,
    multi_label: bool = False,
    **options: Any,
) -> Tensor:
    """Returns `weight=` for a loss from the labels of a dataset.

    Args:
        dataset: A `datasets.Dataset`, or rows as dicts.
        column: The column of labels: one class per row, a list of classes (tags; −100 and None do
            not count), or with `multi_label` a list of 0/1.
        scheme: As in `class_weights`.
        classes: The number of classes, or their names if labels are names. By default what the
            dataset declares, else up to the highest label. With `multi_label` it is only compared
            with the length of the rows.
        multi_label: Whether the rows are 0/1 for each class.
        options: `k`, `beta` of `class_weights`.

    >>> rows = [{"labels": [-100, 0, 0, 1, 0]}, {"labels": [-100, 0]}]
    >>> class_weights_from(rows, classes=2)
    tensor([0.6250, 2.5000])
    >>> class_weights_from([{"y": [1, 0]}, {"y": [0, 0]}, {"y": [0, 1]}], column="y",
    ...                    multi_label=True)
    tensor([2., 2.])
    """
    known = _declared(dataset, column) if classes is None else classes
    if multi_label:
        pairs = _count_pairs(dataset, column)
        wanted = classes if isinstance(classes, int | None) else len(classes)
        if wanted is not None and wanted != len(pairs):
            raise ValueError(f"wanted {wanted} values in every row of {column!r}, got {len(pairs)}")
        return class_weights(pairs, scheme, sigmoid=True, **options)
    names = () if isinstance(known, int | None) else known
    numbers = {name: number for number, name in enumerate(names)}
    counts = Counter(
        _number(label, numbers, column)
        for values in _values(dataset, column)
        for label in chain.from_iterable(map(_listed, values))
        if label is not None
    )
    del counts[IGNORE]
    low, high = min(counts, default=0), max(counts, default=-1)
    if low < 0:
        raise ValueError(f"wanted labels from 0 up, or {IGNORE}, in {column!r}, got {low}")
    size = (known if isinstance(known, int) else len(numbers)) or high + 1
    if high >= size:
        raise ValueError(f"wanted labels from 0 to {size - 1} in {column!r}, got {high}")
    return class_weights([counts[number] for number in range(size)], scheme, **options)


def _declared(dataset: Any, column: str) -> list[str] | None:
    """Returns the label names that a `datasets.Dataset` declares for a column."""
    feature = (getattr(dataset, "features", None) or {}).get(column)
    names: list[str] | None = getattr(getattr(feature, "feature", feature), "names", None)
    return names


def _listed(value: Any) -> list[Any]:
    """Returns the labels of a row as a list, from any array or a single label."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    return list(plain) if isinstance(plain, list | tuple) else [plain]


def _number(label: Any, numbers: Mapping[str, int], column: str) -> int:
    if not isinstance(label, str):
        return int(label)
    if label not in numbers:
        known = ", ".join(numbers) or "none: give classes=[…]"
        raise ValueError(f"unknown label {label!r} in {column!r}; known are {known}")
    return numbers[label]


def _count_pairs(dataset: Iterable[Mapping[str, Any]], column: str) -> list[list[int]]:
    """Counts the rows without and with each class, as (negative, positive)."""
    total: NDArray[np.int64] | None = None
    lengths: set[int] = set()
    for values in _values(dataset, column):
        listed = [_listed(value) for value in values]
        lengths.update(map(len, listed))
        if len(lengths) > 1:
            raise ValueError(f"wanted a list of 0/1 of one length in every row of {column!r}")
        rows = np.array(listed)
        counts = np.stack([(rows == 0).sum(0), (rows == 1).sum(0)], axis=1)
        total = counts if total is None else total + counts
    if total is None:
        raise ValueError(f"wanted rows with {column!r}, got none")
    pairs: list[list[int]] = total.tolist()
    return pairs


def _values(dataset: Iterable[Mapping[str, Any]], column: str) -> Iterator[list[Any]]:
    if hasattr(dataset, "select_columns"):  # the other columns of a datasets.Dataset stay unread
        dataset = dataset.select_columns([column]).with_format(None)
    rows = iter(dataset)
    while chunk := list(islice(rows, CHUNK)):
        missing = next((row for row in chunk if column not in row), None)
        if missing is not None:
            raise ValueError(f"wanted a column {column!r}, got {', '.join(missing)}")
        yield [row[column] for row in chunk]
