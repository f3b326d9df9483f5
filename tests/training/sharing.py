"""Two processes that load a checkpoint of one, each in its own way, and save it again.

python -m tests.training.sharing FOLDER
"""

import os
import resource
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed, multiprocessing, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from softf1.losses import WindowLoss, make_loss
from softf1.training.checkpoint import load_checkpoint, save_checkpoint
from softf1.training.processes import count_ranks, own_rank
from softf1.training.state_dict import (
    load_model_tensors,
    load_optimizer_tensors,
    model_tensors,
    optimizer_groups,
    optimizer_tensors,
    random_state,
    set_random_state,
)

WORDS, SIZE, CLASSES = 11, 6, 3  # 11 rows do not divide by two ranks
WAYS = ("ddp", "fsdp")


class Tagger(nn.Module):
    """Tied weights, a buffer, a bias that gets no gradient, dropout."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.words = nn.Embedding(WORDS, SIZE)
        self.body = nn.Sequential(nn.Linear(SIZE, SIZE), nn.Tanh(), nn.Dropout(0.2))
        self.guess = nn.Linear(SIZE, WORDS)
        self.guess.weight = self.words.weight
        self.head = nn.Linear(SIZE, CLASSES)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        hidden = self.body(self.words(x))
        self.seen += 1
        return self.head(hidden) + self.guess(hidden)[..., :CLASSES]


def make_optimizer(model):
    named = dict(model.named_parameters())
    head = [p for name, p in named.items() if "head" in name]
    rest = [p for name, p in named.items() if "head" not in name]
    groups = [{"params": rest, "lr": 0.01}, {"params": head, "lr": 0.1, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups)


def make_window():
    loss = make_loss("ce+dice", dice={"over": "batch"}, schedule="linear", schedule_steps=10)
    return WindowLoss(loss, statistics="running")


def step(model, optimizer, window, seed):
    """One step over 8 sentences, of which every rank has its share."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randint(WORDS, (8, 5), generator=random)
    y = torch.randint(CLASSES, (8, 5), generator=random)
    x, y = (rows[own_rank() :: count_ranks()] for rows in (x, y))
    optimizer.zero_grad()
    if window.needs_statistics:
        with window.micro_batch():
            window.collect(model(x), y)
        window.reduce()
    with window.micro_batch():
        window(model(x), y).backward()
    optimizer.step()
    window.loss.advance()
    return window.finish().item()


def save(folder, number, model, optimizer, window):
    tensors = {
        "optimizer": optimizer_tensors(model, optimizer),
        "model": model_tensors(model),
        "loss": model_tensors(window),
        "random": random_state(),
    }
    return save_checkpoint(folder, number, tensors, {"groups": optimizer_groups(model, optimizer)})


def load(folder, model, optimizer, window):
    found = load_checkpoint(folder)
    load_model_tensors(model, found.tensors["model"])
    load_optimizer_tensors(model, optimizer, found.tensors["optimizer"], found.state["groups"])
    load_model_tensors(window, found.tensors["loss"])
    set_random_state(found.tensors["random"])
    return found


def build(way, seed):
    """A model wrapped that way and its optimizer, neither as in the checkpoint."""
    model = Tagger(seed)
    if way == "ddp":
        model = DistributedDataParallel(model)
    elif way == "fsdp":
        for layer in (model.body, model):
            fully_shard(layer)
    return model, make_optimizer(model)


def work(rank, folder):
    # As torchrun does, for accelerate.
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    source = folder / "single"
    for way in WAYS:
        model, optimizer = build(way, seed=100 + rank)
        window = make_window()
        load(source, model, optimizer, window)
        with torch.no_grad():
            model(torch.zeros(1, 1, dtype=torch.int64))  # leaves sharded weights put together
            model.get_buffer(next(n for n, _ in model.named_buffers())).sub_(1)
        source = folder / way
        save(source, 1, model, optimizer, window)
        model.eval()  # what follows has no dropout
        step(model, optimizer, window, seed=50)
        after = model_tensors(model)
        if rank == 0:
            torch.save(after, folder / f"{way}.after")
    check_random(rank, folder)
    check_full_disk(folder)
    distributed.destroy_process_group()


def check_random(rank, folder):
    """Every rank goes on with its own numbers."""
    torch.manual_seed(rank)
    saved = random_state()
    assert (len(saved) == 6) == (rank == 0), saved.keys()  # three generators of two ranks
    first = torch.rand(3)
    set_random_state(saved)
    assert torch.equal(torch.rand(3), first)
    torch.save(first, folder / f"random-{rank}")


def check_full_disk(folder):
    """No rank waits for another that has failed."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    with pytest.raises(OSError, match="cannot save a checkpoint"):
        save_checkpoint(folder / "full", 1, {"model": {"a": torch.zeros(1000)}}, {})
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    multiprocessing.start_processes(work, (folder,), nprocs=2, start_method="fork")
