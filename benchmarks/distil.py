"""One student that learns from several teachers: the seeds of one model distilled into another.

    python benchmarks/distil.py work --jobs 15 --seeds 5 [--teachers 3] [--only GRID …]
    python benchmarks/beyond.py show benchmarks/results/leads.csv

Trains as many teachers as are asked for on each grid, with cross entropy, an adversarial step and
consistency, and then students with other seeds, of one teacher (a control: is it several that help,
or learning from a model at all?) and of all. A student has consistency with its teachers instead
of itself: `½·ce + κ·½·(KL(a‖b) + KL(b‖a))`, where a is its prediction and b that of the mean of
their logits, without dropout. So it works for every task, in captured steps, and with an
adversarial step. Teachers have seen the training data, so they are surer of it than of other texts.
Adds a line for each student to results/leads.csv, which has the baselines.
"""

from __future__ import annotations

import argparse
import csv
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from beyond import COLUMNS, LEADS, describe, read_all, read_plan
from corpora import HERE, is_there, make_recipe, read_csv
from torch import Tensor, nn

from softf1.experiments.grid import TRAIN, Job
from softf1.experiments.workers import Pool
from softf1.recipe import describe_recipe, with_values
from softf1.recipe.loading import parse_override
from softf1.training import build
from softf1.training.publish import load_model
from softf1.training.run import train_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from softf1.experiments.grid import Done
    from softf1.recipe import Recipe

GRIDS = ("conll03-tagger", "mrpc", "squad1_1", "resume-bilstm")
HARDENED = {"train.adversarial": 0.5, "train.consistency": 1.0, "train.patience": 0}
FIRST_TEACHER = 1000
"""Seeds of teachers: others than those of students."""


def train_student(recipe: Recipe, folder: Path, **how: Any) -> dict[str, Any]:
    """Trains a recipe as `train_run` does, with the teachers in `folder`/teachers."""
    make = build.make_model

    def make_taught(*given: Any) -> nn.Module:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        paths = (folder.parent / "teachers" / folder.name).read_text("utf-8").splitlines()
        return teach(make(*given), [load_model(path).model.to(device) for path in paths])

    with patch.object(build, "make_model", make_taught):
        return train_run(recipe, folder, **how)


def teach(model: nn.Module, teachers: Sequence[nn.Module]) -> nn.Module:
    """Makes the second half of what a model predicts in training the mean of its teachers' logits.

    Only `forward` of this object changes: weights, what is saved, and evaluation stay.
    """
    plain = model.forward
    for teacher in teachers:
        teacher.eval().requires_grad_(requires_grad=False)

    def forward(**inputs: Tensor) -> Any:
        if not model.training:
            return plain(**inputs)
        halves = [{name: value.chunk(2)[n] for name, value in inputs.items()} for n in (0, 1)]
        own = plain(**halves[0])
        with torch.no_grad():
            theirs = [teacher(**halves[1]) for teacher in teachers]
        both = {
            key: torch.cat([value, torch.stack([one[key] for one in theirs]).mean(0)])
            for key, value in own.items()
        }
        return type(own)(**both)

    model.forward = forward
    return model


def list_jobs(options: argparse.Namespace, name: str, recipe: Recipe) -> dict[str, list[Job]]:
    """The teachers of a grid, and the students that the file does not have."""
    done = {(row["grid"], row["variant"], row["seed"]) for row in read_csv(options.out)}
    folder = Path(options.runs).absolute() / name
    teachers = [folder / f"teacher-{n}" for n in range(options.teachers)]
    jobs: dict[str, list[Job]] = {"teachers": [], "students": []}
    for count in sorted({1, options.teachers}):
        for seed in range(options.seeds):
            key = (name, f"ce, adv .5, student of {count}", str(seed))
            if key in done:
                continue
            student = folder / f"student-of-{count}-{seed}"
            note = folder / "teachers" / student.name
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text("".join(f"{path}\n" for path in teachers[:count]), "utf-8")
            jobs["students"].append(make_job("\t".join(key), recipe, seed, student))
    if jobs["students"]:
        jobs["teachers"] = [
            make_job(f"{name}, {path.name}", recipe, FIRST_TEACHER + n, path)
            for n, path in enumerate(teachers)
        ]
    return jobs


def make_job(name: str, recipe: Recipe, seed: int, folder: Path) -> Job:
    """A run with a seed."""
    own = with_values(recipe, {**HARDENED, "train.seed": seed})
    return Job(id=name, recipe=describe_recipe(own), folder=str(folder))


def run_jobs(jobs: list[Job], target: str, options: argparse.Namespace) -> Iterator[Done]:
    """Yields the runs that end well; says what is wrong with the others."""
    with closing(Pool(options.jobs, logs=Path(options.runs) / "logs", target=target)) as pool:
        for found in pool(jobs):
            if found.result is None:
                print(f"{found.id}: {found.error}", flush=True)
            else:
                yield found


def run(options: argparse.Namespace) -> None:
    """Train teachers, then students."""
    grids, teachers, students = read_all(read_plan(HERE / "leads.toml")), [], []
    for name in options.only:
        if is_there(grids[name], options.work):
            recipe = make_recipe(grids[name], options.work)
            recipe = with_values(recipe, dict(map(parse_override, options.values)))
            jobs = list_jobs(options, name, recipe)
            teachers += jobs["teachers"]
            students += jobs["students"]
    print(f"{len(teachers)} teachers, {len(students)} students", flush=True)
    for _ in run_jobs(teachers, TRAIN, options):
        pass
    folders, new = {job.id: job.folder for job in students}, not options.out.is_file()
    with options.out.open("a") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        for found in run_jobs(students, "distil:train_student", options):
            grid, variant, seed = found.id.split("\t")
            writer.writerow(describe((grid, variant, seed), found.result or {}))
            file.flush()
            shutil.rmtree(folders[found.id], ignore_errors=True)


def main() -> None:
    """Train teachers and students."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--out", type=Path, default=LEADS)
    parser.add_argument("--runs", default="distil-runs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--teachers", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=GRIDS)
    parser.add_argument("--values", nargs="*", default=[])
    run(parser.parse_args())


if __name__ == "__main__":
    main()
