"""BERT-MRC: named entities as answers to a query for each label."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from softf1.data.examples import MrcExample, TaggedSentence
from softf1.data.mrc import ask, from_tagged, read_queries
from softf1.metrics.schemes import count_nested
from softf1.models.encoders import Head
from softf1.tasks.base import Batch, Features, Logits, Predict, Prediction, check_items
from softf1.tasks.queries import (
    Candidates,
    answer_targets,
    choose_pairs,
    find_spans_of_rows,
    group_queries,
    merge_windows,
    pair_tensors,
    side_targets,
    window_golds,
)
from softf1.tasks.rows import Amount, Size, encode_texts, keep, offsets, ranges, rows, take
from softf1.tasks.sentences import (
    Numbering,
    SentenceEncoder,
    golds_inside,
    window_tokens,
    word_places,
)
from softf1.tasks.spans import Line, Scored, SpanTask, predict_spans
from softf1.tasks.tagging import Tagging

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from softf1.data.problems import Problems
    from softf1.metrics.schemes import LabelledSpan
    from softf1.models.tokenizers import Tokenizer
    from softf1.tasks.headroom import Sentence
    from softf1.tasks.queries import Golds
    from softf1.tasks.rows import Flat, Ints, PaddedRows, Parts


@dataclass(frozen=True)
class MrcNer(SpanTask):
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
        max_length: The maximum ids per row; None is the encoder's default length.
        overlap: Pieces that two windows of a long context share; None is a quarter.
        labels: Labels of the training data.
        bars: The minimum confidence of the spans of each label, chosen on dev; `abstain` leaves out
            predictions below it.
    """

    queries: dict[str, str] | str | Path | None = None
    repair: bool = False
    match: Literal["none", "concat", "biaffine"] = "concat"
    candidates: Candidates = "gold_random"
    answerable: bool = False
    nested: bool = False
    max_span: Size = 30
    max_query: Size = 64
    seed: Amount = 0
    format: str | None = None
    reader: dict[str, Any] = field(default_factory=dict)
    max_length: int | None = None
    overlap: Amount | None = None
    labels: tuple[str, ...] = field(default=(), metadata={"learned": True})
    bars: dict[str, float] = field(default_factory=dict, metadata={"learned": True})

    kind = "mrc_ner"
    file_kinds = (kind, Tagging.kind)
    summary = "named entities, one query for each label; may be nested (BERT-MRC)"
    model_options = (
        *("match", "candidates", "answerable", "max_span", "max_query", "seed"),
        *("max_length", "overlap"),
    )
    not_kept = "a head refuses are not kept"
    no_onnx = "which pairs of start and end its model judges depends on the text"

    def __post_init__(self) -> None:
        """Reads the queries, so that a saved task depends on no other file."""
        if isinstance(self.queries, (str, Path)):
            object.__setattr__(self, "queries", read_queries(self.queries))

    @property
    def file_kind(self) -> str:
        """The kind of files to read: tagging files if the task has queries."""
        return Tagging.kind if isinstance(self.queries, dict) else self.kind

    @property
    def reads(self) -> type:
        """The type of examples in the files: tagged sentences if the task has queries."""
        return TaggedSentence if isinstance(self.queries, dict) else MrcExample

    def read(self, path: Path | str, problems: Problems | None = None) -> Iterator[MrcExample]:
        """Reads the items of a file; a tagging file has one for each sentence and label."""
        found = super().read(path, problems)
        if not isinstance(self.queries, dict):
            return found
        return from_tagged(found, self.queries, repair=self.repair, path=path, problems=problems)

    def read_input(
        self, path: Path | str, problems: Problems | None = None
    ) -> Iterator[MrcExample]:
        """Reads a file to predict on: sentences need no tags, and every query is asked."""
        found = super().read(path, problems)
        return ask(found, self.queries) if isinstance(self.queries, dict) else found

    def encode(self, examples: Iterable[MrcExample], tokenizer: Tokenizer) -> Features:
        """Encodes contexts, one item per window, with each distinct query and the gold spans."""
        asked = list(examples)
        number = Numbering()
        query_of = number.numbers([example.query for example in asked])
        flat, counts = encode_texts(list(number), tokenizer)
        flat, counts = keep((flat, counts), np.minimum(counts, self.max_query))
        # Room for the longest query, so that a sentence is cut in the same places for all labels.
        room = {"max_length": self.max_length, "query": int(counts.max(initial=0))}
        encoder = SentenceEncoder(tokenizer, overlap=self.overlap, **room)
        encoder.add([example.words for example in asked])
        arrays = encoder.arrays()
        arrays["length"] += counts[query_of][arrays["source"]].astype(np.int32)
        spans = [span for example in asked for span in example.spans]
        own = [len(example.spans) for example in asked]
        arrays |= {
            "query": flat,
            "query_at": offsets(counts),
            "query_of": query_of,
            "gold": np.array(spans, np.int64).reshape(-1, 2) + arrays["sentence"][rows(own), None],
            "gold_at": offsets(own),
            "nested": np.array([count_overlaps(asked)]),
        }
        return Features(arrays, {"labels": tuple(dict.fromkeys(one.label for one in asked))})

    def notes(self, features: Features) -> list[str]:
        """Returns a note about spans that overlap; a query can ask for any label."""
        return self.describe_nested(int(features["nested"].sum()))

    def build_model(self, encoder: str | Path, tokenizer: Tokenizer, **options: Any) -> nn.Module:
        """Builds the encoder with heads for starts, ends, pairs, and whether there is a span."""
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

    def take_texts(self, features: Features, index: Ints) -> tuple[Flat, ...]:
        """Returns the ids of queries, and of windows of their contexts."""
        query = features["query_of"][features["source"][index]]
        return take(features, "query", query), window_tokens(features, index)

    def fill(self, features: Features, index: Ints, laid: PaddedRows, epoch: int) -> Parts:
        """Makes inputs and targets of windows; only the first piece of a word is in the loss."""
        _, row, column = word_places(features, index, laid.second, owned=False)
        words = features["end"][index] - features["first"][index]
        columns = np.split(column, np.cumsum(words)[:-1])
        golds_of = [window_golds(features, item) for item in index.tolist()]
        context, word = np.zeros(laid.ids.shape, np.int64), np.full(laid.ids.shape, -1)
        context[row, column] = 1
        first = features["first"][index] - features["sentence"][features["source"][index]]
        word[row, column] = ranges(first, words)
        targets = side_targets(golds_of, columns, context)
        inputs = {"context": context, "cls": laid.cls}
        if self.match != "none":
            chosen = self._pairs(golds_of, words, index, epoch)
            golds = [golds for golds, _ in golds_of]
            inputs["pairs"], targets["span"] = pair_tensors(chosen, golds, columns)
        if self.answerable:
            targets["answerable"] = answer_targets(golds_of)
        return inputs, targets, {"word": word}

    def _pairs(
        self, windows: Sequence[Golds], words: Ints, items: Ints, epoch: int = 0
    ) -> list[list[Any]]:
        choose = partial(choose_pairs, candidates=self.candidates, max_span=self.max_span)
        return [
            choose(golds, count, seed=(self.seed, epoch, item))
            for (golds, _), count, item in zip(windows, words.tolist(), items.tolist(), strict=True)
        ]

    def gather(self, logits: Mapping[str, Tensor], batch: Batch) -> Logits:
        """Finds the spans of every window: item, first word, end, score and confidence."""
        flat = {key: x.detach().float().cpu().numpy()[..., 0] for key, x in logits.items()}
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
            "sound": mark_unsound(torch.cat([logits["start"], logits["end"]], 1), len(batch.items)),
        }

    def starts_group(self, example: MrcExample, group: Sequence[MrcExample]) -> bool:
        """Whether the query is about another sentence; those about one are decoded together."""
        return len(group_queries((one.words, one.label) for one in (*group, example))) > 1

    def list_spans(self, line: Line, key: str) -> list[LabelledSpan]:
        """The spans of a query, with the label of the query."""
        return [(start, end, line["label"]) for start, end in line[key]]

    def list_sentences(self, lines: Iterable[Line]) -> list[Sentence]:
        """Merges the queries about one sentence into one sentence."""
        queries = super().list_sentences(lines)
        groups = group_queries((one.line["words"], one.line["label"]) for one in queries)
        for first, *others in groups:
            for number in others:
                queries[first].gold.update(queries[number].gold)
                queries[first].found.update(queries[number].found)
        return [queries[first] for first, *_ in groups]

    def rule(self) -> str:
        """How spans are chosen."""
        return "is predicted if every head gives it a probability above 0.5."

    def decode(
        self, logits: Logits, features: Features, examples: Sequence[MrcExample]
    ) -> list[Prediction]:
        """Returns the spans of every query, merged over the windows of its context."""
        check_items(logits["seen"], len(features))
        source = features["source"][logits["item"]]
        columns = (logits["score"], source, logits["start"], logits["end"], logits["confidence"])
        spans: Iterable[Scored] = zip(*(array.tolist() for array in columns), strict=True)
        kept = merge_windows(spans, examples, nested=self.nested)
        return [
            {"id": example.id, "label": example.label, **predict_spans(own)}
            for example, own in zip(examples, kept, strict=True)
        ]

    def show(self, example: MrcExample) -> dict[str, Any]:
        """Returns the words, the query and the gold spans."""
        asked = {"query": example.query, "label": example.label}
        return {"words": list(example.words), **asked, "gold": [list(s) for s in example.spans]}

    def class_counts(self, features: Features) -> dict[str, NDArray[np.int64]]:
        """Counts (negative, positive) words, windows and candidate pairs."""
        windows = [window_golds(features, item) for item in range(len(features))]
        words = features["end"] - features["first"]
        inside = np.arange(words.max(initial=0)) < words[:, None]
        sides = side_targets(windows, [np.arange(count) for count in words], inside)
        counts = {key: _count(target) for key, target in sides.items()}
        if self.match != "none":
            pairs = sum(map(len, self._pairs(windows, words, np.arange(len(features)))))
            positive = sum(len(set(golds)) for golds, _ in windows)
            counts["span"] = np.array([[pairs - positive, positive]])
        if self.answerable:
            counts["answerable"] = _count(answer_targets(windows))
        return counts

    def strata(self, features: Features) -> NDArray[np.int64]:
        """Returns 1 for windows with a span, 0 for others."""
        out = np.zeros(len(features), np.int64)
        out[golds_inside(features, np.arange(len(features)))[0]] = 1
        return out

    def line_group(self, line: Mapping[str, Any]) -> Any:
        """Returns the sentence: queries about one sentence are not independent examples."""
        return tuple(line["words"])

    def fit_majority(self, train: Sequence[MrcExample]) -> Predict:  # noqa: ARG002 - protocol
        """Returns a baseline that finds no span: most queries have none in a sentence."""
        nothing: Prediction = {"spans": [], "confidence": []}
        return lambda examples: [{"id": x.id, "label": x.label, **nothing} for x in examples]


def _count(target: NDArray[Any]) -> NDArray[np.int64]:
    """Counts 0 and 1 in a target, (1, 2); −100 is ignored."""
    return np.array([[(target == 0).sum(), (target == 1).sum()]])


def count_overlaps(asked: Sequence[MrcExample]) -> int:
    """Counts gold spans that overlap another one of their sentence, of any label."""
    return sum(
        count_nested((*span, asked[one].label) for one in group for span in asked[one].spans)
        for group in group_queries((example.words, example.label) for example in asked)
    )


def mark_unsound(logits: Tensor, items: int) -> NDArray[Any]:
    """Returns 0 for each item, NaN if one of its logits is not finite; no kept span shows that.

    >>> import torch
    >>> mark_unsound(torch.tensor([[1.0, -2.0], [float("nan"), 0.0]]), 2)
    array([ 0., nan], dtype=float32)
    """
    rows: NDArray[Any] = (0 * logits.detach().float().flatten(1)).sum(1).cpu().numpy()
    return rows[:items] + 0.0
