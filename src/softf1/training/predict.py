"""Predicts and scores files with a trained model, in chunks, so files may have any length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from softf1.data._text import read_start
from softf1.data.detect import detect
from softf1.data.problems import Problems, RecordError, short
from softf1.data.registry import FORMATS
from softf1.errors import InputError
from softf1.recipe import Recipe, read_recipe
from softf1.tasks.base import Features, Prediction, Task, format_line
from softf1.training.batching import prefetch
from softf1.training.datasets import check_gold, read_parts, take_dev
from softf1.training.evaluation import evaluate, predict_logits
from softf1.training.publish import Loaded, load_model

if TYPE_CHECKING:
    import torch


SCHEMA = 1
STDIN = "/dev/stdin"
PLAIN = "use --format plain for lines of text without labels"
CHUNK = 1000
"""Examples per chunk; two chunks are in memory while the next one is prepared."""


def predict_lines(
    loaded: Loaded,
    examples: Iterable[Any],
    *,
    device: torch.device | str = "cpu",
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    batch_tokens: int = 16384,
    chunk: int = CHUNK,
    abstain: bool = False,
) -> Iterator[bytes]:
    """Yields one line of JSON per example, in order.

    Args:
        loaded: Model, task and tokenizer; the model is on the device already.
        examples: Examples, as from `read_input`; consumed lazily.
        device: Where the model is.
        autocast: Returns the autocast context of a forward pass.
        batch_tokens: Padded tokens of a batch at most; on a CPU, of those that run side by side. A
            batch has at least one item, and so has each core of a CPU.
        chunk: Examples that are encoded at once.
        abstain: Leave out predictions below their threshold or minimum confidence.
    """
    model, task, tokenizer = loaded
    change = abstention(task) if abstain else None

    def encode(own: list[Any]) -> tuple[list[Any], Features]:
        return own, task.encode(own, tokenizer)

    how: Any = {"device": device, "autocast": autocast, "batch_tokens": batch_tokens}
    chunks = cut(examples, chunk, getattr(task, "starts_group", None))
    gold = False
    for own, features in prefetch(encode, chunks, depth=1):  # the next chunk in the background
        # An empty gold is one, such as no label at all, if other examples have labels.
        gold = gold or any(task.show(example)["gold"] for example in own)
        logits = predict_logits(model, task, features, tokenizer, **how)
        for example, prediction in zip(own, task.decode(logits, features, own), strict=True):
            given = prediction if change is None else change(prediction)
            yield format_line(task, example, given, gold=gold)


def abstention(task: Any) -> Callable[[Prediction], Prediction]:
    """Returns the function that drops low-confidence parts of a prediction."""
    if not getattr(task, "abstains", False):
        raise InputError(
            "wanted a model with confidence thresholds to abstain (train it with eval.target, such "
            'as "precision>=0.95"), got one without'
        )
    change: Callable[[Prediction], Prediction] = task.abstain
    return change


BELOW = "this model has confidence thresholds: --abstain leaves out what is below them"
"""Note for users of such a model who do not pass `--abstain`."""


def cut(
    examples: Iterable[Any],
    size: int,
    starts_group: Callable[[Any, list[Any]], bool] | None = None,
) -> Iterator[list[Any]]:
    """Yields lists of `size` examples, or more where a group that is decoded together ends later.

    Args:
        examples: The examples in the order of the file.
        size: The least number of examples in a list; the last may have fewer.
        starts_group: Whether an example starts a new group after the examples of this one; None
            if each is decoded alone.

    >>> list(cut("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    >>> list(cut("aabbb", 1, lambda letter, group: letter != group[0]))
    [['a', 'a'], ['b', 'b', 'b']]
    """
    own: list[Any] = []
    group: list[Any] = []
    for example in examples:
        if not group or starts_group is None or starts_group(example, group):
            group = []
            if len(own) >= size:
                yield own
                own = []
        group.append(example)
        own.append(example)
    if own:
        yield own


def read_input(
    task: Task,
    path: Path | str,
    *,
    format: str | None = None,  # noqa: A002 - as in recipes
    options: Mapping[str, Any] | None = None,
    problems: Problems | None = None,
) -> Iterator[Any]:
    """Reads the examples of a file to predict on, labelled or not.

    Args:
        task: The task; it reads as in training unless `format` or `options` are given.
        path: A file, or `-` for the standard input, whose format must be known.
        format: Another format than that of training.
        options: Options of the reader; added to those of training, unless `format` is given.
        problems: Decides about bad records.
    """
    problems = problems or Problems(unique=False)
    task = reading_as(task, format=format, options=options)
    once = str(path) == "-"
    if once:
        if task.format is None:
            raise InputError(
                "wanted --format with - (such as csv, or plain for lines of text), "
                "since the standard input is read only once"
            )
        task, path = _without_label(task), STDIN
    examples = _read(task, path, problems)
    try:
        first = next(examples)
    except InputError as error:
        other = None if once else _without_labels(task, path)
        if format is not None or (set(options or ()) - {"encoding"} and not once):
            raise
        if once:
            raise InputError(f"{error}; {PLAIN}") from None
        problems.forget_skipped()
        try:
            examples = _read(other, path, problems) if other else iter(())
            first = next(examples)
        except (InputError, StopIteration):
            raise _advise(task, path, error) from None
        problems.note(f"{path}: read without labels")
        return chain([first], examples)
    if format is None:
        _note_unknown_labels(task, path, first, problems)
    return chain([first], examples)


def _note_unknown_labels(task: Task, path: Path | str, first: Any, problems: Problems) -> None:
    """Notes labels that the model cannot know: perhaps the file is plain text, read as columns."""
    known, gold = getattr(task, "labels", ()), task.show(first).get("gold")
    if known and isinstance(gold, list) and gold and not set(map(str, gold)) & set(known):
        problems.note(
            f"{path}: the model does not know {short(str(gold[0]))}, a label of the first example; "
            f"{PLAIN}"
        )


def _advise(task: Task, path: Path | str, error: InputError) -> InputError:
    """Adds a hint to the error if the file looks like another format, or like plain text."""
    with suppress(InputError):
        found = detect(path).format
        if found != task.format and not isinstance(error, RecordError):
            return InputError(f"{error}; it looks like {found}: add --format {found}")
    first = read_start(path).partition("\n")[0]
    plain = " " in first.strip() and not set(first) & set("\t{[")
    if isinstance(error, RecordError) or task.kind not in FORMATS["plain"].tasks or not plain:
        return error
    return InputError(f"{error}; {PLAIN}")


def reading_as(
    task: Task,
    *,
    format: str | None,  # noqa: A002 - as in recipes
    options: Mapping[str, Any] | None,
) -> Task:
    """The task with another file format or other reader options, if given."""
    if format is None and not options:
        return task
    same = {} if format is not None else task.reader
    return _with_reader(task, format or task.format, {**same, **(options or {})})


def _with_reader(task: Task, format: str | None, reader: dict[str, Any]) -> Task:  # noqa: A002
    other: Task = replace(task, format=format, reader=reader)  # type: ignore[type-var]
    return other


def _without_label(task: Task) -> Task:
    kept = {key: value for key, value in task.reader.items() if key != "label"}
    return _with_reader(task, task.format, kept)


def _read(task: Task, path: Path | str, problems: Problems) -> Iterator[Any]:
    return iter(getattr(task, "read_input", task.read)(path, problems))


def _without_labels(task: Task, path: Path | str) -> Task | None:
    """The task set to read the file without labels; None if that would not help."""
    if "label" in task.reader:
        return _without_label(task)
    rows = read_start(path).split("\n")
    one_column = all(len(row.split()) == 1 for row in rows if row) and any(rows)
    if one_column and getattr(task, "reads_words", False):
        return _with_reader(task, "conll", {"tag": None})
    return None


class Rescored(NamedTuple):
    """Scores of one file.

    Attributes:
        data: The file.
        split: Which part of the recipe's data it is, if it is one.
        examples: How many it has.
        metric: The primary metric.
        scores: The scores of the task.
        notes: Remarks for the user, such as labels that training never saw.
    """

    data: str
    split: str | None
    examples: int
    metric: str
    scores: dict[str, Any]
    notes: list[str]


def rescore(
    run: Path | str,
    *,
    data: Path | str | None = None,
    split: str | None = None,
    format: str | None = None,  # noqa: A002 - as in recipes
    options: Mapping[str, Any] | None = None,
    abstain: bool = False,
    onnx: Path | str | None = None,
    device: Any = "cpu",
    **how: Any,
) -> Rescored:
    """Evaluates the model of a run with its thresholds and biases; does not change the run.

    Args:
        run: A run folder; a model folder needs `data`.
        data: The file; None is the recipe's.
        split: "test" or "dev" of the recipe; None is test, or dev if there is no test.
        format: Another format than that of training.
        options: Options of the reader.
        abstain: Leave out predictions below their threshold or minimum confidence.
        onnx: An export of the run, to evaluate in place of its model; on the CPU.
        device: Where to compute.
        how: Other arguments of `predict_logits`.
    """
    model, task, tokenizer = loaded = load_model(run)
    if onnx is not None:
        from softf1.training.export import OnnxModel

        exported = OnnxModel(onnx)
        exported.check(loaded)
        model, task, device = exported, exported.untuned(task), "cpu"
    path, part, examples, found = read_labelled(
        run, task, data=data, split=split, format=format, options=options
    )
    recipe = find_recipe(run)
    features = task.encode(examples, tokenizer)
    model = model.to(device)
    change = abstention(task) if abstain else None
    evaluated = evaluate(model, task, features, examples, tokenizer, device=device, **how)
    scores = evaluated.scores
    if change is not None:
        scores = task.score([change(one) for one in evaluated.predictions], examples)
    notes = [*found, *task.notes(features)]
    notes += [BELOW] if getattr(task, "bars", {}) and not abstain else []
    metric = (recipe.eval.metric if recipe is not None else None) or task.primary_metric
    return Rescored(path, part, len(examples), metric, scores, notes)


def read_labelled(
    run: Path | str,
    task: Task,
    *,
    data: Path | str | None = None,
    split: str | None = None,
    format: str | None = None,  # noqa: A002 - as in recipes
    options: Mapping[str, Any] | None = None,
) -> tuple[str, str | None, list[Any], list[str]]:
    """Reads the labelled file that `rescore` asks for: path, split, examples and notes."""
    recipe, problems = find_recipe(run), Problems()
    reader = reading_as(task, format=format, options=options)
    part: str | None = None
    if data is not None:
        path, examples = str(data), list(reader.read(data, problems))
    elif recipe is not None:
        path, part, examples = read_part(recipe, reader, split, problems)
    else:
        raise InputError("wanted --data, since no recipe.toml here names a file", path=run)
    check_gold(task, {"test": examples}, {"test": {"path": path}})
    return path, part, examples, problems.notes


def find_recipe(run: Path | str) -> Recipe | None:
    """Reads the recipe of a run; None for a model folder."""
    path = Path(run) / "recipe.toml"
    return read_recipe(path) if path.is_file() else None


def read_part(
    recipe: Recipe, task: Task, split: str | None, problems: Problems
) -> tuple[str, str, list[Any]]:
    """Reads the split that a run is judged by: path, name and examples."""
    if recipe.task.folds is not None:
        name = split or "test"
        return recipe.task.train, name, read_parts(recipe)[name]
    name = split or ("test" if recipe.task.test else "dev")
    path = getattr(recipe.task, name) or (recipe.task.train if name == "dev" else None)
    if path is None:
        raise InputError(f"wanted a recipe with a {name} file, or --data; got neither")
    if not path.startswith("hf:") and not Path(path).exists():
        raise InputError(f"the {name} file of the recipe does not exist: use --data", path=path)
    examples = list(task.read(path, problems))
    if name == "dev" and recipe.task.dev is None:
        parts, sources = {"train": examples}, {"train": {"path": path}}
        take_dev(parts, sources, recipe.task.dev_share)
        examples = parts["dev"]
    return path, name, examples


def as_json(run: Path | str, scored: Rescored) -> dict[str, Any]:
    """The output of `softf1 evaluate --json`."""
    values = {"headline" if k == "metric" else k: v for k, v in scored._asdict().items()}
    return {"schema": SCHEMA, "run": str(run), **values}
