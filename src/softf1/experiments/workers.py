"""Runs in processes of this machine, `jobs` at a time; one that dies costs its run one retry.

Each process is this module: jobs come in as lines of JSON, what became of them goes out.

    python -m softf1.experiments.workers softf1.training.run:CachingTrainer

The end of its input means that the process that started it is gone, however that happened. The
worker then ends at once: were it to go on, the same command started anew would train the same run
beside it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, TextIO

from softf1.errors import InputError
from softf1.experiments.grid import TRAIN, Done, Job
from softf1.files import new_file
from softf1.recipe import build_recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Waiting = queue.SimpleQueue[tuple[Job, "Call"] | None]

PATIENCE = 20.0
"""Seconds that a worker has to save what it is doing when it is told to stop."""


def run_inline(run: Callable[..., dict[str, Any]], jobs: Sequence[Job]) -> Iterator[Done]:
    """One job after the other in this process."""
    for job in jobs:
        yield run_job(job, run)


class Call:
    """Somebody who waits for answers, until they no longer want them."""

    def __init__(self) -> None:
        self.answers: queue.SimpleQueue[Done | BaseException] = queue.SimpleQueue()
        self.wanted = True


class Pool:
    """Processes that run jobs, as many at a time as `count`; they stay for the next round of jobs.

    Several threads may call it at once: their jobs share the processes, first come, first served.

    Args:
        count: Processes; each gets its share of the cores, and of the GPUs if there are some.
        logs: Folder for what the processes print.
        target: The function to call, as `module:name`.
        devices: Names of the GPUs; those that torch sees by default.
    """

    def __init__(
        self,
        count: int,
        *,
        logs: Path,
        target: str = TRAIN,
        devices: Sequence[str] | None = None,
    ) -> None:
        gpus = find_devices() if devices is None else devices
        self.workers = [
            Worker(
                share_machine(os.environ, number, count, devices=gpus),
                logs / f"worker-{number}.log",
                target,
            )
            for number in range(count)
        ]
        self.waiting: Waiting = queue.SimpleQueue()
        self.closed, self.lock = False, threading.Lock()
        for worker in self.workers:
            threading.Thread(target=_drive, args=(worker, self.waiting), daemon=True).start()

    def __call__(self, jobs: Sequence[Job]) -> Iterator[Done]:
        """Run all jobs; give back each as it is done."""
        call = Call()
        with self.lock:
            if self.closed:
                raise KeyboardInterrupt
            for job in jobs:
                self.waiting.put((job, call))
        try:
            for _ in jobs:
                answer = call.answers.get()
                if isinstance(answer, BaseException):
                    raise answer
                yield answer
        finally:
            call.wanted = False

    def close(self) -> None:
        """End the processes; whoever waits for one is told."""
        with self.lock:
            self.closed = True
            for worker in self.workers:
                worker.stopped = True  # none of them begins another job while the others end
                self.waiting.put(None)
        for worker in self.workers:
            worker.stop()


def _drive(worker: Worker, waiting: Waiting) -> None:
    while (waiting_job := waiting.get()) is not None:
        job, call = waiting_job
        if not call.wanted:
            continue
        try:
            first = worker.do(job)
            # A run goes on from its checkpoint: a worker killed for memory may well get through.
            done = worker.do(job) if first is None else first
            call.answers.put(done or Done(job.id, None, worker.last_words()))
        except BaseException as error:  # noqa: BLE001 - raised where the answers are awaited
            call.answers.put(error)


class Worker:
    """A process that does one job after the other, started when there is one to do."""

    def __init__(self, environment: dict[str, str], log: Path, target: str) -> None:
        # -P: a file in the current folder, say accelerate.py, is no module that anybody asked for.
        self.command = [sys.executable, "-P", "-m", "softf1.experiments.workers", target]
        self.environment, self.log = environment, log
        self.process: subprocess.Popen[str] | None = None
        self.stopped = False

    def do(self, job: Job) -> Done | None:
        """Hand over a job and wait; None where the process died over it."""
        if self.stopped:
            raise KeyboardInterrupt
        process, line = self._started(), json.dumps(job._asdict()) + "\n"
        try:
            _pipe(process.stdin).write(line)
            _pipe(process.stdin).flush()
            answer = _pipe(process.stdout).readline()
        except BrokenPipeError:
            answer = ""
        except ValueError as error:
            if self.stopped:  # and its pipes closed
                raise KeyboardInterrupt from error
            raise
        if answer:
            return Done(**json.loads(answer))
        process.wait()
        if self.stopped:
            raise KeyboardInterrupt
        return None

    def last_words(self) -> str:
        """How the process ended, and what it said last."""
        code = self.process.returncode if self.process else None
        lines = self.log.read_text("utf-8", errors="replace").strip().splitlines()
        how = f"by signal {-code}" if code is not None and code < 0 else f"with code {code}"
        return f"the process ended {how}" + (f": {lines[-1]}" if lines else "")

    def stop(self) -> None:
        """End the process: politely while it works, so that it can save what it does."""
        self.stopped = True
        if self.process is None:
            return
        self.process.terminate()  # nothing happens where it has ended
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        _close(self.process)

    def _started(self) -> subprocess.Popen[str]:
        if self.process is not None and self.process.poll() is not None:
            _close(self.process)
            self.process = None
        if self.process is None:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(  # noqa: S603 - our own module
                    self.command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=self.environment,
                    encoding="utf-8",
                    start_new_session=True,  # Ctrl-C is for us, who then ask them to stop
                )
        if self.stopped:  # in the meantime
            self.process.terminate()
        return self.process


def share_machine(
    environment: Any, number: int, count: int, *, devices: Sequence[str] = ()
) -> dict[str, str]:
    """The environment of one worker of several: its share of the cores, and one GPU.

    >>> share_machine({"HOME": "/"}, 2, 3, devices=["0", "1"])["CUDA_VISIBLE_DEVICES"]
    '0'
    """
    threads = max(1, count_cores() // count)
    # What this process can import, a worker can: also from a folder that was added by hand.
    shared = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    shared |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if devices:
        shared["CUDA_VISIBLE_DEVICES"] = devices[number % len(devices)]
    return shared


def count_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def find_devices() -> list[str]:
    """Names of the GPUs that can be seen."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return named.split(",")[:count] if named else [str(number) for number in range(count)]


def _close(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):  # what was not read by a process that died
            _pipe(pipe).close()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None  # noqa: S101 - every process is started with pipes
    return pipe


def find_target(name: str) -> Callable[..., dict[str, Any]]:
    """The function `module:name`, called as `(recipe, folder, resume=True, quiet=True)`.

    A class gives an object to call, which may remember something from one call to the next.
    """
    module, _, function = name.partition(":")
    target: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return target() if isinstance(target, type) else target


def run_job(job: Job, target: Callable[..., dict[str, Any]]) -> Done:
    """Train one run; whatever goes wrong is written down, not raised, but for a wish to stop."""
    start, folder = monotonic(), Path(job.folder)
    note = folder / "error.txt"
    try:
        result = target(build_recipe(job.recipe), folder, resume=True, quiet=True)
    except InputError as error:
        return Done(job.id, None, str(error), monotonic() - start)
    except Exception as error:  # a run that fails must not end the others
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
    trainer = sys.modules.get("softf1.training.trainer")  # not imported for this: it takes seconds
    return trainer is not None and isinstance(error, trainer.InterruptedRunError)


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
