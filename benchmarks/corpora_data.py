"""Training, dev and test files of the measuring corpora, as the recipes look for them.

    python benchmarks/corpora_data.py SHARED OUT [--only en|zh] [--limit N]

SHARED holds `data/` and `encoders/`. What has no split of its own gets one here, the same every
time. `--limit` keeps that many examples of each file: to try everything out on a CPU.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

from softf1.experiments.demo import write_corpus

SEED = 2020
FOLDS = 5
MSRA = 11_112
"""Sentences, of which the recipe puts a tenth aside as dev."""
QQP_HEADS = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
ENCODERS = {"en": "en-minilm-l6", "zh": "zh-minibert-6l"}


class Preparer:
    """Writes the files of all corpora into a folder."""

    def __init__(self, shared: Path, out: Path, limit: int | None) -> None:
        self.shared, self.out, self.limit = shared / "data", out / "data", limit

    def english(self) -> None:
        """CoNLL-2003, MRPC, QQP at 10% and 37%, SST, SQuAD, QuoRef, tweets."""
        for name in ("train", "testa", "testb"):
            self.copy_blocks(f"conll2003_en/eng.{name}", f"conll03/eng.{name}")
        for name in ("train.tsv", "dev.tsv", "msr_paraphrase_test.txt"):
            self.copy_lines(f"mrpc/{name}", f"mrpc/{name}", heads=1)
        for part in ("train", "dev", "test"):
            self.copy_lines(f"sst2_sentence/stsa.binary.{part}", f"sst2/stsa.binary.{part}")
            self.copy_lines(f"sst5/stsa.fine.{part}", f"sst5/stsa.fine.{part}")
        for name, share in (("qqp10", 0.10), ("qqp37", 0.37)):
            self.thin_questions(name, share)
        self.split_articles("squad_dev/dev-v1.1.rebuilt.json", "squad1.1")
        self.split_articles("squad_dev/dev-v2.0.rebuilt.json", "squad2.0")
        self.split_articles("quoref_dev/quoref-dev-v0.1.json", "quoref")
        self.fold_tweets()

    def chinese(self) -> None:
        """MSRA, ResumeNER, UD 1.4, TNEWS; CMRC 2018 and HKCanCor to test the rules of `auto`."""
        self.split_articles("cmrc2018/cmrc2018_dev.json", "cmrc2018")
        write_corpus(self.out / "hkcancor")
        blocks = self.read_blocks("msra_ner/msra_train_bio")
        random.Random(SEED).shuffle(blocks)
        self.write("msra/msra_train_bio", blocks[:MSRA], "\n\n")
        self.copy_blocks("msra_ner/msra_test_bio", "msra/msra_test_bio")
        for part in ("train", "dev", "test"):
            self.copy_blocks(f"ud_zh_1.4/zh-ud-{part}.conllu", f"ud1.4/zh-ud-{part}.conllu")
            self.copy_blocks(f"resume_ner/{part}.char.bmes", f"resume/{part}.char.bmes")
        self.copy_lines("tnews/train.json", "tnews/train.json")
        self.copy_lines("tnews/test.json", "tnews/dev.json")  # CLUE's dev, the one with labels

    def copy_blocks(self, source: str, target: str) -> None:
        """Sentences with an empty line between them."""
        self.write(target, self.read_blocks(source), "\n\n")

    def copy_lines(self, source: str, target: str, heads: int = 0) -> None:
        """Lines; the first ones are heads that stay."""
        lines = (self.shared / source).read_text("utf-8").splitlines()
        end = None if self.limit is None else self.limit + heads
        self.write_text(target, "".join(f"{line}\n" for line in lines[:end]))

    def thin_questions(self, name: str, share: float) -> None:
        """Pairs with so many positives; a tenth of the first file is dev, the second is test."""
        draw = random.Random(SEED)
        first, second = (
            self._thinned(f"qqp_20k/{part}.tsv", share, draw) for part in ("dev", "test")
        )
        cut = len(first) // 10
        parts = {"train": first[cut:], "dev": first[:cut], "test": second}
        for part, rows in parts.items():
            text = "\t".join(QQP_HEADS) + "\n"
            for number, (label, one, other) in enumerate(rows[: self.limit]):
                text += "\t".join((str(number), "0", "0", one, other, label)) + "\n"
            self.write_text(f"{name}/{part}.tsv", text)

    def _thinned(self, source: str, share: float, draw: random.Random) -> list[list[str]]:
        text = (self.shared / source).read_text("utf-8", errors="replace")
        rows = [line.split("\t")[:3] for line in text.splitlines()]
        rows = [row for row in rows if len(row) == 3]
        negatives = [row for row in rows if row[0] == "0"]
        positives = draw.sample(
            [row for row in rows if row[0] == "1"], round(len(negatives) * share / (1 - share))
        )
        mixed = negatives + positives
        draw.shuffle(mixed)
        return mixed

    def split_articles(self, source: str, name: str) -> None:
        """Seven tenths of the articles to train with, one for dev, two for test."""
        articles = json.loads((self.shared / source).read_text("utf-8"))["data"]
        random.Random(SEED).shuffle(articles)
        first, second = round(0.7 * len(articles)), round(0.8 * len(articles))
        parts = {"train": (0, first), "dev": (first, second), "test": (second, None)}
        for part, (start, end) in parts.items():
            own = articles[start:end]
            if self.limit is not None:
                own = [_shortened(article, self.limit) for article in own[:2]]
            self.write_text(f"{name}/{part}.json", json.dumps({"version": "1", "data": own}))

    def fold_tweets(self) -> None:
        """Five folds: one is test, the next dev, the others are trained with."""
        blocks = self.read_blocks("ritter_twitter_pos/pos.txt")
        random.Random(SEED).shuffle(blocks)
        folds = [blocks[number::FOLDS] for number in range(FOLDS)]
        for fold in range(FOLDS):
            test, dev, *train = folds[fold:] + folds[:fold]
            parts = {"train": list(chain.from_iterable(train)), "dev": dev, "test": test}
            for part, own in parts.items():
                self.write(f"tweets-{fold}/{part}.txt", own, "\n\n")

    def read_blocks(self, source: str) -> list[str]:
        """The blocks of a file."""
        text = (self.shared / source).read_text("utf-8").replace("\r\n", "\n")
        return [block.strip("\n") for block in text.split("\n\n") if block.strip()]

    def write(self, target: str, parts: list[str], between: str) -> None:
        """Some parts as a file."""
        self.write_text(target, between.join(parts[: self.limit]) + between)

    def write_text(self, target: str, text: str) -> None:
        """A file, with its folder."""
        path = self.out / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def _shortened(article: dict[str, Any], limit: int) -> dict[str, Any]:
    return {**article, "paragraphs": article["paragraphs"][: max(1, limit // 10)]}


def main() -> None:
    """Write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=tuple(ENCODERS))
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    if not (options.shared / "data").is_dir():
        raise SystemExit(f"{options.shared}/data: no such folder; there is nothing to measure on")
    preparer = Preparer(options.shared, options.out, options.limit)
    for language, encoder in ENCODERS.items():
        if options.only in (None, language):
            (preparer.english if language == "en" else preparer.chinese)()
            target = options.out / "encoders" / language
            target.mkdir(parents=True, exist_ok=True)
            for path in (options.shared / "encoders" / encoder).iterdir():
                shutil.copyfile(path, target / path.name)


if __name__ == "__main__":
    main()
