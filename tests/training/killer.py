"""Trainings that are killed, interrupted and run out of disk, each in a process of its own.

    python -m tests.training.killer FOLDER KILLS SEED STRIDE

KILLS come at random moments. With a STRIDE, others come before operations on files: 1 is each of
them, 40 every fortieth. Children are forked from a process that has trained, so that all is
imported once. What they print is in files beside the runs.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

from softf1.cli.main import main
from softf1.training.step import Stepper
from tests.training.toys import read_files, write_recipe

PATIENCE = 60.0
LATE = "train.checkpoint_seconds=1000"
"""Only a signal saves."""


HARDENED = ("task.decoder=crf", "train.adversarial=0.5", "train.consistency=1.0")
"""What draws more random numbers in a step, and has more weights."""
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate"}
"""Events of Python that change a disk, beside files that are opened to be written."""


def spawn(out, *words, name="", limit=0, slow=0.0, last=None):
    """Starts a training that goes on in `out`; its output is in files beside it."""
    child = os.fork()
    if child:
        return child
    for number, kind in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{out}.{name}{kind}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    if limit:  # as a disk that is full: no file may grow beyond
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if slow:
        fast = Stepper.step
        Stepper.step = lambda self, batches: (time.sleep(slow), fast(self, batches))
    if last is not None:
        die_before(last)
    code = main(["train", str(out.parent / "toy.toml"), *words, "--out", str(out), "--resume"])
    sys.stdout.flush()
    os._exit(code)


def die_before(number):
    """SIGKILL from within, when so many operations have changed the disk and the next is due."""
    left, fsync = number, os.fsync

    def count(event, arguments):
        nonlocal left
        if event == "open":
            writes = isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        else:
            writes = event in CHANGES
        if writes:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def sync(file):
        count("os.truncate", ())  # fsync is no event of its own
        fsync(file)

    os.fsync = sync
    sys.addaudithook(count)


def end(child):
    """Waits; gives the exit code, negative for a signal."""
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def newest(out):
    steps = [int(path.name[5:]) for path in (out / "checkpoints").glob("step-*")]
    return max(steps, default=0)


def wait(child, ready):
    """Until something is so, or the child has ended."""
    deadline = time.monotonic() + PATIENCE
    while not ready() and time.monotonic() < deadline:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.001)


def count_lines(out):
    path = out / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_often(out, times, seed, steps):
    """SIGKILL at random moments, of which the last is after the last step."""
    draw = random.Random(seed)
    # Not among the last steps, but for the last: a fast machine would be done before the kill.
    moments = [*sorted(draw.sample(range(steps - 5), times - 1)), steps]
    found = []
    for moment in moments:
        child = spawn(out, slow=0.02)
        wait(child, lambda moment=moment: newest(out) >= moment)
        time.sleep(draw.uniform(0.0, 0.05))
        os.kill(child, signal.SIGKILL)
        found.append((end(child), newest(out)))
    return {"kills": found, "code": end(spawn(out))}


def kill_at_operations(folder, stride, *words):
    """One new training for each operation: killed before it, then resumed; until none is left."""
    few = ("train.max_steps=3", *words)
    shutil.rmtree(folder / "few", ignore_errors=True)
    found, wrong = {"whole": end(spawn(folder / "few", *few)), "kills": 0}, []
    wanted = read_files(folder / "few")
    for last in range(0, 10_000, stride):
        out = folder / "cut"
        shutil.rmtree(out, ignore_errors=True)
        code = end(spawn(out, *few, last=last))
        if code == 0:
            break
        resumed = end(spawn(out, *few))
        left = [str(path) for path in out.rglob(".softf1-*")]
        if (code, resumed, left) != (-9, 0, []) or read_files(out) != wanted:
            wrong.append((last, code, resumed, left))
        found["kills"] += 1
    return found | {"wrong": wrong}


def interrupt(out, number, name):
    lines = count_lines(out)
    child = spawn(out, LATE, name=name)
    wait(child, lambda: count_lines(out) > lines)
    os.kill(child, number)
    return end(child), newest(out)


def suffer(out):
    """One training through everything; each child goes on where the one before it ended."""
    found = {
        "SIGINT": interrupt(out, signal.SIGINT, "int-"),
        "SIGTERM": interrupt(out, signal.SIGTERM, "term-"),
    }
    saved = newest(out)
    child = spawn(out)
    wait(child, lambda: newest(out) >= saved + 4)
    os.kill(child, signal.SIGKILL)
    found["killed"] = end(child), newest(out)
    damage(out / "checkpoints" / f"step-{newest(out):08d}" / "model.safetensors")
    found["full"] = end(spawn(out, name="full-", limit=5_000)), newest(out)
    found["last"] = end(spawn(out, name="last-")), newest(out)
    return found


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def interrupt_twice(out):
    """The second comes long before the step is over that the first waits for."""
    child = spawn(out, slow=20.0)
    wait(child, (out / "metrics.jsonl").exists)
    time.sleep(0.3)
    for _ in range(2):
        os.kill(child, signal.SIGINT)
        time.sleep(0.3)
    start = time.monotonic()
    return end(child), time.monotonic() - start, newest(out)


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    kills, seed, stride = map(int, sys.argv[2:])
    torch.set_num_threads(1)
    recipe = str(write_recipe(folder))
    main(["train", recipe, "train.max_steps=1", "--out", str(folder / "warm"), "--quiet"])
    found = {}
    if kills:
        found["whole"] = end(spawn(folder / "whole"))
        found["steps"] = json.loads((folder / "whole/result.json").read_text())["steps"]
        found["often"] = kill_often(folder / "often", kills, seed, found["steps"])
    if stride:
        found["operations"] = kill_at_operations(folder, stride)
    if kills and stride:  # the long forms are about kills alone
        found["hardened"] = kill_at_operations(folder, 2 * stride, *HARDENED)
        found |= {"suffer": suffer(folder / "suffer"), "twice": interrupt_twice(folder / "twice")}
    (folder / "found.json").write_text(json.dumps(found))
