"""Classification of texts and of pairs of texts, with one label each or any number of labels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from softf1.data.counts import negative_label
from softf1.data.examples import PairExample, TextExample
from softf1.errors import InputError
from softf1.models.encoders import Head, find_output
from softf1.tasks.base import (
    Batch,
    Features,
    Logits,
    Prediction,
    by_item,
    describe_collapse,
    to_probabilities,
)
from softf1.tasks.card import (
    NOT_TUNED,
    SEEN_ONLY,
    CardText,
    describe_bars,
    describe_biases,
    describe_place,
    list_values,
)
from softf1.tasks.headroom import Headroom, measure_labels
from softf1.tasks.labels import LabelTask, count_labels, to_logits
from softf1.tasks.rows import encode_texts, keep, offsets, room, share_room, take, text_lengths
from softf1.tasks.sentences import Numbering, chunks
from softf1.tasks.suspects import Suspects, find_suspect_label_sets, find_suspect_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor, nn

    from softf1.models.tokenizers import Tokenizer
    from softf1.tasks.base import LineCounts, Predict
    from softf1.tasks.rows import Flat, Ints, PaddedRows, Parts

Example = TextExample | PairExample

TEXTS = """from transformers import pipeline

classify = pipeline("text-classification", model="{folder}", top_k=None)
classify("A text to classify.")"""
PAIRS = """from transformers import pipeline

