"""How fast `softf1 stats` and `softf1 new` look over large files, and in how much memory.

    python benchmarks/reading.py [--megabytes 300] [--packed 1260] [--only FILE]

Made-up files: columns, a gzip file of columns that unpacks to far more, CSV, JSON lines, a JSON
list, and questions in SQuAD's form. Each command is a process of its own. Seconds are those of the
processor, start of Python included, since machines are shared; the peak is that of the process.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import softf1

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS = Path(__file__).parent / "results" / "reading.csv"
COLUMNS = (
    "file", "command", "megabytes", "on_disk", "seconds", "mb_per_second", "peak_mib", "cpu",
    "python", "softf1", "date",
)  # fmt: skip
WORDS = [f"w{number}" for number in range(30_000)]
CONLL = "columns.conll"
PACKED = "columns.conll.gz"
CSV = "texts.csv"
JSONL = "texts.jsonl"
JSON = "texts.json"
SQUAD = "questions.json"


def make_text(random: Random, words: int) -> str:
    """Made-up words."""
    return " ".join(random.choices(WORDS, k=words))


def make_sentences(random: Random) -> Iterator[str]:
    """Sentences of 5 to 25 words in four columns."""
    tags = ("O", "O", "O", "O", "B-PER", "B-LOC")
    while True:
        words = random.choices(WORDS, k=random.randint(5, 25))
        rows = (f"{word} NN I-NP {random.choice(tags)}\n" for word in words)
        yield "".join((*rows, "\n"))


def make_table(random: Random) -> Iterator[str]:
    """A header, and rows with quotation marks and commas."""
    yield "id,text,label\n"
    for number in count():
        text = make_text(random, random.randint(5, 40))
        yield f'{number},"{text}, ""{number}""",label{number % 7}\n'


def make_objects(random: Random) -> Iterator[str]:
    """Objects with a text and a label, one a line."""
    for number in count():
        text = make_text(random, random.randint(5, 40))
        yield json.dumps({"id": number, "text": text, "label": f"label{number % 7}"}) + "\n"


def make_list(random: Random) -> Iterator[str]:
    """The same objects in a list."""
    yield '[{"text": "first", "label": "label0"}'
    for line in make_objects(random):
        yield f",\n{line[:-1]}"


def make_questions(random: Random) -> Iterator[str]:
    """Articles of one paragraph with five questions, of which the last has no answer."""
    for number in count():
        context = make_text(random, 120)
        start = context.index(" ") + 1
        answer = context[start : context.index(" ", start)]
        qas = [
            {
                "id": f"{number}.{i}",
                "question": make_text(random, 8),
                "answers": [{"text": answer, "answer_start": start}] if i < 4 else [],
                "is_impossible": i == 4,
            }
            for i in range(5)
        ]
        article = {"title": f"t{number}", "paragraphs": [{"context": context, "qas": qas}]}
        yield ('{"version": "2.0", "data": [' if not number else ", ") + json.dumps(article)


MAKERS = {
    CONLL: make_sentences,
    PACKED: make_sentences,
    CSV: make_table,
    JSONL: make_objects,
    JSON: make_list,
    SQUAD: make_questions,
}


def write_file(path: Path, size: int) -> int:
    """Writes at least so many bytes, unpacked; returns how many."""
    make, written = MAKERS[path.name](Random(0)), 0
    open_file = gzip.open if path.suffix == ".gz" else open
    with open_file(path, "wb") as file:
        # The packed one repeats itself, as bombs do.
        block = "".join(next(make) for _ in range(50)).encode() if path.name == PACKED else b""
        while written < size:
            written += file.write(block or next(make).encode())
        written += file.write({SQUAD: b"]}", JSON: b"]"}.get(path.name, b""))
    return written


def measure(*words: str) -> tuple[float, float]:
    """Runs a command of softf1; returns its seconds of the processor and its peak in MiB."""
    folder = str(Path(softf1.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "softf1", *words],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": folder},
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"softf1 {' '.join(words)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def name_cpu() -> str:
    """The processor's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    """Measures each file with both commands, and writes a line as each ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--packed", type=int, default=1260, help="what the gzip file unpacks to")
    parser.add_argument("--only", choices=MAKERS, help="one of the files; rows of the others stay")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    where = {
        "cpu": name_cpu(),
        "python": platform.python_version(),
        "softf1": softf1.__version__,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    kept: list[dict[str, str]] = []
    if options.only and options.out.exists():
        with options.out.open(newline="") as file:
            kept = [row for row in csv.DictReader(file) if row["file"] != options.only]
    with tempfile.TemporaryDirectory() as folder, options.out.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(kept)
        for name in [options.only] if options.only else MAKERS:
            path = Path(folder) / name
            size = write_file(
                path, (options.packed if name == PACKED else options.megabytes) * 10**6
            )
            for command in ("stats", "new"):
                more = ("--out", str(Path(folder) / f"{name}.toml")) if command == "new" else ()
                seconds, peak = measure(command, str(path), *more)
                row = {
                    "file": name,
                    "command": command,
                    "megabytes": f"{size / 1e6:.0f}",
                    "on_disk": f"{path.stat().st_size / 1e6:.1f}",
                    "seconds": f"{seconds:.1f}",
                    "mb_per_second": f"{size / 1e6 / seconds:.1f}",
                    "peak_mib": f"{peak:.0f}",
                }
                table.writerow(row | where)
                file.flush()
                print(*row.values(), flush=True)
            path.unlink()


if __name__ == "__main__":
    main()
