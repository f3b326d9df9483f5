"""What our tasks do alike: they read examples of one type, and lay out rows of one or two texts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from softf1.data.registry import iterate
from softf1.errors import InputError
from softf1.models import encoders
from softf1.tasks.base import IGNORE, Batch, Features, check_named, describe_unseen
from softf1.tasks.rows import assemble, model_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn

    from softf1.data.problems import Problems
    from softf1.metrics.operating import Target
    from softf1.models.tokenizers import Tokenizer
    from softf1.tasks.base import Logits
    from softf1.tasks.rows import Flat, Ints, PaddedRows

    Parts = tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]], dict[str, NDArray[Any]]]
    """Inputs, targets and places of a batch."""


class TextTask:
    """The base class of our tasks; each is a frozen dataclass that overrides what differs.

    Attributes:
        head: The kind of head that the encoder gets.
        labels: Labels that can be predicted, from the training data.
        bars: The least confidence of each label, by which `abstain` leaves predictions out.
    """

    head: str
    labels: tuple[str, ...]
    bars: dict[str, float]

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
        """The labels of the training data, in order."""
        return self.changed(labels=tuple(sorted(features.names["labels"])))

    def changed(self, **values: Any) -> Self:
        """The task with other values of some fields."""
        return replace(self, **values)  # type: ignore[type-var]  # every task is a dataclass

    def label_ids(self, features: Features) -> NDArray[np.int64]:
        """The label of each name of a file; −100 for a name that training never saw."""
        (names,) = features.names.values()
        ids = {label: i for i, label in enumerate(self.labels)}
        return np.array([ids.get(name, IGNORE) for name in names], np.int64)

    def notes(self, features: Features) -> list[str]:
        """Labels that training never saw."""
        return describe_unseen(features.names["labels"], self.labels)

    def build_model(self, encoder: str | Path, tokenizer: Tokenizer, **options: Any) -> nn.Module:
        """The encoder with a head of transformers, for the labels if there are any."""
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
        """Items as tensors, with rows padded to `width` (default: the longest row)."""
        index = np.asarray(items, np.int64)
        texts = self.take_texts(features, index)
        layout = tokenizer.layout(pair=len(texts) == 2)
        laid = assemble(tokenizer, layout, *texts, width=width)
        inputs, targets, places = self.fill(features, index, laid, epoch)
        parts = (model_inputs(tokenizer, laid, features) | inputs, targets, places)
        return Batch(index, *({k: torch.from_numpy(v) for k, v in own.items()} for own in parts))

    def take_texts(self, features: Features, index: Ints) -> tuple[Flat, ...]:
        """The one or two texts of some rows, each as flat ids and lengths."""
        raise NotImplementedError

    def fill(self, features: Features, index: Ints, laid: PaddedRows, epoch: int) -> Parts:
        """The inputs that only this task has, the targets, and the places, of some rows."""
        raise NotImplementedError

    def tune(self, logits: Logits, features: Features, examples: Sequence[Any]) -> Self:  # noqa: ARG002
        """Itself: nothing is tuned."""
        return self

    def check_target(self, target: Target | Mapping[str, Target]) -> None:
        """Raises for labels that are not in the training data."""
        check_named(target, self.labels)

    def shifts(self) -> dict[str, NDArray[np.float64]]:
        """Nothing is added to the logits."""
        return {}

    @property
    def abstains(self) -> bool:
        """Whether a least confidence was chosen for some label."""
        return bool(self.bars)
