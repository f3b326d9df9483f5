"""Where the time of a training step goes: kernels, their times, and the share of the loss.

    python benchmarks/profile_step.py                        # 6 layers, 384 wide
    python benchmarks/profile_step.py --compile off --layers 12 --hidden 768 --loss dice
    python benchmarks/profile_step.py --unfused              # encoder layers of transformers
    python benchmarks/profile_step.py --deterministic        # as with train.deterministic
    python benchmarks/profile_step.py --long                 # texts of hundreds of tokens
    python benchmarks/profile_step.py --long --torch-attention   # with PyTorch's attention
    python benchmarks/profile_step.py --short --device cpu   # tiny, half a minute
    python benchmarks/profile_step.py --warm-up              # what comes before the steps run fast
    python benchmarks/profile_step.py --warm-up --one-by-one # kernels compiled when they are called

Made-up sentences as long as those of CoNLL-2003, 9 tags, the recipe of `training.py`, random
weights and as many embeddings as BERT's. Every batch runs three times before the profiler looks, so
that `--compile graphs` has captured its shape. On a GPU a kernel is what runs there, copies too; on
a CPU an operator, with the time that is its own. `step_ms` is by the clock, without the profiler.
The loss, forward and backward, is profiled on its own from the logits of the same batches: inside a
captured step no mark tells it from the rest. `--out` adds a line for each kernel that is shown.

`--warm-up` prints the seconds of everything before: imports, the start of CUDA, reading, the model,
finding the parts to fuse, finding the kernels they need, a loss while threads compile them, each
round through the batches beyond the time of a replayed one, and capturing, which is part of the
third. Triton starts with an empty cache, in a thread, while data are read. Then a line for each
kernel: its seconds and when they began; in threads they add up to more than the clock's. `--out`
adds the lines before those.
"""

from __future__ import annotations

import time

BEGAN = time.perf_counter()

# ruff: noqa: E402 - the clock runs while the others are imported
import argparse
import csv
import os
import tempfile
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import tokenizers
import torch
import transformers
from encoding import write_sentences
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from softf1.recipe import with_values
from softf1.training import graphs
from softf1.training.batching import collate_rows
from softf1.training.build import quiet_transformers
from softf1.training.datasets import load_datasets
from softf1.training.graphs import GraphStepper, wake_triton
from softf1.training.processes import Processes, deterministic
from softf1.training.trainer import Trainer
from training import describe_machine, make_recipe, random_base

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from softf1.tasks.base import Batch

    Kernels = tuple[Counter[str], Counter[str]]  # microseconds a step, times a step

SHOWN, EMBEDDINGS, WARM_UPS = 15, 30_522, 3
TYPES = ("PER", "ORG", "LOC", "MISC")
TAGS = np.array(["O"] * 40 + [f"{prefix}-{kind}" for kind in TYPES for prefix in "BI"])


def main() -> None:
    """Build, warm up, profile."""
    options = parse()
    graphs.FUSE = graphs.FUSE and not options.unfused
    if options.torch_attention and graphs.FUSE:
        from softf1.kernels import attention

        attention.LARGEST_HEAD = 0
    if options.warm_up:
        profile_warm_up(options, time.perf_counter() - BEGAN)
        return
    with deterministic(on=options.deterministic), tempfile.TemporaryDirectory() as folder:
        write_data(options, Path(folder))
        trainer = make_trainer(options, Path(folder))
        batches, device = make_batches(trainer, options.steps), trainer.processes.device

        def step() -> None:
            for batch in batches:
                trainer.stepper.step([batch])

        for _ in range(WARM_UPS):
            step()
        step_ms = 1000 * clock(step, device) / len(batches)
        found = record(step, device, steps=len(batches))
        loss = record(make_loss(trainer, batches), device, steps=len(batches))
    write(options, describe(found, loss, step_ms), device)


