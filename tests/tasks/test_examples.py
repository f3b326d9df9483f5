"""The example trains: dev scores far above those of a model that has learned nothing."""

import importlib.util
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from softf1.data.examples import TextExample
from softf1.losses import make_loss
from softf1.tasks import make_task

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_tagger.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("train_tagger", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_sentences(path, count, seed):
    """A name stands after a title, a place after "in"; all else is O."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        name, place = (draw.choice(["ann", "bob", "kim", "lee", "rio"]) for _ in range(2))
        lines += ["dr O", f"{name} B-PER", "works O", "in O", f"{place} B-LOC", "now O", ""]
    path.write_text("\n".join(lines))
    return path


def test_it_runs_from_the_command_line(tmp_path):
    files = [write_sentences(tmp_path / f"{i}.txt", 40, i) for i in range(2)]
    command = [sys.executable, EXAMPLE, *files, "--loss", "ce+dice", "--lr", "0.02"]
    env = os.environ | {"PYTHONPATH": str(EXAMPLE.parents[1] / "src")}
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout
    assert out.splitlines()[-1] == "epoch 5: f1 1.0000"


LOSSES = {"ce": {}, "focal": {}, "dice": {}, "dsc": {"alpha": 0.01, "squared": True}, "ce+dice": {}}


@pytest.mark.parametrize("loss", LOSSES)
def test_taggers_learn(example, tmp_path, loss):
    task = make_task("tagging")
    data = [list(task.read(write_sentences(tmp_path / "x", 60, seed))) for seed in range(2)]
    criterion = make_loss(loss, **LOSSES[loss])
    torch.manual_seed(0)
    scores = [
        example.train(task, *data, encoder="bilstm", loss=criterion, lr=lr)[-1]["f1"]
        for lr in (0.0, 0.02)
    ]
    assert scores[0] < 0.2
    assert scores[1] > 0.9


def test_the_same_loop_trains_a_classifier(example):
    draw = random.Random(0)
    words = {"food": ["soup", "rice", "bread"], "sea": ["boat", "wave", "fish"], "sky": ["star"]}
    examples = [
        TextExample(f"the {draw.choice(words[label])} is here", (label,), line=i)
        for i, label in enumerate(list(words) * 40)
    ]
    torch.manual_seed(0)
    options = {"encoder": "textcnn", "loss": make_loss("ce"), "epochs": 3}
    _, _, _, scores = example.train(
        make_task("classification"), examples[:90], examples[90:], **options
    )
    assert scores["macro_f1"] > 0.9
