"""Fine-tuning a tagger: sentences a second of softf1 and of the transformers Trainer.

    python benchmarks/training.py                            # corpus and encoder of ../shared
    python benchmarks/training.py --encoder bert-base        # that size, random weights; or deberta
    python benchmarks/training.py --sentences 640 --cases softf1,trainer   # on a CPU

All train on the same sentences, epochs, batch size (32), precision (bf16 on a GPU), learning rate,
schedule and AdamW, with cross entropy. The first epoch is warm-up; `sentences_per_second` is the
median of `WINDOWS` equal windows of steps of the epochs after it. `warmup_seconds` is what the
first epoch took more than a later one, compiling and capturing; `break_even` is the number of
sentences after which that is earned back against the Trainer. `waiting` is the share of a step in
which the loop waits for the next batch. `softf1-unfused` is softf1 with the encoder layers of
transformers instead of fused ones, `softf1-any-order` softf1 with `train.deterministic = false`,
`softf1-deterministic` with true, `softf1-random` in batches of random rows, `softf1-padded` the
same without packing.
Then all predict the dev file and score it, the Trainer with seqeval if it is there. Without the
data folder it says so and ends.

Two cases run by torch.compile: `trainer-compiled` is the Trainer with `torch_compile=True`,
`compile-loop` a plain PyTorch loop. Every shape of a batch is compiled for itself, which is faster
than one program for all shapes. So that shapes are few, sentences are grouped by length and padded
to a multiple of `--pad`, and the last rows of an epoch, too few for a batch, are left out. All
batches of the loop are collated before the clock starts. `--compile-mode reduce-overhead` adds
CUDA graphs.
Writes benchmarks/results/training-DEVICE.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from softf1.recipe import build_recipe
from softf1.training import graphs
from softf1.training.batching import BatchSampler
from softf1.training.build import make_model, quiet_transformers
from softf1.training.datasets import load_datasets
from softf1.training.evaluation import evaluate
from softf1.training.processes import choose_precision, make_autocast
from softf1.training.run import train_run
from softf1.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

RESULTS = Path(__file__).parent / "results"
BATCH, RATE, DECAY, WINDOWS = 32, 1e-4, 0.01, 5
WAYS: dict[str, dict[str, Any]] = {
    "softf1": {},
    "softf1-unfused": {},
    "softf1-eager": {"train.compile": "off"},
    "softf1-inductor": {"train.compile": "inductor"},
    "softf1-any-order": {"train.deterministic": False},
    "softf1-deterministic": {"train.deterministic": True},
    "softf1-random": {"train.group_by_length": False},
    "softf1-padded": {"train.group_by_length": False},
    "softf1-adversarial": {"train.adversarial": 0.5},
    "softf1-consistency": {"train.consistency": 1.0},
    "softf1-both": {"train.adversarial": 0.5, "train.consistency": 1.0},
}
DEBERTA = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "intermediate_size": 1536,
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 256,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
}
RANDOM: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base": ("Bert", {}),
    "deberta": ("DebertaV2", DEBERTA),
}
COMPILED = ("trainer-compiled", "compile-loop")
CASES = (*WAYS, "trainer", "trainer-grouped", *COMPILED)
MOST_SHAPES = 64  # compiled for one model; PyTorch's own limit of 8 would leave others uncompiled


def main() -> None:
    """Run the cases that were asked for and write a line for each."""
    options = parse()
    if not options.data.is_dir():
        sys.exit(f"{options.data}: no such folder; nothing is measured without the corpus")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder = options.encoder
        if encoder in RANDOM:
            torch.manual_seed(options.seed)
            encoder = random_base(folder, options.tokenizer, encoder)
        recipe = make_recipe(options, encoder, folder)
        with quiet_transformers():
            datasets = load_datasets(recipe)
        rows: list[dict[str, Any]] = []
        for case in options.cases.split(","):
            measure = choose_measure(case, options)
            row = {
                "case": case,
                "seed": options.seed,
                "encoder": options.encoder_name or Path(str(options.encoder)).name,
            }
            row |= measure(case, recipe, datasets, folder / case, device)
            rows.append(row)
            print(json.dumps(row), flush=True)
    write(add_ratios(rows, device), options.output or RESULTS / f"training-{device.type}.csv")


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    shared = Path(__file__).parents[2] / "shared"
    parser.add_argument("--data", type=Path, default=shared / "data" / "conll2003_en")
    parser.add_argument("--encoder", default=str(shared / "encoders" / "en-minilm-l6"))
    parser.add_argument("--encoder-name", default="")
    parser.add_argument("--tokenizer", default=str(shared / "encoders" / "en-minilm-l6"))
    parser.add_argument("--sentences", type=int, default=0, help="of the training file; 0 is all")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", default="softf1,softf1-eager,trainer,trainer-grouped")
    parser.add_argument("--pad", type=int, default=64, help="multiple of ids, where compiled")
    parser.add_argument("--compile-mode", default="default", help="of torch.compile")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    for case in options.cases.split(","):
        if case not in CASES:
            parser.error(f"wanted cases among {', '.join(CASES)}, got {case!r}")
    if options.pad < 1:
        parser.error(f"wanted --pad of 1 or more, got {options.pad}")
    return options


def choose_measure(case: str, options: argparse.Namespace) -> Callable[..., dict[str, Any]]:
    """The function that measures a case."""
    if case.startswith("softf1"):
        return measure_softf1
    torch._dynamo.config.recompile_limit = MOST_SHAPES  # noqa: SLF001
    measure = measure_loop if case == "compile-loop" else measure_trainer
    return partial(measure, pad=options.pad, mode=options.compile_mode)


def random_base(folder: Path, tokenizer: str, kind: str = "bert-base", **sizes: int) -> str:
    """An encoder with random weights and the tokenizer of another."""
    path, (family, own) = folder / kind, RANDOM[kind]
    model = getattr(transformers, f"{family}Model")
    known = transformers.AutoTokenizer.from_pretrained(tokenizer)
    config = model.config_class(**({"vocab_size": len(known)} | own | sizes))
    model(config).save_pretrained(path)
    known.save_pretrained(path)
    return str(path)


def make_recipe(options: argparse.Namespace, encoder: str, folder: Path) -> Any:
    """The recipe of all cases; a part of the sentences goes into a file of its own."""
    train = cut(options.data / "eng.train", folder, options.sentences)
    dev = cut(options.data / "eng.testa", folder, options.sentences)
    return build_recipe(
        {
            "name": "training",
            "task": {
                "kind": "tagging",
                "train": str(train),
                "dev": str(dev),
            },
            "encoder": {"name": encoder},
            "loss": {"name": "ce"},
            "train": {
                "epochs": options.epochs,
                "batch_size": BATCH,
                "lr": RATE,
                "eval_every": float(options.epochs),
                "checkpoint_seconds": 1e9,
                "seed": getattr(options, "seed", 0),
            },
        }
    )


def cut(path: Path, folder: Path, sentences: int) -> Path:
    """The first sentences of a file, in a file of their own; 0 is all."""
    if not sentences:
        return path
    parts = path.read_text("utf-8").split("\n\n")[:sentences]
    (folder / path.name).write_text("\n\n".join(parts) + "\n", "utf-8")
    return folder / path.name


def measure_softf1(
    case: str, recipe: Any, datasets: Any, folder: Path, device: torch.device
) -> dict[str, Any]:
    """Train by the recipe; times come from a clock around every step."""
    from softf1.recipe import with_values

    recipe = with_values(recipe, WAYS[case])
    clock = Clock(device, per_epoch=-(-len(datasets.features["train"]) // BATCH))
    step, waits = Trainer.step, []

    def timed(self: Any, batches: Any) -> None:
        waits.append(time.perf_counter() - clock.last)
        step(self, batches)
        clock.tick()

    before = graphs.FUSE, graphs.WORTH
    graphs.FUSE = graphs.FUSE and case != "softf1-unfused"
    graphs.WORTH = 0.0 if case == "softf1-padded" else graphs.WORTH
    Trainer.step = timed  # type: ignore[method-assign]
    try:
        clock.start()
        result = train_run(recipe, folder, quiet=True)
    finally:
        Trainer.step = step  # type: ignore[method-assign]
        graphs.FUSE, graphs.WORTH = before
    later = waits[clock.per_epoch :]
    return {
        **clock.describe(),
        "waiting": sum(later) / clock.later_seconds,
        "dev_f1": result["scores"]["dev"]["f1"],
        "captured_seconds": result["seconds"]["warmup"],
        **time_evaluation(recipe, datasets, device),
    }


def time_evaluation(recipe: Any, datasets: Any, device: torch.device) -> dict[str, float]:
    """Predict and score the dev file, the second time."""
    with quiet_transformers():
        model = make_model(recipe, datasets).to(device)
    how = {"device": device, "autocast": make_autocast(choose_precision("auto", device), device)}
    for _ in range(2):
        start = time.perf_counter()
        evaluate(
            model,
            datasets.task,
            datasets.features["dev"],
            datasets.examples["dev"],
            datasets.tokenizer,
            **how,
        )
    return {"evaluate_seconds": time.perf_counter() - start}


def measure_trainer(
    case: str,
    recipe: Any,
    datasets: Any,
    folder: Path,
    device: torch.device,
    *,
    pad: int,
    mode: str,
) -> dict[str, Any]:
    """The transformers Trainer on the same encoded sentences."""
    task, tokenizer, compiled = datasets.task, datasets.tokenizer, case in COMPILED
    with quiet_transformers():
        model = make_model(recipe, datasets)
    full, rest = divmod(len(datasets.features["train"]), BATCH)
    clock = Clock(device, per_epoch=full if compiled else full + (rest > 0))
    grouped = compiled or case == "trainer-grouped"
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=128,
        num_train_epochs=recipe.train.epochs,
        learning_rate=RATE,
        weight_decay=DECAY,
        warmup_steps=0.1,
        bf16=device.type == "cuda",
        use_cpu=device.type == "cpu",
        torch_compile=compiled,
        torch_compile_mode=mode if compiled else None,
        dataloader_drop_last=compiled,
        train_sampling_strategy="group_by_length" if grouped else "random",
        save_strategy="no",
        report_to=[],
        seed=recipe.train.seed,
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=as_rows(task, datasets.features["train"], tokenizer),
        eval_dataset=(dev := as_rows(task, datasets.features["dev"], tokenizer)),
        data_collator=transformers.DataCollatorForTokenClassification(
            tokenizer.tokenizer, pad_to_multiple_of=pad if compiled else None
        ),
        callbacks=[clock.callback()],
    )
    clock.start()
    trainer.train()
    if compiled:  # its prediction would compile every shape once more
        return {**clock.describe(), "dev_f1": score_dev(model, datasets, device)}
    scored = predict_with_trainer(trainer, dev, task) or {
        "dev_f1": score_dev(model, datasets, device)
    }
    return {**clock.describe(), **scored}


def measure_loop(
    case: str,  # noqa: ARG001 - as the others
    recipe: Any,
    datasets: Any,
    folder: Path,  # noqa: ARG001
    device: torch.device,
    *,
    pad: int,
    mode: str,
) -> dict[str, Any]:
    """A plain PyTorch loop around a compiled model, on batches that are there before it starts."""
    with quiet_transformers():
        model = make_model(recipe, datasets).to(device).train()
    epochs = [
        collate_epoch(datasets, number, pad, device) for number in range(int(recipe.train.epochs))
    ]
    steps = sum(map(len, epochs))
    autocast = make_autocast(choose_precision("auto", device), device)
    clock = Clock(device, per_epoch=len(epochs[0]))
    clock.start()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, round(0.1 * steps), steps)
    compiled = torch.compile(model, dynamic=False, mode=None if mode == "default" else mode)
    for batch in chain.from_iterable(epochs):
        with autocast():
            loss = compiled(**{k: v.to(device, non_blocking=True) for k, v in batch.items()}).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        clock.tick()
    return {**clock.describe(), "dev_f1": score_dev(model, datasets, device)}


def collate_epoch(
    datasets: Any, number: int, pad: int, device: torch.device
) -> list[dict[str, Tensor]]:
    """The full batches of an epoch, as softf1 samples them, with widths that are multiples."""
    features = datasets.features["train"]
    batches = BatchSampler(features["length"], batch_size=BATCH, max_buckets=0)
    out = []
    for (micro,) in batches.epoch(number):
        if len(micro.items) == BATCH:
            width = -(-micro.width // pad) * pad
            batch = datasets.task.collate(
                features, micro.items.tolist(), datasets.tokenizer, width=width
            )
            tensors = {**batch.inputs, "labels": batch.targets["tags"]}
            gpu = device.type == "cuda"
            out.append({k: v.pin_memory() if gpu else v for k, v in tensors.items()})
    return out


def score_dev(model: torch.nn.Module, datasets: Any, device: torch.device) -> float:
    """F1 of the dev file, by softf1's own evaluation."""
    found = evaluate(
        model,
        datasets.task,
        datasets.features["dev"],
        datasets.examples["dev"],
        datasets.tokenizer,
        device=device,
        autocast=make_autocast(choose_precision("auto", device), device),
    )
    return float(found.scores["f1"])


