"""Speed of metrics and decoding against what is used elsewhere, on the same input.

    python benchmarks/metrics.py [--sentences 50000] [--windows 10000] [--rounds 5]

Every round times all contestants one after the other; the figures are medians over the rounds, and
so are the ratios. Seconds are those of the processor: all contestants use one thread, and so other
work on the machine counts little. Results are checked to be equal before anything is timed. Writes
benchmarks/results/metrics.csv.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import random
import statistics
import time
import warnings
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

try:
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as seqeval_default
    from seqeval.metrics.v1 import precision_recall_fscore_support as seqeval_strict
    from seqeval.scheme import IOB2
except ImportError:
    raise SystemExit(
        "This benchmark needs seqeval: pip install -c constraints.txt seqeval"
    ) from None

from softf1.metrics.schemes import encode_spans
from softf1.metrics.spans import count_lenient, count_lenient_ids, count_strict, count_strict_ids
from softf1.tasks.nbest import find_best_spans

if TYPE_CHECKING:
    from collections.abc import Callable

LABELS = ("PER", "LOC", "ORG", "MISC")
RESULTS = Path(__file__).parent / "results" / "metrics.csv"


def make_sentences(count: int, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """Gold and predicted BIO tags like those of a newspaper corpus: 15 tokens, 1 in 6 in a name."""
    rng = random.Random(seed)
    vocabulary = ["O", *(f"{letter}-{label}" for letter in "BI" for label in LABELS)]
    gold, predicted = [], []
    for _ in range(count):
        length = rng.randint(5, 25)
        spans, start = [], 0
        while start < length:
            end = min(start + rng.choice((1, 1, 2, 3)), length)
            if rng.random() < 0.15:
                spans.append((start, end, rng.choice(LABELS)))
            start = end
        tags = encode_spans(spans, length=length, scheme="BIO")
        gold.append(tags)
        predicted.append([rng.choice(vocabulary) if rng.random() < 0.05 else t for t in tags])
    return gold, predicted


def number_tags(gold: list[list[str]], predicted: list[list[str]]) -> dict[str, object]:
    """The same as integer arrays, as a model gives them."""
    tags = sorted({tag for sentence in gold + predicted for tag in sentence})
    number = {tag: index for index, tag in enumerate(tags)}
    flat = [np.array([number[t] for s in side for t in s]) for side in (gold, predicted)]
    lengths = np.array([len(sentence) for sentence in gold])
    return {"gold": flat[0], "predicted": flat[1], "lengths": lengths, "tags": tags}


def make_windows(count: int, length: int, seed: int) -> dict[str, np.ndarray]:
    """Start and end logits with a few likely answers in each window, as a trained model gives."""
    rng = np.random.default_rng(seed)
    start, end = rng.normal(-4, 1.5, (2, count, length)).astype(np.float32)
    rows = np.arange(count)
    first = rng.integers(20, 150, count)
    last = rng.integers(250, length, count)
    for _ in range(4):
        place = rng.integers(first, last - 8)
        start[rows, place] += rng.normal(8, 3, count).astype(np.float32)
        end[rows, place + rng.integers(0, 8, count)] += rng.normal(8, 3, count).astype(np.float32)
    inside = (np.arange(length) >= first[:, None]) & (np.arange(length) < last[:, None])
    limits = np.arange(length) * 5
    offsets = np.broadcast_to(np.stack([limits, limits + 4], axis=1), (count, length, 2))
    return {"start": start, "end": end, "inside": inside, "offsets": offsets}


def take_by_sorting(logits: np.ndarray, inside: np.ndarray, n_best: int) -> list[int]:
    """The best positions in plain Python, as in BERT's run_squad.py."""
    values, kept = logits.tolist(), inside.tolist()
    places = [place for place in range(len(values)) if kept[place]]
    return sorted(places, key=lambda place: -values[place])[:n_best]


def take_by_numpy(logits: np.ndarray, inside: np.ndarray, n_best: int) -> list[int]:
    """The best positions with numpy's argsort, as in transformers' examples."""
    masked = np.where(inside, logits, -np.inf)
    return np.argsort(-masked, kind="stable")[: min(n_best, inside.sum())].tolist()


def loop_answers(
    windows: dict[str, np.ndarray],
    contexts: list[str],
    take: Callable[[np.ndarray, np.ndarray, int], list[int]],
    *,
    n_best: int = 20,
    max_length: int = 30,
) -> list[str]:
    """The plain n-best loop: a list of candidates for each window, sorted, and its first text."""
    answers = []
    for row, context in enumerate(contexts):
        start, end, inside = (windows[name][row] for name in ("start", "end", "inside"))
        start_values, end_values = start.tolist(), end.tolist()
        starts, ends = take(start, inside, n_best), take(end, inside, n_best)
        candidates = []
        for first in starts:
            for last in ends:
                if last < first or last - first + 1 > max_length:
                    continue
                candidates.append((-(start_values[first] + end_values[last]), first, last))
        candidates.sort()
        best = candidates[:n_best]
        offsets = windows["offsets"][row]
        answers.append(context[offsets[best[0][1], 0] : offsets[best[0][2], 1]] if best else "")
    return answers


