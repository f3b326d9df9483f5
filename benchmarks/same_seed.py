"""Whether a run with the same settings and seed comes out the same: two versions of one table.

    git show e09e73a:benchmarks/results/corpora.csv > old.csv
    python benchmarks/corpora_data.py ../shared work
    PYTHONPATH=src python benchmarks/same_seed.py old.csv work

For each grid of corpora.py: the whole runs that both tables have, how many of them have the same
score on test, by how many points the others differ, and the largest step: examples times the ids
of the longest row. Writes results/same-seed.csv.

    python benchmarks/same_seed.py --kernels [--device cuda] [--runs 10]

Finds the kernel that adds in another order every time: trains an encoder of MiniLM's shape for a
few steps again and again from the same seed, first as it is, then with one kernel replaced by a
form whose order is fixed: the backward of embeddings and the sums of biases by products of
matrices, attention by torch's plain form. Prints how many runs end with the same bits as the first.
The kernel whose replacement takes that to all runs is the guilty one; "all" says whether these are
enough.

    python benchmarks/same_seed.py --repeat work [--only GRID …] [--runs 3] [--steps 200]

Trains each grid of corpora.toml or leads.toml again and again from one seed with
`train.deterministic = true` and as often with false, and counts the runs whose saved model has the
bytes of the first. The first run with true has the GPU for itself, the others run side by side.
Prints the seconds of both, without the first run. Values may follow a grid's name, as in
`conll03-tagger:encoder.name=bilstm,train.lr=0.001`; `encoder.name=bert-base` and `=deberta` are
random weights, of BERT-base size and as DeBERTa-v2 of MiniLM's. Writes
results/same-seed-deterministic.csv.

    python benchmarks/same_seed.py --cost work --only GRID … [--runs 4] [--steps 0]

What `train.deterministic` costs: trains each grid by turns with true and false, in one process and
alone on the GPU, and prints the median seconds of both without those of the first turn. `--steps 0`
trains all epochs of the grid. Writes results/deterministic-cost.csv.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import tempfile
from collections import defaultdict
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from beyond import read_all, read_plan
from corpora import HERE, RUNS, is_there, make_recipe, read_csv, read_grids, write_csv
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import BertConfig, BertForTokenClassification

from softf1.experiments.grid import Job
from softf1.experiments.workers import Pool
from softf1.recipe import describe_recipe, with_values
from softf1.recipe.loading import parse_override
from softf1.training.datasets import load_datasets
from softf1.training.run import train_run
from training import RANDOM, random_base

if TYPE_CHECKING:
    from collections.abc import Callable

    from softf1.recipe import Recipe

RESULTS = Path(__file__).parent / "results" / "same-seed.csv"
COLUMNS = ("grid", "runs", "same", "mean_gap", "largest_gap", "batch_size", "longest_row", "ids")
REPEATED = RESULTS.with_name("same-seed-deterministic.csv")
REPEATED_COLUMNS = (
    "grid", "steps", "ids", "runs", "same", "same_without", "seconds", "seconds_without", "device",
    "torch", "date",
)  # fmt: skip
COST = RESULTS.with_name("deterministic-cost.csv")
COST_COLUMNS = ("grid", "steps", "runs", "seconds", "seconds_without", "device", "torch", "date")
EQUAL = 1e-5
"""The older table has five digits."""


def main() -> None:
    """Compare, count and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, nargs="?")
    parser.add_argument("work", type=Path, nargs="?", help="the folder of corpora_data.py")
    parser.add_argument("--kernels", action="store_true", help="look for the kernel instead")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--repeat", type=Path, help="the folder of corpora_data.py")
    parser.add_argument("--cost", type=Path, help="the same folder")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.cost:
        measure_cost(options)
        return
    if options.repeat:
        repeat(options)
        return
    if options.kernels:
        for name in REPLACED:
            same = count_same(name, runs=options.runs, device=options.device)
            print(f"{name:20} {same} of {options.runs} runs end with the bits of the first")
        return
    if options.work is None:
        parser.error("wanted OLD and WORK, or --kernels")
    lines: list[dict[str, Any]] = []
    grids = {name: grid for name, grid in read_grids().items() if grid.get("kind") != "sweep"}
    for name, gaps in list_gaps(read_scores(options.old), read_scores(RUNS)).items():
        if "recipe" not in grids.get(name, {}):  # not run again, or data of several recipes
            continue
        line = {"grid": name, "runs": len(gaps), "same": sum(gap <= EQUAL for gap in gaps)}
        line |= {"mean_gap": f"{100 * fmean(gaps):.2f}", "largest_gap": f"{100 * max(gaps):.2f}"}
        lines.append(line | measure_step(make_recipe(grids[name], options.work)))
        print(*lines[-1].values(), sep="\t", flush=True)
    write_csv(RESULTS, COLUMNS, lines)


