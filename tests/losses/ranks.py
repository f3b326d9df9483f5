"""Four processes that train together; rank 0 writes down what came out.

    python -m tests.losses.ranks FOLDER

One start serves all cases: worlds of 2 are the first two of the four ranks.
"""

import itertools
import os
import sys
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import distributed, multiprocessing, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from softf1.losses import WindowLoss, backward_exact, make_loss

ROWS, FEATURES, CLASSES = 48, 5, 4
WEIGHT = [0.5, 2.0, 1.0, 1.5]
LOSSES = {
    "ce": {},
    "wce": {"weight": WEIGHT},
    "tversky": {"alpha": 0.3, "beta": 0.7},
    "dice": {"over": "batch"},
    "dsc": {"over": "batch", "average": "micro", "exclude": (0,), "weight": WEIGHT},
    "smooth_ap": {},
    "ce+pauc": {"pauc": {"max_fpr": 0.4}},
    "wce+dsc": {"weight": WEIGHT, "dsc": {"over": "batch", "alpha": 0.5, "decay": "paper"}},
}
LINKS = ("softmax", "sigmoid")
# Row numbers of each micro-batch of each rank, by the number of ranks.
CUTS = {
    "even": {
        1: [[6] * 8],
        2: [[3] * 8] * 2,
        4: [[2, 1, 2, 1, 2, 1, 2, 1]] * 4,
    },
    "uneven": {
        1: [[1, 9, 2, 12, 3, 14, 6, 1]],
        2: [[1, 9, 2, 12, 3, 1, 1, 1], [11, 7]],
        4: [[1, 2, 1, 6, 1, 1, 1, 1], [11], [8, 2, 1], [1, 11]],
    },
}
# What the rows of the last rank are like; on one rank, the last micro-batch.
SCENARIOS = ("ordinary", "no positives", "nothing kept")
STEPS = 12
CURVE = ("dice", "softmax", "ordinary", "uneven", 2, torch.float64)


class Tagger(nn.Module):
    """A small model with a buffer, which DDP sends around before a forward pass."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))
        self.register_buffer("scale", torch.ones(1))
        self.to(dtype)

    def forward(self, x):
        return self.scale * self.body(x)


def make_rows(case, seed=0):
    """Returns (features, target, mask) of the whole batch; the last rank has the scenario."""
    _, link, scenario, cut, world, dtype = case
    last = slice(-sum(CUTS[cut][world][-1]) if world > 1 else -1, None)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, FEATURES, generator=generator, dtype=torch.float64).to(dtype)
    y = torch.randint(-3, CLASSES, (ROWS,), generator=generator).clamp_min(0)  # mostly class 0
    if scenario == "no positives":
        y[last] = 0
    if link == "sigmoid":
        y = nn.functional.one_hot(y, CLASSES) * torch.tensor([0, 1, 1, 1])
    mask = torch.rand(ROWS, generator=generator) < 0.8
    mask[last] &= scenario != "nothing kept"
    return x, y, mask


def cut_rows(rows, sizes, rank):
    """Returns the micro-batches of one rank: consecutive rows, rank after rank."""
    first = sum(sum(own) for own in sizes[:rank])
    pieces = []
    for size in sizes[rank]:
        pieces.append(tuple(tensor[first : first + size] for tensor in rows))
        first += size
    return pieces


def gradients(model):
    return torch.cat([full(p.grad).flatten() for p in model.parameters()])


def full(gradient):
    """Returns a gradient that FSDP keeps in pieces as one."""
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


@contextmanager
def keep_pieces(model):
    model.set_requires_gradient_sync(False)
    yield
    model.set_requires_gradient_sync(True)


def run_forward(model, piece):
    x, y, mask = piece
    return model(x), y, mask


def wrap(model, kind, group):
    """Returns the model for many ranks, and the options of `backward_exact` that go with it."""
    if kind == "ddp":
        model = DistributedDataParallel(model, process_group=group)
        return model, {"no_sync": model.no_sync}
    if kind == "fsdp":
        return model, {"no_sync": partial(keep_pieces, fully_shard(model))}
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == distributed.get_world_size()
    model = accelerator.prepare(model)
    no_sync = partial(accelerator.no_sync, model)
    return model, {"backward": accelerator.backward, "no_sync": no_sync}


def run_exact(case, rank, group=None, kind="ddp"):
    """Returns the loss and the gradient of one step over the ranks of `group`."""
    name, _, _, cut, world, dtype = case
    model, options = Tagger(dtype), {}
    if world > 1:
        model, options = wrap(model, kind, group)
    pieces = cut_rows(make_rows(case), CUTS[cut][world], rank)
    window = WindowLoss(make_loss(name, **LOSSES[name]), group=group)
    value = backward_exact(window, partial(run_forward, model), pieces, **options)
    return value, gradients(model)


def run_naive(case, rank, group):
    """The mean over micro-batches and ranks, which most loops take."""
    name, _, _, cut, world, dtype = case
    model = DistributedDataParallel(Tagger(dtype), process_group=group)
    loss = make_loss(name, **LOSSES[name])
    pieces = cut_rows(make_rows(case), CUTS[cut][world], rank)
    with model.no_sync():
        for x, y, mask in pieces[:-1]:
            (loss(model(x), y, mask) / len(pieces)).backward()
    x, y, mask = pieces[-1]
    (loss(model(x), y, mask) / len(pieces)).backward()
    return gradients(model)


def train(step, model):
    """Returns the losses that `step(rows)` gives over several optimizer steps, and the weights."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    values = []
    for number in range(STEPS):
        optimizer.zero_grad()
        values.append(step(make_rows(CURVE, seed=number)))
        optimizer.step()
    return torch.stack(values), torch.cat([p.detach().flatten() for p in model.parameters()])


def train_on_two(rank, group, statistics):
    model = DistributedDataParallel(Tagger(), process_group=group)
    loss = make_loss("dice", over="batch", exclude=(0,))
    window = WindowLoss(loss, statistics=statistics, group=group)

    def step(rows):
        pieces = cut_rows(rows, CUTS["uneven"][2], rank)
        return backward_exact(window, partial(run_forward, model), pieces, no_sync=model.no_sync)

    return train(step, model)


def every_case(world):
    for name, link in itertools.product(LOSSES, LINKS):
        yield name, link, "ordinary", "even", world, torch.float64
        yield name, link, "ordinary", "uneven", world, torch.float32
        for scenario in SCENARIOS:
            yield name, link, scenario, "uneven", world, torch.float64


def work(rank, folder):
    torch.set_num_threads(1)
    # As torchrun does, for accelerate.
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
    os.environ |= {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "localhost"}
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=4,
        timeout=timedelta(seconds=60),  # ranks that wait for each other end by themselves
    )
    pair = distributed.new_group([0, 1])
    results = {}
    for case in every_case(4):
        results["exact", case] = run_exact(case, rank)
    if rank < 2:
        for case in every_case(2):
            results["exact", case] = run_exact(case, rank, pair)
        for name in LOSSES:
            case = name, "softmax", "ordinary", "uneven", 2, torch.float64
            results["naive", case] = run_naive(case, rank, pair)
        for statistics in ("exact", "running"):
            results["curve", statistics] = train_on_two(rank, pair, statistics)
    case = "wce+dsc", "softmax", "nothing kept", "even", 4, torch.float64
    for kind in ("fsdp", "accelerate"):
        results[kind, case] = run_exact(case, rank, kind=kind)
    if rank == 0:
        torch.save(results, Path(folder, "results.pt"))
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    # Forked: torch is imported once.
    multiprocessing.start_processes(work, (sys.argv[1],), nprocs=4, start_method="fork")
