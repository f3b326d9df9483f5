"""Two processes that train with the Trainer; rank 0 writes down the weights.

    python -m tests.integrations.transformers.ranks FOLDER

One start serves all cases.
"""

import gc
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed, multiprocessing

from tests.integrations.transformers import cases

LAYOUTS = [
    {"size": 2, "accumulate": 2, "average": True},
    {"size": 2, "accumulate": 2, "average": False},
]
ONE_EACH = [
    {"size": 4, "accumulate": 1, "average": True},
    {"size": 4, "accumulate": 1, "average": False},
]


ATTACKED = [
    cases.Case("tags", "ce", exact=True),
    cases.Case("tags", "dice", cases.BATCH, exact=True),
]
"""With an adversarial step."""
ATTACK = {"adversarial": 0.5}


def every_run():
    for case in cases.FUNCTION + cases.MIXIN:
        yield from ((case, layout) for layout in LAYOUTS)
    for case in cases.ONE_EACH:
        yield from ((case, layout) for layout in ONE_EACH)


def work(rank, folder):
    torch.set_num_threads(1)
    gc.freeze()  # the Trainer collects garbage at every start
    # As torchrun does.
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
    os.environ |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),  # ranks that wait for each other end by themselves
    )
    weights = {}
    for number, (case, layout) in enumerate(every_run()):
        weights[number] = cases.train(case, folder, **layout)
    for case in ATTACKED:
        weights[case.id] = cases.train(case, folder, **LAYOUTS[0], given=ATTACK)
    if rank == 0:
        torch.save(weights, Path(folder, "weights.pt"))
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    # Forked: torch and transformers are imported once.
    multiprocessing.start_processes(work, (sys.argv[1],), nprocs=2, start_method="fork")