def repeat(options: argparse.Namespace) -> None:
    """Train grids again and again, with and without fixed order, and compare the saved models."""
    grids = read_all(read_plan(HERE / "leads.toml"))
    names = [
        name
        for name in options.only or grids
        if "recipe" in (grid := grids[split(name)[0]]) and is_there(grid, options.repeat)
    ]
    jobs: dict[str, tuple[str, bool]] = {}
    wanted: list[Job] = []
    ids: dict[str, int] = {}
    prints, seconds = defaultdict(list), defaultdict(list)
    versions: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            grid, values = split(name)
            recipe = make_recipe(grids[grid], options.repeat)
            if values.get("encoder.name") in RANDOM:
                which = recipe.encoder.name, values["encoder.name"]
                values["encoder.name"] = random_base(Path(folder), *which)
            ids[name] = measure_step(with_values(recipe, values))["ids"]
            for number in range(2 * options.runs):
                fixed = number % 2 == 0
                own = {"train.deterministic": fixed, "train.max_steps": options.steps}
                key = f"{names.index(name)}.{number}"
                jobs[key] = (name, fixed)
                described = describe_recipe(with_values(recipe, values | own))
                wanted.append(Job(id=key, recipe=described, folder=f"{folder}/{key}"))
        first = wanted[:: 2 * options.runs]
        rest = [job for job in wanted if job not in first]
        for some, workers in ((first, 1), (rest, min(15, len(rest)))):
            with closing(Pool(workers, logs=Path(folder) / "logs")) as pool:
                for done in pool(some):
                    if done.result is None:
                        print(f"{jobs[done.id]}: {done.error}", flush=True)
                        continue
                    prints[jobs[done.id]].append(fingerprint(Path(folder) / done.id))
                    if some is rest:
                        seconds[jobs[done.id]].append(done.result["seconds"]["train"])
                    versions = {"device": done.result["device"], "torch": torch.__version__}
                    versions["date"] = f"{datetime.now(UTC):%Y-%m-%d}"
                    shutil.rmtree(Path(folder) / done.id)
    lines = []
    for name in names:
        own, usual = prints[name, True], prints[name, False]
        line = {"grid": name, "steps": options.steps, "ids": ids[name], "runs": len(own)}
        line |= {"same": own.count(own[0]), "same_without": usual.count(usual[0])}
        line |= {"seconds": median(seconds[name, True])}
        line |= {"seconds_without": median(seconds[name, False])}
        lines.append(line | versions)
        print(lines[-1], flush=True)
    write_csv(options.output or REPEATED, REPEATED_COLUMNS, lines)


def measure_cost(options: argparse.Namespace) -> None:
    """Train grids by turns with fixed order and without, and compare the seconds."""
    grids, lines = read_all(read_plan(HERE / "leads.toml")), []
    for name in options.only:
        grid, values = split(name)
        recipe = with_values(make_recipe(grids[grid], options.cost), values)
        seconds = defaultdict(list)
        with tempfile.TemporaryDirectory() as folder:
            for number, fixed in product(range(options.runs), (True, False)):
                own = {"train.deterministic": fixed, "train.max_steps": options.steps}
                run = f"{folder}/{number}-{fixed}"
                result = train_run(with_values(recipe, own), run, quiet=True)
                if number:  # the first turn compiles and captures
                    seconds[fixed].append(result["seconds"]["train"])
        line = {"grid": name, "steps": result["steps"], "runs": options.runs - 1}
        line |= {"seconds": median(seconds[True]), "seconds_without": median(seconds[False])}
        line |= {"device": result["device"], "torch": torch.__version__}
        lines.append(line | {"date": f"{datetime.now(UTC):%Y-%m-%d}"})
        print(lines[-1], flush=True)
    write_csv(options.output or COST, COST_COLUMNS, lines)


def split(name: str) -> tuple[str, dict[str, Any]]:
    """The name of a grid, and the values behind it."""
    grid, _, rest = name.partition(":")
    return grid, dict(map(parse_override, rest.split(","))) if rest else {}


def fingerprint(folder: Path) -> str:
    """A hash over the weights that a run saved."""
    paths = sorted(folder.rglob("*.safetensors"))
    if not paths:
        raise SystemExit(f"{folder}: no saved model")
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def read_scores(path: Path) -> dict[tuple[str, ...], float]:
    """The test score of each whole run by grid, row, seed and settings."""
    rows = (row for row in read_csv(path) if row["kind"] == "run" and row["hash"][-1] != "+")
    return {
        (row["grid"], row["loss"], row["seed"], row["values"]): float(row["test"]) for row in rows
    }


