"""A stand-in for training that takes no time: predictions are drawn from what the recipe says.

The quality of a model follows its loss, learning rate and seed; every file of a run is written as
training writes it. `[encoder]` takes `refuse`, `fail`, `crash`, `untuned` (each: a loss), `pause`
(seconds), `calls` (a file that gets a line for every run that was begun) and `patient` (what twice
the epochs give).
"""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from softf1.errors import InputError
from softf1.experiments.workers import run_job
from softf1.files import hash_file
from softf1.recipe import build_recipe, describe_recipe, hash_recipe
from softf1.tasks import make_task

LABELS = ("no", "yes")
QUALITY = {"ce": 1.0, "dice": 1.5, "dsc": 0.2}
TASK = make_task("classification", labels=LABELS)


def run_inline(run, jobs):
    """Runs one job after another in this process, as a pool does in others."""
    for job in jobs:
        yield run_job(job, run)


def make_recipe(name="fake", **encoder):
    return build_recipe(
        {
            "name": name,
            "task": {"kind": "classification", "train": "train.tsv", "test": "test.tsv"},
            "encoder": {"name": "textcnn", **encoder},
            "train": {"epochs": 9.0, "lr": 0.001},
        }
    )


def train_run(recipe, folder, *, resume=False, quiet=False):
    assert resume
    assert quiet
    folder, options = Path(folder), recipe.encoder.options
    if "calls" in options:
        with Path(options["calls"]).open("a", encoding="utf-8") as file:
            file.write(f"{folder.name}\n")
    if recipe.loss.name == options.get("refuse"):
        raise InputError(f"wanted another input than {recipe.loss.name}")
    if recipe.loss.name == options.get("fail"):
        raise RuntimeError(f"no memory for {recipe.loss.name}\nmore lines")
    if recipe.loss.name == options.get("crash"):
        os.kill(os.getpid(), 9)
    time.sleep(options.get("pause", 0))
    scores, tuned = {}, {}
    for number, split in enumerate(("dev", "test")):
        lines = draw(recipe, split=number)
        scores[split] = write(folder / f"predictions.{split}.jsonl", lines)
        if recipe.eval.tune and recipe.loss.name != options.get("untuned"):
            better = draw(recipe, split=number, quality=0.1)
            tuned[split] = write(folder / f"predictions.{split}.tuned.jsonl", better)
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model/model.safetensors").write_bytes(b"weights")
    task = {"kind": "classification", "labels": LABELS}
    (folder / "model/softf1.json").write_text(json.dumps(task), "utf-8")
    return conclude(recipe, folder, scores, tuned)


def conclude(recipe, folder, scores, tuned):
    named = {name: getattr(recipe.task, name) for name in ("train", "dev", "test")}
    paths = {name: path for name, path in named.items() if path and Path(path).is_file()}
    result = {
        "schema": 1,
        "hash": hash_recipe(recipe),
        "data": {name: {"sha256": hash_file(path)} for name, path in paths.items()},
        "task": recipe.task.kind,
        "encoder": recipe.encoder.name,
        "loss": recipe.loss.name,
        "seed": recipe.train.seed,
        "headline": "f1",
        "scores": scores,
        **({"tuned": tuned} if tuned else {}),
        "steps": round(recipe.train.epochs * 10),
        "examples": round(recipe.train.epochs * 320),
        "seconds": {"train": recipe.train.epochs * (3 if recipe.train.adversarial else 1)},
        "class_counts": {"labels": {"no": 900, "yes": 100}},
        "recipe": describe_recipe(recipe),
    }
    (folder / "result.json").write_text(json.dumps(result), "utf-8")
    return result


def draw(recipe, *, split, quality=0.0):
    """400 texts of which 30% are positive; the noise of texts is the same for every run."""
    shared = np.random.default_rng(split)
    gold, ease = shared.random(400) < 0.3, shared.normal(size=400)
    own = np.random.default_rng([recipe.train.seed, *recipe.loss.name.encode()])
    quality += QUALITY.get(recipe.loss.name, 1.0) + 0.05 * own.normal()
    rate = recipe.train.lr * (recipe.train.epochs / 9) ** 0.5  # the best falls with more steps
    quality += 0.2 * (0.0024 < rate < 0.0026) + 0.1 * recipe.loss.options.get("gamma", 0)
    quality += recipe.encoder.options.get("patient", 0) * np.log2(recipe.train.epochs / 9)
    quality += (recipe.train.adversarial or 0) * (recipe.train.adversarial_direction == "gradient")
    margin = quality * np.where(gold, 1, -1) + ease + 0.3 * own.normal(size=400)
    share = 1 / (1 + np.exp(-margin))
    return [
        {
            "schema": 1,
            "id": str(i),
            "text": "t",
            "gold": [LABELS[int(g)]],
            "label": LABELS[int(p > 0.5)],
            "probabilities": dict(zip(LABELS, (1 - p, p), strict=True)),
        }
        for i, (g, p) in enumerate(zip(gold, share.tolist(), strict=True))
    ]


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return TASK.score(lines, [SimpleNamespace(labels=tuple(line["gold"])) for line in lines])
