"""What tasks that predict labelled spans of words share: scores, bars and headroom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from softf1.metrics.schemes import LabelledSpan
from softf1.metrics.spans import count_span_sets
from softf1.tasks.base import Batch, LineCounts, Prediction, describe_collapse, describe_counts
from softf1.tasks.card import NOT_TUNED, CardText, describe_bars
from softf1.tasks.headroom import Headroom, Sentence, list_units, measure_spans, sweep_confidence
from softf1.tasks.rows import TextTask

if TYPE_CHECKING:
    from torch import Tensor

    from softf1.metrics.operating import Units

Line = Mapping[str, Any]
Candidates = list[list[tuple[LabelledSpan, float]]]
"""The candidate spans of each sentence, with their probabilities."""
Scored = tuple[float, int, int, int, float]
"""(score, example or label, start, end, confidence)."""


class SpanTask(TextTask):
    """The base class of tasks that predict labelled spans of words, each with a confidence.

    Attributes:
        nested: Whether spans may overlap.
        not_kept: The end of "spans that …": which ones a lower threshold would need and lacks.
        limits: Sentences for the model card.
    """

    nested: bool
    not_kept: ClassVar[str]
    limits: ClassVar[tuple[str, ...]] = ()

    primary_metric = "f1"
    reads_words = True
    head = "none"
    softmax = False
    bars_for_f1 = True

    def rule(self) -> str:
        """How spans are chosen, after the words "A span", for the model card."""
        raise NotImplementedError

    def list_spans(self, line: Line, key: str) -> list[LabelledSpan]:
        """The spans of a prediction line with their labels: key `gold` or `spans`."""
        return [(start, end, label) for start, end, label in line[key]]

    def list_sentences(self, lines: Iterable[Line]) -> list[Sentence]:
        """The gold spans of each sentence, and the found ones with their confidence."""
        sentences = []
        for line in lines:
            sure = line.get("confidence") or [1.0] * len(line["spans"])
            found = dict(zip(self.list_spans(line, "spans"), sure, strict=True))
            sentences.append(Sentence(line, set(self.list_spans(line, "gold")), found))
        return sentences

    def list_units(self, lines: Iterable[Line]) -> Units:
        """Lists the found spans, each right or not, and the gold labels."""
        return list_units(self.list_sentences(lines))

    def texts(self, examples: Iterable[Any]) -> Iterator[Sequence[str]]:
        """Yields the words of each example."""
        return (example.words for example in examples)

    def logits(self, output: Any, batch: Batch) -> dict[str, Tensor]:  # noqa: ARG002 - protocol
        """Returns what the model returns: logits by key."""
        return dict(output)

    def describe_nested(self, count: int) -> list[str]:
        """Returns a note about gold spans that overlap, if only flat ones are predicted."""
        said = f"{count:,} spans overlap another one; predictions never do: set task.nested = true"
        return [said] if count and not self.nested else []

    def abstain(self, prediction: Prediction) -> Prediction:
        """Keeps only the spans that reach the bar of their label."""
        labels = (label for _, _, label in self.list_spans(prediction, "spans"))
        given = zip(labels, prediction["spans"], prediction["confidence"], strict=True)
        kept = [(span, sure) for label, span, sure in given if sure >= self.bars.get(label, 0.0)]
        return prediction | predict_spans(kept)

    def score(
        self: Any, predictions: Sequence[Prediction], examples: Iterable[Any]
    ) -> dict[str, Any]:
        """Computes span scores over all labels, and of each label."""
        gold = [self.list_spans(self.show(example), "gold") for example in examples]
        found = [self.list_spans(prediction, "spans") for prediction in predictions]
        return describe_counts(count_span_sets(gold, found))

    def find_collapse(self, predictions: Sequence[Prediction]) -> str | None:
        """Describes a collapse: no example gets a span."""
        return describe_collapse({"span" for one in predictions if one["spans"]}, compete=False)

    def card(self, *, pieces: bool, folded: bool) -> CardText:  # noqa: ARG002 - protocol
        """Returns the text of the model card for this task."""
        decision = [f"{'A' if self.bars else f'{NOT_TUNED}: a'} span {self.rule()}"]
        decision += [describe_bars(self.bars)] if self.bars else []
        return CardText(decision, pipeline="token-classification", limits=self.limits)

    def count_line(self, line: Line) -> LineCounts:
        """Counts right, wrong and missed spans of one prediction line."""
        gold, found = (self.list_spans(line, key) for key in ("gold", "spans"))
        return {"counts": count_span_sets([gold], [found])}

    def list_candidates(self, logits: Any, features: Any) -> Candidates | None:  # noqa: ARG002
        """Lists all candidate spans with their probabilities; None if only found ones are kept."""
        return None

    def measure(self, lines: Sequence[Line], given: Any) -> Headroom:
        """Measures the headroom: a threshold (without candidates only a stricter one), and more."""
        sentences = self.list_sentences(lines)
        candidates = None if given is None else self.list_candidates(*given[:2])
        if candidates is None:
            best, then = sweep_confidence(sentences)
            what, unknown = "A stricter threshold for found spans", f"spans that {self.not_kept}"
            return measure_spans(sentences, best, what=what, then=then, unknown=unknown)
        tried = [
            one._replace(found=dict(own)) for one, own in zip(sentences, candidates, strict=True)
        ]
        best, then = sweep_confidence(sentences, tried)
        return measure_spans(sentences, best, what="One threshold for spans", then=then)


def predict_spans(found: Iterable[tuple[Any, float]]) -> Prediction:
    """Makes a prediction: the spans in order, and their confidence.

    >>> predict_spans([((2, 3, "LOC"), 0.7), ((0, 1, "PER"), 0.9)])
    {'spans': [[0, 1, 'PER'], [2, 3, 'LOC']], 'confidence': [0.9, 0.7]}
    """
    own = sorted(found)
    return {"spans": [list(span) for span, _ in own], "confidence": [sure for _, sure in own]}


def keep_flat(spans: Iterable[Scored]) -> list[Scored]:
    """Keeps the best spans, without those that overlap a better one that is kept.

    >>> keep_flat([(1.0, 0, 0, 2, 0.6), (3.0, 1, 1, 4, 0.9), (0.5, 0, 4, 5, 0.5)])
    [(3.0, 1, 1, 4, 0.9), (0.5, 0, 4, 5, 0.5)]
    """
    kept: list[Scored] = []
    for span in sorted(spans, key=lambda s: (-s[0], s[2], s[3], s[1])):
        if all(span[3] <= other[2] or span[2] >= other[3] for other in kept):
            kept.append(span)
    return kept
