"""What beats cross entropy: adversarial steps, consistency and the losses on top, one rate for all.

    python benchmarks/corpora_data.py ../shared work --only en
    python benchmarks/beyond.py run work --jobs 15 --seeds 5 --out beyond.csv [--minutes 9]
    python benchmarks/beyond.py show beyond.csv [--split dev]
    python benchmarks/beyond.py table

`run` trains every variant of beyond.toml on every grid whose files are in `work`, and writes a line
as each run ends: dev and test score, seconds. What the file has is not run again. Nothing is tuned
here: these are leads, from which the rules of `auto` are made (by dev scores). Another plan, such
as leads.toml, is run with `--plan`; `--examples` also keeps what each test example contributes, for
gains.py. A variant with `warm_up = N` has N steps of masked language modelling on the training
texts first (warm_up.py), once for all seeds. `show` prints the gains over cross entropy, paired by
seed, with the half of a 95% t interval over seeds alone, and `table` writes them into
docs/howto/beat-cross-entropy.md, with the runs of auto.csv and leads.csv, each compared with cross
entropy of the same version of softf1: that of its own file, or else that of auto.csv.
"""

from __future__ import annotations

import argparse
import base64
import csv
import math
import shutil
import subprocess
import sys
import time
import tomllib
import zlib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from corpora import is_there, make_recipe, read_csv, read_grids
from scipy.stats import t as student

from softf1.experiments.grid import Job
from softf1.experiments.per_example import count_run
from softf1.experiments.workers import Pool
from softf1.recipe import Recipe, describe_recipe, format_recipe, with_values
from softf1.recipe.loading import parse_override
from softf1.training.publish import load_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

HERE = Path(__file__).parent
BASELINE = "ce"
LONGER = {"twice": 2, "four times": 4, "five times": 5, "eight times": 8, "twelve times": 12}
"""How many times the epochs of the grid, by what a plan calls it."""
FILES = RESULTS, AUTO, LEADS = [
    HERE / "results" / f"{name}.csv" for name in ("beyond", "auto", "leads")
]
PAGE = HERE.parent / "docs" / "howto" / "beat-cross-entropy.md"
MARKS = "<!-- beyond -->\n", "<!-- end of beyond -->\n"
SHOWN = {
    "ce, twice the epochs": "CE, twice the epochs",
    "ce, noise .5": "random step",
    "ce, adv .5": "ε .5",
    "ce, con 1": "κ 1",
    "ce, adv .5, con 1": "ε .5, κ 1",
    "ce+dice, adv .5, con 1": "CE + dice, ε .5, κ 1",
    "dsc authors, adv .5, con 1": "DSC, ε .5, κ 1",
    "wce, adv .5": "wCE, ε .5",
    "wce, adv .5, con 1": "wCE, ε .5, κ 1",
    "auto": "`auto`",
}
"""Columns of the table."""
COLUMNS = (
    "grid", "variant", "seed", "headline", "dev", "test", "epochs", "steps", "train_seconds",
    "device", "torch", "transformers", "softf1",
)  # fmt: skip


class Run(NamedTuple):
    """A run of a plan.

    Attributes:
        key: Its grid, variant and seed.
        recipe: What to train.
        warm_up: Steps of masked language modelling before it; the encoder of `recipe` is then the
            folder that they write.
        encoder: The encoder that they start from.
    """

    key: tuple[str, str, str]
    recipe: Recipe
    warm_up: int
    encoder: str


def read_plan(path: Path = HERE / "beyond.toml") -> dict[str, Any]:
    """The grids and variants to run."""
    parts: dict[str, Any] = {"held": {}, "variants": {}, "some": []}
    return parts | tomllib.loads(path.read_text("utf-8"))


