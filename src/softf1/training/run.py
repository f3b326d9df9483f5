"""A run: a recipe in, a folder with model, predictions and result out."""

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
    """What became of a run.

    Attributes:
        result: The content of `result.json`.
        trained: Whether it was trained now; it was finished before otherwise.
    """

    result: dict[str, Any]
    trained: bool


class CachingTrainer:
    """Trains one recipe after the other; what several of them read is read and encoded once."""

    def __init__(self) -> None:
        self.cache = DatasetCache()

    def __call__(self, recipe: Recipe, folder: Path | str, **how: Any) -> dict[str, Any]:
        """Trains as `train_run` does."""
        return train_run(recipe, folder, load=self.cache.load, **how)


@contextmanager
def memory_errors() -> Iterator[None]:
    """Says in one line that the memory of the computer or of the GPU was too small."""
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
    """Trains as the recipe says; gives the content of `result.json`.

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
    """Trains as the recipe says, unless that was done before.

    Args:
        recipe: What to train.
        folder: The run folder. One that is finished gives its result at once.
        resume: Go on from the last checkpoint, where there is one.
        force: Start afresh in a folder that holds another run, or this one.
        quiet: Show nothing.
        data: Examples of train, dev and test instead of the recipe's files.
        load: Reads and encodes the recipe's files.

    Raises:
        InputError: The folder is no run of softf1, or one of another recipe, other files or
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
            settled, chosen = settle(recipe, datasets)
            trainer = Trainer(recipe=settled, folder=folder, datasets=datasets, processes=processes)
        identity = processes.agree(lambda: identify_again(identity, recipe, data, datasets))
        for note in (*chosen, *(f"note: {note}" for note in datasets.notes)):
            display.say(note)
        # Not before here: a folder with nothing but a mistake in its recipe is nobody's.
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
    """The identity once all is loaded: an encoder may have been downloaded, a file changed."""
    now = identify(recipe, data)
    loaded = {**now, "data": {name: datasets.sources[name] for name in now["data"]}}
    changes = list_changes(identity, now) or list_changes(loaded, now)
    if changes:
        raise InputError(f"{changes[0]} while it was read: start again")
    return now
