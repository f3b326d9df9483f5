"""What a task is: a frozen value that reads, encodes, collates, decodes and scores.

A task never knows a loss. It gives training two dicts with the same keys, logits and targets
(in evaluation logits may have more keys, which only decoding uses):

    task = make_task("tagging")
    features = task.encode(task.read("train.txt"), tokenizer)     # compact arrays, made once
    task = task.fit(features)                                 # labels come from train only
    model = task.build_model("minilm", tokenizer)
    batch = task.collate(features, items, tokenizer)
    logits = task.logits(model(**batch.inputs), batch)        # {"tags": (B, L, C)}
    loss = sum(loss_fn(logits[key], batch.targets[key]) for key in batch.targets)

    whole = join(task.gather(task.logits(model(**b.inputs), b), b) for b in batches)
    predictions = task.decode(whole, features, examples)      # JSON-able, in the file's order
    scores = task.score(predictions, examples)                # scores[task.primary_metric] decides

Experiments ask a task seven things more, which one of another package may leave out:
`headroom(lines, …)`, how much its score can win at most, and where;
`count_line(line)`, what a line of predictions adds to the sums behind the scores;
`find_suspects(logits, features)`, labels of the data that the model finds unlikely;
`rank_lines(lines)`, scores of items and which are right, behind `average_precision`;
`line_group(line)`, what lines that are no independent examples have in common;
`fit_majority(train)`, a function that gives every example the most frequent answer; and
`chooses_position`, whether an output is a softmax over the positions of a text. Prediction asks
`starts_group(example, group)`, where examples are not decoded alone: whether a new group starts.

All that is learned outside the weights (labels, tag scheme, thresholds) is in the task itself,
so saving a model is saving its weights and this value.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np

from softf1.data.registry import iterate
from softf1.errors import InputError
from softf1.files import finite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from softf1.data.problems import Problems
    from softf1.metrics.counts import Counts, Mean
    from softf1.metrics.operating import Point, Target
    from softf1.models.encoders import Head
    from softf1.models.tokenizers import Tokenizer
    from softf1.tasks.card import CardText
    from softf1.tasks.headroom import Headroom

Example = TypeVar("Example")

Logits = dict[str, "NDArray[Any]"]
"""What evaluation keeps of a batch; the first axis of every array grows over batches."""

Prediction = dict[str, Any]

if TYPE_CHECKING:
    LineCounts = Mapping[str, Counts | Mean]
    Ranked = tuple[NDArray[np.float64], NDArray[np.bool_]]
    """What one example adds to the sums behind the scores, by name of the sum."""

    Predict = Callable[[Sequence[Any]], list[Prediction]]

IGNORE = -100

NOTHING, ONE_CLASS = "no label is predicted", "collapse to one class"
DIGITS = 6
"""Of the confidence of a prediction."""

SCHEMA = 1
"""Version of the lines of predictions, which docs/predict.md describes."""


@dataclass(frozen=True, slots=True)
class Features:
    """Encoded examples: flat arrays, and the label names that occur in this file.

    Attributes:
        arrays: `length` holds the ids in each item's row; the others are the task's own.
        names: Label names of the file by key, in order of appearance; the arrays hold indices.
    """

    arrays: Mapping[str, NDArray[Any]]
    names: Mapping[str, tuple[str, ...]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        """One array."""
        return self.arrays[name]

    def __len__(self) -> int:
        """How many items (windows, pairs, texts) there are to train on."""
        return len(self.arrays["length"])


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of some items.

    Attributes:
        items: Which items of the features these are.
        inputs: What the model's forward takes.
        targets: The same keys as the logits; ignored entries are −100.
        places: What `gather` needs to find the rows that count.
    """

    items: NDArray[np.int64]
    inputs: dict[str, Tensor]
    targets: dict[str, Tensor]
    places: dict[str, Tensor]

    def apply(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The same batch with every tensor changed."""
        parts = (self.inputs, self.targets, self.places)
        return Batch(self.items, *({k: change(v) for k, v in own.items()} for own in parts))

    def to(self, device: Any) -> Batch:
        """The same batch on another device."""
        return self.apply(lambda tensor: tensor.to(device, non_blocking=True))


class Task(Protocol):
    """The steps that the one training loop drives; a new task writes these and registers."""

    @property
    def kind(self) -> str:
        """The name in recipes."""

    @property
    def summary(self) -> str:
        """A line for `softf1 list`, a text in the class."""

    @property
    def head(self) -> str:
        """The head that it wants of an encoder: tokens, text, span or none."""

    @property
    def softmax(self) -> bool:
        """Whether a target is one of several classes; otherwise yes or no at every place."""

    @property
    def file_kind(self) -> str:
        """The kind of task whose files it reads; nearly always its own."""

    @property
    def format(self) -> str | None:
        """The format of the files; None detects it."""

    @property
    def reader(self) -> dict[str, Any]:
        """Options of the reader."""

    @property
    def primary_metric(self) -> str:
        """The score that chooses checkpoints and is reported first."""

    def read(self, path: Path | str, problems: Problems | None = None) -> Iterator[Any]:
        """Examples of a file, one at a time where the format allows."""

    def texts(self, examples: Iterable[Any]) -> Iterator[Sequence[str]]:
        """What an encoder from scratch makes its vocabulary of."""

    def encode(self, examples: Iterable[Any], tokenizer: Tokenizer) -> Features:
        """Examples as compact arrays."""

    def fit(self, features: Features) -> Self:
        """This task with the labels of the training features."""

    def notes(self, features: Features) -> list[str]:
        """What a user should be told of a file, once: what is scored but cannot be predicted."""

    def build_model(self, encoder: str | Path, tokenizer: Tokenizer, **options: Any) -> nn.Module:
        """An encoder with the head for this task's labels; `options` go to its configuration."""

    def heads(self, model: nn.Module) -> dict[str, Head]:
        """The layer behind each key, for its bias and its learning rate."""

    def collate(
        self,
        features: Features,
        items: Sequence[int],
        tokenizer: Tokenizer,
        *,
        width: int | None = None,
        epoch: int = 0,
    ) -> Batch:
        """Some items as tensors, rows padded to `width` (default: the longest of them).

        What is chosen at random (candidates of spans) follows the item and the `epoch` alone.
        """

    def logits(self, output: Any, batch: Batch) -> dict[str, Tensor]:
        """What losses take, from what the model gave."""

    def gather(self, logits: Mapping[str, Tensor], batch: Batch) -> Logits:
        """The part of the logits that decoding needs."""

    def tune(self, logits: Logits, features: Features, examples: Sequence[Any]) -> Self:
        """This task with thresholds tuned on the dev set; itself where there are none."""

    def shifts(self) -> dict[str, NDArray[np.float64]]:
        """What tuned thresholds and biases add to the logits, by key; empty where nothing."""

    def decode(
        self, logits: Logits, features: Features, examples: Sequence[Any]
    ) -> list[Prediction]:
        """One prediction an example, in the order of the examples."""

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Any]) -> dict[str, Any]:
        """The field's own scores."""

    def show(self, example: Any) -> dict[str, Any]:
        """What a line of predictions says of its example, ready for JSON; `gold` as in the file."""

    def class_counts(self, features: Features) -> dict[str, NDArray[np.int64]]:
        """How often each class is a target, by key.

        Softmax: (C,). Sigmoid: (C, 2) of (negative, positive), also for one output, so that
        `counts.ndim == 2` says which. Softmax over positions has no classes, and so no entry.
        """

    # Training asks for the following only where a task has them. So it does for `read_input`, which
    # reads a file to predict on where that is not `read`; `reads_words`, whether examples are
    # sentences that a file may have as one word a line; `no_onnx`, why a model has no ONNX form;
    # `bars`, the least confidence of each label, which `abstain` leaves things out by.

    def check_target(self, target: Target | Mapping[str, Target]) -> None:
        """Raises InputError for an `eval.target` that makes no sense here."""

    def operate(
        self,
        logits: Logits,
        features: Features,
        examples: Sequence[Any],
        target: Target | Mapping[str, Target],
    ) -> tuple[Self, list[Point]]:
        """This task with thresholds, biases or bars for a target, and the points on dev."""

    @property
    def abstains(self) -> bool:
        """Whether there is a threshold or bar that something may not reach."""

    def abstain(self, prediction: Prediction) -> Prediction:
        """The prediction without what does not reach its threshold or bar."""

    def strata(self, features: Features) -> NDArray[np.int64]:
        """The stratum of each item, by which samplers balance; −1 where nothing can be learned."""

    def find_collapse(self, predictions: Sequence[Prediction]) -> str | None:
        """What is wrong where nothing is predicted, or one class alone; None where all is well."""

    def headroom(
        self,
        lines: Sequence[Mapping[str, Any]],
        logits: Logits | None = None,
        features: Features | None = None,
        examples: Sequence[Any] = (),
    ) -> Headroom:
        """How much the score can win at most, and where.

        Args:
            lines: Predictions with their examples, as `format_line` writes them.
            logits: What they were decoded from; None where only the file of predictions is left.
            features: Encoded examples; with `logits`.
            examples: With `logits`.
        """

    def card(self, *, pieces: bool, folded: bool) -> CardText:
        """What the model card says of this task.

        Args:
            pieces: Whether the encoder cuts words into pieces.
            folded: Whether tuned thresholds and biases are in the bias of the head.
        """


