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
from sklearn.metrics import average_precision_score

from softf1.data.registry import iterate
from softf1.experiments.grid import Grid, lock
from softf1.experiments.suspects import predict_folds, read_examples, train_folds
from softf1.experiments.workers import run_inline
from softf1.metrics.schemes import decode_lenient, encode_spans
from softf1.recipe import Recipe, build_recipe, with_values
from softf1.tasks.labels import probabilities
from softf1.training.run import CachingTrainer

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARE, FOLDS, TEXTS = 0.05, 3, 2000
TEXT_ENCODER, WORD_ENCODER = "textcnn", "bilstm"
NAMES = ("LOC", "MISC", "ORG", "PER")
COLUMNS = (
    "corpus", "level", "method", "items", "errors", "average_precision", "precision", "seed",
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
    chosen = rng.sample(sentences, TEXTS)
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


def train(recipe: Recipe, folder: Path) -> Iterator[Any]:
    """The folds with their out-of-fold logits."""
    trainer = CachingTrainer()
    grid = Grid(folder, recipe, lambda jobs: run_inline(trainer, jobs))
    whole = with_values(recipe, {"task.folds": FOLDS, "task.fold": 0})
    examples = [example for _, example in read_examples(whole)]
    with lock(folder):
        runs = train_folds(grid, FOLDS, quiet=False)
        yield from predict_folds(grid, runs, whole, examples)


def rank_texts(recipe: Recipe, folder: Path) -> Ranking:
    """Every method's score of each text, higher for a likelier error."""
    size = TEXTS
    ranks = {"softf1": np.zeros(size), "1 - p(given)": np.zeros(size)}
    chance, gold = np.zeros((size, 2)), np.zeros(size, int)
    for part in train(recipe, folder):
        order = np.argsort(part.logits["item"])
        chance[part.index] = probabilities(
            part.logits["logits"][order].astype(float), multi_label=False
        )
        names = part.features.names["labels"]
        ids = np.array([part.task.labels.index(name) for name in names])
        gold[part.index] = ids[part.features["label"]]
        for one in part.task.find_suspects(part.logits, part.features).suspects:
            ranks["softf1"][part.index[one.example]] = one.score
    ranks["1 - p(given)"] = 1 - chance[np.arange(size), gold]
    if find_spec("cleanlab"):
        from cleanlab.rank import get_label_quality_scores

        for method in ("self_confidence", "normalized_margin", "confidence_weighted_entropy"):
            scores = get_label_quality_scores(gold, chance, method=method)
            ranks[f"cleanlab {method}"] = 1 - scores
    return ranks


def rank_words(recipe: Recipe, folder: Path, wrong: list[list[bool]]) -> dict[str, Ranking]:
    """Every method's score of each sentence and of each word."""
    words: dict[str, list[np.ndarray]] = {
        name: [np.zeros(len(own)) for own in wrong] for name in ("softf1", "1 - p(given)")
    }
    sentences: Ranking = {"softf1": np.zeros(len(wrong)), "1 - p(given)": np.zeros(len(wrong))}
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
            place = part.index[number]
            gold[place], chance[place] = ids[a:b], own[a:b]
            words["1 - p(given)"][place] = 1 - own[np.arange(a, b), ids[a:b]]
            sentences["1 - p(given)"][place] = words["1 - p(given)"][place].max()
        for one in part.task.find_suspects(part.logits, part.features).suspects:
            place = part.index[one.example]
            sentences["softf1"][place] = max(sentences["softf1"][place], one.score)
            for mark in (*one.given, *one.suggested):
                part_of = words["softf1"][place][mark.start : mark.end]
                np.maximum(part_of, one.score, out=part_of)
    if find_spec("cleanlab"):
        from cleanlab.token_classification.rank import get_label_quality_scores

        given = [own.tolist() for own in gold]
        for method in ("self_confidence", "normalized_margin"):
            whole, single = get_label_quality_scores(given, chance, token_score_method=method)
            sentences[f"cleanlab token {method}"] = 1 - np.asarray(whole)
            words[f"cleanlab token {method}"] = [1 - np.asarray(one) for one in single]
    flat = {name: np.concatenate(own) for name, own in words.items()}
    return {"sentence": sentences, "word": flat}


def score(ranks: Ranking, wrong: np.ndarray, **about: Any) -> list[dict[str, Any]]:
    """Average precision, and precision of the first k, of each method and of chance."""
    rows, errors = [], int(wrong.sum())
    for name, scores in ranks.items():
        first = np.argsort(-scores, kind="stable")[:errors]
        ap = float(average_precision_score(wrong, scores))
        rows.append({"method": name, "average_precision": ap, "precision": wrong[first].mean()})
    share = errors / len(wrong)
    rows.append({"method": "chance", "average_precision": share, "precision": share})
    for row in rows:
        row |= {"items": len(wrong), "errors": errors, **about}
    return rows


def make_recipe(kind: str, path: Path, encoder: str, seed: int, **options: Any) -> Recipe:
    """Cross entropy on one file; the encoders are small ones from scratch."""
    return build_recipe(
        {
            "name": path.stem,
            "task": {"kind": kind, "train": str(path), **options},
            "encoder": {"name": encoder},
            "train": {"epochs": 8.0, "lr": 1e-3, "batch_size": 32, "seed": seed},
        }
    )


def measure(data: Path, folder: Path, seed: int) -> list[dict[str, Any]]:
    """All rows of one seed."""
    rng = random.Random(seed)
    texts, names = folder / f"sst2-{seed}.csv", folder / f"conll-{seed}.txt"
    flipped = flip_texts(data / "sst2_sentence" / "stsa.binary.train", texts, rng)
    wrong = change_spans(data / "conll2003_en" / "eng.train", names, rng)
    recipe = make_recipe("classification", texts, TEXT_ENCODER, seed, format="csv")
    ranks = rank_texts(recipe, folder / f"sst2-{seed}")
    rows = score(
        ranks, np.array(flipped), corpus="SST-2", level="text", seed=seed, encoder=TEXT_ENCODER
    )
    recipe = make_recipe("tagging", names, WORD_ENCODER, seed, format="conll")
    levels = rank_words(recipe, folder / f"conll-{seed}", wrong)
    truth = {"sentence": np.array([any(own) for own in wrong]), "word": np.concatenate(wrong)}
    for level, ranks in levels.items():
        about = {"corpus": "CoNLL-2003", "level": level, "encoder": WORD_ENCODER}
        rows += score(ranks, truth[level], seed=seed, **about)
    return rows


def main() -> None:
    """Measures and writes the rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--out", type=Path, default=Path("suspects.csv"))
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    data = options.shared / "data"
    wanted = [data / "sst2_sentence", data / "conll2003_en"]
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
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            row | about
            for seed in range(options.seeds)
            for row in measure(data, Path(folder), seed)
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
