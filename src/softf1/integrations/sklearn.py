"""For scikit-learn: a text classifier that trains with softf1."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from itertools import compress, islice
from math import isnan
from numbers import Real
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from softf1.data.examples import PairExample, TextExample
from softf1.data.language import guess_language
from softf1.data.splits import put_aside, text_of
from softf1.models.encoders import MINILM, is_at_hand, list_encoders
from softf1.recipe import Recipe, build_recipe, check_recipe
from softf1.tasks import make_task
from softf1.training.evaluation import predict_logits
from softf1.training.publish import load_model
from softf1.training.run import train_run

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from softf1.losses._core import Scheme

    Text = str | tuple[str, str]

logger = logging.getLogger(__name__)

AUTO = "auto"
LOOKED_AT = 1000
"""How many texts are read to guess the language."""

RATES = {MINILM: 1e-4}
"""Learning rates of small pretrained encoders, which need higher ones than `PRETRAINED_RATE`."""

SCRATCH_RATE, PRETRAINED_RATE, LORA_FACTOR = 1e-3, 3e-5, 10
SCRATCH_EPOCHS, PRETRAINED_EPOCHS = 30.0, 5.0
"""Encoders from scratch need many epochs: see docs/integrations/sklearn.md."""


class SoftF1Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """A classifier of texts or pairs of texts.

    X is a list, an array or a Series of texts, or of pairs of texts: two columns. y has one label
    per text, or is a 0/1 matrix (texts, labels) for multi-label. Part of the data is put aside,
    stratified by class, to choose the best epoch.

    Args:
        encoder: `auto`, a Hub name, a folder, `minilm`, or `textcnn`, which trains from scratch.
            `auto` takes `minilm` where it is installed and the texts look English, else
            `textcnn`; the log says which and why.
        loss: As in `make_loss`, such as `ce`, `wce`, `focal`, `dice`, `ce+dice`; or `auto`, which
            chooses the loss, `adversarial` and `consistency` for these data.
        loss_options: Options of the loss, such as `{"dice": {"over": "batch"}}`.
        weights: Class weights from the training data: `balanced`, `inverse`, `log`, `effective`.
        epochs: Passes over the data; by default 30 for `textcnn` and 5 for others.
        batch_size: Texts in an optimizer step.
        lr: The highest learning rate; by default 1e-3 for `textcnn`, 1e-4 for `minilm` and
            3e-5 for others, and ten times as much with `lora`.
        max_length: The maximum number of tokens of a text; longer texts are cut.
        dev_share: The share of the data that is put aside.
        tune: Whether `predict` decides by thresholds or biases tuned on that share.
        metric: The score that chooses the epoch: `f1`, `macro_f1`, `accuracy`,
            `subset_accuracy`; by default macro F1, of two classes the F1 of the positive one.
        pos_label: The positive one of two classes; by default the one named 1, true, yes or the
            like, or else the rarer one.
        adversarial: Size of an adversarial step on the word embeddings, relative to their scale:
            a recipe's `train.adversarial_relative`, since `encoder` may be of any scale. (The
            absolute size, `adversarial` of the Trainer and of Lightning, is
            `train_options={"adversarial": 0.5}`.) 0.5 is a good start; 0 is off, and so is None,
            unless the loss is `auto`.
        consistency: Factor of the consistency term (every text runs twice, with different dropout);
            1 is a good start; 0 is off, and so is None, unless the loss is `auto`.
        lora: Freeze the encoder and train LoRA matrices of this rank, and the head: a number, or
            the keys of a recipe's `[encoder.lora]`, such as `{"rank": 8, "dropout": 0.1}`. They are
            merged into the model at the end. Needs a pretrained encoder and the package peft.
        encoder_options: Other keys of a recipe's `[encoder]`, such as
            `{"gradient_checkpointing": True}`.
        train_options: Other keys of a recipe's `[train]`, such as `{"clip": 0.0}`.
        random_state: A number, a RandomState, or None for another result each time.
        verbose: Whether to show progress on the error stream: a bar on a terminal, else a line for
            each evaluation.

    Attributes:
        encoder_: The encoder that was trained: what `auto` chose.
        classes_: The labels; for multi-label the numbers of the columns.
        result_: What a run writes to `result.json`.
        loaded_: Model, task and tokenizer.

    >>> texts = ["a fine day", "what a fine meal", "fine", "an awful day", "awful food", "awful"]
    >>> classifier = SoftF1Classifier(encoder="textcnn", epochs=20, random_state=0)
    >>> classifier.fit(texts, ["good"] * 3 + ["bad"] * 3).predict(["a fine film", "awful, awful"])
    array(['good', 'bad'], dtype='<U4')
    """

    def __init__(
        self,
        *,
        encoder: str = AUTO,
        loss: str = "ce",
        loss_options: dict[str, Any] | None = None,
        weights: Scheme | None = None,
        epochs: float | None = None,
        batch_size: int = 32,
        lr: float | None = None,
        max_length: int | None = None,
        dev_share: float = 0.1,
        tune: bool = False,
        metric: str | None = None,
        pos_label: Any = None,
        adversarial: float | None = None,
        consistency: float | None = None,
        lora: int | dict[str, Any] | None = None,
        encoder_options: dict[str, Any] | None = None,
        train_options: dict[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.encoder = encoder
        self.loss = loss
        self.loss_options = loss_options
        self.weights = weights
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.max_length = max_length
        self.dev_share = dev_share
        self.tune = tune
        self.metric = metric
        self.pos_label = pos_label
        self.adversarial = adversarial
        self.consistency = consistency
        self.lora = lora
        self.encoder_options = encoder_options
        self.train_options = train_options
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803 — scikit-learn's name
        """Trains a model."""
        texts, labels = read_texts(X), self._read_labels(y)
        check_consistent_length(texts, labels)
        examples = [make_example(*pair) for pair in zip(texts, labels, strict=True)]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        data = split_dev(examples, labels, share=self.dev_share, seed=seed)
        self.encoder_ = choose_encoder(examples) if self.encoder == AUTO else self.encoder
        known = {"multi_label": self.multi_label_, "positive": self._read_positive()}
        task: Any = make_task(examples[0].task, **known)
        # Of all texts: in what is left without dev, another label may be the rarer one.
        recipe = self._recipe(task.kind, seed, positive=task.choose_positive(examples).positive)
        check_recipe(recipe)
        with TemporaryDirectory() as folder:
            self.result_ = train_run(recipe, folder, quiet=not self.verbose, data=data)
            self.loaded_ = load_model(folder)
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Returns the probability of each class, in the order of `classes_`."""
        check_is_fitted(self)
        names = [str(label) for label in self.classes_]
        rows = [
            [item["probabilities"].get(name, 0.0) for name in names] for item in self._decide(X)
        ]
        return np.array(rows).reshape(-1, len(names))

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Returns the label of each text, or a 0/1 matrix (texts, labels)."""
        check_is_fitted(self)
        numbers = {str(label): i for i, label in enumerate(self.classes_)}
        predictions = self._decide(X)
        if self.multi_label_:
            matrix = np.zeros((len(predictions), len(numbers)), dtype=np.int64)
            for row, item in enumerate(predictions):
                matrix[row, [numbers[name] for name in item["labels"]]] = 1
            return matrix
        chosen: NDArray[Any] = self.classes_[[numbers[item["label"]] for item in predictions]]
        return chosen

    def _decide(self, texts: ArrayLike) -> list[dict[str, Any]]:
        model, task, tokenizer = self.loaded_
        examples = [make_example(text, ()) for text in read_texts(texts)]
        if not examples:
            return []
        if task.kind != examples[0].task:
            raise ValueError(f"wanted {task.kind}, as in fit, got {type(examples[0]).__name__}")
        device = torch.accelerator.current_accelerator() or torch.device("cpu")
        features = task.encode(examples, tokenizer)
        logits = predict_logits(model.to(device), task, features, tokenizer, device=device)
        return task.decode(logits, features, examples)

    def __getstate__(self) -> dict[str, Any]:
        """Pickles the model on the CPU, so that any machine can load it."""
        if hasattr(self, "loaded_"):
            self.loaded_.model.cpu()
        state: dict[str, Any] = super().__getstate__()
        return state

    def _read_labels(self, y: ArrayLike) -> list[tuple[str, ...]]:
        """Sets `classes_` and `multi_label_`; returns the names of the labels of each text."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target is None"
            )
        given = np.asarray(y, dtype=object)
        missing = next(((n, one) for n, one in enumerate(given) if _is_missing(one)), None)
        if missing is not None:
            raise ValueError(f"wanted a label for each text, got {missing[1]} in row {missing[0]}")
        if not len(given):
            raise ValueError("wanted texts with their labels, got none")
        check_classification_targets(y)
        given = np.asarray(y)
        self.multi_label_ = type_of_target(y) == "multilabel-indicator"
        if self.multi_label_:
            self.classes_ = np.arange(given.shape[1])
            return [tuple(map(str, np.flatnonzero(row))) for row in given]
        self.classes_ = np.unique(given)
        if len(self.classes_) < 2:
            raise ValueError(f"wanted 2 classes or more, got only one class, {self.classes_}")
        return [(str(label),) for label in given.ravel()]

    def _read_positive(self) -> str | None:
        """The name of the positive class, if it is given."""
        if self.pos_label is None:
            return None
        classes = [] if self.multi_label_ else self.classes_.tolist()
        if len(classes) != 2:
            got = "several labels a text" if self.multi_label_ else len(classes)
            raise ValueError(f"pos_label is for two classes, got {got}")
        if self.pos_label not in classes:
            raise ValueError(f"wanted pos_label among {classes}, got {self.pos_label!r}")
        return str(self.classes_[classes.index(self.pos_label)])

    def _recipe(self, kind: str, seed: int, *, positive: str | None = None) -> Recipe:
        for key, own in (("name", "encoder"), ("lora", "lora")):
            if key in (self.encoder_options or {}):
                raise ValueError(f"encoder_options: set {key!r} by the parameter {own}")
        lora = self.lora if isinstance(self.lora, dict | None) else {"rank": self.lora}
        scratch = self.encoder_ in list_encoders()
        usual = SCRATCH_RATE if scratch else RATES.get(self.encoder_, PRETRAINED_RATE)
        usual *= LORA_FACTOR if lora is not None else 1
        passes = SCRATCH_EPOCHS if scratch else PRETRAINED_EPOCHS
        tables: dict[str, dict[str, Any]] = {
            "task": {
                "kind": kind,
                "train": "memory",
                "multi_label": self.multi_label_,
                "max_length": self.max_length,
                "positive": positive,
            },
            "encoder": {"name": self.encoder_, "lora": lora, **(self.encoder_options or {})},
            "loss": {"name": self.loss, "weights": self.weights, **(self.loss_options or {})},
            "train": {
                "epochs": passes if self.epochs is None else self.epochs,
                "batch_size": self.batch_size,
                "lr": usual if self.lr is None else self.lr,
                "adversarial_relative": self.adversarial,
                "consistency": self.consistency,
                "seed": seed,
                **(self.train_options or {}),
            },
            "eval": {"metric": self.metric, "tune": self.tune},
        }
        given = {
            section: {key: to_python(value) for key, value in own.items() if value is not None}
            for section, own in tables.items()
        }
        return build_recipe({"name": type(self).__name__, **given})

    def __sklearn_tags__(self) -> Any:
        """Tells scikit-learn that X holds texts, not numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.classifier_tags.multi_label = True
        return tags


def choose_encoder(examples: Sequence[TextExample | PairExample]) -> str:
    """Returns `minilm` where it is installed and can read the texts, else `textcnn`."""
    if not is_at_hand(MINILM):
        chosen, why = "textcnn", "minilm is not installed (softf1[minilm])"
    elif guess_language(islice(examples, LOOKED_AT)) != "English":
        chosen, why = "textcnn", "the texts do not look English, and minilm reads English only"
    else:
        chosen, why = MINILM, "it is installed, and the texts look English"
    logger.info("encoder %s: %s", chosen, why)
    return chosen


def read_texts(texts: Any) -> list[Text]:
    """Returns texts, or pairs of texts, from a list, an array or a table."""
    if texts is None or isinstance(texts, str):
        raise ValueError(f"wanted a list of texts, got {'None' if texts is None else 'one text'}")
    shape: tuple[int, ...] = getattr(texts, "shape", ())
    if len(shape) == 2 and shape[1] == 1:
        column = getattr(texts, "columns", ["…"])[0]
        raise ValueError(
            f"wanted texts, or two columns of them, got a table of one column: give the column "
            f"itself, such as X[{column!r}]"
        )
    rows = texts.tolist() if hasattr(texts, "tolist") else getattr(texts, "values", texts)
    rows = [row.tolist() if hasattr(row, "tolist") else row for row in rows]
    if all(isinstance(row, str) for row in rows):
        return rows
    empty = next(((number, row) for number, row in enumerate(rows) if _is_missing(row)), None)
    if empty is not None:
        raise ValueError(f"wanted texts, got {empty[1]} in row {empty[0]}")
    pairs: list[Any] = [tuple(row) if isinstance(row, list | tuple) else (row,) for row in rows]
    one_text = isinstance(rows[0], str)
    fits = (lambda row: isinstance(row[0], str) and len(row) == 1) if one_text else _is_pair
    wrong = next((number for number, row in enumerate(pairs) if not fits(row)), None)
    if wrong is not None:
        got = repr(rows[wrong])
        raise ValueError(f"wanted texts, or two columns of them, got {got[:80]} in row {wrong}")
    return pairs


def to_python(value: Any) -> Any:
    """Converts NumPy's numbers, as a search over an array gives them, to Python's for a recipe.

    >>> to_python({"rank": np.int64(8), "targets": ["query"]})
    {'rank': 8, 'targets': ['query']}
    """
    if isinstance(value, dict):
        return {key: to_python(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [to_python(own) for own in value]
    return value.item() if isinstance(value, np.generic) else value


def make_example(text: Text, labels: tuple[str, ...]) -> TextExample | PairExample:
    """Makes an example of the task."""
    if isinstance(text, str):
        return TextExample(text, labels, line=0)
    if len(labels) > 1:
        raise ValueError("wanted one label for each pair, got several")
    return PairExample(*text, labels[0] if labels else None, line=0)


def split_dev(
    examples: Sequence[Any], labels: Sequence[Any], *, share: float, seed: int
) -> dict[str, list[Any]]:
    """Splits a share of each class off for dev; uses all data for both if there is too little.

    Equal texts stay on one side (`softf1.data.splits.put_aside`).

    >>> labels = ["a"] * 20 + ["b"] * 9 + ["c"]
    >>> texts = [TextExample(f"text {n}", (label,), n) for n, label in enumerate(labels)]
    >>> parts = split_dev(texts, labels, share=0.1, seed=0)
    >>> len(parts["train"]), len(parts["dev"])
    (27, 3)
    """
    different = dict(zip(map(text_of, examples), labels, strict=True))
    enough = any(round(share * count) for count in Counter(different.values()).values())
    if not enough or not (aside := put_aside(examples, share, seed=seed)).any():
        return {"train": list(examples), "dev": list(examples)}
    return {"train": list(compress(examples, ~aside)), "dev": list(compress(examples, aside))}


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or the NA or NaT of pandas."""
    missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    return missing or (isinstance(value, Real) and isnan(value))


def _is_pair(row: tuple[Any, ...]) -> bool:
    return len(row) == 2 and all(isinstance(text, str) for text in row)