def list_gaps(
    old: dict[tuple[str, ...], float], new: dict[tuple[str, ...], float]
) -> dict[str, list[float]]:
    """The differences by grid, of the runs that both have."""
    found = defaultdict(list)
    for key, score in new.items():
        if key in old:
            found[key[0]].append(abs(score - old[key]))
    return found


def measure_step(recipe: Recipe) -> dict[str, int]:
    """The padded ids of the largest step of a recipe."""
    longest = int(load_datasets(recipe).features["train"]["length"].max())
    size = recipe.train.batch_size
    return {"batch_size": size, "longest_row": longest, "ids": size * longest}


class _Embed(torch.autograd.Function):
    """Embeddings whose backward is a product with the one-hot ids, which has a fixed order."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.rows = len(weight)
        return weight[ids]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        (ids,) = ctx.saved_tensors
        one_hot = functional.one_hot(ids.flatten(), ctx.rows).to(gradient.dtype)
        return None, one_hot.T @ gradient.flatten(0, -2)


class _AddBias(torch.autograd.Function):
    """A bias whose backward is a product with ones in place of a sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        ctx.dtype = bias.dtype
        return x + bias.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        rows = gradient.flatten(0, -2)
        return gradient, (rows.new_ones(1, len(rows)) @ rows).squeeze(0).to(ctx.dtype)


def replace_embedding() -> AbstractContextManager[Any]:
    """The backward of embeddings as a product of matrices inside."""

    def embed(ids: Tensor, weight: Tensor, padding_idx: int | None = None, *_: Any) -> Tensor:
        found = _Embed.apply(ids, weight)
        if padding_idx is None:
            return found
        return torch.where((ids == padding_idx).unsqueeze(-1), found.detach(), found)

    return mock.patch.object(functional, "embedding", embed)


def replace_biases() -> AbstractContextManager[Any]:
    """The sums of biases' gradients as products of matrices inside."""
    plain = functional.linear

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        product = plain(x, weight)
        return product if bias is None else _AddBias.apply(product, bias)

    return mock.patch.object(functional, "linear", linear)


def replace_attention() -> AbstractContextManager[Any]:
    """Attention written out inside, as torch does it without a fused kernel."""
    return sdpa_kernel(SDPBackend.MATH)


REPLACED: dict[str, tuple[Callable[[], AbstractContextManager[Any]], ...]] = {
    "nothing": (),
    "embedding backward": (replace_embedding,),
    "attention": (replace_attention,),
    "bias sums": (replace_biases,),
    "all": (replace_embedding, replace_attention, replace_biases),
}
"""What stands in for torch's own kernels, by name."""

SHAPE = {"vocab_size": 30_522, "hidden_size": 384, "num_hidden_layers": 6}
SHAPE |= {"num_attention_heads": 12, "intermediate_size": 1536}
IDS = (64, 64)
"""Rows and ids in a row: 4,096, above the 3,072 from which runs did not repeat."""


def count_same(
    name: str,
    *,
    runs: int,
    device: str,
    shape: dict[str, int] = SHAPE,
    ids: tuple[int, int] = IDS,
) -> int:
    """How many of the runs end with the same weights, to the bit, as the first; itself included."""
    ends = [train_once(name, device=device, shape=shape, ids=ids) for _ in range(runs)]
    return sum(torch.equal(ends[0], end) for end in ends)


def train_once(
    name: str, *, device: str, shape: dict[str, int], ids: tuple[int, int], steps: int = 5
) -> Tensor:
    """All weights after a few steps in bfloat16 on a GPU, as one vector on the host."""
    torch.manual_seed(0)
    config = BertConfig(**shape, num_labels=9, attn_implementation="sdpa")
    model = BertForTokenClassification(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    random = torch.Generator().manual_seed(1)
    low = torch.autocast("cuda", torch.bfloat16) if device == "cuda" else nullcontext()
    with ExitStack() as stack:
        for replacement in REPLACED[name]:
            stack.enter_context(replacement())
        for _ in range(steps):
            inputs = torch.randint(0, shape["vocab_size"], ids, generator=random)
            labels = torch.randint(0, 9, ids, generator=random)
            mask = torch.ones_like(inputs)
            mask[:, ids[1] // 2 :] = torch.rand(ids[0], 1, generator=random) < 0.5
            given = {"input_ids": inputs, "attention_mask": mask, "labels": labels}
            with low:
                loss = model(**{key: value.to(device) for key, value in given.items()}).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return torch.cat([value.detach().flatten().cpu() for value in model.parameters()])


if __name__ == "__main__":
    main()
