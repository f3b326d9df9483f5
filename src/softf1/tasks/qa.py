"""Question answering: the start and end of an answer, in contexts that may need several windows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch

from softf1.data.examples import QAExample
from softf1.errors import InputError
from softf1.metrics.operating import Point, Target
from softf1.models.encoders import Head, find_output
from softf1.tasks.answers import ANSWER, AnswerTask, answer_first_words
from softf1.tasks.base import Batch, Features, Logits, Predict, Prediction, describe_collapse
from softf1.tasks.card import DECISION, CardText, describe_bars
from softf1.tasks.contexts import (
    encode_contexts,
    every_position,
    locate_answer,
    one_position,
    slide_windows,
)
from softf1.tasks.rows import Amount, Size, encode_texts, keep, offsets, ranges, room, rows, take
from softf1.tasks.sentences import Numbering, golds_inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from softf1.models.tokenizers import Tokenizer
    from softf1.tasks.rows import Flat, Ints, PaddedRows, Parts

KEYS = ("start", "end")

CODE = """from transformers import AutoModelForQuestionAnswering, AutoTokenizer

model = AutoModelForQuestionAnswering.from_pretrained("{folder}")
tokenizer = AutoTokenizer.from_pretrained("{folder}")"""


@dataclass(frozen=True)
class QA(AnswerTask):
    """Question answering as in SQuAD 1.1 and 2.0, QuoRef and CMRC.

    In a window without the answer, the classification token is the target, in both modes.

    Attributes:
        positions: "softmax" chooses one start among all positions (logits (B, L), target (B,));
            "sigmoid" decides at every position (logits and target (B, L, 1)).
        no_answer: Questions may have no answer (SQuAD 2.0).
        several: An answer may have several spans (QuoRef); needs "sigmoid".
        rules: How answers are scored; None is squad2 with `no_answer`, quoref with `several`,
            squad otherwise.
        format: Format of the files; None detects it.
        reader: Options of the reader.
        max_length: The maximum ids per row; None is the encoder's default length.
        max_question: The maximum tokens of a question.
        overlap: Tokens that two windows share.
        n_best: The number of best starts, ends and spans of a window to consider.
        max_answer: The maximum tokens of an answer; None is 30, as in the official script, or
            enough for 99% of the training answers if that is more (in Chinese a token is a
            character).
        listed: The number of candidates in a prediction.
        longest: The maximum in use: `max_answer`, or what None led to.
        null_threshold: Predict no answer if its score is higher by more than this; tuned on dev.
        bars: The minimum confidence of an answer, chosen on dev; `abstain` leaves out answers
            below it.
    """

    positions: Literal["softmax", "sigmoid"] = "softmax"
    no_answer: bool = False
    several: bool = False
    rules: Literal["squad", "squad2", "quoref", "cmrc"] | None = None
    format: str | None = None
    reader: dict[str, Any] = field(default_factory=dict)
    max_length: int | None = 384
    max_question: Size = 64
    overlap: Amount = 128
    n_best: Size = 20
    max_answer: Size | None = None
    listed: Amount = 0
    longest: int = field(default=30, metadata={"learned": True})
    null_threshold: float = field(default=0.0, metadata={"learned": True})
    bars: dict[str, float] = field(default_factory=dict, metadata={"learned": True})

    bar_labels = (ANSWER,)
    kind = file_kind = "qa"
    reads = QAExample
    summary = "an answer to a question in a text: SQuAD 1.1 and 2.0, QuoRef, CMRC"
    primary_metric = "f1"
    head = "span"
    model_options = ("positions", "max_length", "max_question", "overlap", "n_best", "max_answer")

    def __post_init__(self) -> None:
        """Checks that several spans come with sigmoids: a softmax can choose only one."""
        if self.several and self.positions != "sigmoid":
            raise InputError('option several of task qa: wanted positions = "sigmoid" with it')

    @property
    def softmax(self) -> bool:
        """Whether a softmax over all positions chooses one."""
        return self.positions == "softmax"

    chooses_position = softmax

    @property
    def tunes(self) -> bool:
        """Whether there is a no-answer threshold to tune."""
        return self.no_answer

    def texts(self, examples: Iterable[QAExample]) -> Iterator[Sequence[str]]:
        """Yields all questions and contexts."""
        return (text for example in examples for text in (example.question, example.context))

    def encode(self, examples: Iterable[QAExample], tokenizer: Tokenizer) -> Features:
        """Encodes questions and contexts as arrays, one item per window.

        `tokens` holds each distinct context once, with the characters (`char_start`, `char_end`)
        that each token stands for; `question` and `gold` (token spans, end exclusive) are flat with
        offsets `…_at`; for every window `source` is its question and `first`, `end` its tokens.
        """
        asked = list(examples)
        number = Numbering()
        context = number.numbers([example.context for example in asked])
        arrays = encode_contexts(list(number), tokenizer)
        question, count = encode_texts([example.question for example in asked], tokenizer)
        question, count = keep((question, count), np.minimum(count, self.max_question))
        layout = tokenizer.layout(pair=True)
        capacity = room(tokenizer, layout, self.max_length) - count
        if (capacity < 2).any():
            raise InputError(f"wanted room for 2 tokens or more of a context, got {capacity.min()}")
        at = arrays["context_at"]
        source, first, end = slide_windows(
            at[context], at[context + 1], capacity, overlap=self.overlap
        )
        gold = [locate_answer(e, arrays, c) for e, c in zip(asked, context.tolist(), strict=True)]
        arrays |= {
            "question": question,
            "question_at": offsets(count),
            "gold": np.array([span for spans in gold for span in spans], np.int64).reshape(-1, 2),
            "gold_at": offsets([len(spans) for spans in gold]),
            # Answers that were not found in their context can be scored, not learned.
            "unknown": np.array(
                [bool(e.answers) and not g for e, g in zip(asked, gold, strict=True)]
            ),
            "source": source,
            "first": first,
            "end": end,
            "length": (end - first + count[source] + layout.specials).astype(np.int32),
        }
        return Features(arrays, {})

    def fit(self, features: Features) -> Self:
        """Learns how long answers are; there are no labels."""
        start, end = features["gold"].T
        usual = int(np.quantile(end - start, 0.99, method="higher")) if len(start) else 0
        return replace(self, longest=self.max_answer or max(30, usual))

    def notes(self, features: Features) -> list[str]:
        """Returns notes about answers that are too long to be found, or not in their context."""
        start, end = features["gold"].T
        long, unplaced = int((end - start > self.longest).sum()), int(features["unknown"].sum())
        limit, all_asked = f"more than max_answer = {self.longest} tokens", len(features["unknown"])
        notes = {
            f"{long} of {len(start)} answers have {limit}": long,
            f"{unplaced} of {all_asked} answers were not found in their text": unplaced,
        }
        return [f"{text}: scored, never found" for text, count in notes.items() if count]

    def heads(self, model: nn.Module) -> dict[str, Head]:
        """Returns the layer that computes the logits of each key."""
        layer = find_output(model, 2)
        return {key: Head(layer, slice(i, i + 1)) for i, key in enumerate(KEYS)}

    def take_texts(self, features: Features, index: Ints) -> tuple[Flat, ...]:
        """Returns the ids of questions, and of windows of their contexts."""
        first = features["first"][index]
        count = features["end"][index] - first
        window = features["tokens"][ranges(first, count)]
        return take(features, "question", features["source"][index]), (window, count)

    def fill(self, features: Features, index: Ints, laid: PaddedRows, epoch: int) -> Parts:  # noqa: ARG002
        """Makes targets: start and end of the answer, or [CLS] for both if there is none."""
        source, first = features["source"][index], features["first"][index]
        count = features["end"][index] - first
        row, column = rows(count), ranges(laid.second, count)
        allowed = np.zeros(laid.ids.shape, bool)
        allowed[row, column] = True
        allowed[np.arange(len(index)), laid.cls] = True
        gold, start, end = golds_inside(features, index)
        known = {"cls": laid.cls, "unknown": features["unknown"][source]}
        targets = {}
        for key, token in zip(KEYS, (start, end - 1), strict=True):
            at = token - first[gold] + laid.second[gold]
            if self.positions == "sigmoid":
                targets[key] = every_position(gold, at, allowed=allowed, **known)
            else:
                targets[key] = one_position(gold, at, **known)
        places = {"row": row, "column": column, "cls": laid.cls, "allowed": allowed, "count": count}
        return {}, targets, places

    def logits(self, output: Any, batch: Batch) -> dict[str, Tensor]:
        """Returns `start` and `end`: (B, L) with −inf outside the context, or (B, L, 1)."""
        sides = {"start": output.start_logits, "end": output.end_logits}
        if self.positions == "sigmoid":
            return {key: logits[..., None] for key, logits in sides.items()}
        outside = ~batch.places["allowed"]
        return {key: x.masked_fill(outside, float("-inf")) for key, x in sides.items()}

    def gather(self, logits: Mapping[str, Tensor], batch: Batch) -> Logits:
        """Returns the logits of context tokens, flat, and of [CLS], for each window."""
        place = batch.places
        kept = {"item": batch.items, "count": place["count"].cpu().numpy()}
        line = torch.arange(len(batch.items), device=place["cls"].device)
        for key in KEYS:
            values = logits[key].detach().float().flatten(1)
            kept[key] = values[place["row"], place["column"]].cpu().numpy()
            kept[f"null_{key}"] = values[line, place["cls"]].cpu().numpy()
        return kept

    def tune(self, logits: Logits, features: Features, examples: Sequence[QAExample]) -> Self:
        """Tunes the no-answer threshold for F1 on dev; kept only if cross-fitting shows a gain."""
        if not self.tunes:
            return self
        every = replace(self, null_threshold=math.inf).decode(logits, features, examples)
        best = self.sweep_threshold(every, examples)
        if best.at is None or best.honest <= best.decided:
            return self
        return replace(self, null_threshold=best.at)

    def check_target(self, target: Target | Mapping[str, Target]) -> None:
        """Raises for targets per label, as answers have no labels, and for F-beta."""
        if not isinstance(target, Target):
            raise InputError("wanted one target: answers have no labels")
        if target.kind == "f":
            message = "wanted f1, precision>=…, recall>=… or cost:… for answers"
            raise InputError(f"{message}, got {target.text}")

    def operate(
        self,
        logits: Logits,
        features: Features,
        examples: Sequence[QAExample],
        target: Target | Mapping[str, Target],
    ) -> tuple[Self, list[Point]]:
        """Tunes the no-answer threshold for F1; for other targets, one bar for all answers."""
        if isinstance(target, Target) and target.kind == "f":
            return self.tune(logits, features, examples), []
        operated: tuple[Self, list[Point]] = super().operate(logits, features, examples, target)
        return operated

    def abstain(self, prediction: Prediction) -> Prediction:
        """Leaves out an answer whose confidence is below the bar."""
        if not prediction["answer"] or prediction["confidence"] >= self.bars.get(ANSWER, 0.0):
            return prediction
        several: dict[str, Any] = {"answers": []} if "answers" in prediction else {}
        return prediction | {"answer": "", "abstained": True} | several

    def show(self, example: QAExample) -> dict[str, Any]:
        """Returns question, context and gold answers, each of one span or several."""
        gold = [list(answer.texts) for answer in example.answers]
        return {"question": example.question, "context": example.context, "gold": gold}

    def class_counts(self, features: Features) -> dict[str, NDArray[np.int64]]:
        """Counts (negative, positive) positions; a softmax over positions has no classes."""
        if self.positions == "softmax":
            return {}
        known = np.flatnonzero(~features["unknown"][features["source"]])
        positions = int((features["end"] - features["first"])[known].sum()) + len(known)
        row, start, end = golds_inside(features, known)
        counts = {}
        for key, token in zip(KEYS, (start, end), strict=True):
            distinct = np.unique(np.stack([row, token]), axis=1).shape[1]
            positive = distinct + len(known) - len(np.unique(row))
            counts[key] = np.array([[positions - positive, positive]])
        return counts

    def strata(self, features: Features) -> NDArray[np.int64]:
        """Returns 1 for windows with the answer, 0 for others, −1 if the answer was not found."""
        row, _, _ = golds_inside(features, np.arange(len(features)))
        out = np.where(features["unknown"][features["source"]], -1, 0)
        out[row] = 1
        return out

    def find_collapse(self, predictions: Sequence[Prediction]) -> str | None:
        """Describes a collapse: no question gets an answer."""
        return describe_collapse({"answer" for one in predictions if one["answer"]}, compete=False)

    def card(self, *, pieces: bool, folded: bool) -> CardText:  # noqa: ARG002 - protocol
        """Returns the text of the model card for this task."""
        length = self.max_answer or self.longest
        decision = [
            f"The best start and end of all windows, at most {length} tokens apart, are the answer."
        ]
        if self.no_answer:
            tuned = "not tuned" if self.null_threshold == 0 else "tuned on dev"
            decision.append(
                f"The answer is empty if the score of no answer is above that of the best span by "
                f"more than {self.null_threshold:.4g} ({tuned}); the number is in `config.json`, "
                f"under `{DECISION}`."
            )
        decision += [describe_bars(self.bars)] if self.bars else []
        return CardText(decision, pipeline="question-answering", code=CODE)

    def line_group(self, line: Mapping[str, Any]) -> Any:
        """Returns the context: questions about one context are not independent examples."""
        return line["context"]

    def fit_majority(self, train: Sequence[QAExample]) -> Predict:
        """Returns a baseline: no answer if most questions have none, else the first words."""
        return answer_first_words(train, no_answer=self.no_answer)
