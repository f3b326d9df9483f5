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

Experiments use eight more members, which a task of another package may leave out:
`headroom(lines, …)`, how much its score could gain at most, and where;
`count_line(line)`, the counts of one line of predictions, whose sums give the scores;
`find_suspects(logits, features)`, labels of the data that the model finds unlikely;
`rank_lines(lines)`, the scores of items and which items are right, for `average_precision`;
`line_group(line)`, a key that lines share if they are not independent, such as their context;
`fit_majority(train)`, a baseline that gives every example the most frequent answer;
`chooses_position`, whether an output is a softmax over the positions of a text; and
`model_options`, the options that change the model but not what is scored, so that compared runs
may differ in them. If several examples are decoded together, prediction also needs
`starts_group(example, group)`, whether an example starts a new group.

Everything that is learned outside the weights (labels, tag scheme, thresholds) is in the task, so
a saved model is its weights and its task.

Our own tasks inherit what they share from `softf1.tasks.rows.TextTask`; a task of another package
need not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from softf1.files import finite
from softf1.metrics.counts import Counts, Mean

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

    from softf1.data.problems import Problems
    from softf1.metrics.operating import Point, Target
    from softf1.models.encoders import Head
    from softf1.models.tokenizers import Tokenizer
    from softf1.tasks.card import CardText
    from softf1.tasks.headroom import Headroom

Logits = dict[str, NDArray[Any]]
"""What evaluation keeps of a batch; arrays of batches are joined along their first axis."""

Prediction = dict[str, Any]

LineCounts = Mapping[str, Counts | Mean]
"""The counts of one example by name; their sums over examples give the scores."""

Ranked = tuple[NDArray[np.float64], NDArray[np.bool_]]
"""The scores of items, and which items are right."""

Predict = Callable[[Sequence[Any]], list[Prediction]]

IGNORE = -100

NOTHING, ONE_CLASS = "no label is predicted", "collapse to one class"
DIGITS = 6
"""Decimal places to which the confidence of a prediction is rounded."""

SCHEMA = 1
"""Version of the format of prediction lines, which docs/predict.md describes."""

_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode


