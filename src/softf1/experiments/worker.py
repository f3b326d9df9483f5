"""A process that trains cells: jobs come in as lines of JSON, what became of them goes out.

    python -m softf1.experiments.worker softf1.training.run:Trainer

The end of its input means that the process that started it is gone, however that happened. It then
ends at once: were it to go on, the same command started anew would train the same cell beside it.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
import traceback
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

from softf1.errors import InputError
from softf1.experiments.cells import Done, Job
from softf1.files import new_file
from softf1.recipe import build_recipe

if TYPE_CHECKING:
    from collections.abc import Callable


def find_target(name: str) -> Callable[..., dict[str, Any]]:
    """The function `module:name`, called as `(recipe, folder, resume=True, quiet=True)`.

    A class gives an object to call, which may remember something from one call to the next.
    """
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found() if isinstance(found, type) else found


def run_job(job: Job, target: Callable[..., dict[str, Any]]) -> Done:
    """Train one cell; whatever goes wrong is written down, not raised, but for a wish to stop."""
    start, folder = monotonic(), Path(job.folder)
    note = folder / "error.txt"
    try:
        result = target(build_recipe(job.recipe), folder, resume=True, quiet=True)
    except InputError as error:
        return Done(job.id, None, str(error), monotonic() - start)
    except Exception as error:  # a cell that fails must not end the others
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        with new_file(note) as file:
            file.write(traceback.format_exc().encode(errors="backslashreplace"))
        first = str(error).partition("\n")[0]
        return Done(job.id, None, f"{type(error).__name__}: {first}", monotonic() - start)
    note.unlink(missing_ok=True)
    return Done(job.id, result, None, monotonic() - start)


def was_interrupted(error: Exception) -> bool:
    """Whether training saved what it did and ended because somebody asked it to."""
    loop = sys.modules.get("softf1.training.loop")  # not imported for this: it takes seconds
    return loop is not None and isinstance(error, loop.InterruptedRunError)


def watch_input(lines: TextIO, jobs: queue.Queue[str]) -> None:
    """Pass jobs on; end the process where no more can come."""
    for line in lines:
        jobs.put(line)
    os._exit(0)


def main() -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what training prints must not get between the answers
    target = find_target(sys.argv[1])
    jobs: queue.Queue[str] = queue.Queue()
    threading.Thread(target=watch_input, args=(sys.stdin, jobs), daemon=True).start()
    while True:
        try:
            done = run_job(Job(**json.loads(jobs.get())), target)
        except KeyboardInterrupt:
            return
        answers.write(json.dumps(done._asdict()) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
