"""Names as spans: every span of up to so many words is judged, for every label."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from softf1.data.examples import SpanSentence, TaggedSentence
from softf1.data.mrc import find_spans
from softf1.errors import InputError
from softf1.metrics.operating import Units, choose_bars
from softf1.metrics.spans import count_span_sets
from softf1.models.encoders import Head
from softf1.tasks.base import (
    DIGITS,
    IGNORE,
    Batch,
    Features,
    Logits,
    Prediction,
    describe_collapse,
    describe_counts,
    describe_unseen,
    read_examples,
    to_probabilities,
)
from softf1.tasks.card import NOT_TUNED, SEEN_ONLY, CardText, describe_bars
from softf1.tasks.headroom import Headroom, Sentence, measure_spans, sweep_confidence
from softf1.tasks.labels import check_named
from softf1.tasks.queries import keep_flat
from softf1.tasks.rows import assemble, model_inputs, offsets, ranges, room, rows
from softf1.tasks.sentences import (
    Numbering,
    SentenceEncoder,
    check_windows,
    chunks,
    window_tokens,
    word_places,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from softf1.data.problems import Problems
    from softf1.metrics.operating import Point, Target
    from softf1.models.tokenizers import Tokenizer
    from softf1.tasks.base import LineCounts, Predict

    Ints = NDArray[np.int64]


WINDOW = ("first", "end", "before")
"""The words of a window, and where the window before it ends."""


@dataclass(frozen=True)
class SpanNer:
    """Nested or flat names, all labels in one pass.

    Attributes:
        nested: Spans may overlap; otherwise the best ones of a sentence are kept.
        max_span: Words of a span at most; longer ones are scored, never predicted.
        repair: Tags of a tagging file that their scheme does not allow become the spans that
            conlleval sees in them; otherwise they are an error.
        format: Format of the files; None detects it.
        reader: Options of the reader.
        max_length: Ids in a row at most; None is the encoder's window.
        overlap: Pieces that two windows of a long sentence share; None is a quarter.
        labels: Labels of the training data.
        bars: The least confidence of the spans of each label, chosen on dev; `abstain` leaves out
            what is below.
    """

    nested: bool = False
    max_span: int = 12
    repair: bool = False
    format: str | None = None
    reader: dict[str, Any] = field(default_factory=dict)
    max_length: int | None = None
    overlap: int | None = None
    labels: tuple[str, ...] = field(default=(), metadata={"learned": True})
    bars: dict[str, float] = field(default_factory=dict, metadata={"learned": True})

    kind = "span_ner"
    file_kind = "tagging"
    summary = "names as spans of words, nested ones too: every span up to some length is judged"
    primary_metric = "f1"
    reads_words = True
    no_onnx = "its model wants to know where words begin, which is in no ONNX input of a text"
    head = "none"
    softmax = False

    def __post_init__(self) -> None:
        """A span has a word."""
        if self.max_span < 1:
            message = f"option max_span of task span_ner: wanted 1 or more, got {self.max_span}"
            raise InputError(message)

    def read(self, path: Path | str, problems: Problems | None = None) -> Iterator[SpanSentence]:
        """The sentences of a file of spans or of tags that make up spans."""
        sentences = read_examples(self, path, TaggedSentence, problems)
        found = find_spans(sentences, None, repair=self.repair, path=path, problems=problems)
        for one, spans in found:
            if one.words and not one.tags and not isinstance(one, SpanSentence):
                message = "wanted spans of this sentence, or tags, got neither"
                raise InputError(message, path=path, line=one.line)
            yield SpanSentence(one.words, one.tags, one.line, one.id, tuple(spans))

    def read_input(
        self, path: Path | str, problems: Problems | None = None
    ) -> Iterator[SpanSentence]:
        """The same to predict on: sentences may have no labels, and none are used."""
        for one in read_examples(self, path, TaggedSentence, problems):
            yield SpanSentence(one.words, (), one.line, one.id)

    def texts(self, examples: Iterable[SpanSentence]) -> Iterator[Sequence[str]]:
        """The words of each sentence."""
        return (example.words for example in examples)

    def encode(self, examples: Iterable[SpanSentence], tokenizer: Tokenizer) -> Features:
        """Sentences as arrays, cut into windows where they are too long, and their spans."""
        layout = tokenizer.layout(pair=False)
        capacity = room(tokenizer, layout, self.max_length)
        encoder = SentenceEncoder(tokenizer, capacity=capacity, overlap=self.overlap)
        number = Numbering()
        gold: list[tuple[int, int, int]] = []
        counts: list[int] = []
        for chunk in chunks(examples):
            encoder.add([example.words for example in chunk])
            gold += [(a, b, number[label]) for one in chunk for a, b, label in one.spans]
            counts += [len(example.spans) for example in chunk]
        arrays = encoder.arrays(specials=layout.specials)
        arrays["gold"] = np.array(gold, np.int64).reshape(-1, 3)
        arrays["gold_at"] = offsets(counts)
        arrays["before"] = find_before(arrays["source"], arrays["first"], arrays["end"])
        return Features(arrays, {"labels": tuple(number)})

    def fit(self, features: Features) -> Self:
        """The labels of the training data."""
        return replace(self, labels=tuple(sorted(features.names["labels"])))

    def notes(self, features: Features) -> list[str]:
        """Labels that training never saw, spans that are too long, and spans in no window."""
        names = features.names["labels"]
        start, end, label = features["gold"].T
        short = end - start <= self.max_span
        long = int((~short).sum())
        known = np.array([name in self.labels for name in names], bool)[label]
        judged = len(self._find_golds(features, np.arange(len(features)))[0])
        lost = int((short & known).sum()) - judged
        more = f"{long:,} spans have more than {self.max_span} words (task.max_span): never found"
        cut = f"{lost:,} spans are whole in no window of their sentence: never found; try"
        cut += " a larger task.overlap or task.max_length"
        return describe_unseen(names, self.labels) + [more] * (long > 0) + [cut] * (lost > 0)

    def build_model(self, encoder: str | Path, tokenizer: Tokenizer, **options: Any) -> nn.Module:
        """The encoder with a head that judges spans."""
        from softf1.models.spans import SpanNer as Model

        options |= {"classes": len(self.labels), "max_span": self.max_span}
        return Model.build(encoder, tokenizer, **options)

    def heads(self, model: Any) -> dict[str, Head]:
        """Where the logits come from."""
        return {"spans": Head(model.out, slice(None))}

    def check_gold(self, parts: Mapping[str, tuple[Any, Sequence[SpanSentence]]]) -> None:
        """Refuses training data without spans."""
        path, examples = parts.get("train", (None, ()))
        if "train" in parts and not any(one.spans for one in examples):
            raise InputError("wanted spans to learn from, got sentences without any", path=path)

    def collate(
        self,
        features: Features,
        items: Sequence[int],
        tokenizer: Tokenizer,
        *,
        width: int | None = None,
        epoch: int = 0,  # noqa: ARG002 - nothing is chosen at random
    ) -> Batch:
        """Windows as tensors; a span is judged in the first window that holds all of it."""
        index = np.asarray(items, np.int64)
        laid = assemble(
            tokenizer, tokenizer.layout(pair=False), window_tokens(features, index), width=width
        )
        _, row, column = word_places(features, index, laid.first, owned=False)
        count = features["end"][index] - features["first"][index]
        words = np.zeros(laid.ids.shape, np.int64)
        words[row, ranges(np.zeros_like(count), count)] = column
        target = np.full((*words.shape, self.max_span, len(self.labels)), IGNORE, np.float32)
        target[self._list_spans(features, index, laid.ids.shape[1])] = 0
        row, start, length, label = self._find_golds(features, index)
        target[row, start, length, label] = 1
        first = features["first"][index] - features["sentence"][features["source"][index]]
        return Batch(
            index,
            model_inputs(tokenizer, laid, features) | {"words": torch.from_numpy(words)},
            {"spans": torch.from_numpy(target)},
            {"first": torch.from_numpy(first)},
        )

    def _list_spans(self, features: Features, items: Ints, width: int) -> NDArray[np.bool_]:
        """Which spans windows have, (B, width, K), by first word and length."""
        first, end, before = (features[key][items, None, None] for key in WINDOW)
        stop = first + np.arange(width)[:, None] + 1 + np.arange(self.max_span)
        mine: NDArray[np.bool_] = (stop > before) & (stop <= end)
        return mine

    def _find_golds(self, features: Features, items: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """The gold spans of windows: row, first word in the window, words less one, and label."""
        source, at = features["source"][items], features["gold_at"]
        count = at[source + 1] - at[source]
        row = rows(count)
        start, end, label = features["gold"][ranges(at[source], count)].T
        known = {name: place for place, name in enumerate(self.labels)}
        ids = np.array([known.get(name, IGNORE) for name in features.names["labels"]], np.int64)
        label = ids[label]
        begin = start + features["sentence"][source][row]
        stop = begin + end - start
        first, last, before = (features[key][items][row] for key in WINDOW)
        kept = (begin >= first) & (stop > before) & (stop <= last) & (label >= 0)
        kept &= end - start <= self.max_span
        begin -= first
        return row[kept], begin[kept], (end - start - 1)[kept], label[kept]

    def logits(self, output: Any, batch: Batch) -> dict[str, Tensor]:  # noqa: ARG002 - protocol
        """`spans` (B, L, K, C): by first word, words less one, and label."""
        found: dict[str, Tensor] = dict(output)
        return found

    def gather(self, logits: Mapping[str, Tensor], batch: Batch) -> Logits:
        """The spans that are likelier than not: item, start, end, label and logit."""
        found = logits["spans"].detach()
        likely = (found > 0) & (batch.targets["spans"] != IGNORE)
        row, start, length, label = (place.cpu().numpy() for place in likely.nonzero().T)
        start = start + batch.places["first"].cpu().numpy()[row]
        return {
            "seen": batch.items,
            "item": batch.items[row],
            "start": start,
            "end": start + length + 1,
            "label": label,
            "score": found[likely].float().cpu().numpy(),
        }

    def tune(self, logits: Logits, features: Features, examples: Sequence[Any]) -> Self:  # noqa: ARG002
        """Itself: spans are given where they are likelier than not."""
        return self

    def check_target(self, target: Target | Mapping[str, Target]) -> None:
        """Refuses labels that are not there."""
        check_named(target, self.labels)

    def operate(
        self,
        logits: Logits,
        features: Features,
        examples: Sequence[SpanSentence],
        target: Target | Mapping[str, Target],
    ) -> tuple[Self, list[Point]]:
        """Bars for the spans of each label."""
        units = Units([], [], [], [], [])
        for item, (one, found) in enumerate(
            zip(examples, self.decode(logits, features, examples), strict=True)
        ):
            units.gold.append([label for _, _, label in one.spans])
            for (start, end, label), sure in zip(found["spans"], found["confidence"], strict=True):
                units.add(item, label, sure, right=(start, end, label) in one.spans)
        bars, points = choose_bars(units, target, self.labels)
        return replace(self, bars=bars), points

    @property
    def abstains(self) -> bool:
        """Whether there are bars."""
        return bool(self.bars)

    def abstain(self, prediction: Prediction) -> Prediction:
        """Only the spans that reach the bar of their label."""
        both = zip(prediction["spans"], prediction["confidence"], strict=True)
        kept = [(span, sure) for span, sure in both if sure >= self.bars.get(span[2], 0.0)]
        return prediction | {"spans": [s for s, _ in kept], "confidence": [c for _, c in kept]}

    def shifts(self) -> dict[str, NDArray[np.float64]]:
        """Nothing is tuned."""
        return {}

    def decode(
        self, logits: Logits, features: Features, examples: Sequence[SpanSentence]
    ) -> list[Prediction]:
        """The spans of every sentence, each with its label."""
        check_windows(logits["seen"], len(features))
        source = features["source"][logits["item"]].tolist()
        sure = to_probabilities(logits["score"].astype(np.float64), multi_label=True).round(DIGITS)
        columns = (logits["score"], logits["label"], logits["start"], logits["end"], sure)
        found: list[list[tuple[float, int, int, int, float]]] = [[] for _ in examples]
        for place, span in zip(
            source, zip(*(c.tolist() for c in columns), strict=True), strict=True
        ):
            found[place].append(span)
        predictions = []
        for own in found:
            kept = own if self.nested else keep_flat(own)
            spans = sorted(((a, b, self.labels[c]), s) for _, c, a, b, s in kept)
            predictions.append(
                {"spans": [list(span) for span, _ in spans], "confidence": [s for _, s in spans]}
            )
        return predictions

    def score(
        self, predictions: Sequence[Prediction], examples: Iterable[SpanSentence]
    ) -> dict[str, Any]:
        """Span scores over all labels."""
        gold = [set(example.spans) for example in examples]
        found = [{(a, b, label) for a, b, label in item["spans"]} for item in predictions]
        return describe_counts(count_span_sets(gold, found))

    def show(self, example: SpanSentence) -> dict[str, Any]:
        """The words with the spans."""
        return {"words": list(example.words), "gold": [list(span) for span in example.spans]}

    def class_counts(self, features: Features) -> dict[str, NDArray[np.int64]]:
        """(negative, positive) spans of each label."""
        first, end, before = (features[key] for key in WINDOW)
        spans = count_spans(end - first, self.max_span) - count_spans(before - first, self.max_span)
        label = self._find_golds(features, np.arange(len(features)))[3]
        positive = np.bincount(label, minlength=len(self.labels))
        return {"spans": np.stack([spans - positive, positive], axis=1)}

    def strata(self, features: Features) -> NDArray[np.int64]:
        """1 where the window holds a span, else 0."""
        out = np.zeros(len(features), np.int64)
        out[self._find_golds(features, np.arange(len(features)))[0]] = 1
        return out

    def find_collapse(self, predictions: Sequence[Prediction]) -> str | None:
        """Whether no sentence has a span."""
        return describe_collapse({"span" for one in predictions if one["spans"]}, compete=False)

    def card(self, *, pieces: bool, folded: bool) -> CardText:  # noqa: ARG002 - protocol
        """What the model card says of this task."""
        plain = "A span" if self.bars else f"{NOT_TUNED}: a span"
        decision = [
            f"{plain} of up to {self.max_span} words is given where it is likelier than not."
        ]
        decision += [describe_bars(self.bars)] if self.bars else []
        return CardText(decision, pipeline="token-classification", limits=[SEEN_ONLY])

    def count_line(self, line: Mapping[str, Any]) -> LineCounts:
        """Counts of the spans of one sentence."""
        gold, given = ({tuple(span) for span in line[key]} for key in ("gold", "spans"))
        return {"counts": count_span_sets([gold], [given])}

    def headroom(
        self,
        lines: Sequence[Mapping[str, Any]],
        logits: Logits | None = None,  # noqa: ARG002 - lines have the spans and how sure they are
        features: Features | None = None,  # noqa: ARG002
        examples: Sequence[Any] = (),  # noqa: ARG002
    ) -> Headroom:
        """A stricter threshold, the ranking of found spans, labels and boundaries."""
        sentences = [
            Sentence(
                line,
                {(a, b, label) for a, b, label in line["gold"]},
                {
                    (a, b, label): sure
                    for (a, b, label), sure in zip(line["spans"], line["confidence"], strict=True)
                },
            )
            for line in lines
        ]
        best, then = sweep_confidence(sentences)
        missing = "a looser threshold: spans that are less likely than not are not kept"
        return measure_spans(
            sentences, best, what="One threshold for found spans", then=then, missing=[missing]
        )

    def fit_majority(self, train: Sequence[SpanSentence]) -> Predict:  # noqa: ARG002 - protocol
        """No span in any sentence."""
        return lambda examples: [{"spans": [], "confidence": []} for _ in examples]


def find_before(source: Ints, first: Ints, end: Ints) -> Ints:
    """The end of the window before each one, its own start for the first of a sentence.

    >>> find_before(np.array([0, 0, 1]), np.array([0, 4, 9]), np.array([6, 9, 12])).tolist()
    [0, 6, 9]
    """
    out = first.copy()
    same = source[1:] == source[:-1]
    out[1:][same] = end[:-1][same]
    return out


def count_spans(words: Ints, most: int) -> int:
    """How many spans of up to `most` words there are in texts of so many words.

    >>> count_spans(np.array([3, 1]), 2)  # 3 of one word and 2 of two, and 1
    6
    """
    lengths = np.minimum(words, most)  # of a text of n words, n − k + 1 spans have k
    return int((lengths * (words + 1) - lengths * (lengths + 1) // 2).sum())
