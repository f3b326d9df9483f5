"""Evaluation of a model on a whole dataset: logits, predictions, scores, a predictions file.

The device is kept busy: another thread collates batches, results are copied back while the next
batch runs, and the host waits for a result only when a later batch is already queued. On a CPU
each core has a batch of its own.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread, local
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor, distributed, nn

from softf1.errors import InputError
from softf1.files import finite, new_file, write_json
from softf1.tasks.base import Batch, Features, Logits, Prediction, Task, format_line, join
from softf1.training.batching import MicroBatch, eval_batches, prefetch
from softf1.training.processes import unwrap

if TYPE_CHECKING:
    from softf1.models.tokenizers import Tokenizer
    from softf1.recipe import Recipe
    from softf1.training.datasets import Datasets

T = TypeVar("T")
U = TypeVar("U")

HEADROOM = "headroom.json"

QUEUED = 2
"""Batches in flight before the host waits for the first result."""

CPU_PADDING = 32
"""Padding ids of a batch at most on a CPU: there padding costs as much as text, a batch little."""

SETTING = Lock()
"""Held while the number of threads is set, so that no prediction starts with a wrong one."""

TRIED = 200
"""How many dev examples `check_metric` scores, spread over the whole file."""


class Evaluated(NamedTuple):
    """Predictions in the order of the examples, and their scores."""

    predictions: list[Prediction]
    scores: dict[str, Any]


def predict_logits(
    model: nn.Module,
    task: Task,
    features: Features,
    tokenizer: Tokenizer,
    *,
    device: torch.device | str,
    batch_tokens: int = 16384,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    world: int = 1,
    rank: int = 0,
) -> Logits:
    """Computes the logits of every item, for `task.decode` and `task.tune`.

    Args:
        model: A model of the task, plain or wrapped by DDP or FSDP; its mode is restored.
        task: The task, which collates batches and gathers logits.
        features: Encoded examples.
        tokenizer: The tokenizer of the encoder.
        device: Where the model is.
        batch_tokens: Padded tokens of a batch at most; on a CPU, of those that run side by side. A
            batch has at least one item, and so has each core of a CPU.
        autocast: Returns the autocast context of a forward pass.
        world: Number of processes that share the items.
        rank: Number of this process.

    Returns:
        The logits of all items on rank 0, each item once; an empty dict on other ranks.
    """
    target = torch.device(device)
    cuda, cpu = target.type == "cuda", target.type == "cpu"
    run = unwrap(model)  # DDP's forward would broadcast buffers

    def make(micro: MicroBatch) -> Batch:
        batch = task.collate(features, micro.items.tolist() or [0], tokenizer, width=micro.width)
        pinned = {k: v.pin_memory() if cuda else v for k, v in batch.inputs.items()}
        return replace(batch, inputs=pinned)

    def start(batch: Batch, run: nn.Module = run) -> Callable[[], Logits]:
        inputs = {k: v.to(target, non_blocking=True) for k, v in batch.inputs.items()}
        with autocast():
            return copy_to_host(run(**inputs), batch, task)

    own = local()

    def predict(micro: MicroBatch) -> Logits:
        if not hasattr(own, "model"):
            own.model = share_weights(run)
        with no_gradients(model):  # each thread has a mode of its own
            return start(make(micro), own.model)()

    cores = count_threads() if cpu and world == 1 else 1
    # The same number on every rank, since all shards of a model must run together.
    work = eval_batches(
        features["length"],
        batch_tokens=batch_tokens // cores,
        max_padding=CPU_PADDING if cpu else None,
        world=world,
        rank=rank,
    )
    parts: list[Logits] = []
    waiting: deque[Callable[[], Logits]] = deque()
    ahead = prefetch if cuda else map
    with evaluating(model), no_gradients(model):
        if cores > 1:
            return join(map_on_cores(predict, work))
        for micro, batch in zip(work, ahead(make, work), strict=True):
            started = start(batch)
            if len(micro.items):  # a batch without items only keeps this rank in step
                waiting.append(started)
            if len(waiting) > (QUEUED if cuda else 0):
                parts.append(waiting.popleft()())
        parts.extend(wait() for wait in waiting)
    return gather_ranks(parts, world=world, rank=rank)


def map_on_cores(call: Callable[[T], U], work: Sequence[T]) -> list[U]:
    """Like `list(map(call, work))`; each of torch's threads takes a whole call at a time.

    That is faster than all threads on one small batch, because they do not wait for each other
    after every operation. Less work than there are threads is done by all of them together.
    """
    threads = count_threads()
    if len(work) < threads:
        return list(map(call, work))
    with ThreadPoolExecutor(threads, "core", take_one_thread) as pool:
        return list(pool.map(call, work))


def count_threads() -> int:
    """The number of threads that torch uses in the calling thread."""
    with SETTING:
        return torch.get_num_threads()


def take_one_thread() -> None:
    """Lets torch use one thread in the calling thread, which must be a new one.

    What is set in one thread holds there, and in all threads that have not called torch yet: they
    would keep it. So a thread that ends at once sets again what the calling thread began with.
    """
    with SETTING:
        usual = torch.get_num_threads()
        torch.set_num_threads(1)
        other = Thread(target=torch.set_num_threads, args=(usual,))
        other.start()
        other.join()


def share_weights(model: nn.Module) -> nn.Module:
    """Returns a copy of a model with the same weights, for another thread.

    A forward may keep something on its module until it is done, such as positions for the length
    of its batch. That is lost when another thread runs the same module, but not when it runs a
    copy. Copies of a compiled module are not compiled: the compiled code runs the module itself.

    >>> model = nn.Sequential(nn.Linear(2, 1))
    >>> copy = share_weights(model)
    >>> copy[0] is model[0], copy[0].weight is model[0].weight
    (False, True)
    """
    # torch.fx makes a new, empty class in the `__new__` of its modules.
    copies = {module: object.__new__(type(module)) for module in model.modules()}
    for module, copy in copies.items():
        own = vars(copy)
        own |= vars(module)
        own.pop("_compiled_call_impl", None)
        own["_buffers"] = {**own["_buffers"]}
        own["_modules"] = {name: copies.get(one) for name, one in own["_modules"].items()}
    return copies[model]


def copy_to_host(output: Any, batch: Batch, task: Task) -> Callable[[], Logits]:
    """Starts copying the rows of a batch to the host; call the result to wait for them."""
    rows = len(batch.items)
    tensors = {key: value for key, value in output.items() if isinstance(value, Tensor)}
    here = {key: value[:rows].to("cpu", non_blocking=True) for key, value in tensors.items()}
    done = None
    if any(value.is_cuda for value in tensors.values()):
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()

    def wait() -> Logits:
        if done is not None:
            done.synchronize()
        return task.gather(task.logits(type(output)(**here), batch), batch)

    return wait


def gather_ranks(parts: list[Logits], *, world: int, rank: int) -> Logits:
    """Joins the logits of all ranks on rank 0."""
    if world == 1:
        return join(parts)
    mine = join(parts) if parts else None
    held: list[Any] | None = [None] * world if rank == 0 else None
    distributed.gather_object(mine, held, dst=0)
    return join(part for part in held if part is not None) if held is not None else {}


def evaluate(
    model: nn.Module,
    task: Task,
    features: Features,
    examples: Sequence[Any],
    tokenizer: Tokenizer,
    **how: Any,
) -> Evaluated:
    """Predicts and scores all examples; `how` goes to `predict_logits`."""
    logits = predict_logits(model, task, features, tokenizer, **how)
    predictions = task.decode(logits, features, examples)
    return Evaluated(predictions, task.score(predictions, examples))


def write_predictions(
    path: Path, task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]
) -> None:
    """Writes one line of JSON per example; the file is written completely or not at all."""
    with new_file(path) as file:
        for example, prediction in zip(examples, predictions, strict=True):
            file.write(format_line(task, example, prediction))


def measure_headroom(
    task: Task,
    logits: Logits,
    features: Features,
    examples: Sequence[Any],
    *,
    split: str | None,
    primary: str,
) -> dict[str, Any]:
    """Measures the headroom of a model on some examples; its task must have `headroom`.

    Args:
        task: The task, with labels and tuned thresholds.
        logits: The logits of the examples.
        features: The encoded examples.
        examples: The examples.
        split: The split that they are from; None for another file.
        primary: The primary metric of the run, which may differ from that of the headroom.
    """
    predictions = task.decode(logits, features, examples)
    lines = [
        json.loads(format_line(task, one, own))
        for one, own in zip(examples, predictions, strict=True)
    ]
    measured = task.headroom(lines, logits, features, examples).to_json()
    known = {"split": split, "examples": len(examples), "primary_metric": primary}
    return {**measured, **known}


def write_headroom(folder: Path, content: dict[str, Any]) -> None:
    """Writes `headroom.json`, completely or not at all."""
    write_json(folder / HEADROOM, finite(content))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Context with every module in evaluation mode; restores each module's own mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def no_gradients(model: nn.Module) -> AbstractContextManager[Any]:
    """Inference mode; with FSDP only `no_grad`, since gathered weights must stay trainable."""
    if not distributed.is_available() or not distributed.is_initialized():
        return torch.inference_mode()
    from torch.distributed.fsdp import FSDPModule

    sharded = any(isinstance(module, FSDPModule) for module in model.modules())
    return torch.no_grad() if sharded else torch.inference_mode()


def read_score(scores: Mapping[str, Any], metric: str) -> float:
    """Returns the score of that name.

    >>> read_score({"f1": 0.5, "labels": {}}, "f1")
    0.5
    """
    score = scores.get(metric)
    if not isinstance(score, int | float):
        known = ", ".join(name for name, value in scores.items() if isinstance(value, int | float))
        raise InputError(f"eval.metric: wanted one of {known}, got {metric!r}")
    return float(score)


def check_metric(recipe: Recipe, datasets: Datasets, model: nn.Module) -> None:
    """Checks before a long training that `eval.metric` exists, by scoring a few dev examples.

    It uses the untrained model on the CPU; the predictions themselves do not matter.
    """
    if recipe.eval.metric is None:
        return
    task, tokenizer = datasets.task, datasets.tokenizer
    examples = datasets.examples["dev"][:: -(-len(datasets.examples["dev"]) // TRIED)]
    features = task.encode(examples, tokenizer)
    scores = evaluate(model, task, features, examples, tokenizer, device="cpu").scores
    read_score(scores, recipe.eval.metric)
