"""Reference rows that train no encoder: the majority answer, and a bag of words.

`majority` gives every example the most frequent answer of the training data. `tfidf` is logistic
regression over tf-idf of words (characters, where a language writes no spaces), its C chosen on
dev. Both are scored by the task and have one run, since nothing is random.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from softf1.errors import InputError
from softf1.experiments.grid import Grid, RunSpec
from softf1.tasks.registry import load_task, make_task, save_task
from softf1.training.datasets import read_parts
from softf1.training.evaluation import write_predictions
from softf1.training.run_folder import finish_run, identify, list_changes

if TYPE_CHECKING:
    from softf1.recipe import Recipe
    from softf1.tasks.base import Predict, Prediction
    from softf1.tasks.classification import Classification

    Examples = dict[str, list[Any]]

MAJORITY, TFIDF = "majority", "tfidf"
STRENGTHS = (1.0, 0.1, 10.0, 100.0)
"""Values of C, the default first."""

WORDS = 200_000
"""The maximum number of features; the most frequent ones are kept."""

LONG = 15
"""Above this mean number of letters between spaces, spaces do not separate words."""

TRAINED = {"tuned", "best", "epochs", "steps", "examples", "loss_options", "warnings", "notes"}
TRAINED |= {"tokens_per_second", "examples_per_second", "peak_memory", "collapsed"}
"""Keys of `result.json` that only trained runs have; the others are copied from such a run."""


def list_references(recipe: Recipe) -> tuple[str, ...]:
    """Lists the references that a recipe supports.

    `tfidf` is for texts and pairs of texts; another package's task may have none.
    """
    from softf1.tasks.classification import Classification

    task = make_task(recipe.task.kind, **recipe.task.options)
    rows = (MAJORITY,) if hasattr(task, "fit_majority") else ()
    return (*rows, TFIDF) if isinstance(task, Classification) else rows


def add_reference(name: str, grid: Grid) -> None:
    """Adds a reference to a grid with trained models; if it fails, the notes say why."""
    run = RunSpec(id=name, label=name, loss=name, seed=None)
    grid.content["losses"] = list(dict.fromkeys([*grid.content["losses"], name]))
    if (result := grid.read_done(run)) is not None:
        grid.runs[name], grid.results[name] = run, result
        return
    own = [one for one in grid.runs.values() if not one.trial and one.id in grid.results]
    trained = next((one for one in own if one.seed is not None), None)
    if trained is None:
        return
    if name == TFIDF and find_spec("sklearn") is None:
        grid.content.setdefault("notes", []).append(
            "no row tfidf: it needs scikit-learn (pip install 'softf1[sklearn]')"
        )
        return
    grid.runs[name] = run
    try:
        grid.results[name] = fit_reference(run, grid, trained)
    except (InputError, ValueError) as error:
        grid.errors[name] = str(error)


def fit_reference(run: RunSpec, grid: Grid, beside: RunSpec) -> dict[str, Any]:
    """Fits, predicts, scores and writes the run folder; returns the content of `result.json`.

    Args:
        run: The reference.
        grid: The grid, for files and folder.
        beside: A finished run, for the labels of its task.
    """
    start, folder = monotonic(), grid.folder / run.folder
    task, examples = load_task(grid.folder / beside.folder / "model"), read_parts(grid.recipe)
    if changes := list_changes(grid.identify(), identify(grid.recipe)):
        raise InputError(f"{changes[0]} since this command began")
    result = {k: v for k, v in grid.results[beside.id].items() if k not in TRAINED}
    plain = untuned(task)
    if run.id == MAJORITY:
        predict = plain.fit_majority(examples["train"])
    else:
        predict = fit_tfidf(plain, examples, result["headline"])
    scores = {}
    for part in [part for part in ("dev", "test") if part in examples]:
        predictions = predict(examples[part])
        write_predictions(folder / f"predictions.{part}.jsonl", task, examples[part], predictions)
        scores[part] = task.score(predictions, examples[part])
    (folder / "model").mkdir(exist_ok=True)
    save_task(plain, folder / "model")
    seconds = round(monotonic() - start, 3)
    result |= {
        **grid.identify(),
        "loss": run.loss,
        "encoder": "none",
        "seed": None,
        "scores": scores,
    }
    result["seconds"] = {"total": seconds, "train": seconds}
    return finish_run(folder, result, grid.identify())


def untuned(task: Any) -> Any:
    """Returns the task without the thresholds and biases that were tuned for its model."""
    none: dict[str, Any] = {"thresholds": (), "biases": (), "bars": {}}
    return replace(task, **{name: value for name, value in none.items() if hasattr(task, name)})


def fit_tfidf(task: Classification, examples: Examples, metric: str) -> Predict:
    """Fits logistic regression over tf-idf; chooses C by the score on dev."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    from softf1.tasks.labels import to_logits

    train = [one for one in examples["train"] if task.multi_label or one.labels]
    weigh = _fit_weights(train)
    wanted = np.array([[label in one.labels for label in task.labels] for one in train])

    def fit(strength: float) -> Predict:
        model = LogisticRegression(C=strength, max_iter=1000)
        if task.multi_label:
            model = OneVsRestClassifier(model).fit(matrix, wanted.astype(int))
        else:
            model.fit(matrix, wanted.argmax(1))

        def predict(own: Sequence[Any]) -> list[Prediction]:
            share = model.predict_proba(weigh(own))
            return task.decide(to_logits(share, multi_label=task.multi_label))

        return predict

    matrix = weigh(train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that stopped early is judged on dev like the others
        fitted = [fit(strength) for strength in STRENGTHS]
    dev = examples["dev"]
    return max(fitted, key=lambda predict: task.score(predict(dev), dev)[metric])


def _fit_weights(train: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    """Fits tf-idf; returns a function from examples to a sparse matrix, one row per example.

    A pair has four blocks of columns: first text, second text, shared words, differing words.
    """
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = list(chain.from_iterable(one.texts for one in train))
    how: dict[str, Any] = {"token_pattern": r"\w+|[^\w\s]", "ngram_range": (1, 2)}
    if sum(map(len, texts)) > LONG * sum(len(text.split()) for text in texts):
        how = {"analyzer": "char", "ngram_range": (1, 3)}
    vectorizer = TfidfVectorizer(**how, sublinear_tf=True, max_features=WORDS).fit(texts)

    def weigh(own: Sequence[Any]) -> Any:
        columns = [
            vectorizer.transform(part) for part in zip(*(one.texts for one in own), strict=True)
        ]
        if len(columns) == 1:
            return columns[0]
        first, second = columns
        return hstack([first, second, first.multiply(second), abs(first - second)]).tocsr()

    return weigh
