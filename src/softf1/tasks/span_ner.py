"""Named entities as spans: every span of up to `max_span` words is judged, for every label."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from softf1.data.examples import SpanSentence, TaggedSentence
from softf1.data.mrc import find_spans
from softf1.errors import InputError
from softf1.metrics.schemes import LabelledSpan, count_nested
from softf1.models.encoders import Head
from softf1.tasks.base import (
    DIGITS,
    IGNORE,
    Batch,
    Features,
    Logits,
    Prediction,
    check_items,
    to_probabilities,
)
from softf1.tasks.card import SEEN_ONLY
from softf1.tasks.rows import Amount, Flat, Ints, PaddedRows, Parts, Size, offsets, ranges, rows
from softf1.tasks.sentences import (
    Numbering,
    SentenceEncoder,
    chunks,
    golds_inside,
    window_tokens,
    word_places,
)
from softf1.tasks.spans import Candidates, Scored, SpanTask, keep_flat, predict_spans
from softf1.tasks.suspects import Suspects, find_suspect_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from softf1.data.problems import Problems
    from softf1.models.tokenizers import Tokenizer
    from softf1.tasks.base import Predict


WINDOW = ("first", "end", "before")
"""The arrays of a window: its first word, its end, and the end of the window before it."""


@dataclass(frozen=True)
class SpanNer(SpanTask):
    """Named entities, flat or nested, all labels in one pass.

    Attributes:
        nested: Spans may overlap; otherwise the best non-overlapping spans of a sentence are kept.
        max_span: The maximum words of a span; longer ones are scored, never predicted.
        repair: Repair tags of a tagging file that their scheme does not allow, by conlleval's
            rules; otherwise they are an error.
        format: Format of the files; None detects it.
        reader: Options of the reader.
        max_length: The maximum ids per row; None is the encoder's default length.
        overlap: Pieces that two windows of a long sentence share; None is a quarter.
        labels: Labels of the training data.
        bars: The minimum confidence of the spans of each label, chosen on dev; `abstain` leaves out
            predictions below it.
    """

    nested: bool = False
    max_span: Size = 12
    repair: bool = False
    format: str | None = None
    reader: dict[str, Any] = field(default_factory=dict)
    max_length: int | None = None
    overlap: Amount | None = None
    labels: tuple[str, ...] = field(default=(), metadata={"learned": True})
    bars: dict[str, float] = field(default_factory=dict, metadata={"learned": True})

    kind = "span_ner"
    file_kind = "tagging"
    reads = TaggedSentence
    summary = "named entities, judging every span up to some length; may be nested"
    model_options = ("max_span", "max_length", "overlap")
    not_kept = "are less likely than not are not in the predictions"
    limits = (SEEN_ONLY,)
    no_onnx = "its model needs to know where words begin, which an ONNX input does not say"

    def read(self, path: Path | str, problems: Problems | None = None) -> Iterator[SpanSentence]:
        """Reads the sentences of a file with spans, or with tags that mark spans."""
        sentences = super().read(path, problems)
        found = find_spans(sentences, None, repair=self.repair, path=path, problems=problems)
        for one, spans in found:
            if one.words and not one.tags and not isinstance(one, SpanSentence):
                message = "wanted spans of this sentence, or tags, got neither"
                raise InputError(message, path=path, line=one.line)
            yield SpanSentence(one.words, one.tags, one.line, one.id, tuple(spans))

    def read_input(
        self, path: Path | str, problems: Problems | None = None
    ) -> Iterator[SpanSentence]:
        """Reads sentences to predict on; they need no labels, and none are used."""
        for one in super().read(path, problems):
            yield SpanSentence(one.words, (), one.line, one.id)

    def encode(self, examples: Iterable[SpanSentence], tokenizer: Tokenizer) -> Features:
        """Encodes sentences, cut into windows if they are too long, and their gold spans."""
        encoder = SentenceEncoder(tokenizer, max_length=self.max_length, overlap=self.overlap)
        number = Numbering()
        gold: list[tuple[int, int, int]] = []
        counts: list[int] = []
        for chunk in chunks(examples):
            encoder.add([example.words for example in chunk])
            gold += [(a, b, number[label]) for one in chunk for a, b, label in one.spans]
            counts += [len(example.spans) for example in chunk]
        arrays = encoder.arrays()
        arrays["gold"] = np.array(gold, np.int64).reshape(-1, 3)
        arrays["gold"][:, :2] += arrays["sentence"][rows(counts), None]
        arrays["gold_at"] = offsets(counts)
        arrays["before"] = find_before(arrays["source"], arrays["first"], arrays["end"])
        return Features(arrays, {"labels": tuple(number)})

    def notes(self, features: Features) -> list[str]:
        """Returns notes about labels that training never saw, and spans that cannot be found."""
        start, end, label = features["gold"].T
        short = end - start <= self.max_span
        long = int((~short).sum())
        known = self.label_ids(features)[label] >= 0
        judged = len(self._find_golds(features, np.arange(len(features)))[0])
        lost = int((short & known).sum()) - judged
        more = f"{long:,} spans have more than {self.max_span} words (task.max_span): never found"
        cut = f"{lost:,} spans fit into no window of their sentence: never found; try"
        cut += " a larger task.overlap or task.max_length"
        notes = super().notes(features) + [more] * (long > 0) + [cut] * (lost > 0)
        return notes + self.describe_nested(count_nested(map(tuple, features["gold"].tolist())))

    def build_model(self, encoder: str | Path, tokenizer: Tokenizer, **options: Any) -> nn.Module:
        """Builds the encoder with a head that judges spans."""
        from softf1.models.spans import SpanNer as Model

        sizes = {"classes": len(self.labels), "max_span": self.max_span}
        options |= {**sizes, "labels": self.labels}
        return Model.build(encoder, tokenizer, **options)

    def heads(self, model: Any) -> dict[str, Head]:
        """Returns the layer that computes the logits of each key."""
        return {"spans": Head(model.out, slice(None))}

    def check_gold(self, parts: Mapping[str, tuple[Any, Sequence[SpanSentence]]]) -> None:
        """Raises if the training data have no spans."""
        path, examples = parts.get("train", (None, ()))
        if "train" in parts and not any(one.spans for one in examples):
            raise InputError("wanted spans to learn from, got sentences without any", path=path)

    def take_texts(self, features: Features, index: Ints) -> tuple[Flat, ...]:
        """Returns the pieces of windows."""
        return (window_tokens(features, index),)

    def fill(self, features: Features, index: Ints, laid: PaddedRows, epoch: int) -> Parts:  # noqa: ARG002
        """Makes targets (B, L, max_span, C); the first window that holds a span judges it."""
        _, row, column = word_places(features, index, laid.first, owned=False)
        count = features["end"][index] - features["first"][index]
        words = np.zeros(laid.ids.shape, np.int64)
        words[row, ranges(np.zeros_like(count), count)] = column
        target = np.full((*words.shape, self.max_span, len(self.labels)), IGNORE, np.float32)
        target[self._list_spans(features, index, laid.ids.shape[1])] = 0
        row, start, length, label = self._find_golds(features, index)
        target[row, start, length, label] = 1
        first = features["first"][index] - features["sentence"][features["source"][index]]
        return {"words": words}, {"spans": target}, {"first": first}

    def _list_spans(self, features: Features, items: Ints, width: int) -> NDArray[np.bool_]:
        """Which spans each window judges, (B, width, max_span), by first word and length."""
        first, end, before = (features[key][items, None, None] for key in WINDOW)
        stop = first + np.arange(width)[:, None] + 1 + np.arange(self.max_span)
        mine: NDArray[np.bool_] = (stop > before) & (stop <= end)
        return mine

    def _find_golds(self, features: Features, items: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """The gold spans of windows: row, first word in the window, length − 1, and label."""
        row, start, end, label = golds_inside(features, items)
        label = self.label_ids(features)[label]
        first, before = (features[key][items][row] for key in ("first", "before"))
        kept = (end > before) & (label >= 0) & (end - start <= self.max_span)
        return row[kept], (start - first)[kept], (end - start - 1)[kept], label[kept]

    def gather(self, logits: Mapping[str, Tensor], batch: Batch) -> Logits:
        """Returns the spans above probability 0.5, and likely others: item, place and logit.

        The others are the best of each window, as many as it has words, and the gold spans:
        `headroom` needs them to try lower thresholds.
        """
        found, target = logits["spans"].detach(), batch.targets["spans"]
        judged = target != IGNORE
        flat = found.masked_fill(~judged, -torch.inf).flatten(1)
        best = flat.topk(min(found.shape[1], flat.shape[1])).indices
        words = judged.any(-1).any(-1).sum(1, keepdim=True)  # not columns: batches differ in width
        room = torch.arange(best.shape[1], device=best.device) < words
        near = torch.zeros_like(judged).flatten(1).scatter_(1, best, room).view_as(judged)
        kept = judged & ((found > 0) | near | (target == 1))
        row, start, length, label = (place.cpu().numpy() for place in kept.nonzero().T)
        start = start + batch.places["first"].cpu().numpy()[row]
        return {
            "seen": batch.items,
            "item": batch.items[row],
            "start": start,
            "end": start + length + 1,
            "label": label,
            "score": found[kept].float().cpu().numpy(),
        }

    def decode(
        self,
        logits: Logits,
        features: Features,
        examples: Sequence[SpanSentence] = (),  # noqa: ARG002 - the arrays have all that is needed
    ) -> list[Prediction]:
        """Returns the spans of every sentence, each with its label."""
        check_items(logits["seen"], len(features))
        likely = logits["score"] > 0
        columns = ("item", "score", "label", "start", "end")
        found = self.list_candidates({key: logits[key][likely] for key in columns}, features)
        return [predict_spans((span, round(s, DIGITS)) for span, s in own) for own in found]

    def list_candidates(self, logits: Logits, features: Features) -> Candidates:
        """Lists the spans of every sentence with their probabilities, unlikely ones too.

        A span is only dropped for a better one, so spans above a threshold do not depend on those
        below it.
        """
        source = features["source"][logits["item"]].tolist()
        sure = to_probabilities(logits["score"].astype(np.float64), multi_label=True)
        columns = (logits["score"], logits["label"], logits["start"], logits["end"], sure)
        spans: Iterable[Scored] = zip(*(column.tolist() for column in columns), strict=True)
        found: list[list[Scored]] = [[] for _ in range(len(features["sentence"]) - 1)]
        for place, span in zip(source, spans, strict=True):
            found[place].append(span)
        kept = found if self.nested else map(keep_flat, found)
        return [[((a, b, self.labels[c]), s) for _, c, a, b, s in own] for own in kept]

    def find_suspects(self, logits: Logits, features: Features) -> Suspects:
        """Finds given spans that the model finds unlikely, and likely ones that are not given.

        A given span without a probability is no suspect: its label is not in the training data,
        or the span is too long, or in no window.
        """
        found = [dict(own) for own in replace(self, nested=True).list_candidates(logits, features)]
        given: list[dict[LabelledSpan, float]] = [{} for _ in found]
        number = rows(np.diff(features["gold_at"]))
        gold = features["gold"] - features["sentence"][number, None] * [1, 1, 0]
        names, unknown = features.names["labels"], set[int]()
        predicted = [
            dict(zip(map(tuple, one["spans"]), one["confidence"], strict=True))
            for one in self.decode(logits, features)
        ]
        for place, (start, end, label) in zip(number.tolist(), gold.tolist(), strict=True):
            span = start, end, names[label]
            if span in found[place]:
                given[place][span] = found[place][span]
                continue
            predicted[place] = {x: p for x, p in predicted[place].items() if x[:2] != span[:2]}
            if names[label] not in self.labels:
                unknown.add(place)
        return Suspects(find_suspect_spans(given, predicted), len(unknown))

    def rule(self) -> str:
        """How spans are chosen."""
        return f"of up to {self.max_span} words is predicted if its probability is above 0.5."

    def show(self, example: SpanSentence) -> dict[str, Any]:
        """Returns the words and the gold spans."""
        return {"words": list(example.words), "gold": [list(span) for span in example.spans]}

    def class_counts(self, features: Features) -> dict[str, NDArray[np.int64]]:
        """Counts (negative, positive) spans of each label."""
        first, end, before = (features[key] for key in WINDOW)
        spans = count_spans(end - first, self.max_span) - count_spans(before - first, self.max_span)
        label = self._find_golds(features, np.arange(len(features)))[3]
        positive = np.bincount(label, minlength=len(self.labels))
        return {"spans": np.stack([spans - positive, positive], axis=1)}

    def strata(self, features: Features) -> NDArray[np.int64]:
        """Returns 1 for windows with a span, 0 for others."""
        out = np.zeros(len(features), np.int64)
        out[self._find_golds(features, np.arange(len(features)))[0]] = 1
        return out

    def fit_majority(self, train: Sequence[SpanSentence]) -> Predict:  # noqa: ARG002 - protocol
        """Returns a baseline that finds no span."""
        return lambda examples: [{"spans": [], "confidence": []} for _ in examples]


def find_before(source: Ints, first: Ints, end: Ints) -> Ints:
    """The end of the window before each one; for the first of a sentence, its own start.

    >>> find_before(np.array([0, 0, 1]), np.array([0, 4, 9]), np.array([6, 9, 12])).tolist()
    [0, 6, 9]
    """
    out = first.copy()
    same = source[1:] == source[:-1]
    out[1:][same] = end[:-1][same]
    return out


def count_spans(words: Ints, most: int) -> int:
    """Counts the spans of up to `most` words in texts of `words` words each.

    >>> count_spans(np.array([3, 1]), 2)  # 3 of one word and 2 of two, and 1
    6
    """
    lengths = np.minimum(words, most)  # n words have n − k + 1 spans of k words
    return int((lengths * (words + 1) - lengths * (lengths + 1) // 2).sum())