def write(options: argparse.Namespace, found: list[dict[str, Any]], device: torch.device) -> None:
    """Add lines to the file, if there is to be one: the case, what was found, and where."""
    if not options.out:
        return
    names = ("compile", "unfused", "deterministic", "long", "torch_attention")
    names += ("loss", "layers", "hidden")
    case = {name: getattr(options, name) for name in names}
    rows = [case | row | describe_machine(device) for row in found]
    new = not options.out.is_file()
    with options.out.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def profile_warm_up(options: argparse.Namespace, imports: float) -> None:
    """Print where the time goes before steps are replayed."""
    device, seconds = torch.device(options.device), {"imports": imports}
    graphs.AHEAD = not options.one_by_one
    compiled: list[tuple[float, float, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = str(Path(folder) / "kernels")
        write_data(options, Path(folder))
        seconds["start of the device"] = clock(lambda: torch.zeros(1, device=device), device)
        with watch_compiler(compiled), watch_fusing(seconds):
            start = time.perf_counter()
            trainer = make_trainer(options, Path(folder))
            built = time.perf_counter() - start - sum(seconds.get(name, 0.0) for name in FUSING)
            seconds = {**seconds, "reading, model, optimizer": built}
            batches = make_batches(trainer, options.steps)
            rounds = [
                clock(lambda: [trainer.stepper.step([one]) for one in batches], device)
                for _ in range(WARM_UPS + 1)
            ]
        for number, taken in enumerate(rounds[:-1], 1):
            seconds[f"round {number} of {len(batches)} steps"] = taken - rounds[-1]
    print(*(f"{taken:7.2f} s  {name}" for name, taken in seconds.items()), sep="\n")
    print(f"{(together := sum(seconds.values())):7.2f} s  together")
    print(f"{getattr(trainer.stepper, 'seconds', 0.0):7.2f} s  of them captured")
    print(f"{1000 * rounds[-1] / len(batches):7.2f} ms a step from then on")
    for began, taken, name in sorted(compiled):
        print(f"{taken:7.2f} s  from {began - BEGAN:6.2f} s  {name}")
    how = {"compiled": "one by one" if options.one_by_one else "in parallel"}
    parts = {**seconds, "together": together}
    rows = [how | {"part": part, "seconds": round(taken, 3)} for part, taken in parts.items()]
    write(options, rows, device)


FUSING = ("parts to fuse", "their kernels", "a loss, beside the compiler")


@contextmanager
def watch_fusing(seconds: dict[str, float]) -> Iterator[None]:
    """Notes the seconds of the methods that find what to fuse and to compile."""
    if not graphs.FUSE:
        yield
        return
    from softf1.training.fusing import FusedLayers

    def timed(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: object) -> Any:
            start = time.perf_counter()
            try:
                return own(*args)
            finally:
                seconds[name] = time.perf_counter() - start

        return call

    homes = (FusedLayers, "__init__"), (FusedLayers, "compile_ahead"), (GraphStepper, "rehearse")
    with ExitStack() as stack:
        for name, (home, method) in zip(FUSING, homes, strict=True):
            own = timed(name, getattr(home, method))
            stack.enter_context(mock.patch.object(home, method, own))
        yield


@contextmanager
def watch_compiler(compiled: list[tuple[float, float, str]]) -> Iterator[None]:
    """Notes when Triton began to compile a kernel, how long it took, and its name."""
    if not graphs.FUSE:
        yield
        return
    from triton import knobs
    from triton.backends.nvidia import driver

    def timed_build(*args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        made = build(*args, **options)
        compiled.append((start, time.perf_counter() - start, f"in C: {options['name']}"))
        return made

    def listen(*, src: Any, times: Any, cache_hit: bool, **_: Any) -> None:
        taken = times.total / 1e6
        name = f"{src.name}{' from the cache' if cache_hit else ''}"
        compiled.append((time.perf_counter() - taken, taken, name))

    # Triton 3.6 builds what starts a kernel with a C compiler; later versions do not.
    build = getattr(driver, "compile_module_from_src", None)
    before, knobs.compilation.listener = knobs.compilation.listener, listen
    if build is not None:
        driver.compile_module_from_src = timed_build
    try:
        yield
    finally:
        knobs.compilation.listener = before
        if build is not None:
            driver.compile_module_from_src = build


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    gpu = torch.cuda.is_available()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if gpu else "cpu")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=384, help="a multiple of 12, the heads")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--loss", default="ce")
    parser.add_argument("--compile", choices=("off", "graphs"), help="graphs on a GPU")
    parser.add_argument("--unfused", action="store_true", help="encoder layers of transformers")
    parser.add_argument("--deterministic", action="store_true", help="sums in a fixed order")
    parser.add_argument("--long", action="store_true", help="sentences of 120 to 200 words")
    parser.add_argument("--torch-attention", action="store_true", help="of long texts")
    parser.add_argument("--short", action="store_true", help="2 layers, 96 wide, 3 steps")
    parser.add_argument("--warm-up", action="store_true", help="what comes before")
    parser.add_argument("--one-by-one", action="store_true", help="compile no kernel ahead")
    parser.add_argument("--out", type=Path, metavar="CSV")
    options = parser.parse_args()
    options.compile = options.compile or ("graphs" if options.device == "cuda" else "off")
    if options.short:
        options.layers, options.hidden, options.steps = 2, 96, 3
    return options


def write_data(options: argparse.Namespace, folder: Path) -> None:
    """Made-up sentences to train and to score on."""
    for name, seed in (("eng.train", 0), ("eng.testa", 1)):
        words = (120, 200) if options.long else (5, 26)
        write_sentences(folder / name, 64 * options.steps, tags=TAGS, words=words, seed=seed)


def make_trainer(options: argparse.Namespace, folder: Path) -> Trainer:
    """The trainer of the recipe of `training.py` on made-up sentences."""
    sizes = {"hidden_size": options.hidden, "intermediate_size": 4 * options.hidden}
    sizes |= {"num_hidden_layers": options.layers, "num_attention_heads": 12}
    given = argparse.Namespace(data=folder, sentences=0, epochs=WARM_UPS)
    processes = Processes(folder=folder)
    processes.device = torch.device(options.device)
    if options.device == "cuda":
        wake_triton(processes.device)
    with quiet_transformers():
        encoder = random_base(folder, make_tokenizer(folder), vocab_size=EMBEDDINGS, **sizes)
        recipe = with_values(
            make_recipe(given, encoder, folder),
            {"loss.name": options.loss, "train.compile": options.compile},
        )
        datasets = load_datasets(recipe)
        return Trainer(recipe=recipe, folder=folder, datasets=datasets, processes=processes)


def make_tokenizer(folder: Path) -> str:
    """A tokenizer of the words of the training file."""
    lines = (folder / "eng.train").read_text("utf-8").splitlines()
    made = tokenizers.BertWordPieceTokenizer()
    words = (line.split()[0] for line in lines if line)
    made.train_from_iterator(words, vocab_size=EMBEDDINGS, show_progress=False)
    path = str(folder / "tokenizer")
    made.save(f"{path}.json")
    names = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("pad", "unk", "cls", "sep", "mask")}
    transformers.PreTrainedTokenizerFast(tokenizer_file=f"{path}.json", **names).save_pretrained(
        path
    )
    return path


