"""Predicts on a file of any length; prints one line of JSON per example, in order."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from softf1.cli.options import PLACES, SETTINGS, add_shared, choose_places, read_settings
from softf1.cli.show import print_problems
from softf1.errors import InputError, printable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 predict`."""
    parser.add_argument("folder", metavar="RUN", help="a run folder, or a model folder")
    parser.add_argument(
        "input", metavar="INPUT", help="a file, with or without labels, or - for standard input"
    )
    parser.add_argument("--format", help="format of INPUT (default: that of the training data)")
    add_shared(parser, *SETTINGS)
    parser.add_argument(
        "--out", metavar="FILE", help="write to FILE, which appears when it is complete"
    )
    add_shared(parser, "--abstain", "--on-error", *PLACES)


def run(options: argparse.Namespace) -> int:
    """Reads, predicts and writes, some examples at a time."""
    from softf1.data.problems import Problems
    from softf1.files import new_file
    from softf1.training.predict import BELOW, abstention, predict_lines, read_input
    from softf1.training.publish import load_model

    if options.out:
        _check_out(Path(options.out), options.input)
    elif getattr(sys.stdout, "name", "") == os.devnull:
        raise InputError("wanted --out, since the standard output is closed")
    how = choose_places(options)
    loaded = load_model(options.folder)
    if options.abstain:
        abstention(loaded.task)
    loaded.model.to(how["device"])
    problems = Problems(options.on_error, unique=False)
    settings = read_settings(options.set, options.encoding)
    examples = read_input(
        loaded.task, options.input, format=options.format, options=settings, problems=problems
    )
    lines = predict_lines(loaded, examples, abstain=options.abstain, **how)
    if options.out:
        with new_file(Path(options.out)) as file:
            count = _write(lines, file)
        print(f"{printable(options.out)}: {count:,} predictions", file=sys.stderr)
    else:
        _write(lines, sys.stdout.buffer)
    if getattr(loaded.task, "bars", {}) and not options.abstain:
        problems.note(BELOW)
    print_problems(options.input, problems)
    return 0


def _check_out(out: Path, source: str) -> None:
    """Refuses an output file that is a folder, or the file that is read."""
    from softf1.files import refuse_folder

    refuse_folder(out)
    if out.exists() and Path(source).exists() and out.samefile(source):
        raise InputError("wanted another --out: this is the file that is read", path=out)


def _write(lines: Iterable[bytes], file: object) -> int:
    count = 0
    for line in lines:
        file.write(line)  # type: ignore[attr-defined]
        count += 1
    return count
