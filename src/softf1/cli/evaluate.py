"""Scores a trained model on the test data of its recipe, or on any labelled file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.cli.options import add_places, add_settings, choose_places, read_settings

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 evaluate`."""
    parser.add_argument("folder", metavar="RUN", help="a run folder, or a model folder with --data")
    parser.add_argument("--data", metavar="FILE", help="a labelled file (default: the recipe's)")
    parser.add_argument(
        "--split",
        choices=("dev", "test"),
        help="split of the recipe (default: test, or dev if there is no test)",
    )
    parser.add_argument("--format", help="format of FILE (default: that of the training data)")
    add_settings(parser)
    parser.add_argument(
        "--abstain", action="store_true", help="leave out predictions below their threshold"
    )
    parser.add_argument("--onnx", metavar="FILE", help="score this export of RUN instead")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_places(parser)


def run(options: argparse.Namespace) -> int:
    """Evaluates and prints; nothing is written."""
    import json
    import sys

    from softf1.errors import InputError, printable
    from softf1.tasks.base import finite
    from softf1.training.predict import as_json, rescore
    from softf1.training.results import format_labels, format_scores

    if options.data and options.split:
        raise InputError("wanted --data or --split, got both")
    if options.onnx and options.abstain:
        raise InputError("wanted --onnx or --abstain, got both: an export has no thresholds")
    scored = rescore(
        options.folder,
        data=options.data,
        split=options.split,
        format=options.format,
        options=read_settings(options.set, options.encoding),
        abstain=options.abstain,
        onnx=options.onnx,
        **choose_places(options),
    )
    if options.json:
        print(json.dumps(finite(as_json(options.folder, scored)), ensure_ascii=False, indent=1))
        return 0
    name = scored.split or "scores"
    print(f"{printable(scored.data)}: {scored.examples:,} examples\n")
    print(format_scores({"headline": scored.headline, "scores": {name: scored.scores}}))
    if scored.scores.get("labels"):
        print(f"\n{format_labels(scored.scores['labels'])}")
    for note in scored.notes:
        print(f"note: {printable(note)}", file=sys.stderr)
    return 0
