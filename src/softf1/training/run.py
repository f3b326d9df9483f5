"""A run: a recipe in, a folder with model, predictions and result out."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.training.engine import Engine
from softf1.training.folder import RESULT, claim, clear, finish, look, read_result
from softf1.training.material import Shelf, load_material
from softf1.training.processes import Processes
from softf1.training.progress import choose_display
from softf1.training.quiet import quiet_transformers
from softf1.training.results import conclude

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from softf1.training.material import Material
    from softf1.training.recipe import Recipe

__all__ = ["RESULT", "Trainer", "read_result", "train_run"]


class Trainer:
    """Trains one recipe after the other; what several of them read is read and encoded once."""

    def __init__(self) -> None:
        self.shelf = Shelf()

    def __call__(self, recipe: Recipe, folder: Path | str, **how: Any) -> dict[str, Any]:
        """Trains as `train_run` does."""
        return train_run(recipe, folder, load=self.shelf.load, **how)


def train_run(
    recipe: Recipe,
    folder: Path | str,
    *,
    resume: bool = False,
    quiet: bool = False,
    data: Mapping[str, Sequence[Any]] | None = None,
    load: Callable[[Recipe], Material] = load_material,
) -> dict[str, Any]:
    """Trains as the recipe says; gives the content of `result.json`.

    Args:
        recipe: What to train.
        folder: The run folder. One that is finished gives its result at once.
        resume: Go on from the last checkpoint, where there is one.
        quiet: Show nothing.
        data: Examples of train, dev and test instead of the recipe's files.
        load: Reads and encodes the recipe's files.
    """
    folder = Path(folder)
    processes = Processes(trackers=recipe.train.trackers, folder=folder)
    done = processes.agree(lambda: look(folder, recipe, resume=resume))
    if done is not None:
        clear(folder)
        return done
    display = choose_display(quiet=quiet, main=processes.main)
    with ExitStack() as held:
        held.callback(processes.end)
        held.callback(display.stop)
        with quiet_transformers():
            material = load(recipe) if data is None else load_material(recipe, data)
            engine = Engine(recipe=recipe, folder=folder, material=material, processes=processes)
        for note in material.notes:
            display.say(f"note: {note}")
        # Not before here: a folder with nothing but a mistake in its recipe is nobody's.
        processes.agree(lambda: claim(folder, recipe, held))
        engine.train(display)
        result = conclude(engine)
        return processes.agree(lambda: finish(folder, result))
