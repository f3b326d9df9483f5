"""The same attacks on softf1 and on transformers' Trainer, and what came of them.

    PYTHONPATH=src:. python benchmarks/trainer_attack.py [--stride 1] [--only WORDS] [--out FILE]
    python benchmarks/attack.py table         # into docs/reliability.md

Trains a tiny BERT with random weights on made-up sentences, on the CPU, twelve steps, a checkpoint
after each, the newest two kept. The Trainer is called as in the examples of transformers: it goes
on from `get_last_checkpoint`, and `save_model` writes the result. Each training is a process of its
own. An outcome is that of the same command given again after the attack; "same weights" are those
of a training that nobody disturbed, bit by bit.
"""

from __future__ import annotations

import argparse
import csv
import os
import pickle
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from tests.models.families import write_encoder
from tests.training.killer import die_before
from tests.training.toys import make_data, write_recipe
from torch.optim.optimizer import register_optimizer_step_post_hook
from transformers import (
    BertForTokenClassification,
    DataCollatorForTokenClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

import softf1
from softf1.cli.main import main as softf1_main
from softf1.losses import cross_entropy_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESULTS = Path(__file__).parent / "results" / "trainer-attack.csv"
COLUMNS = (
    "attack",
    "side",
    "outcome",
    "count",
    "example",
    "torch",
    "transformers",
    "softf1",
    "date",
)
STEPS, STOP = 12, 5
SAME, OTHER, LINE, TRACE = "same weights", "other weights, not a word", "one line", "traceback"
ERROR = re.compile(r"[\w.]*(Error|Exception)\b")
RAN, KEPT, LOST = "code was run", "files of others untouched", "files of others lost"


class TrainerSide:
    """transformers' Trainer with checkpoints at every step."""

    name = "Trainer"
    weights = "model.safetensors"
    files = ("model.safetensors", "optimizer.pt", "trainer_state.json")

    def __init__(self, folder: Path) -> None:
        self.encoder = folder / "encoder"
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(self.encoder)
        self.examples = [self._encode(example) for example in make_data()["train"]]

    def _encode(self, example: Any) -> dict[str, Any]:
        """A label for the first piece of each word, −100 for the others."""
        tags = ["O", "B-PER", "B-LOC"]
        row = self.tokenizer(list(example.words), is_split_into_words=True)
        words = row.word_ids()
        pairs = zip(words, [None, *words[:-1]], strict=True)
        first = [own is not None and own != before for own, before in pairs]
        labels = [
            tags.index(example.tags[word]) if starts else -100
            for word, starts in zip(words, first, strict=True)
        ]
        return dict(row) | {"labels": labels}

    def train(self, out: Path, *, resume: bool = True) -> int:
        """Trains, or goes on; returns the exit status."""
        set_seed(0)
        trainer = Trainer(
            BertForTokenClassification.from_pretrained(self.encoder, num_labels=3),
            TrainingArguments(
                str(out),
                max_steps=STEPS,
                per_device_train_batch_size=6,
                learning_rate=1e-3,
                save_strategy="steps",
                save_steps=1,
                save_total_limit=2,
                logging_steps=1,
                report_to=[],
                use_cpu=True,
            ),
            train_dataset=self.examples,
            data_collator=DataCollatorForTokenClassification(self.tokenizer),
            processing_class=self.tokenizer,
        )
        last = get_last_checkpoint(str(out)) if resume and out.is_dir() else None
        trainer.train(resume_from_checkpoint=last)
        trainer.save_model()
        return 0

    def newest(self, out: Path) -> Path:
        """The newest checkpoint."""
        return Path(get_last_checkpoint(str(out)))


class Softf1Side:
    """`softf1 train --resume` with checkpoints at every step."""

    name = "softf1"
    weights = "model/model.safetensors"
    files = ("model.safetensors", "optimizer.safetensors", "state.json")

    def __init__(self, folder: Path) -> None:
        self.encoder, self.recipe = folder / "encoder", write_recipe(folder)
        text = self.recipe.read_text("utf-8")
        first, last = text.index("[encoder]"), text.index("[loss]")
        text = f'{text[:first]}[encoder]\nname = "{self.encoder}"\n{text[last:]}'
        self.recipe.write_text(text.replace("lr = 0.01", "lr = 0.001"), "utf-8")

    def train(self, out: Path, *, resume: bool = True) -> int:
        """Trains, or goes on; returns the exit status."""
        words = ["train", str(self.recipe), f"train.max_steps={STEPS}", "--out", str(out)]
        return softf1_main([*words, *(["--resume"] if resume else [])])

    def newest(self, out: Path) -> Path:
        """The newest checkpoint."""
        return max((out / "checkpoints").glob("step-*"))


class Attacks:
    """What is done to one side, in a folder of its own."""

    def __init__(self, side: Any, folder: Path, stride: int) -> None:
        self.side, self.folder, self.stride = side, folder, stride
        self.log, self.out = folder / f"{side.name}.log", folder / side.name
        start = time.monotonic()
        if self.train(folder / f"{side.name}-whole"):
            raise SystemExit(self.log.read_text("utf-8"))
        self.seconds = time.monotonic() - start
        self.wanted = (folder / f"{side.name}-whole" / side.weights).read_bytes()
        self.stopped = folder / f"{side.name}-stopped"
        code = self.train(self.stopped, before=partial(at_step, STOP, die))
        if code != -signal.SIGKILL:
            raise SystemExit(f"{side.name} was to be killed, and ended with {code}")

    def start(self, out: Path, before: Callable[[], Any] | None = None, **options: Any) -> int:
        """Forks a training with its output in the log; returns the child's number."""
        child = os.fork()
        if child:
            return child
        number = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        reader, writer = options.pop("pipe", (None, number))
        for stream in (1, 2):
            os.dup2(writer, stream)
        if reader is not None:
            os.close(reader)  # or somebody would still read
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115 - of its own
        code = 1
        try:
            if before:
                before()
            code = self.side.train(out, **options)
            sys.stdout.flush()
        except BaseException:  # noqa: BLE001 - as the interpreter would
            os.write(number, traceback.format_exc().encode())
        finally:  # a child never leaves this function
            os._exit(code)

    def train(self, out: Path, **options: Any) -> int:
        """Trains in a process of its own; returns its exit status."""
        return end(self.start(out, **options))

    def again(self, out: Path) -> tuple[str, str]:
        """The same command once more: its outcome, and the last line where it failed."""
        return self.judge(out, self.train(out))

    def judge(self, out: Path, code: int) -> tuple[str, str]:
        """What came of a training that ended with this status, and its error."""
        text = self.log.read_text("utf-8", errors="replace").strip()
        if code:
            traced = "Traceback" in text
            named = [line for line in text.splitlines() if not traced or ERROR.match(line)]
            last = named[-1] if named else ""
            return (TRACE if traced else LINE), last.replace(str(self.folder), "…")
        path = out / self.side.weights
        if not path.exists():
            return "exit 0 and no model", ""
        return (SAME if path.read_bytes() == self.wanted else OTHER), ""

    def fresh(self, source: Path | None = None) -> Path:
        """The folder of the next trial: empty, or a copy."""
        shutil.rmtree(self.out, ignore_errors=True)
        if source:
            shutil.copytree(source, self.out)
        return self.out

    def kill_at_operations(self) -> Iterator[tuple[str, str]]:
        """A new training for each operation, killed before it."""
        for last in range(0, 100_000, self.stride):
            if not self.train(self.fresh(), before=partial(die_before, last)):
                return
            yield self.again(self.out)

    def kill_at_random(self) -> Iterator[tuple[str, str]]:
        """New trainings, killed within the time that a whole one takes."""
        draw = random.Random(0)
        for _ in range(10):
            child = self.start(self.fresh())
            time.sleep(draw.uniform(0, self.seconds))
            os.kill(child, signal.SIGKILL)
            end(child)
            yield self.again(self.out)

    def stop_between_checkpoints(self) -> Iterator[tuple[str, str]]:
        """Killed when a checkpoint is whole and the next not begun."""
        yield self.again(self.fresh(self.stopped))

    def damage(self) -> Iterator[tuple[str, str]]:
        """Weights, optimizer and state: cut, a bit flipped, gone."""
        for name in self.side.files:
            for way in (cut, flip, Path.unlink):
                way(self.side.newest(self.fresh(self.stopped)) / name)
                yield self.again(self.out)

    def fill_disk(self) -> Iterator[tuple[str, str]]:
        """How a training ends whose checkpoint has no room."""
        code = self.train(self.fresh(), before=partial(at_step, STOP, fill))
        yield self.judge(self.out, code)

    def fill_disk_and_resume(self) -> Iterator[tuple[str, str]]:
        """The same command when there is room again."""
        self.train(self.fresh(), before=partial(at_step, STOP, fill))
        yield self.again(self.out)

    def use_folder_of_others(self) -> Iterator[tuple[str, str]]:
        """A new training into a folder with one file in it."""
        names = ("config.json", "model.safetensors", "recipe.toml", "model/notes.txt")
        for name in (*names, "checkpoint-1/notes.txt", "checkpoints/notes.txt"):
            path = self.fresh() / name
            path.parent.mkdir(parents=True)
            path.write_text("mine", "utf-8")
            self.train(self.out, resume=False)
            kept = path.is_file() and path.read_text("utf-8", errors="replace") == "mine"
            yield (KEPT if kept else LOST), ("" if kept else name)

    def close_pipe(self) -> Iterator[tuple[str, str]]:
        """The output goes into a pipe that nobody reads after the first byte."""
        reader, writer = os.pipe()
        child = self.start(self.fresh(), pipe=(reader, writer))
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        yield self.judge(self.out, end(child))

    def plant_pickles(self) -> Iterator[tuple[str, str]]:
        """In the checkpoint, under every name that is there or that was once usual."""
        there = sorted(path.name for path in self.side.newest(self.stopped).iterdir())
        old = ("pytorch_model.bin", "optimizer.pt", "rng_state.pth", "training_args.bin")
        for name in dict.fromkeys((*there, *old)):
            path = self.side.newest(self.fresh(self.stopped)) / name
            mark = self.folder / "was-run"
            path.write_bytes(pickle.dumps(Hostile(mark)))
            outcome = self.again(self.out)
            yield (RAN, name) if mark.exists() else outcome
            mark.unlink(missing_ok=True)

    def plant_encoder(self) -> Iterator[tuple[str, str]]:
        """A pickle as the only weights of the encoder."""
        weights, mark = self.side.encoder / "model.safetensors", self.folder / "was-run"
        kept, planted = weights.read_bytes(), weights.with_name("pytorch_model.bin")
        weights.unlink()
        planted.write_bytes(pickle.dumps(Hostile(mark)))
        outcome = self.again(self.fresh())
        planted.unlink()
        weights.write_bytes(kept)
        yield (RAN, "") if mark.exists() else outcome

    def give_small_integers(self) -> Iterator[tuple[str, str]]:
        """Labels in every integer type of torch, the ignored one where the type has it."""
        torch.manual_seed(0)
        logits = torch.randn(4, 200)
        for kind in ("uint8", "int8", "int16", "uint16", "int32", "uint32", "uint64"):
            target = torch.tensor([3, 100 if kind == "int8" else 156, 7, 9])
            if not kind.startswith("u"):
                target[3] = -100
            wanted = torch.nn.functional.cross_entropy(logits, target)
            loss = cross_entropy_loss
            if self.side.name == "Trainer":
                loss = transformers.loss.loss_utils.fixed_cross_entropy
            try:
                found = loss(logits, target.to(getattr(torch, kind)))
            except Exception as error:  # noqa: BLE001 - it is the outcome
                yield "an error", f"{kind}: {str(error).splitlines()[0]}"
                continue
            same = torch.allclose(found, wanted)
            yield ("the value of int64" if same else "another value"), "" if same else kind


ATTACKS = {
    "SIGKILL before an operation that changes a file, then resume": Attacks.kill_at_operations,
    "SIGKILL at 10 random moments, then resume": Attacks.kill_at_random,
    "SIGKILL between two checkpoints, then resume": Attacks.stop_between_checkpoints,
    "newest checkpoint damaged, then resume": Attacks.damage,
    "disk full while a checkpoint is saved": Attacks.fill_disk,
    "disk full, then room again, then resume": Attacks.fill_disk_and_resume,
    "output folder with a file of somebody else": Attacks.use_folder_of_others,
    "the reader of the output goes away": Attacks.close_pipe,
    "a pickle that runs code, in the checkpoint, then resume": Attacks.plant_pickles,
    "a pickle that runs code, as the weights of the encoder": Attacks.plant_encoder,
    "labels in small integer types": Attacks.give_small_integers,
}


class Hostile:
    """Makes a file where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        """What unpickling calls."""
        return Path.touch, (self.mark,)


def end(child: int) -> int:
    """Waits; gives the exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_step(number: int, act: Callable[[], Any]) -> None:
    """Acts when any optimizer has taken so many steps."""
    left = number

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            act()

    register_optimizer_step_post_hook(count)


def die() -> None:
    """As `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


def fill() -> None:
    """As a full disk: no file may grow beyond 20 kB. The weights are larger, the log is not."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def cut(path: Path) -> None:
    """Leaves the first half."""
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    """Changes one bit."""
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    path.write_bytes(content)


def run(out: Path, stride: int, only: str) -> None:
    """Attacks both sides, and writes a line for each kind of outcome as an attack ends."""
    torch.set_num_threads(1)
    where = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "softf1": softf1.__version__,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    with tempfile.TemporaryDirectory() as made, out.open("w", newline="") as file:
        folder = Path(made)
        write_encoder("bert", folder / "encoder")
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        sides = [Attacks(kind(folder), folder, stride) for kind in (TrainerSide, Softf1Side)]
        for name, attack in ATTACKS.items():
            for side in sides if only in name else ():
                found = list(attack(side))
                examples = dict(reversed(found))
                for outcome, count in Counter(outcome for outcome, _ in found).most_common():
                    row = {"attack": name, "side": side.side.name, "outcome": outcome}
                    row |= {"count": count, "example": examples[outcome][:200]}
                    table.writerow(row | where)
                    print(*row.values(), sep=" | ", flush=True)
                file.flush()


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--stride", type=int, default=1, help="kill before each operation, or every n-th"
    )
    parser.add_argument("--only", default="", help="attacks whose name has this in it")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    run(options.out, options.stride, options.only)


if __name__ == "__main__":
    main()
