"""Made-up data of every task, small enough to train on in a test, and recipes for it."""

import json
import random
from pathlib import Path

from softf1.data.examples import (
    Answer,
    MrcExample,
    PairExample,
    QAExample,
    SpanSentence,
    TaggedSentence,
    TextExample,
)
from softf1.recipe import build_recipe

NAMES, PLACES = ("Ann", "Bob", "Cara", "Dov"), ("Paris", "Oslo")
FILL = ("the", "visits", "works", "in", "big", "and", "a", "with", "who", "sees")
SIZES = {"train": 60, "dev": 18, "test": 12}


def word(draw):
    """A name at 10%, a place at 8%."""
    roll = draw.random()
    if roll < 0.1:
        return draw.choice(NAMES), "B-PER"
    return (draw.choice(PLACES), "B-LOC") if roll < 0.18 else (draw.choice(FILL), "O")


def sentence(draw, line=0):
    words, tags = zip(*(word(draw) for _ in range(draw.randint(3, 14))), strict=True)
    return TaggedSentence(words, tags, line=line)


def spans_of(example, label):
    return tuple((i, i + 1) for i, tag in enumerate(example.tags) if tag == f"B-{label}")


def label_of(example):
    return ("person" if spans_of(example, "PER") else "none",)


def labels_of(example):
    known = {"person": "PER", "place": "LOC"}
    return tuple(name for name, tag in known.items() if spans_of(example, tag))


def question(draw, number):
    words = [*sentence(draw).words, draw.choice(PLACES), "now"]
    context, answer = " ".join(words), words[-2]
    at = context.rindex(answer)
    return QAExample(
        str(number), "where?", context, (Answer(((at, at + len(answer)),), (answer,)),)
    )


def queries(draw, number):
    own = sentence(draw)
    return [
        MrcExample(f"{number}.{i}", f"find {label}", label, own.words, spans_of(own, label))
        for i, label in enumerate(("PER", "LOC"))
    ]


def nested(draw):
    """Names and places, and each name with the word behind it."""
    own = sentence(draw)
    names, places = spans_of(own, "PER"), spans_of(own, "LOC")
    spans = [(*span, "PER") for span in names] + [(*span, "LOC") for span in places]
    spans += [(a, b + 1, "GROUP") for a, b in names if b < len(own.words)]
    return SpanSentence(own.words, (), 0, spans=tuple(spans))


def pair(draw):
    first, second = sentence(draw), sentence(draw)
    same = draw.random() < 0.4
    return PairExample(
        " ".join(first.words), " ".join((first if same else second).words), str(int(same)), line=0
    )


def make(kind, draw, number, *, several=False):
    """The examples of one number."""
    if kind == "tagging":
        return [sentence(draw)]
    if kind == "classification":
        own = sentence(draw)
        labels = labels_of(own) if several else label_of(own)
        return [TextExample(" ".join(own.words), labels, line=0)]
    if kind == "pairs":
        return [pair(draw)]
    if kind == "span_ner":
        return [nested(draw)]
    return [question(draw, number)] if kind == "qa" else queries(draw, number)


def make_data(kind="tagging", *, several=False, sizes=SIZES):
    """Examples of train, dev and test, the same each time."""
    draw, out = random.Random(7), {}
    for name, size in sizes.items():
        lists = (make(kind, draw, f"{name}{i}", several=several) for i in range(size))
        out[name] = [example for examples in lists for example in examples]
    return out


def make_recipe(task=None, *, encoder=None, loss=None, train=None, evaluate=None):
    """A short training; with nothing said, of a tagger with a small BiLSTM."""
    task = {"kind": "tagging", "train": "in memory"} | (task or {})
    tiny = {"name": "bilstm", "hidden_size": 16, "word_size": 8, "char_size": 4, "char_filters": 4}
    tiny["dropout"] = 0.2
    return build_recipe(
        {
            "name": "toy",
            "task": task,
            "encoder": tiny if encoder is None else encoder,
            "loss": {"name": "ce"} | (loss or {}),
            "train": {"lr": 1e-2, "batch_size": 16, "epochs": 2.0} | (train or {}),
            "eval": evaluate or {},
        }
    )


def write_files(folder, sizes=SIZES):
    """The tagging data as files; returns the words that tell a recipe of them."""
    words = []
    for name, examples in make_data(sizes=sizes).items():
        path = Path(folder) / f"{name}.txt"
        blocks = ("\n".join(map(" ".join, zip(e.words, e.tags, strict=True))) for e in examples)
        path.write_text("\n\n".join(blocks) + "\n", "utf-8")
        words.append(f"task.{name}={json.dumps(str(path))}")
    return words


TOML = """
[task]
kind = "tagging"
train = "train.txt"
[encoder]
name = "bilstm"
hidden_size = 16
word_size = 8
char_size = 4
char_filters = 4
dropout = 0.3
[loss]
name = "ce+dice"
schedule = "linear"
dice = {over = "batch"}
[train]
lr = 0.01
batch_size = 6
epochs = 4
checkpoint_seconds = 0
"""


def write_recipe(folder, sizes=SIZES):
    """A recipe with all that is hard to go on with, beside its files; returns the recipe's path."""
    files = [word.removeprefix("task.") for word in write_files(folder, sizes)]
    path = Path(folder) / "toy.toml"
    path.write_text(TOML.replace('train = "train.txt"', "\n".join(files)), "utf-8")
    return path


def read_lines(path, *, but=()):
    """The lines of a file of JSON, without some keys."""
    lines = Path(path).read_text("utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in but} for line in lines]


def read_metrics(folder):
    """`metrics.jsonl` without what differs from run to run."""
    return read_lines(Path(folder) / "metrics.jsonl", but=("seconds",))


def read_files(folder):
    """All that a run must give again, bit by bit: weights, predictions, metrics."""
    folder = Path(folder)
    names = ["model/model.safetensors", "predictions.dev.jsonl", "predictions.test.jsonl"]
    return {name: (folder / name).read_bytes() for name in names} | {
        "metrics": read_metrics(folder)
    }
