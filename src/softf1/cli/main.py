"""`softf1 VERB …`: finds the verb, parses its options, turns errors into exit codes."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Container, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from softf1 import __version__
from softf1.errors import InputError, RunError, one_line

# verb → one line of help. The module softf1.cli.<verb> offers add_options(parser) and run(options),
# and imports what it needs inside run, so that --help answers at once.
VERBS = {
    "demo": "compare losses on a small real corpus; prints a table, writes a report",
    "new": "write a commented recipe for your files",
    "train": "train a model with a recipe",
    "evaluate": "score a trained model on test data or any labelled file",
    "headroom": "show how much F1 a run could still gain, and where",
    "predict": "predict on a file; one line of JSON per example",
    "export": "export a trained model as ONNX",
    "report": "write an HTML report of a comparison, a sweep or runs",
    "compare": "train several losses with the same seeds and test which one helps",
    "sweep": "train over a grid of values of any recipe keys",
    "reproduce": "repeat the paper's tables, for the datasets you have",
    "suspects": "find likely label errors in your data",
    "stats": "show how imbalanced your data is, and how often a batch has each label",
    "list": "list losses, tasks, formats, encoders and recipes",
}
GRIDS = ("demo", "compare", "sweep", "reproduce", "suspects")
"""Verbs that train many models and continue where they were interrupted."""
WORKING = ("train", *GRIDS)
"""Verbs that write a folder: they continue if the reader of their output is gone."""


class Parser(argparse.ArgumentParser):
    """Prints bad usage as one line."""

    def error(self, message: str) -> NoReturn:
        """Prints the message, names the help, and exits with 2."""
        self.exit(2, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")


def build_parser(wanted: Container[str] = VERBS) -> argparse.ArgumentParser:
    """Builds the parser of all verbs, with the options of the wanted ones; imports no torch."""
    parser = Parser(
        prog="softf1",
        description="Losses, training and honest comparison for text models that are judged by F1.",
    )
    parser.add_argument("--version", action="version", version=f"softf1 {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, summary in VERBS.items():
        sub = verbs.add_parser(verb, help=summary)
        if verb in wanted:
            module = importlib.import_module(f"softf1.cli.{verb}")
            sub.description = module.__doc__
            module.add_options(sub)
            sub.set_defaults(run=module.run, usage=sub)
    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line; also accepts `key=value` after options, which argparse does not."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = build_parser(words)
    if not words:
        parser.print_help(sys.stderr)
        parser.exit(2, "\nStart with: softf1 new YOUR-FILE, or softf1 demo\n")
    options, rest = parser.parse_known_args(arguments)
    changes = [word for word in rest if "=" in word and not word.startswith("-")]
    if rest and (changes != rest or not hasattr(options, "values")):
        options.usage.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.values = [*options.values, *rest]
    return options


class Unread:
    """A stream whose reader may close it, as `head` does; drops later output."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Writes the text, or drops it if the reader is gone."""
        try:
            return self.stream.write(text)
        except BrokenPipeError:
            drop_output(self.stream)
            return len(text)

    def flush(self) -> None:
        """Flushes, unless the reader is gone."""
        try:
            self.stream.flush()
        except BrokenPipeError:
            drop_output(self.stream)

    def __getattr__(self, name: str) -> Any:
        """Passes all other attributes on to the stream."""
        return getattr(self.stream, name)


def drop_output(stream: TextIO) -> None:
    """Redirects a stream to the null device, so that flushing at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def prepare_streams() -> None:
    """Makes any text printable: escapes characters that the terminal cannot show."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - kept
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns 0 for done, 1 for failed, 2 for bad input or usage."""
    prepare_streams()
    prepare_threads()
    options = parse_arguments(arguments)
    with ExitStack() as held:
        if options.verb in WORKING:
            held.enter_context(redirect_stdout(cast("TextIO", Unread(sys.stdout))))
            held.enter_context(redirect_stderr(cast("TextIO", Unread(sys.stderr))))
        return run(options)


def prepare_threads() -> None:
    """Makes threads of OpenMP wait in a short loop before they sleep, unless the user chose.

    By default the loop of GNU's OpenMP takes a millisecond or so. If other programs want the same
    cores, the next operation waits for the looping threads, and small models train many times as
    long. torch reads the variable when it is imported, later than this.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def run(options: argparse.Namespace) -> int:
    """Runs the verb; turns errors into one line and an exit code."""
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except InputError as error:
        print(f"softf1 {options.verb}: {one_line(error)}", file=sys.stderr)
        return 2
    except (OSError, RunError) as error:  # such as a full disk: other input would not help
        if isinstance(error, BrokenPipeError) and options.verb not in WORKING:
            drop_output(sys.stdout)  # its reader, such as head, has seen enough
            return 0
        print(f"softf1 {options.verb}: {one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        again = " without --force" if getattr(options, "force", False) else ""
        more = f"; the same command{again} continues" if options.verb in GRIDS else ""
        print(f"softf1 {options.verb}: interrupted{more}", file=sys.stderr)
        return 1
    return code
