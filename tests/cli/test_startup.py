"""What a short run may not import: each of these takes longer than its training."""

import json
import subprocess
import sys

import pytest

from softf1.models.encoders import ENCODERS, find_scratch

HEAVY = (
    "accelerate",
    "huggingface_hub",
    "pandas",
    "scipy",
    "sklearn",
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.tensor",
    "transformers",
)
DATA = {
    "tokens": ("tagging", "conll", "Ann B-PER\nworks O\n\nParis B-LOC\nworks O\n\n"),
    "text": (
        "classification",
        "jsonl",
        '{"text": "good", "label": "yes"}\n{"text": "bad", "label": "no"}\n',
    ),
}
# The list is taken at the first step: what is imported later no longer delays it.
PROGRAM = """
import json, sys
from softf1.training.step import Stepper

step = Stepper.step

def note(self, batches):
    step(self, batches)
    if not open(sys.argv[1], "a").tell():
        with open(sys.argv[1], "w") as file:
            json.dump(sorted(sys.modules), file)

Stepper.step = note
from softf1.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("encoder", list(ENCODERS))
def test_an_encoder_from_scratch_takes_its_first_step_without_transformers(encoder, tmp_path):
    kind, form, text = DATA[find_scratch(encoder).head]
    for name in ("train", "dev"):
        (tmp_path / f"{name}.txt").write_text(text * 4, "utf-8")
    (tmp_path / "recipe.toml").write_text(
        f'[task]\nkind = "{kind}"\nformat = "{form}"\ntrain = "train.txt"\ndev = "dev.txt"\n'
        f'[encoder]\nname = "{encoder}"\n[loss]\nname = "ce"\n[train]\nepochs = 1\n',
        "utf-8",
    )
    command = [sys.executable, "-c", PROGRAM, "modules.json", "train", "recipe.toml"]
    done = subprocess.run(
        [*command, "--out", "run", "--quiet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads((tmp_path / "modules.json").read_text("utf-8")))
    assert loaded.isdisjoint(HEAVY), loaded & set(HEAVY)
    assert {"torch", "numpy", "softf1.training.step"} <= loaded


@pytest.mark.parametrize(
    ("given", "kept"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")],
)
def test_threads_wait_in_a_short_loop_unless_the_user_says_otherwise(given, kept, monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    program = """
import os, sys
from softf1.cli.main import main

main(["list", "formats"])
print(os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == [kept, "False"]  # in time: torch reads it when imported
