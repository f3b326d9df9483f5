"""What seqeval says of the seeded random sequences, kept in `seqeval.json`.

    python -m tests.metrics.seqeval_figures

writes the file anew, with seqeval installed (it is in no extra: it comes as source only). The tests
compare softf1 with the file everywhere, and the file with seqeval where that is installed.
"""

from __future__ import annotations

import hashlib
import json
import random
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.metrics.schemes import SCHEMES

from .sequences import random_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FILE = Path(__file__).with_name("seqeval.json")
# The class that seqeval has for each scheme, and what its letters are called there.
STRICT: dict[str, tuple[str, dict[str, str]]] = {
    "BIO": ("IOB2", {}),
    "IOB1": ("IOB1", {}),
    "IOE2": ("IOE2", {}),
    "BIOES": ("IOBES", {}),
    "BILOU": ("BILOU", {}),
    "BMES": ("IOBES", {"M": "I"}),
    "BMEWO": ("IOBES", {"M": "I", "W": "S"}),
}
TO_CONLLEVAL = {"M": "I", "L": "E", "U": "S", "W": "S"}
AVERAGES = ("micro", "macro", "weighted")

Tags = list[str]


def rename(tags: Tags, letters: dict[str, str]) -> Tags:
    """The tags with the letters that seqeval has for them."""
    return [letters.get(tag[0], tag[0]) + tag[1:] for tag in tags]


def sequences(scheme: str, count: int = 10_000, seed: int = 0) -> list[Tags]:
    """Random tags, valid and invalid."""
    rng = random.Random(seed)
    return [random_tags(rng, scheme, rng.randint(1, 10)) for _ in range(count)]


def random_pairs(
    scheme: str, count: int = 10_000, seed: int = 0, shortest: int = 1
) -> tuple[list[Tags], list[Tags]]:
    """Gold and predicted tags; many predictions are the gold tags with some changes."""
    rng = random.Random(seed)
    gold, predicted = [], []
    for _ in range(count):
        tags = random_tags(rng, scheme, rng.randint(shortest, 10))
        other = random_tags(rng, scheme, len(tags))
        share = rng.choice((0.0, 0.1, 1.0))
        gold.append(tags)
        predicted.append(
            [b if rng.random() < share else a for a, b in zip(tags, other, strict=True)]
        )
    return gold, predicted


def digest(spans: Iterable[Any]) -> str:
    """A hash of the spans of all sequences."""
    return hashlib.sha256(json.dumps(list(spans)).encode()).hexdigest()


def read_figures() -> dict[str, Any]:
    """What is kept, by scheme."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found["schemes"]


def ask_seqeval(scheme: str) -> dict[str, Any]:
    """Hashes of the spans that seqeval finds, and its scores per label and averaged."""
    from seqeval import scheme as schemes
    from seqeval.metrics.sequence_labeling import get_entities
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as default
    from seqeval.metrics.v1 import precision_recall_fscore_support as strict

    name, letters = STRICT[scheme]
    cls = getattr(schemes, name)
    tags = sequences(scheme)
    renamed = [rename(one, letters) for one in tags]
    entities = (schemes.Tokens(one, cls).entities for one in renamed)
    plain = (get_entities(rename(one, TO_CONLLEVAL)) for one in tags)
    pairs = random_pairs(scheme)
    return {
        "strict_spans": digest([(e.start, e.end, e.tag) for e in found] for found in entities),
        "lenient_spans": digest([(a, b + 1, label) for label, a, b in found] for found in plain),
        "strict_scores": _scores(lambda *x, **how: strict(*x, scheme=cls, **how), pairs, letters),
        "lenient_scores": _scores(default, pairs, TO_CONLLEVAL),
    }


def _scores(
    score: Callable[..., Any], pairs: tuple[list[Tags], list[Tags]], letters: dict[str, str]
) -> dict[str, list[Any]]:
    """Per label on all sentences, every average on the first tenth (seqeval takes its time)."""
    gold, predicted = ([rename(tags, letters) for tags in side] for side in pairs)
    part = slice(len(gold) // 10)
    found = {"labels": score(gold, predicted, average=None, zero_division=0)}
    for name in AVERAGES:
        found[name] = score(gold[part], predicted[part], average=name, zero_division=0)
    return {
        name: [getattr(x, "tolist", lambda x=x: x)() for x in value]
        for name, value in found.items()
    }


def main() -> None:
    """Writes the file."""
    from importlib.metadata import version

    warnings.filterwarnings("ignore", module="seqeval")
    found = {
        "seqeval": version("seqeval"),
        "schemes": {name: ask_seqeval(name) for name in SCHEMES},
    }
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
