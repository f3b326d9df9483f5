"""`--device`, `--precision`, `--batch-tokens`: where and how a trained model runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


def add_places(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--device", help="such as cpu or cuda:1 (default: a GPU if there is one)")
    parser.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16", "fp16"),
        default="auto",
        help="auto: bf16 on a GPU that can, else fp32",
    )
    parser.add_argument(
        "--batch-tokens", type=int, default=16384, metavar="N", help="padded tokens of a batch"
    )


def choose_places(options: argparse.Namespace) -> dict[str, Any]:
    """What `find` takes: device, autocast and batch_tokens."""
    import torch

    from softf1.errors import InputError
    from softf1.training.processes import choose_precision, make_autocast

    if options.batch_tokens < 1:
        raise InputError(f"wanted --batch-tokens from 1 up, got {options.batch_tokens}")
    name = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"wanted --device that is here, got {name}: {reason}") from error
    precision = choose_precision(options.precision, device)
    autocast = make_autocast(precision, device)
    return {"device": device, "autocast": autocast, "batch_tokens": options.batch_tokens}
