"""F1 on real corpora: every loss tuned alike, with intervals, through `softf1 compare`.

    python benchmarks/corpora_data.py ../shared work
    python benchmarks/corpora.py run work --out grids --jobs 15 [--only GRID …] [--minutes 9]
    python benchmarks/corpora.py collect grids
    python benchmarks/corpora_table.py

`run` does what `softf1 compare`, `sweep` and `reproduce` do with the grids of corpora.toml, some of
them (`--at-once`) at a time over one pool of processes, and begins no other when the minutes are
over. Grids whose rows stand in results/corpora-rows.csv are left out unless `--only` names them; of
a grid that was broken off, the runs that are done are not run again. To try everything out on a
CPU: data made with `--limit 60`, and `run … --tune none --seeds 1 --values train.max_steps=2`.

`collect` writes a line a run into results/corpora.csv, keyed by the hash of its recipe, and a line
a row into results/corpora-rows.csv; numbers only.

Many processes on one GPU want NVIDIA's MPS (`nvidia-cuda-mps-control -d`): they then run side by
side there instead of in turns.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from softf1.experiments.compare import compare
from softf1.experiments.reproduce import Reproduction, write_lines
from softf1.experiments.search import Level, check_losses
from softf1.experiments.sweep import sweep
from softf1.experiments.tables import find_table, load_table_recipe, missing_files
from softf1.experiments.workers import Pool
from softf1.recipe import with_values

HERE = Path(__file__).parent
RUNS, ROWS = HERE / "results" / "corpora.csv", HERE / "results" / "corpora-rows.csv"
AUTHORS = "alpha=0.01,decay=paper,squared=true,over=batch"
LOSSES = ("ce", "ce+tuned", "wce", "la", "focal", "dice", "tversky", "dsc", "dsc[decay=paper]")
ALPHAS = [0.5, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9]
RUN_COLUMNS = (
    "grid", "kind", "loss", "seed", "hash", "headline", "dev", "test", "precision", "recall", "f1",
    "macro_f1", "accuracy", "exact", "values", "steps", "examples", "seconds", "train_seconds",
    "examples_per_second", "device", "torch", "transformers", "softf1", "date",
)  # fmt: skip
ROW_COLUMNS = (
    "grid", "loss", "n", "headline", "split", "mean", "sd", "difference", "low", "high", "p",
    "p_holm", "verdict", "precision", "recall", "sd_seeds", "sd_examples", "units", "choice",
    "date",
)  # fmt: skip


def read_grids() -> dict[str, dict[str, Any]]:
    """The grids; one that is cross-validated is as many as it has folds."""
    grids = {}
    for name, grid in tomllib.loads((HERE / "corpora.toml").read_text("utf-8")).items():
        if grid.get("kind") != "folds":
            grids[name] = grid
            continue
        for fold in range(grid["folds"]):
            grids[f"{name}-{fold}"] = {**grid, "folder": f"{name}-{fold}", "seed": fold}
    return grids


def make_values(grid: dict[str, Any], work: Path) -> list[str]:
    """Changes to the recipe; names of files are those in the grid's own folder."""
    values = []
    for word in grid["values"]:
        key, _, value = word.partition("=")
        own = key in ("task.train", "task.dev", "task.test")
        folder = work / "data" / grid.get("folder", grid.get("recipe", ""))
        values.append(f"{key}={folder / value}" if own else word)
    if "encoder" in grid:
        values.append(f"encoder.name={work / 'encoders' / grid['encoder']}")
    return [*values, f"train.seed={grid.get('seed', 0)}"]


def make_recipe(grid: dict[str, Any], work: Path) -> Any:
    """The recipe of a grid, its files in `work`."""
    recipe = load_table_recipe(grid["recipe"], make_values(grid, work), work / "data")
    if grid.get("kind") != "sweep":  # or what it says of its own loss would be a setting of it
        recipe = with_values(recipe, {"loss.name": "ce"})
    return recipe


def is_there(grid: dict[str, Any], work: Path) -> bool:
    """Whether the encoder and the files of a grid are in `work`."""
    files = [] if "table" in grid else missing_files(make_recipe(grid, work))
    return (work / "encoders" / grid.get("encoder", "")).is_dir() and not files


def list_rows(grid: dict[str, Any]) -> list[str]:
    """The losses to compare."""
    more = f",{grid['authors']}" if "authors" in grid else ""
    return [*LOSSES, f"dsc[{AUTHORS}{more}]", "ce+dice"]


def run_grid(
    name: str, grid: dict[str, Any], work: Path, out: Path, pool: Pool, tune: Level
) -> str:
    """Run what is missing of a grid; says how long it took."""
    start, kind = time.monotonic(), grid.get("kind", "compare")
    if kind == "reproduce":
        failed = reproduce(grid, work, out / name, pool)
    else:
        recipe = make_recipe(grid, work)
        seeds = range(recipe.train.seed, recipe.train.seed + grid["seeds"])
        how: dict[str, Any] = {"execute": pool, "keep_models": False, "quiet": True}
        if kind == "sweep":
            how |= {"axes": {"loss.alpha": ALPHAS}, "complements": {"loss.alpha": "loss.beta"}}
            found = sweep(recipe, out / name, seeds=seeds, **how)
        else:
            rows = check_losses(list_rows(grid), recipe)
            found = compare(recipe, out / name, losses=rows, seeds=seeds, tune=tune, **how)
        failed = found["failed"]
    return f"{name}: {time.monotonic() - start:.0f} s, failed: {failed or 'nothing'}"


def reproduce(grid: dict[str, Any], work: Path, out: Path, pool: Pool) -> dict[str, str]:
    """A table of the paper."""
    values = make_values(grid, work)
    made = Reproduction(out, seeds=grid["seeds"], execute=pool, overrides=values, quiet=True)
    table = find_table(grid["table"])
    write_lines(out, table, made.run(table))
    return made.failed


