"""Rows of ids: ragged arrays, truncation, special tokens, padding, model inputs.

Also `TextTask`, the base class of our tasks, which lays out rows of one or two texts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from softf1.data.registry import iterate
from softf1.errors import InputError
from softf1.metrics.operating import Point, Target, choose_bars
from softf1.models import encoders
from softf1.options import Range
from softf1.tasks.base import IGNORE, Batch, Features, Logits, describe_unseen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import nn

    from softf1.data.problems import Problems
    from softf1.models.tokenizers import Layout, Tokenizer
    from softf1.tasks.headroom import Headroom

Ints = NDArray[np.int64]
Flat = tuple[NDArray[Any], Ints]
"""A ragged array: the entries of all rows one after another, and the length of each row."""
Parts = tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]], dict[str, NDArray[Any]]]
"""Inputs, targets and places of a batch."""

Size = Annotated[int, Range(least=1)]
Amount = Annotated[int, Range(least=0)]
"""Types of task options: whole numbers from 1, and from 0."""


def offsets(lengths: ArrayLike) -> Ints:
    """Where each row starts in the flat array, and where the last one ends.

    >>> offsets([2, 0, 3])
    array([0, 2, 2, 5])
    """
    lengths = np.asarray(lengths, np.int64)
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def ranges(starts: ArrayLike, lengths: ArrayLike) -> Ints:
    """The positions `start, start + 1, …` of every row, one after another.

    >>> ranges([5, 0], [2, 3])
    array([5, 6, 0, 1, 2])
    """
    starts, lengths = np.asarray(starts, np.int64), np.asarray(lengths, np.int64)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    out: Ints = np.arange(total) + np.repeat(starts - ends + lengths, lengths)
    return out


def rows(lengths: ArrayLike) -> Ints:
    """The row number of every entry.

    >>> rows([2, 0, 3])
    array([0, 0, 2, 2, 2])
    """
    lengths = np.asarray(lengths, np.int64)
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def pad(
    flat: NDArray[Any],
    lengths: ArrayLike,
    *,
    fill: float,
    width: int | None = None,
    shift: ArrayLike = 0,
) -> NDArray[Any]:
    """The rows as a matrix; each row starts at column `shift`, and the rest is `fill`.

    >>> pad(np.array([1, 2, 3]), [1, 2], fill=0, shift=[1, 0])
    array([[0, 1],
           [2, 3]])
    """
    lengths = np.asarray(lengths, np.int64)
    shift = np.broadcast_to(np.asarray(shift, np.int64), lengths.shape)
    if width is None:
        width = int((lengths + shift).max(initial=0))
    out = np.full((len(lengths), width), fill, flat.dtype)
    out.reshape(-1)[ranges(np.arange(len(lengths)) * width + shift, lengths)] = flat
    return out


def encode_texts(texts: Sequence[str], tokenizer: Tokenizer) -> Flat:
    """The ids of all texts, flat, and how many each has."""
    encoded = tokenizer.text_ids(texts)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    flat = np.fromiter(chain.from_iterable(encoded), np.int32, int(lengths.sum()))
    return flat, lengths


def keep(text: Flat, kept: Ints) -> Flat:
    """The first `kept` ids of every text."""
    flat, lengths = text
    return flat[ranges(np.cumsum(lengths) - lengths, kept)], kept


def share_room(first: Ints, second: Ints, *, capacity: int) -> tuple[Ints, Ints]:
    """How many ids of each of two texts a row keeps; the longer text is truncated first.

    >>> share_room(np.array([2, 9, 9]), np.array([9, 2, 9]), capacity=8)
    (array([2, 6, 4]), array([6, 2, 4]))
    """
    a = np.minimum(first, np.maximum(capacity // 2, capacity - second))
    return a, np.minimum(second, capacity - a)


def take(features: Features, name: str, index: Ints) -> Flat:
    """Some rows of a ragged array whose offsets are in `…_at`: flat entries, and lengths."""
    at = features[f"{name}_at"]
    length = at[index + 1] - at[index]
    return features[name][ranges(at[index], length)], length


@dataclass(frozen=True, slots=True)
class PaddedRows:
    """Padded rows, and the columns where their texts start.

    Attributes:
        ids: (B, L) token ids.
        types: (B, L) type ids.
        mask: (B, L), 1 = token, 0 = padding.
        first: Column where each row's first text starts.
        second: Column where each row's second text starts.
        cls: Column of each row's classification token.
    """

    ids: Ints
    types: Ints
    mask: Ints
    first: Ints
    second: Ints
    cls: Ints


def room(tokenizer: Tokenizer, layout: Layout, max_length: int | None) -> int:
    """How many ids of text fit into a row beside the special tokens; None is the default length."""
    length = tokenizer.window if max_length is None else min(max_length, tokenizer.limit)
    if length < layout.specials + 2:
        what = "rows" if max_length is None else "task.max_length"
        raise InputError(f"wanted {what} of {layout.specials + 2} ids or more, got {length}")
    return length - layout.specials


def text_lengths(first: Ints, second: Ints | None, layout: Layout) -> Ints:
    """The number of ids in each row, special tokens included."""
    return first + (0 if second is None else second) + layout.specials


def assemble(
    tokenizer: Tokenizer,
    layout: Layout,
    first: Flat,
    second: Flat | None = None,
    *,
    width: int | None = None,
) -> PaddedRows:
    """Lays out rows of one or two texts, each given as flat ids and lengths."""
    ids, a = first
    other, b = second if second is not None else (np.zeros(0, np.int64), np.zeros_like(a))
    lengths = text_lengths(a, b, layout)
    # At least one column, even for empty texts: no model takes rows without any.
    width = max(int(lengths.max(initial=1)), width or 1)
    shift = width - lengths if layout.pad_left else np.zeros_like(lengths)
    at_first = shift + len(layout.before)
    at_second = at_first + a + len(layout.between)
    out, types = np.empty((2, len(a), width), np.int64)
    out[:], types[:] = tokenizer.pad_id, tokenizer.pad_type
    flat_out, flat_types, row = out.reshape(-1), types.reshape(-1), np.arange(len(a)) * width
    bounds = (shift, at_first, at_first + a, at_second, at_second + b, shift + lengths)
    texts = (layout.before, ids, layout.between, other, layout.after)
    parts: Any = zip(pairwise(bounds), texts, layout.types, strict=True)
    for (start, end), values, type_ids in parts:
        where = ranges(row + start, end - start)
        if isinstance(values, tuple):  # the same special tokens in every row
            where = where.reshape(len(a), len(values))
        flat_out[where], flat_types[where] = values, type_ids
    column = np.arange(width)
    mask = (column >= shift[:, None]) & (column < (shift + lengths)[:, None])
    cls = layout.cls + (shift if layout.cls >= 0 else shift + lengths)
    return PaddedRows(out, types, mask.astype(np.int64), at_first, at_second, cls)


def model_inputs(
    tokenizer: Tokenizer, laid: PaddedRows, features: Features
) -> dict[str, NDArray[Any]]:
    """The inputs that the model's forward takes for any task."""
    arrays = {"input_ids": laid.ids, "attention_mask": laid.mask, "token_type_ids": laid.types}
    arrays = {name: array for name, array in arrays.items() if name in tokenizer.names}
    if "char_ids" in tokenizer.names:  # ids are rows of the file's own word list
        arrays["char_ids"] = features["char_ids"][laid.ids]
        arrays["input_ids"] = features["word_ids"][laid.ids]
    return {name: array.astype(np.int64) for name, array in arrays.items()}


