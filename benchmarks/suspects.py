"""How well `softf1 suspects` ranks label errors: real corpora with 5% of labels changed on purpose.

    python benchmarks/suspects.py SHARED --out benchmarks/results/suspects.csv

SHARED has `data/sst2_sentence` and `data/conll2003_en`; without them nothing is measured. Of SST-2
sentences 5% get the other label. Of CoNLL-2003 spans 5% are changed: another label, dropped, a word
shorter or longer, or a word that is no name is made one. Then three folds are trained, and all
methods rank the same out-of-fold probabilities: ours, 1 − p(given) of all texts and words, that of
cleanlab (its token method for words and sentences) where it is installed, and chance. Average
precision counts items of equal score as one step; `precision` is that of the first k, k being the
number of errors.
"""

from __future__ import annotations

import argparse
import csv
import platform
import random
import sys
import tempfile
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from softf1.data.registry import iterate
from softf1.experiments.grid import Grid, lock
from softf1.experiments.suspects import predict_folds, read_examples, train_folds
from softf1.experiments.workers import run_inline
from softf1.metrics.ranking import average_precision
from softf1.metrics.schemes import decode_lenient, encode_spans
from softf1.recipe import Recipe, build_recipe, with_values
from softf1.tasks.labels import probabilities
from softf1.training.run import CachingTrainer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from softf1.experiments.suspects import Held
    from softf1.tasks.doubts import Mark

SHARE, FOLDS, TEXTS, SENTENCES = 0.05, 3, 1000, 1500
ENCODER = "en-minilm-l6"
UNLISTED = -1.0
"""The score of what a method does not list: an error there is missed."""
NAMES = ("LOC", "MISC", "ORG", "PER")
COLUMNS = (
    "corpus", "level", "method", "items", "errors", "listed", "found", "average_precision",
    "precision", "seed",
    "encoder", "folds", "cpu", "torch", "softf1", "cleanlab",
)  # fmt: skip
Ranking = dict[str, np.ndarray]


def flip_texts(source: Path, target: Path, rng: random.Random) -> list[bool]:
    """Writes a sample with 5% of the labels flipped; says which."""
    lines = source.read_text("utf-8").splitlines()
    chosen = rng.sample(lines, TEXTS)
    flipped = set(rng.sample(range(TEXTS), round(SHARE * TEXTS)))
    with target.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(["text", "label"])
        for number, line in enumerate(chosen):
            label, _, text = line.partition(" ")
            out.writerow([text, str(1 - int(label)) if number in flipped else label])
    return [number in flipped for number in range(TEXTS)]


def change_spans(source: Path, target: Path, rng: random.Random) -> list[list[bool]]:
    """Writes a sample with 5% of the spans changed; says which words have another tag."""
    sentences = [one for one in iterate(source, format="conll") if len(one.words) > 3]
    chosen = rng.sample(sentences, SENTENCES)
    spans = [list(decode_lenient(one.tags)) for one in chosen]
    places = [(n, m) for n, own in enumerate(spans) for m in range(len(own))]
    hit = set(rng.sample(places, round(SHARE * len(places))))
    wrong, lines = [], []
    for number, (sentence, own) in enumerate(zip(chosen, spans, strict=True)):
        size = len(sentence.words)
        changed: list[Any] = []
        for place, span in enumerate(own):
            there = [*own, *changed]
            changed += change_span(span, there, size, rng) if (number, place) in hit else [span]
        before, after = (encode_spans(each, length=size, scheme="BIO") for each in (own, changed))
        wrong.append([a != b for a, b in zip(before, after, strict=True)])
        lines += [f"{w} {t}" for w, t in zip(sentence.words, after, strict=True)] + [""]
    target.write_text("\n".join(lines) + "\n", "utf-8")
    return wrong


def change_span(
    span: tuple[int, int, str], own: list[Any], size: int, rng: random.Random
) -> list[tuple[int, int, str]]:
    """What stands in place of a span: nothing, another label, another end, or one span more."""
    start, end, label = span
    covered = {place for a, b, _ in own for place in range(a, b)}
    free = sorted(set(range(size)) - covered)
    kind = rng.choice(("label", "drop", "boundary", "extra"))
    if kind == "drop":
        return []
    if kind == "boundary" and end - start > 1:
        return [(start, end - 1, label)]
    if kind == "boundary" and end < size and end not in covered:
        return [(start, end + 1, label)]
    if kind == "extra" and free:
        place = rng.choice(free)
        return [span, (place, place + 1, rng.choice(NAMES))]
    return [(start, end, rng.choice([name for name in NAMES if name != label]))]