def array_answers(windows: dict[str, np.ndarray], contexts: list[str]) -> list[str]:
    """The same answers from `softf1.tasks.nbest`, n-best lists of spans included."""
    spans = find_best_spans(windows["start"], windows["end"], inside=windows["inside"])
    rows = np.arange(len(contexts))
    start = windows["offsets"][rows, spans.start[:, 0], 0].tolist()
    end = windows["offsets"][rows, spans.end[:, 0] - 1, 1].tolist()
    found = np.isfinite(spans.score[:, 0]).tolist()
    parts = zip(contexts, start, end, found, strict=True)
    return [context[first:last] if some else "" for context, first, last, some in parts]


def time_interleaved(
    contestants: dict[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """Processor seconds of each contestant in each round, after one that is not timed."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, call in contestants.items():
            began = time.process_time()
            call()
            if turn:
                seconds[name].append(time.process_time() - began)
    return seconds


def compare_spans(sentences: int, rounds: int, seed: int) -> list[dict[str, object]]:
    """Span scores of lists of strings and of integer arrays against seqeval."""
    gold, predicted = make_sentences(sentences, seed)
    arrays = number_tags(gold, predicted)
    contestants = {
        "seqeval default": lambda: seqeval_default(gold, predicted, average="micro"),
        "seqeval strict": lambda: seqeval_strict(gold, predicted, average="micro", scheme=IOB2),
        "count_lenient": lambda: count_lenient(gold, predicted).micro(),
        "count_strict": lambda: count_strict(gold, predicted, scheme="BIO").micro(),
        "count_lenient_ids": lambda: count_lenient_ids(**arrays).micro(),
        "count_strict_ids": lambda: count_strict_ids(**arrays, scheme="BIO").micro(),
    }
    for peer, ours in (("seqeval default", "lenient"), ("seqeval strict", "strict")):
        wanted = contestants[peer]()
        for name in (f"count_{ours}", f"count_{ours}_ids"):
            np.testing.assert_allclose(contestants[name](), wanted, atol=1e-12)
    seconds = time_interleaved(contestants, rounds)
    wanted = [
        ("count_lenient", "seqeval default", 8),
        ("count_strict", "seqeval strict", 15),
        ("count_lenient_ids", "seqeval default", 20),
        ("count_strict_ids", "seqeval strict", 20),
    ]
    size = f"{sentences} sentences"
    return [make_row(size, ours, peer, least, seconds) for ours, peer, least in wanted]


def compare_nbest(windows: int, rounds: int, seed: int) -> list[dict[str, object]]:
    """QA n-best decoding against the plain loop in two forms."""
    data = make_windows(windows, 384, seed)
    contexts = ["".join(map(chr, range(0x4E00, 0x4E00 + 384 * 5)))] * windows
    contestants = {
        "plain loop": lambda: loop_answers(data, contexts, take_by_sorting),
        "loop with numpy argsort": lambda: loop_answers(data, contexts, take_by_numpy),
        "find_best_spans": lambda: array_answers(data, contexts),
    }
    answers = [call() for call in contestants.values()]
    if not answers[0] == answers[1] == answers[2]:
        raise AssertionError("the answers differ")
    seconds = time_interleaved(contestants, rounds)
    size = f"{windows} windows × 384"
    return [
        make_row(size, "find_best_spans", "plain loop", 10, seconds),
        make_row(size, "find_best_spans", "loop with numpy argsort", None, seconds),
    ]


def make_row(
    size: str, ours: str, peer: str, least: float | None, seconds: dict[str, list[float]]
) -> dict[str, object]:
    """One line of the table: medians, and the median of the rounds' ratios."""
    ratios = [theirs / mine for theirs, mine in zip(seconds[peer], seconds[ours], strict=True)]
    return {
        "input": size,
        "ours": ours,
        "peer": peer,
        "ours_s": round(statistics.median(seconds[ours]), 4),
        "peer_s": round(statistics.median(seconds[peer]), 4),
        "times_faster": round(statistics.median(ratios), 1),
        "wanted": "" if least is None else least,
    }


def describe_machine() -> dict[str, object]:
    """Processor and versions, nothing that names the machine."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "seqeval": version("seqeval"),
        "date": datetime.now(UTC).date().isoformat(),
    }


def main() -> None:
    """Measure, print a table, write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sentences", type=int, default=50_000)
    parser.add_argument("--windows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="seqeval")
    rows = compare_spans(options.sentences, options.rounds, options.seed)
    rows += compare_nbest(options.windows, options.rounds, options.seed)
    machine = {"rounds": options.rounds, "seed": options.seed, **describe_machine()}
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0], *machine])
        writer.writeheader()
        writer.writerows({**row, **machine} for row in rows)
    print(f"{'ours':<20}{'peer':<26}{'ours s':>9}{'peer s':>9}{'faster':>9}{'wanted':>8}")
    for row in rows:
        print(
            f"{row['ours']:<20}{row['peer']:<26}{row['ours_s']:>9}{row['peer_s']:>9}"
            f"{row['times_faster']:>8}×{row['wanted']:>8}"
        )


if __name__ == "__main__":
    main()