class TextTask:
    """The base class of our tasks; each is a frozen dataclass that overrides what differs.

    Attributes:
        head: The kind of head that the encoder gets.
        labels: Labels that can be predicted, from the training data.
        bars: The minimum confidence of each label, by which `abstain` leaves predictions out.
        bars_for_f1: Whether the target f1 chooses bars, where there is nothing to tune.
    """

    head: str
    labels: tuple[str, ...]
    bars: dict[str, float]
    bars_for_f1: ClassVar[bool] = False

    @property
    def tunes(self) -> bool:
        """Whether `tune` can change anything."""
        return False

    @property
    def reads(self) -> type:
        """The type of its examples."""
        raise NotImplementedError

    def read(self: Any, path: Path | str, problems: Problems | None = None) -> Iterator[Any]:
        """Reads the examples of a file, one at a time; raises for another type of example."""
        for example in iterate(
            path, format=self.format, task=self.file_kind, problems=problems, **self.reader
        ):
            if not isinstance(example, self.reads):
                wanted, got = self.reads.__name__, type(example).__name__
                raise InputError(f"task {self.kind} wanted {wanted}, got {got}", path=path)
            yield example

    def fit(self, features: Features) -> Self:
        """Returns the task with the labels of the training data, sorted."""
        return self.changed(labels=tuple(sorted(features.names["labels"])))

    def changed(self, **values: Any) -> Self:
        """Returns the task with new values for some fields."""
        return replace(self, **values)  # type: ignore[type-var]  # every task is a dataclass

    def label_ids(self, features: Features) -> NDArray[np.int64]:
        """The label id of each name of a file; −100 for a name that training never saw."""
        (names,) = features.names.values()
        ids = {label: i for i, label in enumerate(self.labels)}
        return np.array([ids.get(name, IGNORE) for name in names], np.int64)

    def notes(self, features: Features) -> list[str]:
        """Returns a note about labels that training never saw."""
        return describe_unseen(features.names["labels"], self.labels)

    def build_model(self, encoder: str | Path, tokenizer: Tokenizer, **options: Any) -> nn.Module:
        """Builds the encoder with a head of transformers, for the labels if there are any."""
        labels = getattr(self, "labels", ())
        model: nn.Module = encoders.build_model(
            encoder, head=self.head, labels=labels, tokenizer=tokenizer, **options
        )
        return model

    def collate(
        self,
        features: Features,
        items: Sequence[int],
        tokenizer: Tokenizer,
        *,
        width: int | None = None,
        epoch: int = 0,
    ) -> Batch:
        """Collates items to tensors, with rows padded to `width` (default: the longest row)."""
        index = np.asarray(items, np.int64)
        texts = self.take_texts(features, index)
        layout = tokenizer.layout(pair=len(texts) == 2)
        laid = assemble(tokenizer, layout, *texts, width=width)
        inputs, targets, places = self.fill(features, index, laid, epoch)
        parts = (model_inputs(tokenizer, laid, features) | inputs, targets, places)
        return Batch(index, *({k: torch.from_numpy(v) for k, v in own.items()} for own in parts))

    def take_texts(self, features: Features, index: Ints) -> tuple[Flat, ...]:
        """Returns the one or two texts of some items, each as flat ids and lengths."""
        raise NotImplementedError

    def fill(self, features: Features, index: Ints, laid: PaddedRows, epoch: int) -> Parts:
        """Returns the inputs that only this task has, the targets and the places of some items."""
        raise NotImplementedError

    def tune(self, logits: Logits, features: Features, examples: Sequence[Any]) -> Self:  # noqa: ARG002
        """Returns the task itself: nothing is tuned."""
        return self

    @property
    def bar_labels(self) -> Sequence[str]:
        """The labels that may have a bar."""
        return self.labels

    def check_target(self, target: Target | Mapping[str, Target]) -> None:
        """Raises for labels that are not in the training data."""
        known = self.bar_labels
        for name in () if isinstance(target, Target) or not known else target:
            if name not in known:
                wanted = f"wanted labels of the training data, {', '.join(known)}"
                raise InputError(f"{wanted}; got {name}")

    def operate(
        self: Any,
        logits: Logits,
        features: Features,
        examples: Sequence[Any],
        target: Target | Mapping[str, Target],
    ) -> tuple[Any, list[Point]]:
        """Chooses bars for the predictions of each label."""
        given = zip(examples, self.decode(logits, features, examples), strict=True)
        units = self.list_units([self.show(example) | found for example, found in given])
        bars, points = choose_bars(units, target, self.bar_labels)
        return self.changed(bars=bars), points

    def shifts(self) -> dict[str, NDArray[np.float64]]:
        """Returns no shifts: nothing is added to the logits."""
        return {}

    def headroom(
        self,
        lines: Sequence[Mapping[str, Any]],
        logits: Logits | None = None,
        features: Features | None = None,
        examples: Sequence[Any] = (),
    ) -> Headroom:
        """Measures how much the score could gain at most, and where; see `Task`."""
        known = logits is not None and features is not None
        return self.measure(lines, (logits, features, examples) if known else None)

    def measure(self, lines: Sequence[Mapping[str, Any]], given: Any) -> Headroom:
        """Measures the headroom; `given` is (logits, features, examples), or None if not known."""
        raise NotImplementedError

    @property
    def abstains(self) -> bool:
        """Whether a minimum confidence was chosen for some label."""
        return bool(self.bars)