def train(recipe: Recipe, folder: Path) -> Iterator[Held]:
    """The folds with their out-of-fold logits."""
    trainer = CachingTrainer()
    grid = Grid(folder, recipe, lambda jobs: run_inline(trainer, jobs))
    whole = with_values(recipe, {"task.folds": FOLDS, "task.fold": 0})
    examples = [example for _, example in read_examples(whole)]
    with lock(folder):
        runs = train_folds(grid, FOLDS, quiet=False)
        yield from predict_folds(grid, runs, whole, examples)


def rank_texts(recipe: Recipe, folder: Path, size: int) -> Ranking:
    """The score of each text by every method, higher for a likelier error."""
    listed = np.full(size, UNLISTED)
    chance, gold = np.zeros((size, 2)), np.zeros(size, int)
    for part in train(recipe, folder):
        order = np.argsort(part.logits["item"])
        logits = part.logits["logits"][order].astype(float)
        chance[part.numbers] = probabilities(logits, multi_label=False)
        names = part.features.names["labels"]
        ids = np.array([part.task.labels.index(name) for name in names])
        gold[part.numbers] = ids[part.features["label"]]
        for one in part.task.find_doubts(part.logits, part.features).found:
            listed[part.numbers[one.example]] = one.score
    print(f"accuracy on the given labels {(chance.argmax(-1) == gold).mean():.3f}")
    ranks = {"softf1": listed}
    if find_spec("cleanlab"):
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores

        for method in ("self_confidence", "normalized_margin", "confidence_weighted_entropy"):
            scores = get_label_quality_scores(gold, chance, method=method)
            ranks[f"cleanlab {method}"] = 1 - scores
        issues = find_label_issues(gold, chance, n_jobs=1)
        ranks["cleanlab find_label_issues"] = np.where(
            issues, ranks["cleanlab self_confidence"], UNLISTED
        )
    return ranks


def rank_words(recipe: Recipe, folder: Path, wrong: list[list[bool]]) -> dict[str, Ranking]:
    """The score of each sentence and of each word by every method."""
    listed = [np.full(len(own), UNLISTED) for own in wrong]
    gold: list[Any] = [None] * len(wrong)
    chance: list[Any] = [None] * len(wrong)
    labels: tuple[str, ...] = ()
    for part in train(recipe, folder):
        order = np.argsort(part.logits["word"])
        own = probabilities(part.logits["logits"][order].astype(float), multi_label=False)
        ids = part.task.label_ids(part.features)[part.features["tag"]]
        labels = labels or part.task.labels
        if labels != part.task.labels:
            raise SystemExit("folds have different tags; give another seed")
        for number, (a, b) in enumerate(pairwise(part.features["sentence"].tolist())):
            place = part.numbers[number]
            gold[place], chance[place] = ids[a:b], own[a:b]
        for one in part.task.find_doubts(part.logits, part.features).found:
            scores = listed[part.numbers[one.example]]
            changed = find_changed(one.given, one.suggested, len(scores))
            scores[changed] = np.maximum(scores[changed], one.score)
    spans = [decode_lenient([labels[i] for i in own]) for own in gold]
    found = [decode_lenient([labels[i] for i in own.argmax(-1)]) for own in chance]
    print(f"span F1 on the given spans {micro_f1(spans, found):.3f}")
    words = {"softf1": listed}
    sentences = {"softf1": np.array([scores.max() for scores in listed])}
    if find_spec("cleanlab"):
        from cleanlab.token_classification.filter import find_label_issues
        from cleanlab.token_classification.rank import get_label_quality_scores

        given = [own.tolist() for own in gold]
        for method in ("self_confidence", "normalized_margin"):
            whole, single = get_label_quality_scores(given, chance, token_score_method=method)
            sentences[f"cleanlab token {method}"] = 1 - np.asarray(whole)
            words[f"cleanlab token {method}"] = [1 - np.asarray(one) for one in single]
        issues = [np.full(len(own), UNLISTED) for own in wrong]
        for number, word in find_label_issues(given, chance, n_jobs=1):
            issues[number][word] = words["cleanlab token self_confidence"][number][word]
        words["cleanlab token find_label_issues"] = issues
        sentences["cleanlab token find_label_issues"] = np.array([own.max() for own in issues])
    flat = {name: np.concatenate(own) for name, own in words.items()}
    return {"sentence": sentences, "word": flat}


def find_changed(given: Sequence[Mark], suggested: Sequence[Mark], size: int) -> np.ndarray:
    """The words whose tag a doubt would change, (size,)."""
    theirs, ours = (
        encode_spans([(m.start, m.end, m.label) for m in marks], length=size, scheme="BIO")
        for marks in (given, suggested)
    )
    return np.array(theirs) != np.array(ours)


