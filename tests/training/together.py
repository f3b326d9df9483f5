"""Two processes that train together, in all ways that must give what one gives.

    python -m tests.training.together FOLDER BERT

The processes are forked, so that all is imported once, with the variables that torchrun sets.
"""

import json
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import distributed, multiprocessing

# What accelerate imports late.
import softf1.models.bilstm
import softf1.tasks.tagging
from softf1.errors import InputError
from softf1.recipe import with_values
from softf1.training import trainer
from softf1.training.processes import own_rank
from softf1.training.run import train_run
from softf1.training.step import Stepper
from softf1.training.trainer import InterruptedRunError
from tests.training.toys import make_data, make_recipe

BATCH = {"name": "ce+dice", "dice": {"over": "batch"}, "schedule": "linear"}
SHORT = {"max_steps": 10, "batch_size": 7, "lr": 1e-3, "eps": 1e-6, "eval_every": 0.5}
ATTACKED = SHORT | {"adversarial": 0.5, "consistency": 1.0, "max_steps": 5}
NOISY = SHORT | {"adversarial": 0.5, "adversarial_direction": "random", "max_steps": 5}
CASES = {
    "rows": ({"name": "ce"}, SHORT, "ddp"),
    "batch": (BATCH, SHORT | {"accumulate": 2}, "ddp"),
    "sharded": (BATCH, SHORT | {"accumulate": 2}, "fsdp"),
    "attacked": (BATCH, ATTACKED | {"accumulate": 2}, "ddp"),
    "attacked-sharded": ({"name": "ce"}, ATTACKED, "fsdp"),
    "noise": ({"name": "ce"}, NOISY, "ddp"),
    "empty": (BATCH, SHORT | {"batch_size": 1, "max_steps": 4}, "ddp"),
    "sharded-rows": ({"name": "wce"}, SHORT | {"batch_size": 1, "max_steps": 4}, "fsdp"),
}
"""Loss, training, way."""
LORA = "attacked-lora"
if find_spec("peft"):  # word embeddings that do not train
    CASES[LORA] = ({"name": "ce"}, ATTACKED | {"accumulate": 2}, "ddp")
RESUMED = ("batch", "sharded")


class StoppedError(Exception):
    """Raised in the middle of a training."""


def recipe_of(case, bert):
    loss, train, _ = CASES[case]
    encoder = {"name": str(bert)} | ({"lora": {"rank": 2}} if case == LORA else {})
    recipe = make_recipe(encoder=encoder, loss=loss, train=train)
    return with_values(recipe, {"encoder.dropout": 0.0})


def run(case, bert, folder, **options):
    """Trains a case; every step is written down."""
    trainer.LEAST = 1
    way = CASES[case][2] if distributed.is_initialized() else "one"
    os.environ["ACCELERATE_USE_FSDP"] = str(way == "fsdp").lower()
    return train_run(recipe_of(case, bert), folder, data=make_data(), quiet=True, **options)


def stop_after(steps, act):
    """Something happens after so many steps."""
    taken = 0

    def step(self, batches):
        nonlocal taken
        plain(self, batches)
        taken += 1
        if taken == steps:
            act()

    Stepper.step = step


plain = Stepper.step


def fail():
    raise StoppedError


def begin(case, bert, folder, steps=6):
    """A training that stops on every rank, without a word, after it has saved some steps."""
    stop_after(steps, fail)
    trainer.ASK_EVERY = 2
    recipe = with_values(recipe_of(case, bert), {"train.checkpoint_seconds": 0.0})
    os.environ["ACCELERATE_USE_FSDP"] = str(CASES[case][2] == "fsdp").lower()
    try:
        train_run(recipe, folder, data=make_data(), quiet=True)
    except StoppedError:
        Stepper.step = plain
        return
    raise AssertionError("it went on")


def error_of(kind, work):
    try:
        work()
    except kind as error:
        return str(error)
    raise AssertionError("no error")


def interrupted(bert, folder):
    """One rank alone is asked to stop."""
    stop_after(3, lambda: own_rank() and os.kill(os.getpid(), signal.SIGTERM))
    trainer.ASK_EVERY = 5
    message = error_of(InterruptedRunError, lambda: run("rows", bert, folder))
    Stepper.step = plain
    return message


def another(bert, folder):
    """The folder of another recipe, which only rank 0 reads."""
    recipe = with_values(recipe_of("rows", bert), {"train.seed": 9})
    return error_of(InputError, lambda: train_run(recipe, folder, data=make_data(), quiet=True))


def work(rank, folder, bert):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    found = {case: run(case, bert, folder / case) for case in CASES}
    found["interrupted"] = interrupted(bert, folder / "interrupted")
    found["another"] = another(bert, folder / "rows")
    for case in RESUMED:
        begin(case, bert, folder / f"{case}-resumed")
        begin(case, bert, folder / f"{case}-alone")  # goes on with one process
        run(case, bert, folder / f"{case}-resumed", resume=True)
    (folder / f"found-{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


if __name__ == "__main__":
    assert softf1.models.bilstm
    assert softf1.tasks.tagging
    torch.set_num_threads(1)
    arguments = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    multiprocessing.start_processes(work, arguments, nprocs=2, start_method="fork")
