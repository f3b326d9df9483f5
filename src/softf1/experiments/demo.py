"""`softf1 demo`: finds names in spoken Cantonese, by cross entropy and three ways to beat it.

HKCanCor is spoken Cantonese with part-of-speech tags; names are 1.3% of its tokens. It is in the
package pycantonese, CC BY 4.0 (K. K. Luke and May L. Y. Wong). Words tagged nr, ns, nt or nz are
names; adjacent words with the same tag are one name. Dev and test get whole dialogues, all parts of
a recording (FC-005a, FC-005b) together: a name that occurs once in a dialogue often occurs again.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from softf1.errors import InputError
from softf1.experiments.grid import Execute, lock_grid
from softf1.experiments.search import BASELINE
from softf1.experiments.sweep import run_variants
from softf1.files import write_text
from softf1.recipe import Recipe, build_recipe

ADVERSARIAL = 0.5
"""The size of the adversarial step, in units of the average row of the word embeddings."""

SIZES = {"word_size": 64, "char_size": 16, "char_filters": 20, "hidden_size": 128}
OF_THE_SET = {
    "loss.over": "batch",
    "loss.average": "micro",
    "loss.exclude": ["O"],
    "loss.squared": True,
}
"""Loss options of a soft F1 over all tokens of a batch, without the tag O."""

ROWS: dict[str, dict[str, Any]] = {
    BASELINE: {"loss.name": BASELINE},
    "ce, adversarial": {"loss.name": BASELINE, "train.adversarial_relative": ADVERSARIAL},
    "dice": {"loss.name": "dice", **OF_THE_SET},
    "tversky .3/.7": {
        "loss.name": "tversky",
        "loss.alpha": 0.3,
        "loss.beta": 0.7,
        **OF_THE_SET,
    },
}
"""The variants: cross entropy, the same with an adversarial step, and losses made for F1."""


def run_demo(
    folder: Path,
    *,
    execute: Execute,
    seeds: int = 3,
    rows: Sequence[str] = tuple(ROWS),
    force: bool = False,
    quiet: bool = False,
    **values: Any,
) -> dict[str, Any]:
    """Trains every variant with every seed; returns the comparison and `failed`: errors by run.

    Args:
        folder: The grid folder.
        execute: Executes the runs.
        seeds: How many seeds.
        rows: A subset of `ROWS`; the first is the baseline.
        force: Delete what an earlier grid left in the folder, and start again.
        quiet: Show no progress.
        values: Changes to `[train]`, for a shorter run.
    """
    with lock_grid(folder, force=force):
        recipe = demo_recipe(folder, **values)
    return run_variants(
        recipe,
        folder,
        variants={row: ROWS[row] for row in rows},
        seeds=range(seeds),
        execute=execute,
        about={"kind": "compare", "axis": ["loss"], "tune": "none"},
        keep_models=False,
        quiet=quiet,
    )


def demo_recipe(folder: Path, **values: Any) -> Recipe:
    """Writes the corpus into the folder; returns the recipe of a small BiLSTM from scratch."""
    paths = write_corpus(folder / "data")
    return build_recipe(
        {
            "name": "demo",
            "task": {"kind": "tagging", "format": "conll", **{k: str(v) for k, v in paths.items()}},
            "encoder": {"name": "bilstm", **SIZES},
            "train": {"epochs": 4.0, "batch_size": 64, "lr": 1e-2, **values},
        }
    )


def introduce(seeds: int) -> str:
    """Explains what the demo does."""
    return (
        f"Names in spoken Cantonese (HKCanCor): 1.3% of the tokens. A small BiLSTM from scratch, "
        f"{len(ROWS)} ways to train it,\n{seeds} seeds each, about two minutes on two cores. "
        "The second way adds an adversarial step on the word embeddings.\nDice weighs false "
        "positives and false negatives alike; tversky .3/.7 weighs false negatives more (recall).\n"
    )


NAMES = {"nr": "PER", "ns": "LOC", "nt": "ORG", "nz": "MISC"}
SHARES = {"test": 0.2, "dev": 0.1}
SPLIT_SEED = 1997
NOTICE = (
    "Text: Hong Kong Cantonese Corpus (HKCanCor), K. K. Luke and May L. Y. Wong, licensed under "
    "CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/), from the package pycantonese; names "
    "were derived from its part-of-speech tags."
)

Sentence = list[tuple[str, str]]


def write_corpus(folder: Path) -> dict[str, Path]:
    """Writes train, dev and test, one word and tag per line; returns their paths."""
    dialogues: dict[str, list[Sentence]] = {}
    for path in find_recordings():
        dialogues.setdefault(name_dialogue(path.name), []).extend(read_recording(path))
    parts = split_dialogues(sorted(dialogues))
    paths = {name: folder / f"{name}.txt" for name in ("train", "dev", "test")}
    for name, path in paths.items():
        lines = (
            "\n".join(f"{word} {tag}" for word, tag in sentence) + "\n\n"
            for dialogue in parts[name]
            for sentence in dialogues[dialogue]
        )
        write_text(path, "".join(lines))
    return paths


def find_recordings() -> list[Path]:
    """Finds the files of the corpus without importing the package, which is slow."""
    spec = importlib.util.find_spec("pycantonese")
    if spec is None or not spec.submodule_search_locations:
        raise InputError("the demo needs the package pycantonese (softf1[demo])")
    folder = Path(next(iter(spec.submodule_search_locations))) / "data" / "hkcancor"
    return sorted(folder.glob("*.cha"))


def name_dialogue(file: str) -> str:
    """The dialogue that a recording belongs to.

    >>> name_dialogue("FC-005a_v.cha"), name_dialogue("FC-R005_v2.cha")
    ('FC-005', 'FC-R005')
    """
    match = re.match(r"[A-Z]+-R?\d+", file)
    return match[0] if match else file


def split_dialogues(names: list[str]) -> dict[str, list[str]]:
    """Splits the dialogues into train, dev and test, in the same way on every machine."""
    order = [names[i] for i in np.random.default_rng(SPLIT_SEED).permutation(len(names))]
    out: dict[str, list[str]] = {}
    for part, share in SHARES.items():
        size = round(share * len(names))
        out[part], order = sorted(order[:size]), order[size:]
    return {"train": sorted(order), **out}


def read_recording(path: Path) -> Iterator[Sentence]:
    """Reads the utterances of a CHAT file: words on `*`, tags on `%mor`; both may be wrapped."""
    words: list[str] = []
    for line in path.read_text("utf-8").replace("\n\t", " ").splitlines():
        head, _, rest = line.partition("\t")
        if head.startswith("*"):
            words = rest.split()
        elif head == "%mor:" and words:
            yield tag_names(words, rest.split())
            words = []


def tag_names(words: list[str], parts: list[str]) -> Sentence:
    """Returns words with B and I tags for names.

    >>> tag_names(["孔", "融", "食", "梨"], ["nr|hung2", "nr|jung4", "v|sik6", "n|lei4"])
    [('孔', 'B-PER'), ('融', 'I-PER'), ('食', 'O'), ('梨', 'O')]
    """
    out: Sentence = []
    before = None
    for word, part in zip(words, parts, strict=True):
        kind = NAMES.get(part.partition("|")[0])
        out.append((word, "O" if kind is None else f"{'I' if kind == before else 'B'}-{kind}"))
        before = kind
    return out
