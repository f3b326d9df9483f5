"""A tagging file of a million sentences, encoded.

    python benchmarks/encoding.py [SENTENCES]

Compares with the fast tokenizer's own rate on the same sentences (`encode_batch` on words, the
same threads), measured on slices before and after. The text is synthetic: syllables put together
to 200,000 words whose frequencies follow Zipf's law, and one word in twenty a number that hardly
ever comes twice. `distinct` makes every word new, the worst case for an encoder that remembers.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from softf1.models.encoders import make_tokenizer
from softf1.tasks.registry import make_task

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLICE = 10_000
TAGS = np.array(["O", "O", "O", "O", "O", "O", "B-PER", "B-LOC"])


def write_sentences(
    path: Path,
    sentences: int,
    *,
    distinct: bool = False,
    tags: NDArray[np.str_] = TAGS,
    words: tuple[int, int] = (5, 26),
    seed: int = 0,
) -> None:
    """Write a synthetic tagging file, a chunk at a time; `words` are the bounds of lengths."""
    random = np.random.default_rng(seed)
    syllables = np.array([a + b for a in "bdfghklmnprstvw" for b in ("a", "e", "in", "or", "u")])
    parts = random.choice(syllables, (200_000, 4)).tolist()
    sizes = random.integers(1, 5, len(parts)).tolist()
    known = np.array(["".join(part[:size]) for part, size in zip(parts, sizes, strict=True)])
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, sentences, SLICE):
            lengths = random.integers(*words, min(SLICE, sentences - start))
            total = int(lengths.sum())
            chosen = known[np.minimum(random.zipf(1.2, total), len(known)) - 1].tolist()
            new = np.flatnonzero(random.random(total) < (1.0 if distinct else 0.05))
            for place, number in zip(
                new.tolist(), random.integers(10**9, size=len(new)), strict=True
            ):
                chosen[place] = f"{chosen[place]}{number}" if distinct else str(number)
            drawn = tags[random.integers(len(tags), size=total)].tolist()
            rows = [f"{word} {tag}\n" for word, tag in zip(chosen, drawn, strict=True)]
            for end in np.cumsum(lengths) - 1:
                rows[end] += "\n"
            file.write("".join(rows))


def tokenizer_rate(path: Path, *, skip: int = 0) -> float:
    """Sentences per second of the tokenizer alone, on a slice of the file."""
    task, tokenizer = make_task("tagging", format="conll"), make_tokenizer("minilm")
    stream = task.read(path)
    for _ in range(skip):
        next(stream)
    slice_ = [list(next(stream).words) for _ in range(SLICE)]
    start = time.perf_counter()
    tokenizer.backend.encode_batch(slice_, is_pretokenized=True)
    return len(slice_) / (time.perf_counter() - start)


def encode_once(path: str) -> None:
    """Encode a file in this process and print what it took."""
    task, tokenizer = make_task("tagging", format="conll"), make_tokenizer("minilm")
    start = time.perf_counter()
    features = task.encode(task.read(path), tokenizer)
    task = task.fit(features)
    task.collate(features, range(32), tokenizer)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "peak_gib": peak, "items": len(features)}))


def measure(path: Path) -> dict[str, float]:
    """The same, in a process of its own, so that its memory is its own."""
    command = [sys.executable, __file__, "--encode", str(path)]
    found: dict[str, float] = json.loads(subprocess.check_output(command, text=True))
    return found


def main() -> None:
    """Print one line a figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", nargs="?", type=int, default=1_000_000)
    parser.add_argument("--distinct", action="store_true", help="every word is new")
    parser.add_argument("--encode", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.encode:
        encode_once(options.encode)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.txt")
        write_sentences(path, options.sentences, distinct=options.distinct)
        before = tokenizer_rate(path)
        measured = measure(path)
        after = tokenizer_rate(path, skip=options.sentences // 2)
    tokenizer = (before + after) / 2
    rate = options.sentences / measured["seconds"]
    print(f"tokenizer alone     {tokenizer:10,.0f} sentences/s (encode_batch, words)")
    print(
        f"file to features    {rate:10,.0f} sentences/s = {rate / tokenizer:.0%} of it (want 60%)"
    )
    print(f"peak memory         {measured['peak_gib']:10.2f} GiB (want < 2)")


if __name__ == "__main__":
    main()
