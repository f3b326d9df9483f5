"""Scores a trained model on the test data of its recipe, or on any labelled file."""

from __future__ import annotations

import argparse

from softf1.cli.options import PLACES, add_scored, add_shared, read_scored
from softf1.cli.show import format_labels, format_scores, print_json, print_notes
from softf1.errors import InputError, printable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 evaluate`."""
    add_scored(parser)
    add_shared(parser, "--abstain")
    parser.add_argument("--onnx", metavar="FILE", help="score this export of RUN instead")
    add_shared(parser, "--json", *PLACES)


def run(options: argparse.Namespace) -> int:
    """Evaluates and prints; nothing is written."""
    from softf1.files import finite
    from softf1.training.predict import as_json, rescore

    if options.onnx and options.abstain:
        raise InputError("wanted --onnx or --abstain, got both: an export has no thresholds")
    how = read_scored(options)
    scored = rescore(options.folder, abstain=options.abstain, onnx=options.onnx, **how)
    if options.json:
        print_json(finite(as_json(options.folder, scored)))
        return 0
    name = scored.split or "scores"
    print(f"{printable(scored.data)}: {scored.examples:,} examples\n")
    print(format_scores({"headline": scored.metric, "scores": {name: scored.scores}}))
    if scored.scores.get("labels"):
        print(f"\n{format_labels(scored.scores['labels'])}")
    print_notes(scored.notes)
    return 0