compare = pipeline("text-classification", model="{folder}", top_k=None)
compare({{"text": "The first text.", "text_pair": "The second text."}})"""


@dataclass(frozen=True)
class Classification(LabelTask):
    """Classification of texts: topics, sentiment, and so on.

    Attributes:
        multi_label: Any number of labels per text (sigmoids); otherwise exactly one (softmax).
        positive: The label whose F1 is the primary metric if there are two; None is the one named
            1, true, yes or the like, or else the rarer one in the train file (with `task.folds` in
            all files), as `softf1 stats` counts.
        metric: The primary metric; None is F1 of the positive label with two labels, macro F1
            with more, micro F1 with several labels per text.
        format: Format of the files; None detects it.
        reader: Options of the reader.
        max_length: The maximum ids per row, with special tokens; longer texts are truncated.
        labels: Labels that can be predicted, from the training data.
        thresholds: The lowest probability with which a label is predicted, tuned on dev: one for
            each label, or one for the positive label of two.
        biases: Added to the logits before the argmax, one per label; tuned on dev.
        bars: The minimum confidence of each label, chosen on dev; `abstain` leaves out
            predictions below it.
        for_target: Whether a precision, recall or cost (`eval.target`) chose the thresholds;
            `abstain` then leaves out, of two labels, the one that is not positive. True in a
            folder written before this was kept, so that it can still abstain.
    """

    multi_label: bool = False
    positive: str | None = None
    metric: Literal["f1", "macro_f1", "accuracy", "subset_accuracy"] | None = None
    format: str | None = None
    reader: dict[str, Any] = field(default_factory=dict)
    max_length: int | None = None
    labels: tuple[str, ...] = field(default=(), metadata={"learned": True})
    thresholds: tuple[float, ...] = field(default=(), metadata={"learned": True})
    biases: tuple[float, ...] = field(default=(), metadata={"learned": True})
    bars: dict[str, float] = field(default_factory=dict, metadata={"learned": True})
    for_target: bool = field(default=True, metadata={"learned": True})

    kind = file_kind = "classification"
    summary = "one label or several for each text"
    head = "text"
    model_options = ("max_length",)
    reads: ClassVar[type[Example]] = TextExample

    def __post_init__(self) -> None:
        """Checks that the metric fits: accuracy for one label, subset accuracy for several."""
        if self.metric == ("accuracy" if self.multi_label else "subset_accuracy"):
            wanted = "subset_accuracy" if self.multi_label else "accuracy"
            raise InputError(f"option metric of task {self.kind}: wanted {wanted} here")

    def texts(self, examples: Iterable[Example]) -> Iterator[Sequence[str]]:
        """Yields all texts."""
        return chain.from_iterable(example.texts for example in examples)

    def encode(self, examples: Iterable[Example], tokenizer: Tokenizer) -> Features:
        """Encodes texts as arrays, truncated if they are too long."""
        layout = tokenizer.layout(pair=self.reads is PairExample)
        capacity = room(tokenizer, layout, self.max_length)
        number, parts = Numbering(), []
        for chunk in chunks(examples):
            first, other = self._texts(chunk, tokenizer)
            a, b = share_room(first[1], other[1], capacity=capacity)
            labels = [example.labels for example in chunk]
            several = next((one for one in chunk if len(one.labels) > 1), None)
            if several is not None and not self.multi_label:
                got = f"{', '.join(several.labels)} (line {several.line})"
                raise InputError(f"wanted one label per text (or multi_label = true), got {got}")
            flat_labels = number.numbers(list(chain.from_iterable(labels)))
            counts = np.fromiter(map(len, labels), np.int64, len(labels))
            parts.append((*keep(first, a), *keep(other, b), flat_labels.astype(np.int32), counts))
        empty = np.zeros(0, np.int32), np.zeros(0, np.int64)
        flat, a, flat2, b, label, count = (
            np.concatenate(column) for column in zip(empty * 3, *parts, strict=True)
        )
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

    def _texts(self, examples: Sequence[Example], tokenizer: Tokenizer) -> tuple[Flat, Flat]:
        """The ids of the first texts and of the second ones, which are empty for single texts."""
        columns = zip(*(example.texts for example in examples), strict=True)
        first, *second = (encode_texts(texts, tokenizer) for texts in columns)
        return first, second[0] if second else (first[0][:0], np.zeros_like(first[1]))

    def fit(self, features: Features) -> Self:
        """Returns the task with the labels of the training data, sorted."""
        labels = tuple(sorted(features.names["labels"]))
        self._check_labels(labels)
        task = replace(self, labels=labels)
        if self.multi_label:
            return task
        counts = task.class_counts(features)["labels"].tolist()
        positive = self._find_positive(Counter(dict(zip(labels, counts, strict=True))))
        return replace(task, positive=positive)

    def choose_positive(self, examples: Iterable[Example]) -> Self:
        """Returns the task with the positive one of two labels, if the option does not name it.

        Training calls this with whole files: in what is left of them without dev or a fold,
        another label may be the rarer one.
        """
        counts = Counter(chain.from_iterable(one.labels for one in examples))
        return replace(self, positive=self._find_positive(counts))

    def _find_positive(self, counts: Counter[str]) -> str | None:
        if self.positive is not None or self.multi_label or len(counts) != 2:
            return self.positive
        negative = negative_label(counts)
        return next(label for label in counts if label != negative)

    def build_model(self, encoder: str | Path, tokenizer: Tokenizer, **options: Any) -> nn.Module:
        """Builds the encoder with a linear layer over its vector for the whole text."""
        many = "multi" if self.multi_label else "single"
        problem = f"{many}_label_classification"
        return super().build_model(encoder, tokenizer, problem_type=problem, **options)

    def heads(self, model: nn.Module) -> dict[str, Head]:
        """Returns the layer that computes the logits of each key."""
        return {"labels": Head(find_output(model, len(self.labels)), slice(None))}

    def take_texts(self, features: Features, index: Ints) -> tuple[Flat, ...]:
        """Returns the ids of the text, or of both texts of a pair."""
        names = ("first", "second") if self.reads is PairExample else ("first",)
        return tuple(take(features, name, index) for name in names)

    def fill(self, features: Features, index: Ints, laid: PaddedRows, epoch: int) -> Parts:  # noqa: ARG002
        """Returns only targets: the labels of the texts."""
        return {}, {"labels": self.make_targets(features, index)}, {}

    def logits(self, output: Any, batch: Batch) -> dict[str, Tensor]:  # noqa: ARG002 - protocol
        """Returns `labels` (B, C)."""
        return {"labels": output.logits}

    def gather(self, logits: Mapping[str, Tensor], batch: Batch) -> Logits:
        """Returns the logits of the items; the rows after them are padding."""
        chosen = logits["labels"][: len(batch.items)]
        return {"item": batch.items, "logits": chosen.detach().float().cpu().numpy()}

    @property
    def abstains(self) -> bool:
        """Whether a text can be left without a label, by a bar or by a threshold for a target."""
        return self.multi_label or bool(self.bars or (self.thresholds and self.for_target))

    def abstain(self, prediction: Prediction) -> Prediction:
        """Drops a label below its bar; without bars, of two labels the one that is not positive."""
        if self.multi_label:
            return prediction if prediction["labels"] else prediction | {"abstained": True}
        label = prediction["label"]
        if self.bars:
            kept = prediction["confidence"] >= self.bars.get(label, 0.0)
        else:
            kept = label == self.positive_label
        return prediction if kept else prediction | {"label": None, "abstained": True}

    def _check_labels(self, labels: Sequence[str], path: Path | str | None = None) -> None:
        """Raises if there are too few labels to learn, or if `positive` does not fit them."""
        fewest, known = 1 if self.multi_label else 2, ", ".join(labels)
        if len(labels) < fewest:
            got = f"got {known or 'none'}"
            message = f"wanted {fewest} labels or more in the training data, {got}"
            raise InputError(message, path=path)
        if self.positive is not None and self.positive not in labels:
            message = f"wanted positive to be one of {known}, got {self.positive!r}"
            raise InputError(message, path=path)
        if self.positive is not None and (self.multi_label or len(labels) > 2):
            got = "multi_label" if self.multi_label else f"{len(labels)}: {known}"
            raise InputError(f"wanted two labels beside the option positive, got {got}", path=path)

    def check_gold(self, parts: Mapping[str, tuple[Any, Sequence[Example]]]) -> None:
        """Raises if a text lacks the one label that it must have, or if labels are too few."""
        for path, examples in parts.values():
            bare = next((one for one in examples if not one.labels), None)
            if bare is not None and not self.multi_label:
                message = "wanted a label to learn from or to score against, got none"
                raise InputError(message, path=path, line=bare.line)
        if "train" in parts:
            path, examples = parts["train"]
            self._check_labels(sorted({label for one in examples for label in one.labels}), path)

    def show(self, example: Example) -> dict[str, Any]:
        """Returns the text, or both texts of a pair, with the gold labels."""
        names = ("first", "second") if isinstance(example, PairExample) else ("text",)
        return {**dict(zip(names, example.texts, strict=True)), "gold": list(example.labels)}

    def find_collapse(self, predictions: Sequence[Prediction]) -> str | None:
        """Describes a collapse: all texts get the same label, or none gets any."""
        if self.multi_label:  # the same label for all texts may be right here
            given = {label for one in predictions for label in one["labels"]}
            return describe_collapse(given, compete=False)
        return describe_collapse({one["label"] for one in predictions})

    def card(self, *, pieces: bool, folded: bool) -> CardText:  # noqa: ARG002 - protocol
        """Returns the text of the model card for this task."""
        limit = f"{self.max_length} ids" if self.max_length else "what the encoder takes"
        return CardText(
            list(self._decision(folded=folded)),
            pipeline="text-classification",
            code=PAIRS if self.kind == "pairs" else TEXTS,
            limits=[SEEN_ONLY, f"Texts are cut to {limit}."],
        )

    def _decision(self, *, folded: bool) -> Iterator[str]:
        if self.multi_label:
            yield (
                "Each label has its own probability (sigmoid), and a text gets every label "
                "that reaches its threshold."
            )
            if not self.thresholds:
                yield f"{NOT_TUNED}: every threshold is 0.5."
                return
            listed = list_values(zip(self.labels, self.thresholds, strict=True))
            yield f"Thresholds tuned on dev, for the model's own probabilities: {listed}"
            yield describe_place(folded=folded, hint="take every label from 0.5 up")
        elif self.thresholds:
            place = f"`{self.positive_label}` is predicted from a probability of"
            if self.thresholds[0] == 0.5:
                yield f"{place} 0.5 up, here and in transformers: dev had no better threshold."
                return
            yield f"{place} {self.thresholds[0]:.4g} up, tuned on dev."
            yield describe_place(folded=folded)
        elif self.biases:
            yield from describe_biases(self.labels, self.biases, folded=folded)
        elif self.bars:
            yield "The label with the largest logit is predicted, here and in transformers."
            yield describe_bars(self.bars)
        else:
            yield (
                f"{NOT_TUNED}: the label with the largest logit is predicted, here and in "
                "transformers."
            )

    def count_line(self, line: Mapping[str, Any]) -> LineCounts:
        """Counts right, wrong and missed labels of one text."""
        given = line["labels"] if "labels" in line else [line["label"]]
        given = [label for label in given if label is not None]  # None: it was below its bar
        return count_labels(tuple(line["gold"]), tuple(given), multi_label=self.multi_label)

    def measure(self, lines: Sequence[Mapping[str, Any]], given: Any) -> Headroom:  # noqa: ARG002 - probabilities are in lines
        """Measures the headroom: one threshold or bias, a threshold per label, the ranking."""
        return measure_labels(lines, self)

    def find_suspects(self, logits: Logits, features: Features) -> Suspects:
        """Finds texts with given labels that the model finds unlikely."""
        rows = by_item(logits, "logits", len(features))
        chance = to_probabilities(rows, multi_label=self.multi_label)
        find = find_suspect_label_sets if self.multi_label else find_suspect_labels
        return find(chance, self.make_targets(features), self.labels)

    def fit_majority(self, train: Sequence[Example]) -> Predict:
        """Returns a baseline: the most frequent label; with `multi_label`, those of most texts."""
        counts = Counter(chain.from_iterable(example.labels for example in train))
        share = np.array([counts[label] for label in self.labels]) / len(train)
        row = to_logits(share[None], multi_label=self.multi_label)
        return lambda examples: self.decide(np.repeat(row, len(examples), axis=0))


@dataclass(frozen=True)
class Pairs(Classification):
    """Classification of pairs of texts: paraphrases, entailment, duplicate questions."""

    kind = file_kind = "pairs"
    summary = "one label for two texts, such as paraphrase or not"
    reads: ClassVar[type[Example]] = PairExample
