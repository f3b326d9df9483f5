"""BERT-MRC: named entities as answers to a query for each label."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch

from softf1.data.examples import MrcExample, TaggedSentence
from softf1.data.mrc import ask, from_tagged, read_queries
from softf1.metrics.operating import choose_bars
from softf1.metrics.spans import count_span_sets
from softf1.models.encoders import Head
from softf1.tasks.base import (
    DIGITS,
    Batch,
    Features,
    Logits,
    Prediction,
    describe_collapse,
    describe_counts,
    read_examples,
)
from softf1.tasks.card import NOT_TUNED, CardText, describe_bars
from softf1.tasks.headroom import Headroom, measure_spans, sweep_confidence
from softf1.tasks.labels import check_named
from softf1.tasks.queries import (
    Candidates,
    answer_targets,
    asks_anew,
    choose_pairs,
    count_sides,
    encode_queries,
    find_spans_of_rows,
    join_queries,
    list_query_units,
    merge_windows,
    pair_tensors,
    side_targets,
    window_golds,
)
from softf1.tasks.rows import assemble, model_inputs, ranges, rows
from softf1.tasks.sentences import check_windows, window_tokens, word_places
from softf1.tasks.tagging import Tagging

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from softf1.data.problems import Problems
    from softf1.metrics.operating import Point, Target
    from softf1.models.tokenizers import Tokenizer
    from softf1.tasks.base import LineCounts, Predict
    from softf1.tasks.queries import Golds, Scored

    Ints = NDArray[np.int64]


@dataclass(frozen=True)
class MrcNer:
    """Named entities, flat or nested, as answers to one query per label (BERT-MRC).

    Attributes:
        queries: The query of each label, or a file of queries, for a tagging file. None reads
            BERT-MRC files, which contain their queries.
        repair: Repair tags of a tagging file that their scheme does not allow, by conlleval's
            rules; otherwise they are an error.
        match: How starts are matched with ends; "none" pairs each start with the nearest end.
        candidates: The pairs of starts and ends that the span head is trained on.
        answerable: Add a head that predicts whether there is any span at all.
        nested: Spans may overlap; otherwise the best non-overlapping spans of a sentence are
            kept, over all labels.
        max_span: The maximum words of a candidate, for "all" and "gold_random".
        max_query: The maximum tokens of a query.
        seed: The seed of random candidates, which are drawn anew in every epoch.
        format: Format of the files; None detects it.
        reader: Options of the reader.
        max_length: The maximum ids per row; None is the encoder's maximum.
        overlap: Pieces that two windows of a long context share; None is a quarter.
        labels: Labels of the training data.
        bars: The least confidence of the spans of each label, chosen on dev; `abstain` leaves out
            predictions below it.
    """

    queries: dict[str, str] | str | Path | None = None
    repair: bool = False
    match: Literal["none", "concat", "biaffine"] = "concat"
    candidates: Candidates = "gold_random"
    answerable: bool = False
    nested: bool = False
    max_span: int = 30
    max_query: int = 64
    seed: int = 0
    format: str | None = None
    reader: dict[str, Any] = field(default_factory=dict)
    max_length: int | None = None
    overlap: int | None = None
    labels: tuple[str, ...] = field(default=(), metadata={"learned": True})
    bars: dict[str, float] = field(default_factory=dict, metadata={"learned": True})

    kind = "mrc_ner"
    summary = "names as answers to a query for each label, nested ones too (BERT-MRC)"
    primary_metric = "f1"
    reads_words = True
    no_onnx = "which pairs of start and end its model judges depends on the text"
    head = "none"
    softmax = False

    def __post_init__(self) -> None:
        """Reads the queries, so that a saved task depends on no other file."""
        if isinstance(self.queries, (str, Path)):
            object.__setattr__(self, "queries", read_queries(self.queries))

    @property
    def file_kind(self) -> str:
        """With queries it reads files of tags."""
        return Tagging.kind if isinstance(self.queries, dict) else self.kind

    def read(self, path: Path | str, problems: Problems | None = None) -> Iterator[MrcExample]:
        """The items of a file, or one for each sentence and label of a tagging file."""
        if not isinstance(self.queries, dict):
            return read_examples(self, path, MrcExample, problems)
        sentences = read_examples(self, path, TaggedSentence, problems)
        return from_tagged(
            sentences, self.queries, repair=self.repair, path=path, problems=problems
        )

    def read_input(
        self, path: Path | str, problems: Problems | None = None
    ) -> Iterator[MrcExample]:
        """The same to predict on: sentences may have no tags, and every query is asked."""
        if not isinstance(self.queries, dict):
            return self.read(path, problems)
        return ask(read_examples(self, path, TaggedSentence, problems), self.queries)

    def texts(self, examples: Iterable[MrcExample]) -> Iterator[Sequence[str]]:
        """The words of each context."""
        return (example.words for example in examples)

    def encode(self, examples: Iterable[MrcExample], tokenizer: Tokenizer) -> Features:
        """Encodes contexts as arrays, one item per window, with the query of each."""
        return encode_queries(
            list(examples),
            tokenizer,
            max_length=self.max_length,
            max_query=self.max_query,
            overlap=self.overlap,
        )

    def fit(self, features: Features) -> Self:
        """The labels of the training data."""
        return replace(self, labels=tuple(sorted(features.names["labels"])))

    def notes(self, features: Features) -> list[str]:  # noqa: ARG002 - protocol
        """Returns no notes: a query can ask for any label."""
        return []

    def build_model(self, encoder: str | Path, tokenizer: Tokenizer, **options: Any) -> nn.Module:
        """The encoder with heads for starts, ends, pairs and answers."""
        from softf1.models.mrc import MrcNer as Model

        return Model.build(
            encoder, tokenizer, match=self.match, answerable=self.answerable, **options
        )

    def heads(self, model: Any) -> dict[str, Head]:
        """Returns the layer that computes the logits of each key."""
        layers = {"start": model.start, "end": model.end}
        layers |= {"span": model.match.out} if self.match != "none" else {}
        layers |= {"answerable": model.answerable} if self.answerable else {}
        return {key: Head(layer, slice(None)) for key, layer in layers.items()}

    def collate(
        self,
        features: Features,
        items: Sequence[int],
        tokenizer: Tokenizer,
        *,
        width: int | None = None,
        epoch: int = 0,
    ) -> Batch:
        """Windows as tensors; a word's place is its first piece, all others are in no loss."""
        index = np.asarray(items, np.int64)
        query, at = features["query_of"][features["source"][index]], features["query_at"]
        asked = at[query + 1] - at[query]
        laid = assemble(
            tokenizer,
            tokenizer.layout(pair=True),
            (features["query"][ranges(at[query], asked)], asked),
            window_tokens(features, index),
            width=width,
        )
        _, row, column = word_places(features, index, laid.second, owned=False)
        words = features["end"][index] - features["first"][index]
        columns = np.split(column, np.cumsum(words)[:-1])
        golds_of = [window_golds(features, item) for item in index.tolist()]
        context, word = np.zeros(laid.ids.shape, np.int64), np.full(laid.ids.shape, -1)
        context[row, column] = 1
        first = features["first"][index] - features["sentence"][features["source"][index]]
        word[row, column] = ranges(first, words)
        targets = side_targets(golds_of, columns, context)
        inputs = {"context": torch.from_numpy(context), "cls": torch.from_numpy(laid.cls)}
        if self.match != "none":
            chosen = self._pairs(golds_of, words, index, epoch)
            pairs, targets["span"] = pair_tensors(chosen, [golds for golds, _ in golds_of], columns)
            inputs["pairs"] = torch.from_numpy(pairs)
        if self.answerable:
            targets["answerable"] = answer_targets(golds_of)
        return Batch(
            index,
            model_inputs(tokenizer, laid, features) | inputs,
            {key: torch.from_numpy(target) for key, target in targets.items()},
            {"word": torch.from_numpy(word)},
        )

    def _pairs(
        self, windows: Sequence[Golds], words: Ints, items: Ints, epoch: int = 0
    ) -> list[list[Any]]:
        return [
            choose_pairs(
                golds,
                count,
                candidates=self.candidates,
                max_span=self.max_span,
                seed=(self.seed, epoch, item),
            )
            for (golds, _), count, item in zip(windows, words.tolist(), items.tolist(), strict=True)
        ]

    def logits(self, output: Any, batch: Batch) -> dict[str, Tensor]:  # noqa: ARG002 - protocol
        """`start`, `end` (B, L, 1), `span` (B, K, 1), `answerable` (B, 1), and proposals."""
        logits: dict[str, Tensor] = output
        return logits

    def gather(self, logits: Mapping[str, Tensor], batch: Batch) -> Logits:
        """The spans of every window: (item, start, end, score, confidence) by word."""
        arrays = {key: value.detach().float().cpu().numpy() for key, value in logits.items()}
        flat = {key: array[..., 0] for key, array in arrays.items() if key != "proposed"}
        if "proposed" in logits:
            flat["proposed"] = logits["proposed"].cpu().numpy()
        word = batch.places["word"].cpu().numpy()
        spans = list(find_spans_of_rows(flat, word, nested=self.nested))
        row, start, end, score, confidence = np.array(spans, np.float64).reshape(-1, 5).T
        return {
            "seen": batch.items,
            "item": batch.items[row.astype(np.int64)],
            "start": start.astype(np.int64),
            "end": end.astype(np.int64),
            "score": score,
            "confidence": confidence,
        }

    def tune(self, logits: Logits, features: Features, examples: Sequence[Any]) -> Self:  # noqa: ARG002
        """Itself: spans are given where all heads say yes."""
        return self

    def check_target(self, target: Target | Mapping[str, Target]) -> None:
        """Raises for labels that are not in the training data."""
        check_named(target, self.labels)

    def operate(
        self,
        logits: Logits,
        features: Features,
        examples: Sequence[MrcExample],
        target: Target | Mapping[str, Target],
    ) -> tuple[Self, list[Point]]:
        """Bars for the spans of each label; queries about one sentence are one item."""
        units = list_query_units(self.decode(logits, features, examples), examples)
        bars, points = choose_bars(units, target, self.labels)
        return replace(self, bars=bars), points

    @property
    def abstains(self) -> bool:
        """Whether a least confidence was chosen for some label."""
        return bool(self.bars)

    def abstain(self, prediction: Prediction) -> Prediction:
        """Only the spans that reach the bar of their label."""
        bar = self.bars.get(prediction["label"], 0.0)
        both = zip(prediction["spans"], prediction["confidence"], strict=True)
        kept = [(span, confidence) for span, confidence in both if confidence >= bar]
        return prediction | {"spans": [s for s, _ in kept], "confidence": [c for _, c in kept]}

    def shifts(self) -> dict[str, NDArray[np.float64]]:
        """Nothing is tuned."""
        return {}

    def starts_group(self, example: MrcExample, group: Sequence[MrcExample]) -> bool:
        """Whether a query is about another sentence: queries about one are decoded together."""
        return asks_anew(example, group)

    def decode(
        self, logits: Logits, features: Features, examples: Sequence[MrcExample]
    ) -> list[Prediction]:
        """The spans of every item, those of its windows put together."""
        check_windows(logits["seen"], len(features))
        source = features["source"][logits["item"]]
        columns = (logits["score"], source, logits["start"], logits["end"], logits["confidence"])
        spans: Iterable[Scored] = zip(*(array.tolist() for array in columns), strict=True)
        kept = merge_windows(spans, examples, nested=self.nested)
        return [
            {
                "id": example.id,
                "label": example.label,
                "spans": [span for span, _ in own],
                "confidence": [round(confidence, DIGITS) for _, confidence in own],
            }
            for example, own in zip(examples, kept, strict=True)
        ]

    def score(
        self, predictions: Sequence[Prediction], examples: Iterable[MrcExample]
    ) -> dict[str, Any]:
        """Span scores over all labels."""
        asked = list(examples)
        gold = [{(*span, example.label) for span in example.spans} for example in asked]
        predicted = [
            {(start, end, item["label"]) for start, end in item["spans"]} for item in predictions
        ]
        return describe_counts(count_span_sets(gold, predicted))

    def show(self, example: MrcExample) -> dict[str, Any]:
        """The words and the query with the spans."""
        asked = {"query": example.query, "label": example.label}
        return {"words": list(example.words), **asked, "gold": [list(s) for s in example.spans]}

    def class_counts(self, features: Features) -> dict[str, NDArray[np.int64]]:
        """(negative, positive) words, windows and candidates."""
        windows = [window_golds(features, item) for item in range(len(features))]
        words = features["end"] - features["first"]
        counts = count_sides(windows, int(words.sum()))
        if self.match != "none":
            pairs = sum(map(len, self._pairs(windows, words, np.arange(len(features)))))
            positive = sum(len(set(golds)) for golds, _ in windows)
            counts["span"] = np.array([[pairs - positive, positive]])
        if self.answerable:
            target = answer_targets(windows)
            counts["answerable"] = np.array([[(target == 0).sum(), (target == 1).sum()]])
        return counts

    def strata(self, features: Features) -> NDArray[np.int64]:
        """1 where the window holds a span, else 0."""
        source, at = features["source"], features["gold_at"]
        count = at[source + 1] - at[source]
        row = rows(count)
        golds = features["gold"][ranges(at[source], count)]
        golds = golds + features["sentence"][source][row, None]
        inside = (golds[:, 0] >= features["first"][row]) & (golds[:, 1] <= features["end"][row])
        out = np.zeros(len(features), np.int64)
        out[row[inside]] = 1
        return out

    def find_collapse(self, predictions: Sequence[Prediction]) -> str | None:
        """Whether no query has a span."""
        return describe_collapse({"span" for one in predictions if one["spans"]}, compete=False)

    def card(self, *, pieces: bool, folded: bool) -> CardText:  # noqa: ARG002 - protocol
        """Returns the text of the model card for this task."""
        plain = "A span" if self.bars else f"{NOT_TUNED}: a span"
        decision = [f"{plain} is given where every head finds it likelier than not."]
        decision += [describe_bars(self.bars)] if self.bars else []
        return CardText(decision, pipeline="token-classification")

    def count_line(self, line: Mapping[str, Any]) -> LineCounts:
        """Counts of the spans of one query."""
        gold, given = (
            {(start, end, line["label"]) for start, end in line[key]} for key in ("gold", "spans")
        )
        return {"counts": count_span_sets([gold], [given])}

    def line_group(self, line: Mapping[str, Any]) -> Any:
        """Queries over one sentence are no independent examples."""
        return tuple(line["words"])

    def headroom(
        self,
        lines: Sequence[Mapping[str, Any]],
        logits: Logits | None = None,  # noqa: ARG002 - lines have the spans and how sure they are
        features: Features | None = None,  # noqa: ARG002
        examples: Sequence[Any] = (),  # noqa: ARG002
    ) -> Headroom:
        """A stricter threshold, the ranking of found spans, labels and boundaries."""
        sentences = join_queries(lines)
        best, then = sweep_confidence(sentences)
        missing = "a looser threshold: spans that a head refuses are not kept, so none is tried"
        return measure_spans(
            sentences, best, what="One threshold for found spans", then=then, missing=[missing]
        )

    def fit_majority(self, train: Sequence[MrcExample]) -> Predict:  # noqa: ARG002 - protocol
        """Nothing for any query: most of them find nothing in a sentence."""
        nothing: Prediction = {"spans": [], "confidence": []}
        return lambda examples: [{"id": x.id, "label": x.label, **nothing} for x in examples]
