"""How fast a tagging file is read, against the usual loop over lines.

    python benchmarks/readers.py [SENTENCES]

Both read the same file in turn, in seconds of the processor, since machines are shared; the ratio
is that of their medians.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median

from softf1.data import TaggedSentence, conll

ROUNDS = 5


def write_corpus(path: Path, sentences: int) -> None:
    """Writes made-up sentences of 5 to 25 words in four columns."""
    random = Random(0)
    words = [f"w{number}" for number in range(30_000)]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(sentences):
            for _ in range(random.randint(5, 25)):
                tag = random.choice(("O", "O", "O", "O", "B-PER", "B-LOC"))
                file.write(f"{random.choice(words)} NN I-NP {tag}\n")
            file.write("\n")


def read_by_lines(path: Path) -> int:
    """The usual loop to the same examples, unchecked; returns the number of sentences."""
    count = 0
    words: list[str] = []
    tags: list[str] = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            cells = line.strip().split()
            if cells:
                words.append(cells[0])
                tags.append(cells[-1])
            elif words:
                TaggedSentence(tuple(words), tuple(tags), count)
                count += 1
                words, tags = [], []
    return count


def read_by_softf1(path: Path) -> int:
    """Ours, which also checks every row."""
    return sum(1 for _ in conll.iterate(path))


def main() -> None:
    """Prints rates and their ratio."""
    sentences = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.txt"
        write_corpus(path, sentences)
        seconds: dict[str, list[float]] = {"lines": [], "softf1": []}
        for _ in range(ROUNDS):
            for name, read in (("lines", read_by_lines), ("softf1", read_by_softf1)):
                start = time.process_time()
                count = read(path)
                seconds[name].append(time.process_time() - start)
                if count != sentences:
                    raise SystemExit(f"{name} read {count} of {sentences} sentences")
    for name, times in seconds.items():
        print(f"{name}: {sentences / median(times):,.0f} sentences/s")
    print(f"ratio: {median(seconds['lines']) / median(seconds['softf1']):.2f}")


if __name__ == "__main__":
    main()
