"""The datasets of a training: files read, split and encoded, and the task fitted to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.data.splits import TextHashes, deal_folds, find_overlaps, put_aside, text_of
from softf1.errors import InputError
from softf1.models.encoders import make_tokenizer
from softf1.tasks.registry import make_task
from softf1.training.run_folder import SPLITS, hash_examples, hash_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from softf1.models.tokenizers import Tokenizer
    from softf1.recipe import Recipe, TaskSection
    from softf1.tasks.base import Features, Task

SPLIT_SEED = 2020
"""Seed of the dev split: the same for every run, so that seeds are compared on the same data."""

USUAL_SHARE = 0.75
"""Share of the positive label, of two, above which it is probably not what one looks for."""


@dataclass(frozen=True, slots=True)
class Datasets:
    """Train, dev and test, encoded, and the task fitted to them.

    Attributes:
        task: The task, with the labels of the training data.
        tokenizer: The tokenizer of the encoder.
        examples: Examples of `train`, `dev` and, if given, `test`.
        features: The same, encoded.
        sources: Path, hash and number of examples of each part.
        notes: Remarks about the files for the user.
    """

    task: Task
    tokenizer: Tokenizer
    examples: dict[str, list[Any]]
    features: dict[str, Features]
    sources: dict[str, dict[str, Any]]
    notes: list[str] = field(default_factory=list)


def load_datasets(recipe: Recipe, given: Mapping[str, Sequence[Any]] | None = None) -> Datasets:
    """Reads and encodes the files of a recipe, or given examples.

    Args:
        recipe: The recipe, with files, task and encoder.
        given: Examples to use instead of files: `train`, and perhaps `dev` and `test`.
    """
    task = make_task(recipe.task.kind, **recipe.task.options)
    examples, sources = _given(given, task) if given is not None else _read(recipe, task)
    task = choose_positive(task, examples, recipe.task)
    notes = split_parts(examples, sources, recipe.task)
    tokenizer = make_tokenizer(recipe.encoder.name, task.texts(examples["train"]))
    features = {name: task.encode(own, tokenizer) for name, own in examples.items()}
    task = task.fit(features["train"])
    check_gold(task, examples, sources)
    notes += [f"{name}: {note}" for name, one in features.items() for note in task.notes(one)]
    notes += _note_positive(task, features["train"])
    return Datasets(task, tokenizer, examples, features, sources, notes)


def choose_positive(
    task: Task, examples: Mapping[str, Sequence[Any]], section: TaskSection
) -> Task:
    """Returns the task with the positive one of two labels, the same for all folds."""
    choose = getattr(task, "choose_positive", None)  # only tasks with a positive label have it
    if choose is None:
        return task
    names = ("train",) if section.folds is None else SPLITS
    chosen: Task = choose(one for name in names for one in examples.get(name, ()))
    return chosen


def _note_positive(task: Any, features: Features) -> list[str]:
    """Notes that the positive one of two labels is not the rare one."""
    positive = getattr(task, "positive", None)
    if positive is None:
        return []
    counts = dict(zip(task.labels, task.class_counts(features)["labels"], strict=True))
    share = counts[positive] / max(sum(counts.values()), 1)
    if share <= USUAL_SHARE:
        return []
    other = next(label for label in counts if label != positive)
    much = f"train: {share:.0%} have the positive label {positive}"
    return [f"{much}: for the F1 of the rare one, set task.positive = {other!r}"]


def read_parts(recipe: Recipe) -> dict[str, list[Any]]:
    """Reads and splits the examples of train, dev and, if there is one, test.

    Raises:
        InputError: A file cannot be read, is empty, or leaves no examples for dev.
    """
    task = make_task(recipe.task.kind, **recipe.task.options)
    examples, sources = _read(recipe, task)
    split_parts(examples, sources, recipe.task)
    check_gold(task, examples, sources)
    return examples


def check_gold(
    task: Task, examples: Mapping[str, Sequence[Any]], sources: Mapping[str, Mapping[str, Any]]
) -> None:
    """Raises if an example has no gold label, before training instead of at the end."""
    check = getattr(task, "check_gold", None)  # tasks of other packages may have none
    if check is not None:
        check({name: (sources[name]["path"], own) for name, own in examples.items()})


def split_parts(
    examples: dict[str, list[Any]], sources: dict[str, dict[str, Any]], section: TaskSection
) -> list[str]:
    """Splits dev from train if there is none, and counts examples; no part may be empty.

    Returns:
        Sentences about texts that are in two parts, and about a dev part that is too small.
    """
    if not examples.get("train"):
        path = sources.get("train", {}).get("path")
        raise InputError("wanted examples to use as train, got none", path=path)
    if section.folds is not None:
        take_fold(examples, sources, section)
    small = ""
    if "dev" not in examples:
        take_dev(examples, sources, section.dev_share)
        small = _note_small_dev(len(examples["dev"]), len(examples["train"]), section.dev_share)
    notes = drop_leaks(examples) if section.drop_leaks else find_leaks(examples)
    notes += [small] if small else []
    for name, own in examples.items():
        sources[name]["examples"] = len(own)
        if not own:
            raise InputError(
                f"wanted examples to use as {name}, got none", path=sources[name]["path"]
            )
    return notes


def take_fold(
    examples: dict[str, list[Any]], sources: dict[str, dict[str, Any]], section: TaskSection
) -> None:
    """Makes one fold of all examples the test part, and the others the training part."""
    everything = [example for name in SPLITS for example in examples.pop(name, ())]
    held = find_folds(everything, section, sources["train"]["path"]) == section.fold
    examples |= {"train": [*compress(everything, ~held)], "test": [*compress(everything, held)]}
    sources.setdefault("test", {**sources["train"]})


def find_folds(
    examples: Sequence[Any], section: TaskSection, path: Path | str | None
) -> NDArray[np.int64]:
    """Returns the fold of each example of all files together; no fold may be empty."""
    fold = deal_folds(examples, section.folds or 1, seed=SPLIT_SEED)
    if len(filled := set(fold.tolist())) < (section.folds or 1):
        raise InputError(
            f"wanted a text for each of {section.folds} folds, got {len(filled)} different texts",
            path=path,
        )
    return fold


def find_leaks(examples: Mapping[str, Sequence[Any]]) -> list[str]:
    """Describes how many texts each two parts share."""
    hashes = {name: TextHashes(map(text_of, own)) for name, own in examples.items()}
    cure = "; task.drop_leaks = true removes them from train"
    return [
        f"{overlap}{cure if overlap.first == 'train' else ''}" for overlap in find_overlaps(hashes)
    ]


def drop_leaks(examples: dict[str, list[Any]]) -> list[str]:
    """Removes training examples whose text is also in dev or test; says how many."""
    others = {text_of(e) for name, own in examples.items() if name != "train" for e in own}
    kept = [example for example in examples["train"] if text_of(example) not in others]
    dropped = len(examples["train"]) - len(kept)
    if not kept:
        raise InputError(
            "task.drop_leaks: wanted texts in train that neither dev nor test has, got none"
        )
    examples["train"] = kept
    said = f"train: {dropped:,} examples left out, whose texts are in dev or test"
    return [*([said] if dropped else []), *find_leaks(examples)]


def _given(
    given: Mapping[str, Sequence[Any]], task: Task
) -> tuple[dict[str, list[Any]], dict[str, dict[str, Any]]]:
    for name in given.keys() - set(SPLITS):
        raise InputError(f"data: wanted {', '.join(SPLITS)}, got {name!r}")
    wanted = getattr(task, "reads", object)  # tasks of other packages may not say
    for name, own in given.items():
        wrong = next((one for one in own if not isinstance(one, wanted)), None)
        if wrong is not None:
            got = type(wrong).__name__
            raise InputError(f"data: wanted {wanted.__name__} in {name!r}, got {got}")
    return {name: list(own) for name, own in given.items()}, {
        name: {"path": None, "sha256": hash_examples(own)} for name, own in given.items()
    }


def _read(recipe: Recipe, task: Task) -> tuple[dict[str, list[Any]], dict[str, dict[str, Any]]]:
    paths = {name: path for name in SPLITS if (path := getattr(recipe.task, name))}
    sources = {name: {"path": path, "sha256": hash_path(path)} for name, path in paths.items()}
    return {name: list(task.read(path)) for name, path in paths.items()}, sources


def _note_small_dev(dev: int, train: int, share: float) -> str:
    """A sentence if dev is far smaller than the recipe says.

    >>> _note_small_dev(10, 390, 0.1).partition(": ")[0]
    'dev has 10 of 400 examples, 2.5% instead of 10.0%'
    >>> _note_small_dev(39, 361, 0.1)
    ''
    """
    got = dev / (dev + train)
    if got > share / 2:
        return ""
    return (
        f"dev has {dev} of {dev + train} examples, {got:.1%} instead of {share:.1%}: equal texts "
        "and questions about one article stay together, and the only text of a label stays in train"
    )


def take_dev(examples: dict[str, list[Any]], sources: dict[str, Any], share: float) -> None:
    """Splits dev from train, stratified by label; no text is in both (`put_aside`)."""
    train = examples["train"]
    aside = put_aside(train, share, seed=SPLIT_SEED)
    if not aside.any():
        raise InputError(
            "wanted two different texts or more, to hold out some as dev, got "
            + ("1" if len(train) == 1 else f"{len(train)} times the same text"),
            path=sources["train"]["path"],
        )
    sources.setdefault("dev", {**sources["train"], "share": share})  # with folds it may be a file
    examples |= {"dev": [*compress(train, aside)], "train": [*compress(train, ~aside)]}