def micro_f1(gold: Sequence[Any], found: Sequence[Any]) -> float:
    """The F1 of spans over all sentences."""
    hits = sum(len(set(a) & set(b)) for a, b in zip(gold, found, strict=True))
    return 2 * hits / max(sum(map(len, gold)) + sum(map(len, found)), 1)


def score(ranks: Ranking, wrong: np.ndarray, **about: Any) -> list[dict[str, Any]]:
    """Average precision, and precision of the first k, of each method and of chance."""
    rows, errors = [], int(wrong.sum())
    for name, scores in ranks.items():
        listed = scores != UNLISTED
        missed = int((wrong & ~listed).sum())
        first = np.flatnonzero(listed)
        first = first[np.argsort(-scores[first], kind="stable")][:errors]
        rows.append(
            {
                "method": name,
                "listed": int(listed.sum()),
                "found": errors - missed,
                "average_precision": average_precision(
                    scores[listed], wrong[listed], missed=missed
                ),
                "precision": wrong[first].sum() / errors,
            }
        )
    share = errors / len(wrong)
    chance = {"listed": len(wrong), "found": errors, "average_precision": share, "precision": share}
    rows.append({"method": "chance", **chance})
    for row in rows:
        row |= {"items": len(wrong), "errors": errors, **about}
    return rows


def make_recipe(kind: str, path: Path, encoder: str, seed: int, **train: Any) -> Recipe:
    """Cross entropy on one file."""
    return build_recipe(
        {
            "name": path.stem,
            "task": {"kind": kind, "train": str(path)},
            "encoder": {"name": encoder},
            "train": {**train, "seed": seed},
        }
    )


def measure_texts(shared: Path, folder: Path, seed: int) -> list[dict[str, Any]]:
    """The rows of one seed on SST-2."""
    path = folder / f"sst2-{seed}.csv"
    source = shared / "data" / "sst2_sentence" / "stsa.binary.train"
    flipped = np.array(flip_texts(source, path, random.Random(seed)))
    encoder = str(shared / "encoders" / ENCODER)
    recipe = make_recipe("classification", path, encoder, seed, epochs=3.0, lr=1e-4, batch_size=16)
    ranks = rank_texts(recipe, folder / path.stem, len(flipped))
    return score(ranks, flipped, corpus="SST-2", level="text", seed=seed, encoder=ENCODER)


def measure_words(shared: Path, folder: Path, seed: int) -> list[dict[str, Any]]:
    """The rows of one seed on CoNLL-2003."""
    path = folder / f"conll-{seed}.txt"
    source = shared / "data" / "conll2003_en" / "eng.train"
    wrong = change_spans(source, path, random.Random(seed))
    recipe = make_recipe("tagging", path, "bilstm", seed, epochs=10.0, lr=3e-3, batch_size=16)
    levels = rank_words(recipe, folder / path.stem, wrong)
    truth = {"sentence": np.array([any(own) for own in wrong]), "word": np.concatenate(wrong)}
    about = {"corpus": "CoNLL-2003", "seed": seed, "encoder": "bilstm"}
    return [
        row
        for level, ranks in levels.items()
        for row in score(ranks, truth[level], level=level, **about)
    ]


MEASURES = {"sst2": measure_texts, "conll": measure_words}


def main() -> None:
    """Measures and writes the rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--out", type=Path, default=Path("suspects.csv"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--corpora", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--folder", type=Path, help="keeps the folds, so that they train once")
    options = parser.parse_args()
    data = options.shared / "data"
    wanted = [data / "sst2_sentence", data / "conll2003_en", options.shared / "encoders" / ENCODER]
    if missing := [str(path) for path in wanted if not path.is_dir()]:
        print(f"skipped: {', '.join(missing)} not there")
        sys.exit(0)
    warnings.simplefilter("ignore")  # of cleanlab
    about = {
        "folds": FOLDS,
        "cpu": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "softf1": version("softf1"),
        "cleanlab": version("cleanlab") if find_spec("cleanlab") else "",
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows = [
            row | about
            for corpus in options.corpora
            for seed in options.seeds
            for row in MEASURES[corpus](options.shared, folder, seed)
        ]
    with options.out.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        for row in rows:
            numbers = {key: round(row[key], 4) for key in ("average_precision", "precision")}
            table.writerow(row | numbers)
            print(row["corpus"], row["level"], row["method"], *numbers.values(), sep="\t")


if __name__ == "__main__":
    main()
