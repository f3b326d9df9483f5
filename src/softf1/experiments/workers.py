"""Local worker processes, `jobs` at a time; if one dies, its run is retried once.

Each process runs this module: it reads jobs as lines of JSON and writes results the same way.

    python -m softf1.experiments.workers softf1.training.run:CachingTrainer

When a worker's input ends, the process that started it is gone, and the worker exits at once:
otherwise the same command, started again, would train the same run at the same time.
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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from pathlib import Path
from time import monotonic
from typing import IO, Any, TextIO

from softf1.errors import InputError
from softf1.experiments.grid import TRAIN, Done, Job
from softf1.files import write_text
from softf1.recipe import build_recipe

Waiting = queue.SimpleQueue[tuple[Job, Future[Done]] | None]

PATIENCE = 20.0
"""Seconds that a worker gets to save its checkpoint after it is told to stop."""


class Pool:
    """A pool of `count` worker processes, which stay alive for the next round of jobs.

    Several threads may call it at once: their jobs share the processes, first come, first served.

    Args:
        count: The number of processes; they share the cores, and the GPUs if there are any.
        logs: Folder for the output of the processes.
        target: The function to call, as `module:name`.
        devices: Names of the GPUs; by default all that torch sees.
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
        """Runs all jobs; yields each one when it is done."""
        answers: list[Future[Done]] = [Future() for _ in jobs]
        with self.lock:
            if self.closed:
                raise KeyboardInterrupt
            for waiting_job in zip(jobs, answers, strict=True):
                self.waiting.put(waiting_job)
        try:
            for answer in as_completed(answers):
                yield answer.result()
        finally:
            for answer in answers:
                answer.cancel()

    def close(self) -> None:
        """Stops the processes; callers that wait for one get an error."""
        with self.lock:
            self.closed = True
            for worker in self.workers:
                worker.stopped = True  # none of them starts another job while the others stop
                self.waiting.put(None)
        for worker in self.workers:
            worker.stop()


def _drive(worker: Worker, waiting: Waiting) -> None:
    while (waiting_job := waiting.get()) is not None:
        job, answer = waiting_job
        if not answer.set_running_or_notify_cancel():
            continue
        try:
            # A run continues from its checkpoint, so a worker killed for memory may succeed now.
            done = worker.do(job) or worker.do(job)
            answer.set_result(done or Done(job.id, None, worker.last_words()))
        except BaseException as error:  # noqa: BLE001 - raised in the caller
            answer.set_exception(error)


class Worker:
    """A process that runs one job after another; started with its first job."""

    def __init__(self, environment: dict[str, str], log: Path, target: str) -> None:
        # -P: do not import files of the current folder, such as a user's accelerate.py.
        self.command = [sys.executable, "-P", "-m", "softf1.experiments.workers", target]
        self.environment, self.log = environment, log
        self.process: subprocess.Popen[str] | None = None
        self.stopped = False

    def do(self, job: Job) -> Done | None:
        """Sends a job and waits for its result; None if the process died."""
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
            if self.stopped:  # and its pipes are closed
                raise KeyboardInterrupt from error
            raise
        if answer:
            return Done(**json.loads(answer))
        process.wait()
        if self.stopped:
            raise KeyboardInterrupt
        return None

    def last_words(self) -> str:
        """Says how the process ended, with its last output."""
        code = self.process.returncode if self.process else None
        lines = self.log.read_text("utf-8", errors="replace").strip().splitlines()
        how = f"by signal {-code}" if code is not None and code < 0 else f"with code {code}"
        return f"the process ended {how}" + (f": {lines[-1]}" if lines else "")

    def stop(self) -> None:
        """Stops the process, with time to save a checkpoint if it is working."""
        self.stopped = True
        if self.process is None:
            return
        self.process.terminate()  # no effect if it has exited
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
                    start_new_session=True,  # only the parent gets Ctrl-C, and stops the workers
                )
        if self.stopped:  # by another thread in the meantime
            self.process.terminate()
        return self.process


def share_machine(
    environment: Any, number: int, count: int, *, devices: Sequence[str] = ()
) -> dict[str, str]:
    """Returns the environment variables of one of several workers: its share of the cores, one GPU.

    `OMP_NUM_THREADS` stays if it is set to less than that share.

    >>> share_machine({"HOME": "/"}, 2, 3, devices=["0", "1"])["CUDA_VISIBLE_DEVICES"]
    '0'
    """
    share, wanted = max(1, count_cores() // count), environment.get("OMP_NUM_THREADS", "")
    threads = min(share, int(wanted)) if wanted.isdecimal() and int(wanted) else share
    # A worker can import what this process can, including folders added to sys.path.
    shared = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    shared |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if devices:
        shared["CUDA_VISIBLE_DEVICES"] = devices[number % len(devices)]
    return shared


def count_cores() -> int:
    """The number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def find_devices() -> list[str]:
    """Names of the visible GPUs."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return named.split(",")[:count] if named else [str(number) for number in range(count)]


def _close(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):  # input that a dead process did not read
            _pipe(pipe).close()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None  # noqa: S101 - every process is started with pipes
    return pipe


def find_target(name: str) -> Callable[..., dict[str, Any]]:
    """Imports the function `module:name`, called as `(recipe, folder, resume=True, quiet=True)`.

    A class is instantiated first; its object may cache data between calls.
    """
    module, _, function = name.partition(":")
    target: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return target() if isinstance(target, type) else target


def run_job(job: Job, target: Callable[..., dict[str, Any]]) -> Done:
    """Trains one run; returns errors as text instead of raising them, except an interruption."""
    start, folder = monotonic(), Path(job.folder)
    note = folder / "error.txt"
    try:
        result = target(build_recipe(job.recipe), folder, resume=True, quiet=True)
    except InputError as error:
        return Done(job.id, None, str(error), monotonic() - start, refused=True)
    except Exception as error:  # one failed run must not stop the others
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        write_text(note, traceback.format_exc(), errors="backslashreplace")
        first = str(error).partition("\n")[0]
        return Done(job.id, None, f"{type(error).__name__}: {first}", monotonic() - start)
    note.unlink(missing_ok=True)
    return Done(job.id, result, None, monotonic() - start)


def was_interrupted(error: Exception) -> bool:
    """Whether training was interrupted by a signal after saving a checkpoint."""
    trainer = sys.modules.get("softf1.training.trainer")  # by name: the import would take seconds
    return trainer is not None and isinstance(error, trainer.InterruptedRunError)


def watch_input(lines: TextIO, jobs: queue.Queue[str]) -> None:
    """Passes jobs on; exits the process when the input ends."""
    for line in lines:
        jobs.put(line)
    os._exit(0)


def main() -> None:
    """Runs jobs until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # printed output must not mix with the results
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
