"""Exports a trained model as ONNX, and checks the result against torch first."""

from __future__ import annotations

import argparse
from pathlib import Path

from softf1.cli.options import add_switch
from softf1.errors import printable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 export`."""
    parser.add_argument("folder", metavar="RUN", help="a run folder, or a model folder")
    add_switch(parser, "--onnx", "export as ONNX, the only format so far")
    add_switch(parser, "--int8", "8-bit weights; prints both scores to compare")
    parser.add_argument(
        "--out", metavar="FILE", help="output file (default: RUN/model.onnx or RUN/model.int8.onnx)"
    )


def run(options: argparse.Namespace) -> int:
    """Exports the model and prints the file and the differences."""
    from softf1.training.export import SHAPES, export_onnx

    made = export_onnx(options.folder, options.out, int8=options.int8)
    size = made.path.stat().st_size / 1e6
    print(f"{made.path}: {size:,.1f} MB, {', '.join(made.inputs)} → {', '.join(made.outputs)}")
    print(f"differs from torch by at most {made.difference:.1e} on {len(SHAPES)} shapes")
    if options.int8:
        print_scores(options.folder, made.path)
    return 0


def print_scores(folder: str, exported: Path) -> None:
    """Prints the score of the model and of its 8-bit export on the data that the run is judged by.

    A model folder names no data.
    """
    from softf1.training.predict import find_recipe, rescore

    if find_recipe(folder) is None:
        print(f"to compare scores: softf1 evaluate {folder} --onnx {exported} --data FILE")
        return
    for name, onnx in (("float32", None), ("int8", exported)):
        scored = rescore(folder, onnx=onnx)
        score = 100 * scored.scores[scored.metric]
        print(f"{name}: {scored.metric} {score:.2f} on {printable(scored.data)}")
