"""Options that several verbs share: for readers, for where a model runs, for experiments."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError

if TYPE_CHECKING:
    from softf1.experiments.grid import Execute
    from softf1.recipe import Recipe
    from softf1.scaffold import Proposal

_OWN_OPTIONS = ("path", "format", "task", "on_error")
"""Parameters of `read` that --set refuses, since they have command-line options of their own."""


def parse_whole(text: str) -> int:
    """Reads a whole number from the command line."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"wanted a whole number, got {text!r}") from None


def parse_number(text: str) -> float:
    """Reads a number from the command line."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"wanted a number, got {text!r}") from None


SETTINGS = ("--set", "--encoding")
PLACES = ("--device", "--precision", "--batch-tokens")
SHARED: dict[str, dict[str, Any]] = {
    "recipe": {"help": "a TOML file, or the name of a shipped recipe"},
    "--abstain": {"action": "store_true", "help": "leave out predictions below their threshold"},
    "--batch-tokens": {
        "type": parse_whole,
        "metavar": "N",
        "help": "padded tokens per batch (default: 1024 on a CPU, 16384 elsewhere)",
    },
    "--device": {"help": "cpu, cuda:1 … (default: a GPU if there is one)"},
    "--encoder": {"metavar": "NAME", "help": "the encoder (default: chosen for your data)"},
    "--encoding": {
        "metavar": "NAME",
        "help": "encoding of the files, such as latin-1 (default: UTF-8)",
    },
    "--format": {"help": "format of the files (default: detected)"},
    "--json": {"action": "store_true", "help": "print JSON"},
    "--on": {
        "choices": ("here", "ray"),
        "default": "here",
        "help": "where to train: this machine, or a Ray cluster (needs softf1[ray])",
    },
    "--on-error": {
        "choices": ("raise", "skip"),
        "default": "raise",
        "help": "stop at a bad record (default), or skip and count it",
    },
    "--precision": {
        "choices": ("auto", "fp32", "bf16", "fp16"),
        "default": "auto",
        "help": "auto (default): bf16 on a GPU that supports it, else fp32",
    },
    "--quiet": {"action": "store_true", "help": "show no progress"},
    "--set": {
        "action": "append",
        "default": [],
        "metavar": "KEY=VALUE",
        "help": "set an option of the reader, such as tag=3 or label=category",
    },
    "--task": {
        "help": "tagging, mrc_ner, span_ner, qa, pairs or classification (default: detected)"
    },
}
"""Options that are the same in several verbs."""


def add_shared(parser: argparse.ArgumentParser, *names: str) -> None:
    """Adds options of `SHARED`."""
    for name in names:
        parser.add_argument(name, **SHARED[name])


def add_switch(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Adds an option without a value: it is on if it is given."""
    parser.add_argument(name, action="store_true", help=text)


def add_number(
    parser: argparse.ArgumentParser, name: str, text: str, *, default: int | None = None
) -> None:
    """Adds an option that takes a whole number."""
    parser.add_argument(name, type=parse_whole, default=default, metavar="N", help=text)


def add_scored(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say which model is scored, and on what."""
    parser.add_argument("folder", metavar="RUN", help="a run folder, or a model folder with FILE")
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="a labelled file (default: the recipe's)"
    )
    parser.add_argument("--data", metavar="FILE", help="the same as FILE")
    parser.add_argument(
        "--split",
        choices=("dev", "test"),
        help="split of the recipe (default: test, or dev if there is no test)",
    )
    parser.add_argument("--format", help="format of FILE (default: that of the training data)")
    add_shared(parser, *SETTINGS)


def read_scored(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the arguments of `rescore` and `find_headroom` from these options."""
    if options.file and options.data:
        raise InputError("wanted FILE or --data, got both")
    data = options.file or options.data
    if data and options.split:
        raise InputError("wanted FILE or --split, got both")
    return {
        "data": data,
        "split": options.split,
        "format": options.format,
        "options": read_settings(options.set, options.encoding),
        **choose_places(options),
    }


def read_settings(items: Sequence[str], encoding: str | None = None) -> dict[str, object]:
    """Returns the reader options by name.

    >>> read_settings(["tag=3", "header=false", "label=category"])
    {'tag': 3, 'header': False, 'label': 'category'}
    """
    settings = dict(_setting(item) for item in items)
    return settings if encoding is None else settings | {"encoding": encoding}


def _setting(item: str) -> tuple[str, object]:
    key, equals, value = item.partition("=")
    if not equals or not key:
        raise InputError(f"wanted --set KEY=VALUE, got {item!r}")
    if key in _OWN_OPTIONS:
        raise InputError(f"wanted --set of an option of the reader, got {key}; see --help")
    words: dict[str, object] = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return key, words[value.lower()]
    return key, int(value) if value.lstrip("-").isdecimal() else value


def propose_for(options: argparse.Namespace, name: str) -> Proposal:
    """Proposes a recipe for the files of `softf1 new` and `softf1 suspects`."""
    from softf1.scaffold import propose_recipe

    return propose_recipe(
        options.data,
        name=name,
        task=options.task,
        format=options.format,
        options=read_settings(options.set, options.encoding),
        encoder=options.encoder,
    )


def choose_places(options: argparse.Namespace) -> dict[str, Any]:
    """Returns device, autocast and batch_tokens for prediction."""
    import torch

    from softf1.training.processes import choose_precision, make_autocast

    if options.batch_tokens is not None and options.batch_tokens < 1:
        raise InputError(f"wanted --batch-tokens from 1 up, got {options.batch_tokens}")
    name = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"wanted --device of this machine, got {name}: {reason}") from error
    if device.type == "meta":
        raise InputError("wanted --device of this machine, got meta, which holds no values")
    precision = choose_precision(options.precision, device)
    autocast = make_autocast(precision, device)
    # On a CPU larger batches are no faster: their activations do not fit into a cache.
    tokens = options.batch_tokens or (1024 if device.type == "cpu" else 16384)
    return {"device": device, "autocast": autocast, "batch_tokens": tokens}


