"""Runs a recipe: trains, evaluates, and writes a run folder."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from softf1.errors import InputError, RunError
from softf1.training.build import quiet_transformers, settle
from softf1.training.datasets import DatasetCache, load_datasets
from softf1.training.processes import Processes, repeatable
from softf1.training.progress import choose_display
from softf1.training.results import conclude
from softf1.training.run_folder import claim, finish, identify, list_changes, look, tidy
from softf1.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from softf1.recipe import Recipe
    from softf1.training.datasets import Datasets


class Outcome(NamedTuple):
    """The outcome of a run.

    Attributes:
        result: The content of `result.json`.
        trained: Whether it was trained now; False if it was finished before.
    """

    result: dict[str, Any]
    trained: bool


class CachingTrainer:
    """Trains recipes one after another and keeps the last datasets in memory."""

    def __init__(self) -> None:
        self.cache = DatasetCache()

    def __call__(self, recipe: Recipe, folder: Path | str, **how: Any) -> dict[str, Any]:
        """Trains as `train_run` does."""
        return train_run(recipe, folder, load=self.cache.load, **how)


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turns out-of-memory errors of the host or the GPU into one line with advice."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = str(error).partition("\n")[0]
        short = isinstance(error, (MemoryError, torch.OutOfMemoryError))
        if not short and "DefaultCPUAllocator" not in text:
            raise
        advice = "try smaller sizes of the encoder, train.batch_size, batch_tokens or max_length"
        raise RunError(f"not enough memory: {advice} ({text})") from error


def train_run(recipe: Recipe, folder: Path | str, **how: Any) -> dict[str, Any]:
    """Trains a recipe; returns the content of `result.json`.

    Args:
        recipe: What to train.
        folder: The run folder. One that is finished gives its result at once.
        how: Options of `train_or_find`.
    """
    return train_or_find(recipe, folder, **how).result


def train_or_find(
    recipe: Recipe,
    folder: Path | str,
    *,
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    data: Mapping[str, Sequence[Any]] | None = None,
    load: Callable[[Recipe], Datasets] = load_datasets,
) -> Outcome:
    """Trains a recipe, unless the folder already has its result.

    Args:
        recipe: What to train.
        folder: The run folder. One that is finished gives its result at once.
        resume: Continue from the last checkpoint, if there is one.
        force: Delete what an earlier run left in the folder, and start again.
        quiet: Show nothing.
        data: Examples of train, dev and test instead of the recipe's files.
        load: Reads and encodes the recipe's files.

    Raises:
        InputError: The folder is not a run of softf1, or a run of another recipe, other files or
            other versions.
    """
    folder, how = Path(folder), {"resume": resume, "force": force}
    with repeatable(on=recipe.train.deterministic):
        return _train_or_find(recipe, folder, how, quiet=quiet, data=data, load=load)


def _train_or_find(
    recipe: Recipe,
    folder: Path,
    how: Mapping[str, bool],
    *,
    quiet: bool,
    data: Mapping[str, Sequence[Any]] | None,
    load: Callable[[Recipe], Datasets],
) -> Outcome:
    processes = Processes(trackers=recipe.train.trackers, folder=folder)
    identity = processes.agree(lambda: identify(recipe, data))
    done = processes.agree(lambda: look(folder, identity, **how))
    if done is not None:
        processes.agree(lambda: tidy(folder, identity))
        return Outcome(done, trained=False)
    display = choose_display(quiet=quiet, main=processes.main)
    with ExitStack() as held:
        held.enter_context(memory_errors())
        held.callback(processes.end)
        held.callback(display.stop)
        with quiet_transformers(recipe.encoder.name):
            datasets = load(recipe) if data is None else load_datasets(recipe, data)
            settled, datasets, chosen = settle(recipe, datasets)
            trainer = Trainer(recipe=settled, folder=folder, datasets=datasets, processes=processes)
        identity = processes.agree(lambda: identify_again(identity, recipe, data, datasets))
        for note in (*chosen, *(f"note: {note}" for note in datasets.notes)):
            display.say(note)
        # Only now: a recipe or data error above must not leave a claimed folder behind.
        done = processes.agree(lambda: claim(folder, settled, identity, held, **how))
        if done is not None:
            return Outcome(done, trained=False)
        trainer.train(display)
        result = conclude(trainer)
        result = processes.agree(lambda: finish(folder, result, identity))
        return Outcome(result, trained=True)


def identify_again(
    identity: Mapping[str, Any],
    recipe: Recipe,
    data: Mapping[str, Sequence[Any]] | None,
    datasets: Datasets,
) -> dict[str, Any]:
    """Identifies the run again after loading: an encoder may be downloaded now, a file changed."""
    now = identify(recipe, data)
    loaded = {**now, "data": {name: datasets.sources[name] for name in now["data"]}}
    changes = list_changes(identity, now) or list_changes(loaded, now)
    if changes:
        raise InputError(f"{changes[0]} while it was read: start again")
    return now
