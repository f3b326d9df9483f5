"""Exports a trained model as ONNX, and checks the result against torch first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `softf1 export`."""
    parser.add_argument("folder", metavar="RUN", help="a run folder, or a model folder")
    parser.add_argument(
        "--onnx", action="store_true", required=True, help="export as ONNX (required)"
    )
    parser.add_argument("--out", metavar="FILE", help="output file (default: RUN/model.onnx)")


def run(options: argparse.Namespace) -> int:
    """Exports and says what came of it."""
    from softf1.training.export import SHAPES, export_onnx

    made = export_onnx(options.folder, options.out)
    size = made.path.stat().st_size / 1e6
    print(f"{made.path}: {size:,.1f} MB, {', '.join(made.inputs)} → {', '.join(made.outputs)}")
    print(f"at most {made.difference:.1e} from torch over {len(SHAPES)} shapes in onnxruntime")
    return 0
