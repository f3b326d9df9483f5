"""Data for benchmarks/leads.toml, made of the files that corpora_data.py wrote.

    python benchmarks/corpora_data.py ../shared work
    python benchmarks/leads_data.py work

Smaller training sets of CoNLL-2003 (each holds the smaller ones), QQP with fewer positives, and the
names of CoNLL-2003, MSRA and ResumeNER as sets of labels: which types a sentence has, of one word
(in Chinese one character), two or more. Takes seconds, so that a machine that gets `work` need not
get these files too. What it is made of may be missing; then it is left out.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from softf1.metrics.schemes import decode_lenient

SEED = 2020
SIZES = (5, 10, 25, 50)
"""Percent of the training sentences of CoNLL-2003."""
SHARES = (2, 5, 20)
"""Percent of positives of QQP; corpora_data.py makes 10 and 37."""
LONG = 3
"""Words from which names are of one kind."""
PARTS = {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"}
CHARACTERS = {
    "msra": {"train": "msra_train_bio", "test": "msra_test_bio"},
    "resume": {part: f"{part}.char.bmes" for part in ("train", "dev", "test")},
}
"""Files with a character in each line."""


def sample_sentences(source: Path, out: Path) -> None:
    """Writes the first so many percent of all sentences in a random order."""
    blocks = [block for block in read_blocks(source) if not block.startswith("-DOCSTART-")]
    random.Random(SEED).shuffle(blocks)
    for size in SIZES:
        kept = blocks[: max(1, round(len(blocks) * size / 100))]
        write(out / f"conll03-{size}" / source.name, "\n\n".join(kept) + "\n\n")


def thin_positives(source: Path, out: Path) -> None:
    """Writes all negatives of each part, and as many positives as the share allows."""
    for path in sorted(source.glob("*.tsv")):
        head, *rows = path.read_text("utf-8").splitlines()
        positives = [number for number, row in enumerate(rows) if row.endswith("\t1")]
        random.Random(SEED).shuffle(positives)
        negatives = len(rows) - len(positives)
        for share in SHARES:
            left = {*positives[max(1, round(negatives * share / (100 - share))) :]}
            kept = [row for number, row in enumerate(rows) if number not in left]
            write(out / f"qqp{share}" / path.name, "\n".join([head, *kept]) + "\n")


def list_types(source: Path, target: Path, *, space: str = " ") -> None:
    """Writes each sentence with the kinds of names that it has, such as PER-2; none or several."""
    lines = []
    for block in read_blocks(source):
        rows = [line.split() for line in block.splitlines()]
        if rows[0][0] == "-DOCSTART-":
            continue
        spans = decode_lenient([row[-1] for row in rows])
        kinds = {f"{label}-{min(LONG, end - start)}" for start, end, label in spans}
        text = space.join(row[0] for row in rows)
        row = {"text": text, "labels": sorted(kinds)}
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    write(target, "".join(lines))


def read_blocks(path: Path) -> list[str]:
    """Returns the sentences of a file with an empty line between them."""
    return [block for block in path.read_text("utf-8").split("\n\n") if block.strip()]


def write(path: Path, text: str) -> None:
    """Writes a file, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def make(data: Path) -> None:
    """Writes all files whose sources are there."""
    names = data / "conll03"
    if (names / PARTS["train"]).is_file():
        sample_sentences(names / PARTS["train"], data)
    for part, name in PARTS.items():
        if (names / name).is_file():
            list_types(names / name, data / "conll03-types" / f"{part}.jsonl")
    for corpus, parts in CHARACTERS.items():
        for part, name in parts.items():
            if (data / corpus / name).is_file():
                target = data / f"{corpus}-types" / f"{part}.jsonl"
                list_types(data / corpus / name, target, space="")
    thin_positives(data / "qqp37", data)


def main() -> None:
    """Write what can be made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    make(parser.parse_args().work / "data")


if __name__ == "__main__":
    main()
