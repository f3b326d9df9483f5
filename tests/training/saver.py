"""A process that saves checkpoints until it is killed, many times over.

    python -m tests.training.saver FOLDER TIMES SEED

Each time a child goes on from the newest checkpoint. Prints the step found after every kill.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from softf1.training.checkpoint import load_checkpoint, save_checkpoint


def save_forever(folder, first):
    step = first
    while True:
        step += 1
        value = torch.full((20_000,), step)
        groups = {
            "model": {"a": value, "b": value[:10].float()},
            "optimizer": {"c": value.double()},
        }
        save_checkpoint(folder, step, groups, {"step": step})


def wait(folder, step):
    """Until there is a later checkpoint."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if any(int(path.name[5:]) > step for path in folder.glob("step-*")):
            return
        time.sleep(0.002)
    raise TimeoutError(f"nothing was saved after step {step}")


def check(folder):
    """The step of the newest checkpoint, every part of which must be of that step."""
    found = load_checkpoint(folder)
    if found is None:
        return 0
    values = [v for group in found.tensors.values() for v in group.values()]
    assert len(values) == 3
    assert all((value == found.step).all() for value in values)
    assert found.state == {"step": found.step}
    assert found.warnings == []
    return found.step


def main(folder, times, seed):
    delays, step = random.Random(seed), 0
    for _ in range(times):
        child = os.fork()
        if child == 0:
            save_forever(folder, step)
        wait(folder, step)
        time.sleep(delays.uniform(0.0, 0.08))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        left = {path.name for path in folder.glob(".*")}
        found = check(folder)
        assert found > step, (found, step)
        assert not list(folder.glob(".*"))
        step = found
        print(step, *sorted(left), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