def read_examples(
    task: Task, path: Path | str, kind: type[Example], problems: Problems | None
) -> Iterator[Example]:
    """The examples of a file for a task; another type of example is an error."""
    for example in iterate(
        path, format=task.format, task=task.file_kind, problems=problems, **task.reader
    ):
        if not isinstance(example, kind):
            got = type(example).__name__
            raise InputError(f"task {task.kind} wanted {kind.__name__}, got {got}", path=path)
        yield example


def describe_unseen(names: Iterable[str], labels: Sequence[str]) -> list[str]:
    """A sentence about the labels of a file that training never saw, if there are any.

    >>> describe_unseen(["PER", "EVENT"], ["LOC", "PER"])
    ['EVENT not in the training data: scored, never predicted']
    """
    unseen = sorted(set(names) - set(labels))
    return [f"{', '.join(unseen)} not in the training data: scored, never predicted"][: len(unseen)]


def describe_collapse(
    classes: set[str], *, outside: str | None = None, compete: bool = True
) -> str | None:
    """What is wrong where only these classes are predicted; None where nothing is.

    Args:
        classes: All that occur in some predictions.
        outside: The class that means "none".
        compete: Whether one class alone is a collapse.

    >>> describe_collapse({"ham"}), describe_collapse({"O"}, outside="O")
    ("collapse to one class, all is 'ham'", 'no label is predicted')
    """
    if not classes or classes == {outside}:
        return NOTHING
    alone = compete and len(classes) == 1
    return f"{ONE_CLASS}, all is {next(iter(classes))!r}" if alone else None