@dataclass(frozen=True, slots=True)
class Features:
    """Encoded examples: flat arrays, and the label names that occur in this file.

    Attributes:
        arrays: `length` is the number of ids in each item's row; the others are the task's own.
        names: Label names of the file by key, in order of appearance; the arrays hold indices.
    """

    arrays: Mapping[str, NDArray[Any]]
    names: Mapping[str, tuple[str, ...]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Returns the array of that name."""
        return self.arrays[name]

    def __len__(self) -> int:
        """How many items (windows, pairs, texts) there are to train on."""
        return len(self.arrays["length"])


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of some items.

    Attributes:
        items: The indices of these items in the features.
        inputs: Keyword arguments of the model's forward.
        targets: The same keys as the logits; ignored entries are −100.
        places: Indices and masks of the logits that count, for `logits` and `gather`.
    """

    items: NDArray[np.int64]
    inputs: dict[str, Tensor]
    targets: dict[str, Tensor]
    places: dict[str, Tensor]

    def apply(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Returns the same batch with `change` applied to every tensor."""
        parts = (self.inputs, self.targets, self.places)
        return Batch(self.items, *({k: change(v) for k, v in own.items()} for own in parts))

    def to(self, device: Any) -> Batch:
        """Returns the same batch on another device."""
        return self.apply(lambda tensor: tensor.to(device, non_blocking=True))


class Task(Protocol):
    """The interface of a task, which the training loop calls; a new task implements it."""

    @property
    def kind(self) -> str:
        """The name in recipes."""

    @property
    def summary(self) -> str:
        """One line for `softf1 list`; a string in the class."""

    @property
    def head(self) -> str:
        """The kind of head that the encoder gets: tokens, text, span or none."""

    @property
    def softmax(self) -> bool:
        """Whether a target is one of several classes; otherwise each output is yes or no."""

    @property
    def file_kind(self) -> str:
        """The kind of task whose files it reads, usually the same kind.

        A class that reads files of several kinds lists them in `file_kinds`.
        """

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
        """Reads the examples of a file, one at a time if the format allows it."""

    def texts(self, examples: Iterable[Any]) -> Iterator[Sequence[str]]:
        """Yields the texts from which an encoder from scratch builds its vocabulary."""

    def encode(self, examples: Iterable[Any], tokenizer: Tokenizer) -> Features:
        """Encodes examples as compact arrays."""

    def fit(self, features: Features) -> Self:
        """Returns the task with the labels of the training data."""

    def notes(self, features: Features) -> list[str]:
        """Returns notes for the user, such as labels that are scored but never predicted."""

    def build_model(self, encoder: str | Path, tokenizer: Tokenizer, **options: Any) -> nn.Module:
        """Builds the encoder with a head for the labels; `options` go to its configuration."""

    def heads(self, model: nn.Module) -> dict[str, Head]:
        """Returns the output layer of each key, to set its bias and learning rate."""

    def collate(
        self,
        features: Features,
        items: Sequence[int],
        tokenizer: Tokenizer,
        *,
        width: int | None = None,
        epoch: int = 0,
    ) -> Batch:
        """Collates items to tensors, with rows padded to `width` (default: the longest row).

        Random choices (candidate spans) depend only on the item and the `epoch`.
        """

    def logits(self, output: Any, batch: Batch) -> dict[str, Tensor]:
        """Returns the logits for the loss, from the output of the model."""

    def gather(self, logits: Mapping[str, Tensor], batch: Batch) -> Logits:
        """Returns the part of the logits that decoding needs."""

    def tune(self, logits: Logits, features: Features, examples: Sequence[Any]) -> Self:
        """Returns the task with thresholds tuned on dev; unchanged if it has none."""

    def shifts(self) -> dict[str, NDArray[np.float64]]:
        """Returns what tuned thresholds and biases add to the logits, by key; may be empty."""

    def decode(
        self, logits: Logits, features: Features, examples: Sequence[Any]
    ) -> list[Prediction]:
        """Returns one prediction per example, in the order of the examples."""

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Any]) -> dict[str, Any]:
        """Computes the standard scores of the task."""

    def show(self, example: Any) -> dict[str, Any]:
        """Returns what a prediction line shows of an example: its text, and `gold` as read."""

    def class_counts(self, features: Features) -> dict[str, NDArray[np.int64]]:
        """Counts how often each class is a target, by key.

        Softmax: (C,). Sigmoid: (C, 2) of (negative, positive), also for one output, so that
        `counts.ndim == 2` says which. Softmax over positions has no classes, and so no entry.
        """

    # The following methods are optional. So are `read_input`, which reads a file to predict on if
    # `read` cannot; `reads_words`, whether a file may have one word per line; `tunes`, whether
    # `tune` can change anything; `bars_for_f1`, whether the target f1 chooses bars if there is
    # nothing to tune; `no_onnx`, why the model cannot be exported to ONNX; `bars`, the minimum
    # confidence of each label, below which `abstain` leaves predictions out.

    def check_target(self, target: Target | Mapping[str, Target]) -> None:
        """Raises InputError for an `eval.target` that makes no sense here."""

    def operate(
        self,
        logits: Logits,
        features: Features,
        examples: Sequence[Any],
        target: Target | Mapping[str, Target],
    ) -> tuple[Self, list[Point]]:
        """Returns the task with thresholds, biases or bars for a target, and its points on dev."""

    @property
    def abstains(self) -> bool:
        """Whether the task can leave out predictions below a threshold or bar."""

    def abstain(self, prediction: Prediction) -> Prediction:
        """Returns the prediction without the parts below their threshold or bar."""

    def strata(self, features: Features) -> NDArray[np.int64]:
        """Returns the stratum of each item for balanced sampling; −1 for items without a target."""

    def find_collapse(self, predictions: Sequence[Prediction]) -> str | None:
        """Describes a collapse: nothing, or only one class, is predicted; None if there is none."""

    def headroom(
        self,
        lines: Sequence[Mapping[str, Any]],
        logits: Logits | None = None,
        features: Features | None = None,
        examples: Sequence[Any] = (),
    ) -> Headroom:
        """Measures how much the score could gain at most, and where.

        Args:
            lines: Predictions with their examples, as `format_line` writes them.
            logits: The logits they were decoded from; None if there is only the predictions file.
            features: The encoded examples; needed with `logits`.
            examples: The examples; needed with `logits`.
        """

    def card(self, *, pieces: bool, folded: bool) -> CardText:
        """Returns the text of the model card for this task.

        Args:
            pieces: Whether the encoder cuts words into pieces.
            folded: Whether tuned thresholds and biases are in the bias of the head.
        """


def describe_unseen(names: Iterable[str], labels: Sequence[str]) -> list[str]:
    """Describes the labels of a file that are not in the training data, if there are any.

    >>> describe_unseen(["PER", "EVENT"], ["LOC", "PER"])
    ['EVENT not in the training data: scored, never predicted']
    """
    unseen = sorted(set(names) - set(labels))
    return [f"{', '.join(unseen)} not in the training data: scored, never predicted"][: len(unseen)]


def describe_collapse(
    classes: set[str], *, outside: str | None = None, compete: bool = True
) -> str | None:
    """Describes the collapse if only these classes are predicted; None if that is no collapse.

    Args:
        classes: The classes that are predicted.
        outside: The class that means "none".
        compete: Whether one class alone is a collapse.

    >>> describe_collapse({"ham"}), describe_collapse({"O"}, outside="O")
    ("collapse to one class, all is 'ham'", 'no label is predicted')
    """
    if not classes or classes == {outside}:
        return NOTHING
    alone = compete and len(classes) == 1
    return f"{ONE_CLASS}, all is {next(iter(classes))!r}" if alone else None


def check_items(seen: NDArray[np.int64], items: int) -> None:
    """Raises unless `seen` has all item numbers, each once.

    >>> check_items(np.array([1, 0, 2]), 3)
    """
    if not np.array_equal(np.sort(seen), np.arange(items)):
        raise ValueError(f"wanted {items} items, each once, got {len(seen)}")


def by_item(logits: Logits, name: str, items: int) -> NDArray[Any]:
    """Returns an array of `logits` in the order of the items; each item must occur once.

    >>> by_item({"item": np.array([1, 0]), "x": np.array([5, 6])}, "x", 2)
    array([6, 5])
    """
    check_items(logits["item"], items)
    out: NDArray[Any] = logits[name][np.argsort(logits["item"])]
    return out


def to_probabilities(logits: NDArray[Any], *, multi_label: bool) -> NDArray[Any]:
    """Returns the sigmoid of each logit (`multi_label`), or the softmax over the last axis."""
    if multi_label:
        out: NDArray[Any] = np.exp(-np.logaddexp(0, -logits))
        return out
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    normal: NDArray[Any] = shifted / shifted.sum(-1, keepdims=True)
    return normal


def join(logits: Iterable[Logits]) -> Logits:
    """Joins the batches of an evaluation; they may come in any order, since rows are numbered.

    >>> join([{"item": np.array([2])}, {"item": np.array([0, 1])}])
    {'item': array([2, 0, 1])}
    """
    parts = list(logits)
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def format_line(task: Task, example: Any, prediction: Prediction, *, gold: bool = True) -> bytes:
    """Formats one line of a predictions file: the prediction with its example.

    Args:
        task: Says what to show of an example.
        example: The example; without an id, its line number is the id.
        prediction: Its prediction, from `decode`.
        gold: Whether to write `gold` even if it is empty.
    """
    shown = task.show(example)
    if not gold and not shown["gold"]:
        del shown["gold"]
    details = task.details(prediction) if hasattr(task, "details") else {}
    known = {"schema": SCHEMA, "id": example.id or str(example.line)}
    line = known | shown | prediction | details
    try:
        text = _to_json(line)
    except ValueError:
        text = json.dumps(finite(line), ensure_ascii=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold as an escape only
        return json.dumps(finite(line)).encode() + b"\n"


def describe_counts(counts: Counts) -> dict[str, Any]:
    """Returns micro scores under plain names, macro F1, and the scores of each label.

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