def run(options: argparse.Namespace) -> None:
    """Run the grids that are not done, or those that are named, in order."""
    known, there = {row["grid"] for row in read_csv(ROWS)}, read_grids()
    missing = [
        name
        for name in there
        if name not in known and not (options.out / name / "comparison.json").is_file()
    ]
    if unknown := set(options.only) - there.keys():
        raise SystemExit(f"wanted grids of {', '.join(there)}, got {', '.join(sorted(unknown))}")
    wanted = {name: there[name] for name in options.only or missing}
    grids = {name: grid for name, grid in wanted.items() if is_there(grid, options.work)}
    for grid in grids.values():
        grid["seeds"] = options.seeds or grid["seeds"]
        grid["values"] = [*grid["values"], *options.values]
    end = time.monotonic() + 60 * options.minutes
    pool = Pool(options.jobs, logs=options.out / "logs")

    def work(name: str) -> None:
        if time.monotonic() > end:
            return
        try:
            text = run_grid(name, grids[name], options.work, options.out, pool, options.tune)
            print(text, flush=True)
        except Exception as error:  # noqa: BLE001 - the other grids go on
            print(f"{name}: {type(error).__name__}: {error}", flush=True)

    with ThreadPoolExecutor(options.at_once) as threads, closing(pool):
        list(threads.map(work, grids))


def collect(options: argparse.Namespace) -> None:
    """Add the grids that are done to the tables, in place of what was there of them."""
    runs, rows = read_csv(RUNS), read_csv(ROWS)
    for file in sorted(options.out.rglob("comparison.json")):
        folder = file.parent
        name = str(folder.relative_to(options.out)).replace("/", ": ")
        runs = [row for row in runs if row["grid"] != name] + list_runs(name, folder)
        choice = json.loads((folder / "grid.json").read_text("utf-8")).get("choice", "none")
        found = json.loads(file.read_text("utf-8"))
        rows = [row for row in rows if row["grid"] != name]
        rows += list_comparison(name, {**found, "choice": choice})
    write_csv(RUNS, RUN_COLUMNS, runs)
    write_csv(ROWS, ROW_COLUMNS, rows)


def list_runs(name: str, folder: Path) -> list[dict[str, Any]]:
    """A line for each run of a grid, trials too."""
    grid = json.loads((folder / "grid.json").read_text("utf-8"))
    cells = [("run", cell, cell["label"]) for cell in grid["cells"]]
    cells += [("trial", trial, trial["loss"]) for trial in grid["tuning"]]
    lines = []
    for kind, cell, row in cells:
        path = folder / cell["folder"] / "result.json"
        if path.is_file():
            result = json.loads(path.read_text("utf-8"))
            lines += describe_runs(name, kind, row, cell["values"], result, path)
    return lines


def describe_runs(
    name: str, kind: str, row: str, values: dict[str, Any], result: dict[str, Any], path: Path
) -> list[dict[str, Any]]:
    """The line of a run, and that of its tuned thresholds where it has some."""
    plain = {k: v for k, v in values.items() if k not in ("train.seed", "train.patience")}
    about = {
        "grid": name, "kind": kind, "seed": result["seed"], "headline": result["headline"],
        "values": json.dumps(plain, ensure_ascii=False), "steps": result["steps"],
        "examples": result["examples"], "seconds": result["seconds"]["total"],
        "train_seconds": result["seconds"]["train"], "device": result["device"],
        "examples_per_second": result["examples_per_second"],
        "torch": result["versions"]["torch"], "transformers": result["versions"]["transformers"],
        "softf1": result["versions"]["softf1"],
        "date": datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat(),
    }  # fmt: skip
    lines = []
    for label, key in ((row, "scores"), (f"{row}+tuned", "tuned")):
        if key not in result:
            continue
        scores = result[key]
        judged = scores.get("test", scores["dev"])
        line = {**about, "loss": label, "hash": result["hash"] + ("+" if key == "tuned" else "")}
        line |= {part: own[result["headline"]] for part, own in scores.items()}
        line |= {key: judged[key] for key in RUN_COLUMNS[8:14] if key in judged}
        lines.append({k: round(v, 7) if isinstance(v, float) else v for k, v in line.items()})
    return lines


def list_comparison(name: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a comparison."""
    about = {"grid": name, "headline": found["headline"], "split": found["split"]}
    about |= {"units": found["units"], "choice": found["choice"]}
    about |= {"date": datetime.now(UTC).date().isoformat()}
    lines = ({**about, **row} for row in found["rows"])
    return [
        {k: round(v, 7) if isinstance(v, float) else v for k, v in line.items() if k in ROW_COLUMNS}
        for line in lines
    ]


def read_csv(path: Path) -> list[dict[str, Any]]:
    """The lines of a table, none where there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_csv(path: Path, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """All lines of a table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Run, collect or print."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(required=True)
    parts = {"run": run, "collect": collect}
    for name, function in parts.items():
        verb = verbs.add_parser(name)
        verb.set_defaults(function=function)
        if name == "run":
            verb.add_argument("work", type=Path)
            verb.add_argument("--out", type=Path, default=Path("grids"))
            verb.add_argument("--jobs", type=int, default=1)
            verb.add_argument("--at-once", type=int, default=2)
            verb.add_argument("--seeds", type=int)
            verb.add_argument("--tune", default="small")
            verb.add_argument("--values", nargs="*", default=[])
            verb.add_argument("--only", nargs="*", default=[])
            verb.add_argument("--minutes", type=float, default=1e9)
        else:
            verb.add_argument("out", type=Path)
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    main()
