"""Which loss is better on your data: all tuned alike, same seeds, intervals you can defend."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from softf1.experiments.cells import Execute
    from softf1.recipe import Recipe


MOST_SEEDS = 20
"""Where adding seeds ends if nothing is said."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 compare`."""
    parser.add_argument("recipe", help="a TOML file, or the name of a shipped recipe")
    parser.add_argument(
        "values", nargs="*", metavar="key=value", help="changes to the recipe for every run"
    )
    parser.add_argument(
        "--losses",
        metavar="A,B,…",
        help="rows beside ce, such as dice, dsc[decay=paper] or ce[train.adversarial=0.5] "
        "(default: baselines and all)",
    )
    add_grid_options(parser)
    parser.add_argument(
        "--max-seeds",
        type=int,
        metavar="N",
        help="add seeds, up to N, to the rows whose interval they would narrow",
    )
    parser.add_argument(
        "--width",
        type=float,
        metavar="POINTS",
        help="half-width of the interval at which no more seeds are added",
    )
    parser.add_argument(
        "--no-controls",
        action="store_true",
        help="no rows that were not asked for: majority, tfidf, matched compute, noise",
    )
    parser.add_argument(
        "--tune",
        choices=("none", "small", "full"),
        default="small",
        help="settings of each row tried on dev: none, 4 for a third of the steps, or 9; "
        "then twice the epochs",
    )


def add_grid_options(parser: argparse.ArgumentParser) -> None:
    """Adds what all experiments over a grid have in common."""
    parser.add_argument(
        "--seeds", type=int, default=5, metavar="N", help="runs of each (default 5)"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="runs at a time (default 1)"
    )
    parser.add_argument("--out", type=Path, metavar="GRID", help="folder (default: runs/NAME-VERB)")
    parser.add_argument(
        "--gain", type=float, default=0.5, metavar="POINTS", help="gain that matters (default 0.5)"
    )
    parser.add_argument(
        "--on", choices=("here", "ray"), default="here", help="where runs go (ray: optional extra)"
    )
    parser.add_argument("--no-models", action="store_true", help="keep no weights of the runs")
    parser.add_argument("--force", action="store_true", help="start afresh in the folder of a grid")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(options: argparse.Namespace) -> int:
    """Runs what is missing of the grid, prints the table and the verdict."""
    from softf1.experiments.compare import compare
    from softf1.experiments.references import list_references
    from softf1.experiments.search import check_losses, default_losses
    from softf1.recipe import read_recipe
    from softf1.recipe.loading import split_values

    check_grid_options(options)
    check_seeds(options)
    recipe = read_recipe(options.recipe, options.values)
    asked = list(split_values(options.losses)) if options.losses else default_losses(recipe)
    losses = check_losses(asked, recipe, options.tune)
    folder = options.out or Path("runs") / f"{recipe.name}-compare"
    check_data(recipe, folder, force=options.force)
    with choose_executor(options, folder) as execute:
        found = compare(
            recipe,
            folder,
            losses=losses,
            seeds=range(recipe.train.seed, recipe.train.seed + options.seeds),
            execute=execute,
            tune=options.tune,
            most_seeds=options.max_seeds,
            width=options.width and options.width / 100,
            controls=not options.no_controls,
            references=() if options.no_controls else list_references(recipe),
            gain=options.gain / 100,
            keep_models=not options.no_models,
            force=options.force,
            quiet=options.quiet,
        )
    return finish(found, folder)


def check_grid_options(options: argparse.Namespace) -> None:
    """Refuses numbers that make no sense."""
    from softf1.errors import InputError

    for name in ("seeds", "jobs"):
        if getattr(options, name) < 1:
            raise InputError(f"wanted --{name} from 1 up, got {getattr(options, name)}")
    if not 0 < options.gain < 100:
        raise InputError(f"wanted --gain between 0 and 100 points, got {options.gain:g}")


def check_seeds(options: argparse.Namespace) -> None:
    """Refuses bounds of the seeds that make no sense; a width alone allows up to 20 of them."""
    from softf1.errors import InputError

    if options.width is not None:
        if not 0 < options.width < 100:
            raise InputError(f"wanted --width between 0 and 100 points, got {options.width:g}")
        options.max_seeds = options.max_seeds or max(MOST_SEEDS, options.seeds)
    if options.max_seeds is not None and options.max_seeds < options.seeds:
        raise InputError(
            f"wanted --max-seeds from --seeds ({options.seeds}) up, got {options.max_seeds}"
        )


def check_data(recipe: Recipe, folder: Path, *, force: bool = False) -> None:
    """Reads the files before a grid begins: what is wrong with them is wrong with every run."""
    from softf1.experiments.grid import FILE, refuse_others
    from softf1.training.material import check_files

    refuse_others(folder)
    if force or not (folder / FILE).is_file():
        check_files(recipe)


@contextmanager
def choose_executor(options: argparse.Namespace, folder: Path) -> Iterator[Execute]:
    """What runs the cells."""
    from contextlib import closing

    if options.on == "ray":
        from softf1.experiments.on_ray import Cluster

        with closing(Cluster(options.jobs)) as cluster:
            yield cluster
        return
    from softf1.experiments.workers import Pool

    with closing(Pool(options.jobs, logs=folder / "logs")) as pool:
        yield pool


def finish(found: dict[str, object], folder: Path) -> int:
    """Prints the comparison, and what failed; gives the exit code."""
    import sys

    from softf1.errors import one_line, printable
    from softf1.experiments.show import show_comparison

    show_comparison(found)
    print(printable(f"{folder}/comparison.json, {folder}/comparison.csv"))
    failed = found["failed"]
    assert isinstance(failed, dict)  # noqa: S101 - errors by cell
    for name, error in failed.items():
        print(f"failed: {name}: {one_line(error)}", file=sys.stderr)
    return 1 if failed else 0