def predict_with_trainer(trainer: Any, dev: Any, task: Any) -> dict[str, float]:
    """Predict and score the dev file, the second time; nothing without seqeval."""
    try:
        from seqeval.metrics import f1_score
    except ImportError:
        return {}
    for _ in range(2):
        start = time.perf_counter()
        found = trainer.predict(dev)
        best = found.predictions.argmax(-1)
        rows = list(zip(best.tolist(), found.label_ids.tolist(), strict=True))
        gold = [[task.labels[y] for y in ys if y >= 0] for _, ys in rows]
        said = [[task.labels[x] for x, y in zip(xs, ys, strict=True) if y >= 0] for xs, ys in rows]
        score = f1_score(gold, said)
    return {"evaluate_seconds": time.perf_counter() - start, "dev_f1": float(score)}


def as_rows(task: Any, features: Any, tokenizer: Any) -> list[dict[str, list[int]]]:
    """Sentences as the Trainer takes them: lists of ids."""
    out = []
    for item in range(len(features)):
        batch = task.collate(features, [item], tokenizer)
        inputs = {name: value[0].tolist() for name, value in batch.inputs.items()}
        out.append({**inputs, "labels": batch.targets["tags"][0].tolist()})
    return out


class Clock:
    """Notes the time after every step of all but the first epoch in windows."""

    def __init__(self, device: torch.device, *, per_epoch: int) -> None:
        self.device, self.per_epoch = device, per_epoch
        self.times: list[float] = []
        self.last = 0.0

    def start(self) -> None:
        """Begin."""
        self.began = self.last = time.perf_counter()

    def tick(self) -> None:
        """A step is done; the device is waited for at the edges of windows only."""
        done = len(self.times) + 1
        edge = done % max(1, self.per_epoch // WINDOWS) == 0 or done % self.per_epoch == 0
        if edge and self.device.type == "cuda":
            torch.cuda.synchronize()
        self.last = time.perf_counter()
        self.times.append(self.last)

    def callback(self) -> Any:
        """The clock as the Trainer takes it."""
        clock = self

        class Ticks(transformers.TrainerCallback):
            def on_train_begin(self, *_: Any, **__: Any) -> None:
                clock.start()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                clock.tick()

        return Ticks()

    @property
    def later_seconds(self) -> float:
        """Of all epochs but the first."""
        return self.times[-1] - self.times[self.per_epoch - 1]

    def describe(self) -> dict[str, float]:
        """The median speed and what warming up took."""
        size = max(1, self.per_epoch // WINDOWS)
        edges = range(self.per_epoch - 1, len(self.times), size)
        windows = [self.times[b] - self.times[a] for a, b in pairwise(edges)]
        if not windows:
            raise SystemExit(f"wanted more than {self.per_epoch} steps, got {len(self.times)}")
        step = statistics.median(windows) / size
        first = self.times[self.per_epoch - 1] - self.began
        return {
            "step_ms": 1000 * step,
            "sentences_per_second": BATCH / step,
            "warmup_seconds": max(0.0, first - self.per_epoch * step),
        }


def add_ratios(rows: list[dict[str, Any]], device: torch.device) -> list[dict[str, Any]]:
    """Speed against the Trainer, break-even, and the machine."""
    trainer = next((row for row in rows if row["case"] == "trainer"), None)
    for row in rows:
        if trainer is not None:
            row["times_trainer"] = row["sentences_per_second"] / trainer["sentences_per_second"]
            gain = trainer["step_ms"] - row["step_ms"]
            more = row["warmup_seconds"] - trainer["warmup_seconds"]
            row["break_even"] = max(0.0, more) * 1000 / gain * BATCH if gain > 0 else None
            if "evaluate_seconds" in row and "evaluate_seconds" in trainer:
                row["times_evaluate"] = trainer["evaluate_seconds"] / row["evaluate_seconds"]
        row.update(describe_machine(device))
    return rows


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Where, with what and when this was measured."""
    gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name() if gpu else platform.processor() or "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def write(rows: list[dict[str, Any]], path: Path) -> None:
    """A tidy file, and a table to read."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    new = not path.is_file()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        if new:
            writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(
            f"{row['encoder']:16} {row['case']:18} {row['sentences_per_second']:9.0f} sentences/s "
            f"{row['step_ms']:7.2f} ms  x{row.get('times_trainer', 0):.2f}  "
            f"warm-up {row['warmup_seconds']:.1f} s  "
            f"evaluate {row.get('evaluate_seconds', 0):.2f} s  F1 {row.get('dev_f1', 0):.4f}"
        )


if __name__ == "__main__":
    main()