def list_variants(name: str, plan: dict[str, Any], epochs: float) -> dict[str, dict[str, Any]]:
    """The variants of a grid; those that train for more epochs are named so."""
    variants = {}
    for part in (plan, *(some for some in plan["some"] if name in some["grids"])):
        variants |= part.get("variants", {})
        for how, times in LONGER.items():
            for row, values in part.get(how, {}).items():
                variants[f"{row}, {how} the epochs"] = {**values, "train.epochs": times * epochs}
    return variants


def read_all(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All grids by name: those of corpora.toml, their folds, and those of the plan itself."""
    whole = tomllib.loads((HERE / "corpora.toml").read_text("utf-8"))
    return whole | read_grids() | plan["held"]


def list_runs(options: argparse.Namespace) -> list[Run]:
    """All runs in order."""
    plan = read_plan(options.plan)
    grids, runs = read_all(plan), []
    for name in options.only or plan["order"]:
        for seed in range(options.seeds):
            grid = grids.get(f"{name}-{seed}") or grids[name]  # a fold for each seed, or the grid
            if not is_there(grid, options.work):
                continue
            recipe = make_recipe(grid, options.work)
            recipe = with_values(recipe, dict(map(parse_override, options.values)))
            for variant, values in list_variants(name, plan, recipe.train.epochs).items():
                if options.variants and variant not in options.variants:
                    continue
                own = {**values, "train.seed": seed, "train.patience": 0}
                if steps := own.pop("warm_up", 0):
                    folder = Path(options.runs).absolute() / "encoders" / f"{name}-{steps}"
                    own["encoder.name"] = str(folder)
                key = (name, variant, str(seed))
                runs.append(Run(key, with_values(recipe, own), steps, recipe.encoder.name))
    return runs


def make_encoders(runs: list[Run], jobs: int) -> None:
    """Warm up the encoders that are not there yet, `jobs` at a time."""
    wanted = {run.recipe.encoder.name: run for run in runs if run.warm_up}
    missing = [run for name, run in wanted.items() if not Path(name).is_dir()]
    with ThreadPoolExecutor(jobs) as threads:
        list(threads.map(make_encoder, missing))


def make_encoder(run: Run) -> None:
    """Warm up an encoder in a process of its own."""
    out = Path(run.recipe.encoder.name)
    out.parent.mkdir(parents=True, exist_ok=True)
    recipe = out.with_name(f"{out.name}.toml")
    recipe.write_text(format_recipe(with_values(run.recipe, {"encoder.name": run.encoder})))
    command = [sys.executable, str(HERE / "warm_up.py"), str(recipe), str(out)]
    subprocess.run([*command, "--steps", str(run.warm_up)], check=True)


def run(options: argparse.Namespace) -> None:
    """Run what the file does not have yet, until the minutes are over."""
    end = time.monotonic() + 60 * options.minutes
    done = {(row["grid"], row["variant"], row["seed"]) for row in read_csv(options.out)}
    runs = {str(n): run for n, run in enumerate(list_runs(options)) if run.key not in done}
    make_encoders(list(runs.values()), options.jobs)
    folder = Path(options.runs)
    jobs = [
        Job(id=n, recipe=describe_recipe(run.recipe), folder=str(folder / n))
        for n, run in runs.items()
    ]
    print(f"{len(jobs)} runs", flush=True)
    new = not options.out.is_file()
    with closing(Pool(options.jobs, logs=folder / "logs")) as pool, options.out.open("a") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        for count, found in enumerate(pool(jobs), 1):
            key, result = runs[found.id].key, found.result
            if result is None:
                print(f"{', '.join(key)}: {found.error}", flush=True)
            else:
                if options.examples:
                    write_examples(options.examples, key, folder / found.id, result)
                writer.writerow(describe(key, result))
                file.flush()
            shutil.rmtree(folder / found.id, ignore_errors=True)
            if time.monotonic() > end:
                print(f"time is over after {count} runs", flush=True)
                return


def write_examples(path: Path, key: tuple[str, str, str], folder: Path, result: Any) -> None:
    """Add a line: a run, and the pseudo-values of its test examples in float32, packed."""
    metric, predictions = result["headline"], folder / "predictions.test.jsonl"
    score = result["scores"]["test"][metric]
    counted = count_run(load_task(folder / "model"), predictions, metric=metric, score=score)
    values = counted.pseudo_values(metric).astype(np.float32)
    packed = base64.b64encode(zlib.compress(values.tobytes(), 9)).decode()
    with path.open("a", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow([*key, packed])


def read_examples(path: Path) -> dict[tuple[str, ...], NDArray[np.float32]]:
    """The pseudo-values of the test examples by run."""
    csv.field_size_limit(1 << 30)
    with path.open(encoding="utf-8", newline="") as file:
        return {
            tuple(key): np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.float32)
            for *key, packed in csv.reader(file)
        }


def describe(key: tuple[str, str, str], result: dict[str, Any]) -> dict[str, Any]:
    """The line of a run."""
    grid, variant, seed = key
    metric, versions = result["headline"], result["versions"]
    scores = {part: round(own[metric], 6) for part, own in result["scores"].items()}
    return {
        "grid": grid, "variant": variant, "seed": seed, "headline": metric, **scores,
        "epochs": result["epochs"], "steps": result["steps"],
        "train_seconds": result["seconds"]["train"], "device": result["device"],
        "torch": versions["torch"], "transformers": versions["transformers"],
        "softf1": versions["softf1"],
    }  # fmt: skip


def read_scores(path: Path, split: str) -> dict[str, dict[str, dict[str, float]]]:
    """Points by grid, variant and seed."""
    scores: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in read_csv(path):
        scores[row["grid"]][row["variant"]][row["seed"]] = 100 * float(row[split])
    return scores


def make_table(*paths: Path, split: str = "test") -> str:
    """The gains as a table in Markdown."""
    plan = read_plan()
    titles, found = read_all(plan), read_rows(*(paths or FILES))
    lines = [
        f"| data | CE | {' | '.join(SHOWN.values())} |",
        f"| --- |{' ---: |' * (1 + len(SHOWN))}",
    ]
    for grid in [name for name in plan["order"] if name in found]:
        rows = found[grid]
        newest = {key[-1]: score for key, score in find_scores(rows, BASELINE, split).items()}
        gains = [find_gains(rows, variant, split) for variant in SHOWN]
        cells = [titles[grid]["short"], f"{mean(newest.values()):.1f}"]
        cells += [show_gain(own) if own else "" for own in gains]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def read_rows(*paths: Path) -> dict[str, list[dict[str, str]]]:
    """The lines of all files by grid, each with the name of its file."""
    found = defaultdict(list)
    for path in paths:
        for row in read_csv(path):
            found[row["grid"]].append({**row, "file": path.stem})
    return found


def find_gains(rows: list[dict[str, str]], variant: str, split: str) -> list[float]:
    """Points gained over cross entropy by seed, each in the newest version that ran both.

    Some seeds of cross entropy were run again for another file; that of the same file counts, or
    else that of auto.csv.
    """
    own, base = (find_scores(rows, name, split) for name in (variant, BASELINE))
    gains = {}
    for (version, file, seed), score in own.items():
        there = base.get((version, file, seed), base.get((version, AUTO.stem, seed)))
        if there is not None:
            gains[seed] = score - there
    return list(gains.values())


def find_scores(
    rows: list[dict[str, str]], variant: str, split: str
) -> dict[tuple[str, str, str], float]:
    """Points of a variant by version of softf1, the newest last, file, auto.csv last, and seed."""
    found = {
        (row.get("softf1", ""), row["file"], row["seed"]): 100 * float(row[split])
        for row in rows
        if row["variant"] == variant
    }
    return dict(sorted(found.items(), key=lambda one: (one[0][0], one[0][1] == AUTO.stem, one[0])))


def show_gain(gains: list[float]) -> str:
    """A gain with its half-width; bold where the interval leaves 0 out."""
    half, gain = half_width(gains), mean(gains)
    text = f"{gain:+.1f}".replace("-", "−")
    if math.isnan(half):
        return f"{text} (1 seed)"
    return f"**{text}** ± {half:.1f}" if abs(gain) > half else f"{text} ± {half:.1f}"


def pair(own: dict[str, float], base: dict[str, float]) -> list[float]:
    """Differences between two variants by seed."""
    return [own[seed] - base[seed] for seed in sorted(own.keys() & base.keys())]


def write_table(options: argparse.Namespace) -> None:
    """Put the table into its page."""
    put(PAGE, MARKS, make_table(options.out, *FILES[1:]))


def put(page: Path, marks: tuple[str, str], table: str) -> None:
    """Replace what stands between two marks of a page."""
    first, last = marks
    before, _, rest = page.read_text("utf-8").partition(first)
    after = rest.partition(last)[2]
    page.write_text(f"{before}{first}\n{table}\n{last}{after}", "utf-8")


def show(options: argparse.Namespace) -> None:
    """Print the gains over cross entropy."""
    scores = read_scores(options.out, options.split)
    seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read_csv(options.out):
        seconds[row["grid"]][row["variant"]].append(float(row["train_seconds"]))
    for grid, variants in scores.items():
        base = variants[BASELINE]
        spread = stdev(base.values()) if len(base) > 1 else math.nan
        print(f"\n{grid} ({options.split}): CE {mean(base.values()):.2f} ± {spread:.2f}")
        for variant, own in variants.items():
            gains = pair(own, base)
            if variant == BASELINE or not gains:
                continue
            half = half_width(gains)
            times = mean(seconds[grid][variant]) / mean(seconds[grid][BASELINE])
            sure = "*" if mean(gains) > half else "-" if mean(gains) < -half else " "
            text = f"{mean(gains):+6.2f} ± {half:5.2f} {sure}"
            print(f"  {variant:42} {text} n {len(gains)}  time ×{times:.2f}")


def half_width(gains: list[float]) -> float:
    """Half of the 95% t interval of a mean."""
    if len(gains) < 2:
        return math.nan
    quantile = float(student.ppf(0.975, len(gains) - 1))
    return quantile * stdev(gains) / math.sqrt(len(gains))


def make_parser(
    about: str | None,
    *,
    run: Callable[..., None],
    table: Callable[..., None],
    out: Path,
    runs: str,
    seeds: int,
) -> tuple[argparse.ArgumentParser, Any, argparse.ArgumentParser]:
    """A parser with the verbs `run` and `table`; returns also its verbs, and that of `run`."""
    parser = argparse.ArgumentParser(description=about)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("table")
    verb.set_defaults(function=table)
    verb.add_argument("--out", type=Path, default=out)
    verb = verbs.add_parser("run")
    verb.set_defaults(function=run)
    verb.add_argument("work", type=Path)
    verb.add_argument("--out", type=Path, default=out)
    verb.add_argument("--runs", default=runs)
    verb.add_argument("--jobs", type=int, default=1)
    verb.add_argument("--seeds", type=int, default=seeds)
    verb.add_argument("--values", nargs="*", default=[])
    return parser, verbs, verb


def main() -> None:
    """Run or show."""
    parser, verbs, verb = make_parser(
        __doc__, run=run, table=write_table, out=RESULTS, runs="beyond-runs", seeds=5
    )
    verb.add_argument("--examples", type=Path, help="a file for what each test example adds")
    verb.add_argument("--plan", type=Path, default=HERE / "beyond.toml")
    verb.add_argument("--minutes", type=float, default=1e9)
    verb.add_argument("--only", nargs="*", default=[])
    verb.add_argument("--variants", nargs="*", default=[], help="some only")
    verb = verbs.add_parser("show")
    verb.set_defaults(function=show)
    verb.add_argument("out", type=Path)
    verb.add_argument("--split", default="test", choices=("dev", "test"))
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    main()