def add_grid_options(parser: argparse.ArgumentParser, folder: str, *, seeds: int = 5) -> None:
    """Adds the options that all experiments over a grid share.

    Args:
        parser: The parser of the verb.
        folder: The default output folder, for the help text.
        seeds: The default number of seeds.
    """
    add_number(parser, "--seeds", f"seeds per row (default: {seeds})", default=seeds)
    add_number(parser, "--jobs", "parallel runs (default: 1)", default=1)
    parser.add_argument(
        "--out", type=Path, metavar="GRID", help=f"output folder (default: {folder})"
    )
    parser.add_argument(
        "--gain",
        type=parse_number,
        default=0.5,
        metavar="POINTS",
        help="the smallest gain that matters to you (default: 0.5)",
    )
    add_shared(parser, "--on")
    add_switch(parser, "--no-models", "do not keep the weights")
    add_switch(parser, "--force", "delete the grid in the folder and start over")
    add_shared(parser, "--quiet")


MOST = 1000
"""The most seeds, folds or parallel runs; a larger number is probably a typing error."""


def check_least(options: argparse.Namespace, *, most: int | None = None, **least: int) -> None:
    """Raises for numbers that are too small or too large."""
    for name, lowest in least.items():
        if getattr(options, name) < lowest:
            raise InputError(f"wanted --{name} from {lowest} up, got {getattr(options, name)}")
        if most is not None and getattr(options, name) > most:
            raise InputError(f"wanted --{name} up to {most}, got {getattr(options, name)}")


def check_grid_options(options: argparse.Namespace) -> None:
    """Raises for numbers that make no sense."""
    check_least(options, most=MOST, seeds=1, jobs=1)
    if not 0 < options.gain < 100:
        raise InputError(f"wanted --gain between 0 and 100 points, got {options.gain:g}")


def run_grid(
    options: argparse.Namespace,
    recipe: Recipe,
    experiment: Callable[..., dict[str, Any]],
    *,
    rows: Sequence[Recipe],
    **more: Any,
) -> int:
    """Runs `compare` or `sweep`, prints the comparison, and returns the exit code.

    Args:
        options: As `add_grid_options` adds them.
        recipe: The recipe to train.
        experiment: The function, which takes the recipe and its folder.
        rows: The recipe of each row. Their data are checked before the grid begins, because an
            error in them would make their runs fail.
        more: Other options of the experiment.
    """
    from softf1.cli.show import show_and_exit
    from softf1.experiments.grid import FILE, refuse_others
    from softf1.training.run import check_data

    folder = options.out or Path("runs") / f"{recipe.name}-{options.verb}"
    refuse_others(folder)
    if options.force or not (folder / FILE).is_file():
        check_data(rows)
    with choose_executor(options, folder) as execute:
        comparison = experiment(
            recipe,
            folder,
            execute=execute,
            seeds=range(recipe.train.seed, recipe.train.seed + options.seeds),
            gain=options.gain / 100,
            keep_models=not options.no_models,
            force=options.force,
            quiet=options.quiet,
            **more,
        )
    return show_and_exit(comparison, folder)


def choose_executor(options: argparse.Namespace, folder: Path) -> AbstractContextManager[Execute]:
    """Returns the function that runs the jobs of a grid; it is closed at the end."""
    if options.on == "ray":
        from softf1.experiments.on_ray import Cluster

        return closing(Cluster(options.jobs))
    from softf1.experiments.workers import Pool

    return closing(Pool(options.jobs, logs=folder / "logs"))