def make_batches(trainer: Trainer, steps: int) -> list[Batch]:
    """The first batches of an epoch, as the loop hands them to a step."""
    datasets = trainer.datasets
    made = [
        collate_rows(datasets.task, datasets.features["train"], step[0], datasets.tokenizer)
        for step in trainer.batch_sampler.epoch(0)[:steps]
    ]
    return (
        [one.apply(torch.Tensor.pin_memory) for one in made]
        if trainer.processes.device.type == "cuda"
        else made
    )


def make_loss(trainer: Trainer, batches: list[Batch]) -> Callable[[], None]:
    """What takes value and gradient of the loss, for logits that are there already."""
    stepper, given = trainer.stepper, []
    for batch in batches:
        moved = batch.to(trainer.processes.device)
        with torch.no_grad():
            logits = stepper.forward(moved)
        given.append(({k: v.requires_grad_() for k, v in logits.items()}, moved.targets))

    def run() -> None:
        for logits, targets in given:
            values = tuple(logits.values())
            torch.autograd.grad(stepper.objective.whole(logits, targets)[0], values)

    run()
    return run


def clock(run: Callable[[], None], device: torch.device) -> float:
    """Seconds, from and to an idle device."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - start


def record(run: Callable[[], None], device: torch.device, *, steps: int) -> Kernels:
    """What the profiler saw on the device."""
    gpu, taken, times = device.type == "cuda", Counter[str](), Counter[str]()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with profile(activities=activities) as profiler:
        clock(run, device)
    for event in profiler.events():
        # A mark, such as the optimizer's own around its step, spans kernels and is none.
        if (event.device_type == DeviceType.CUDA) == gpu and not event.is_user_annotation:
            own = event.time_range.elapsed_us() if gpu else event.self_cpu_time_total
            taken[event.name] += own / steps
            times[event.name] += 1 / steps
    if not taken:
        raise SystemExit(f"wanted kernels on {device}, got none: may this user profile it?")
    return taken, times


def describe(found: Kernels, loss: Kernels, step_ms: float) -> list[dict[str, object]]:
    """Print the figures; a line for each of the kernels that take longest."""
    (taken, times), (of_loss, times_of_loss) = found, loss
    total = taken.total()
    step = {
        "step_ms": round(step_ms, 4),
        "kernel_ms": round(total / 1000, 4),
        "kernels": round(times.total()),
        "loss_ms": round(of_loss.total() / 1000, 4),
        "loss_kernels": round(times_of_loss.total()),
        "loss_share": round(of_loss.total() / total, 5),
    }
    print(*(f"{name} {value}" for name, value in step.items()), sep="\n")
    rows: list[dict[str, object]] = []
    for name, us in taken.most_common(SHOWN):
        print(f"{us:10.1f} us {us / total:6.1%} {times[name]:7.1f} times  {name[:100]}")
        own = {"us": round(us, 2), "share": round(us / total, 5), "times": round(times[name], 2)}
        rows.append({**step, "kernel": name, **own})
    return rows


if __name__ == "__main__":
    main()
