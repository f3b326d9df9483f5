"""Half precision on the CPU, in a process whose matrix instructions are those that every CPU has.

    python -m tests.training.half FOLDER BERT

Some virtual machines say that they have AMX and end a process at its first instruction; it can be
ruled out only before torch is loaded (ONEDNN_MAX_CPU_ISA).
"""

import json
import sys
from pathlib import Path

import torch

from softf1.recipe import with_values
from softf1.training.build import make_model
from softf1.training.datasets import load_datasets
from softf1.training.graphs import CastOnce
from softf1.training.run import train_run
from tests.training.test_graphs import make_steps
from tests.training.test_run import case
from tests.training.toys import read_metrics


def compare_casts(recipe, data):
    """Logits and gradients of autocast, and of weights cast once."""
    datasets = load_datasets(recipe, data)
    model = make_model(recipe, datasets).eval()
    half = CastOnce(model, torch.bfloat16)
    (batch,) = make_steps(datasets, 1, size=4)
    found = {}
    for name, run in (("autocast", model), ("once", half)):
        with torch.autocast("cpu", torch.bfloat16):
            logits = run(**batch.inputs).logits
        logits.float().square().sum().backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        found[name] = (logits.detach(), grads)
        model.zero_grad()
    (ours, own), (theirs, wanted) = found["once"], found["autocast"]
    error = max(
        float((a - b).norm() / b.norm().clamp_min(1e-6)) for a, b in zip(own, wanted, strict=True)
    )
    return {
        "same": torch.equal(ours, theirs),
        "cast": sorted(half.names),
        "float32": all(gradient.dtype == torch.float32 for gradient in own),
        "error": error,
    }


def train(recipe, data, folder):
    out = {}
    for precision in ("fp32", "bf16"):
        changed = with_values(recipe, {"train.precision": precision})
        result = train_run(changed, folder / precision, data=data, quiet=True)
        losses = [x["loss"] for x in read_metrics(folder / precision) if x["event"] == "step"]
        out[precision] = {"losses": losses, "precision": result["precision"]}
    return out


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    recipe, data = case("tagging-batch", sys.argv[2], max_steps=10, lr=1e-3)
    recipe = with_values(recipe, {"encoder.dropout": 0.0})
    found = {"casts": compare_casts(recipe, data), "runs": train(recipe, data, folder)}
    (folder / "found.json").write_text(json.dumps(found))
