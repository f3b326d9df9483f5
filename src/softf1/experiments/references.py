"""Rows that cost nothing: what no training, and what a bag of words, would have scored.

`majority` gives every example the most frequent answer of the training data. `tfidf` is logistic
regression over tf-idf of words (characters, where a language writes no spaces), its C chosen on
dev. Both are scored as the task scores its models, and have one run: chance plays no part.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import chain
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from softf1.errors import InputError
from softf1.experiments.cells import Cell, read_done
from softf1.experiments.grid import CELLS
from softf1.tasks.registry import load_task, save_task
from softf1.training.evaluation import write_predictions
from softf1.training.folder import finish
from softf1.training.identity import identify, list_changes
from softf1.training.material import read_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from softf1.experiments.grid import Grid
    from softf1.recipe import Recipe
    from softf1.tasks.base import Prediction
    from softf1.tasks.classification import Classification

    Examples = dict[str, list[Any]]
    Predict = Callable[[Sequence[Any]], list[Prediction]]

MAJORITY, TFIDF = "majority", "tfidf"
STRENGTHS = (1.0, 0.1, 10.0, 100.0)
"""Values of C, the usual one first."""

WORDS = 200_000
"""Features at most: the most frequent ones."""

LONG = 15
"""Letters between two spaces, on average, above which the spaces are not those between words."""

TRAINED = {"tuned", "best", "epochs", "steps", "examples", "loss_options", "warnings", "notes"}
TRAINED |= {"tokens_per_second", "examples_per_second", "peak_memory", "collapsed"}
"""What only the result of a training has; the rest is that of the model beside it."""


def list_references(recipe: Recipe) -> tuple[str, ...]:
    """The rows that make sense for a recipe.

    `tfidf` is for texts and pairs of texts; another package's task has none.
    """
    if recipe.task.kind in ("classification", "pairs"):
        return MAJORITY, TFIDF
    return (MAJORITY,) if recipe.task.kind in ("tagging", "mrc_ner", "qa") else ()


def add_reference(name: str, grid: Grid) -> None:
    """Add a row to a grid whose models are trained; what cannot be is said in its notes."""
    cell = Cell(id=name, label=name, loss=name, seed=None, folder=f"{CELLS}/{name}")
    grid.content["losses"] = list(dict.fromkeys([*grid.content["losses"], name]))
    if (found := read_done(cell, grid.identify(cell), grid.folder)) is not None:
        grid.cells[name], grid.results[name] = cell, found
        return
    trained = [
        one for one in grid.cells.values() if one.seed is not None and one.id in grid.results
    ]
    own = next((one for one in trained if one.folder.startswith(f"{CELLS}/")), None)
    if own is None:
        return
    if name == TFIDF and find_spec("sklearn") is None:
        grid.content.setdefault("notes", []).append(
            "no row tfidf: it needs scikit-learn (pip install 'softf1[sklearn]')"
        )
        return
    grid.cells[name] = cell
    try:
        grid.results[name] = fit_reference(name, grid, own)
    except (InputError, ValueError) as error:
        grid.errors[name] = str(error)


def fit_reference(name: str, grid: Grid, beside: Cell) -> dict[str, Any]:
    """Fit, predict, score and write the run folder; gives the content of `result.json`.

    Args:
        name: The row.
        grid: Names files and folder.
        beside: A finished run, whose task has the labels.
    """
    start, folder = monotonic(), grid.folder / CELLS / name
    task, examples = load_task(grid.folder / beside.folder / "model"), read_parts(grid.recipe)
    if changes := list_changes(grid.identify(), identify(grid.recipe)):
        raise InputError(f"{changes[0]} since this command began")
    result = {k: v for k, v in grid.results[beside.id].items() if k not in TRAINED}
    fit = fit_majority if name == MAJORITY else fit_tfidf
    predict = fit(untuned(task), examples, result["headline"])
    scores = {}
    for part in [part for part in ("dev", "test") if part in examples]:
        found = predict(examples[part])
        write_predictions(folder / f"predictions.{part}.jsonl", task, examples[part], found)
        scores[part] = task.score(found, examples[part])
    (folder / "model").mkdir(exist_ok=True)
    save_task(untuned(task), folder / "model")
    seconds = round(monotonic() - start, 3)
    result |= {**grid.identify(), "loss": name, "encoder": "none", "seed": None, "scores": scores}
    result["seconds"] = {"total": seconds, "train": seconds}
    return finish(folder, result, grid.identify())


def untuned(task: Any) -> Any:
    """The task without what was tuned on dev for the model that it came with."""
    tuned = {name: () for name in ("thresholds", "biases") if hasattr(task, name)}
    return replace(task, **tuned)


def fit_majority(task: Any, examples: Examples, _headline: str) -> Predict:
    """The most frequent answer of the training data, for every example."""
    from softf1.tasks.classification import Classification
    from softf1.tasks.mrc_ner import MrcNer
    from softf1.tasks.qa import QA
    from softf1.tasks.tagging import Tagging

    if isinstance(task, Classification):
        return _majority_label(task, examples["train"])
    if isinstance(task, Tagging):
        counts = Counter(chain.from_iterable(task.units(one)[1] for one in examples["train"]))
        ((tag, count),) = counts.most_common(1)
        tags = partial(_repeat, tag, count / counts.total())
        return lambda own: [tags(len(task.units(one)[0])) for one in own]
    if isinstance(task, MrcNer):  # most queries find nothing in a sentence
        nothing: Prediction = {"spans": [], "confidence": []}
        return lambda own: [{"id": one.id, "label": one.label, **nothing} for one in own]
    if isinstance(task, QA):
        return _first_words(task, examples["train"])
    raise InputError(f"wanted a task whose most frequent answer is known, got {task.kind}")


def _repeat(tag: str, share: float, size: int) -> Prediction:
    return {"tags": [tag] * size, "confidence": [share] * size}


def _majority_label(task: Classification, train: Sequence[Any]) -> Predict:
    from softf1.tasks.classification import labels_of
    from softf1.tasks.labels import decide

    counts = Counter(chain.from_iterable(map(labels_of, train)))
    share = np.array([counts[label] for label in task.labels]) / len(train)
    row = _logits(share[None], multi_label=task.multi_label)
    return lambda own: decide(np.repeat(row, len(own), axis=0), task)


def _first_words(task: Any, train: Sequence[Any]) -> Predict:
    """No answer where most questions have none; else the context's first words.

    As many words as the answer in the middle of the training data has.
    """
    answered = [one.answers[0] for one in train if one.answers]
    empty = task.no_answer and 2 * len(answered) < len(train)
    size = median(len(" ".join(one.texts).split()) for one in answered) if answered else 1

    def answer(example: Any) -> Prediction:
        text = "" if empty else _start(example.context, max(1, int(size)))
        found = {"id": example.id, "answer": text, "start": 0, "end": len(text), "text": text}
        return found | {"null_score": 1.0 if empty else -1.0, "candidates": []}

    return lambda own: [answer(one) for one in own]


def _start(text: str, words: int) -> str:
    """The first words of a text, as they stand in it.

    >>> _start("a  b c", 2)
    'a  b'
    """
    rest = text.split(maxsplit=words)
    return text[: len(text) - len(rest[words])].rstrip() if len(rest) > words else text


def fit_tfidf(task: Classification, examples: Examples, headline: str) -> Predict:
    """Logistic regression over tf-idf; of several C, the one with the best score on dev."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    from softf1.tasks.classification import labels_of
    from softf1.tasks.labels import decide

    train = [one for one in examples["train"] if task.multi_label or labels_of(one)]
    weigh = _fit_weights(train)
    wanted = np.array([[label in labels_of(one) for label in task.labels] for one in train])

    def fit(strength: float) -> Predict:
        model = LogisticRegression(C=strength, max_iter=1000)
        if task.multi_label:
            model = OneVsRestClassifier(model).fit(matrix, wanted.astype(int))
        else:
            model.fit(matrix, wanted.argmax(1))

        def predict(own: Sequence[Any]) -> list[Prediction]:
            share = model.predict_proba(weigh(own))
            return decide(_logits(share, multi_label=task.multi_label), task)

        return predict

    matrix = weigh(train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one that stopped early is judged on dev like the others
        fitted = [fit(strength) for strength in STRENGTHS]
    dev = examples["dev"]
    return max(fitted, key=lambda predict: task.score(predict(dev), dev)[headline])


def _fit_weights(train: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    """Tf-idf of texts; of pairs, of each text, and what they share and do not share."""
    from scipy.sparse import hstack  # type: ignore[import-untyped]
    from sklearn.feature_extraction.text import TfidfVectorizer

    from softf1.tasks.classification import split

    texts = list(chain.from_iterable(map(split, train)))
    how: dict[str, Any] = {"token_pattern": r"\w+|[^\w\s]", "ngram_range": (1, 2)}
    if sum(map(len, texts)) > LONG * sum(len(text.split()) for text in texts):
        how = {"analyzer": "char", "ngram_range": (1, 3)}
    vectorizer = TfidfVectorizer(**how, sublinear_tf=True, max_features=WORDS).fit(texts)

    def weigh(own: Sequence[Any]) -> Any:
        columns = [vectorizer.transform(part) for part in zip(*map(split, own), strict=True)]
        if len(columns) == 1:
            return columns[0]
        first, second = columns
        return hstack([first, second, first.multiply(second), abs(first - second)]).tocsr()

    return weigh


def _logits(share: NDArray[Any], *, multi_label: bool) -> NDArray[np.float64]:
    """Logits whose softmax, or sigmoid, are these probabilities."""
    known = np.clip(np.asarray(share, float), 1e-12, 1 - 1e-12)
    logits: NDArray[np.float64] = np.log(known)
    return logits - np.log1p(-known) if multi_label else logits
