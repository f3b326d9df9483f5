"""Classification of texts and of pairs of texts, with one label each or any number of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch

from softf1.data.examples import PairExample, TextExample
from softf1.models.encoders import build_model
from softf1.models.heads import Head, find_output
from softf1.tasks.base import Batch, Features, Found, Prediction, by_item, read_examples
from softf1.tasks.labels import (
    count_targets,
    decide,
    make_targets,
    score_labels,
    tune_labels,
)
from softf1.tasks.ragged import offsets, ranges
from softf1.tasks.rows import assemble, model_inputs, text_lengths
from softf1.tasks.sentences import chunks
from softf1.tasks.texts import encode_texts, keep, share
from softf1.tasks.words import Numbering

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from softf1.data.problems import Problems
    from softf1.models.codec import Codec

    Example = TextExample | PairExample


@dataclass(frozen=True)
class Classification:
    """Topics, sentiment, paraphrases.

    Attributes:
        kind: "classification" of texts or "pairs".
        multi_label: Any number of labels a text, a sigmoid each; otherwise one, a softmax.
        positive: The label whose F1 counts where there are two; None is the last in order
            ("1" of "0" and "1", "yes" of "no" and "yes").
        metric: The headline; None is F1 of the positive label where there are two, macro F1 of
            more, micro F1 of several at once.
        format: Format of the files; None detects it.
        reader: Options of the reader.
        max_length: Ids in a row at most, special tokens included; longer texts are cut.
        labels: Labels that can be predicted, from the training data.
        thresholds: Probability from which a label is given, tuned on dev: one for each label, or
            one for the positive label of two.
        biases: Added to the logits before the best label is taken, tuned on dev: one a label.
    """

    kind: Literal["classification", "pairs"] = "classification"
    multi_label: bool = False
    positive: str | None = None
    metric: str | None = None
    format: str | None = None
    reader: dict[str, Any] = field(default_factory=dict)
    max_length: int | None = None
    labels: tuple[str, ...] = field(default=(), metadata={"learned": True})
    thresholds: tuple[float, ...] = field(default=(), metadata={"learned": True})
    biases: tuple[float, ...] = field(default=(), metadata={"learned": True})

    @property
    def headline(self) -> str:
        """The score that decides."""
        several = self.multi_label or len(self.labels) == 2
        return self.metric or ("f1" if several else "macro_f1")

    @property
    def positive_label(self) -> str | None:
        """The label whose F1 counts, where there are two."""
        binary = len(self.labels) == 2 and not self.multi_label
        return (self.positive or self.labels[-1]) if binary else None

    def read(self, path: Path | str, problems: Problems | None = None) -> Iterator[Example]:
        """The texts or pairs of a file, one at a time."""
        if self.kind == "pairs":
            return read_examples(self, path, PairExample, problems)
        return read_examples(self, path, TextExample, problems)

    def texts(self, examples: Iterable[Example]) -> Iterator[Sequence[str]]:
        """All texts."""
        return chain.from_iterable(map(split, examples))

    def encode(self, examples: Iterable[Example], codec: Codec) -> Features:
        """Texts as arrays, cut where they are too long."""
        layout = codec.layout(pair=self.kind == "pairs")
        capacity = min(codec.window, self.max_length or codec.window) - layout.specials
        number, parts = Numbering(), []
        for chunk in chunks(examples):
            first, *second = (
                encode_texts(texts, codec) for texts in zip(*map(split, chunk), strict=True)
            )
            other = second[0] if second else (first[0][:0], np.zeros_like(first[1]))
            a, b = share(first[1], other[1], capacity=capacity)
            labels = [labels_of(example) for example in chunk]
            parts.append(
                (
                    *keep(first, a),
                    *keep(other, b),
                    number.numbers(list(chain.from_iterable(labels))).astype(np.int32),
                    np.fromiter(map(len, labels), np.int64, len(labels)),
                )
            )
        flat, a, flat2, b, label, count = (np.concatenate(p) for p in zip(*parts, strict=True))
        arrays = {
            "first": flat,
            "first_at": offsets(a),
            "second": flat2,
            "second_at": offsets(b),
            "label": label,
            "label_at": offsets(count),
            "length": text_lengths(a, b, layout).astype(np.int32),
        }
        return Features(arrays, {"labels": tuple(number)})

    def fit(self, features: Features) -> Self:
        """The labels of the training data, in order."""
        labels = tuple(sorted(features.names["labels"]))
        if self.positive is not None and self.positive not in labels:
            raise ValueError(f"wanted positive to be one of {labels}, got {self.positive!r}")
        return replace(self, labels=labels)

    def build_model(self, encoder: str | Path, codec: Codec) -> nn.Module:
        """The encoder with a linear layer over its summary of the text."""
        problem = (
            "multi_label_classification" if self.multi_label else "single_label_classification"
        )
        model: nn.Module = build_model(
            encoder, head="text", labels=self.labels, codec=codec, problem_type=problem
        )
        return model

    def heads(self, model: nn.Module) -> dict[str, Head]:
        """Where the logits come from."""
        return {"labels": Head(find_output(model, len(self.labels)), slice(None))}

    def collate(
        self, features: Features, items: Sequence[int], codec: Codec, *, width: int | None = None
    ) -> Batch:
        """Texts as tensors."""
        index = np.asarray(items, np.int64)
        pair = self.kind == "pairs"
        first, second = (take(features, name, index) for name in ("first", "second"))
        laid = assemble(
            codec, codec.layout(pair=pair), first, second if pair else None, width=width
        )
        target = make_targets(features, index, self.labels, multi_label=self.multi_label)
        inputs = model_inputs(codec, laid, features)
        return Batch(index, inputs, {"labels": torch.from_numpy(target)}, {})

    def logits(self, output: Any, batch: Batch) -> dict[str, Tensor]:  # noqa: ARG002 - protocol
        """`labels` (B, C)."""
        return {"labels": output.logits}

    def gather(self, logits: Mapping[str, Tensor], batch: Batch) -> Found:
        """All logits."""
        return {"item": batch.items, "logits": logits["labels"].detach().float().cpu().numpy()}

    def tune(self, found: Found, features: Features, examples: Sequence[Any]) -> Self:  # noqa: ARG002
        """Thresholds or biases, by cross-fitting on the dev set."""
        logits = by_item(found, "logits", len(features))
        thresholds, biases = tune_labels(logits, features, self)
        return replace(self, thresholds=thresholds, biases=biases)

    def decode(
        self,
        found: Found,
        features: Features,
        examples: Sequence[Any] = (),  # noqa: ARG002 - the arrays have all that is needed
    ) -> list[Prediction]:
        """The label or labels of every text."""
        return decide(by_item(found, "logits", len(features)), self)

    def score(
        self, predictions: Sequence[Prediction], examples: Iterable[Example]
    ) -> dict[str, Any]:
        """Accuracy, F1 of each label, micro and macro."""
        return score_labels(predictions, [labels_of(example) for example in examples], self)

    def class_counts(self, features: Features) -> dict[str, NDArray[np.int64]]:
        """How many texts have each label; (without, with) for every label of several."""
        return {"labels": count_targets(features, self.labels, multi_label=self.multi_label)}


def split(example: Example) -> tuple[str, ...]:
    """The text or texts of an example."""
    if isinstance(example, PairExample):
        return example.first, example.second
    return (example.text,)


def labels_of(example: Example) -> tuple[str, ...]:
    """The labels of an example."""
    if isinstance(example, PairExample):
        return () if example.label is None else (example.label,)
    return example.labels


def take(
    features: Features, name: str, index: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Some rows of a flat array with its offsets."""
    at = features[f"{name}_at"]
    length = at[index + 1] - at[index]
    return features[name][ranges(at[index], length)], length