def by_item(logits: Logits, name: str, items: int) -> NDArray[Any]:
    """An array of `logits` in the order of the items, each of which must be there once.

    >>> by_item({"item": np.array([1, 0]), "x": np.array([5, 6])}, "x", 2)
    array([6, 5])
    """
    order = np.argsort(logits["item"])
    if not np.array_equal(logits["item"][order], np.arange(items)):
        raise ValueError(f"wanted {items} items, each once, got {len(order)}")
    out: NDArray[Any] = logits[name][order]
    return out


def to_probabilities(logits: NDArray[Any], *, multi_label: bool) -> NDArray[Any]:
    """Sigmoid of each logit, or softmax over them."""
    if multi_label:
        out: NDArray[Any] = np.exp(-np.logaddexp(0, -logits))
        return out
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    normal: NDArray[Any] = shifted / shifted.sum(-1, keepdims=True)
    return normal


def join(logits: Iterable[Logits]) -> Logits:
    """Batches of an evaluation put together, in any order: every row carries its item.

    >>> join([{"item": np.array([2])}, {"item": np.array([0, 1])}])
    {'item': array([2, 0, 1])}
    """
    parts = list(logits)
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def format_line(task: Task, example: Any, prediction: Prediction, *, gold: bool = True) -> bytes:
    """One prediction with its example.

    Args:
        task: Says what to show of an example.
        example: What was read; one without an id has its line number for one.
        prediction: What decoding gave.
        gold: Whether `gold` is there even where it is empty.
    """
    shown = task.show(example)
    if not gold and not shown["gold"]:
        del shown["gold"]
    details = task.details(prediction) if hasattr(task, "details") else {}
    known = {"schema": SCHEMA, "id": example.id or str(example.line)}
    line = known | shown | prediction | details
    try:
        text = json.dumps(line, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(finite(line), ensure_ascii=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold as an escape only
        return json.dumps(finite(line)).encode() + b"\n"


def describe_counts(counts: Counts) -> dict[str, Any]:
    """Micro scores under plain names, macro F1, and the scores of each label.

    >>> from softf1.metrics.counts import Counts
    >>> scores = describe_counts(Counts.from_dict({"PER": (3, 1, 1), "LOC": (0, 0, 1)}))
    >>> round(scores["f1"], 3), scores["macro_f1"], scores["labels"]["LOC"]["support"]
    (0.667, 0.375, 1)
    """
    micro = counts.micro()
    labels = {
        label: {"precision": s.precision, "recall": s.recall, "f1": s.f, "support": s.support}
        for label, s in counts.items()
    }
    return {
        "precision": micro.precision,
        "recall": micro.recall,
        "f1": micro.f,
        "macro_f1": counts.macro().f,
        "labels": labels,
    }
