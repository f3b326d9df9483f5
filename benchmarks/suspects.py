"""How well `softf1 suspects` ranks label errors: real corpora with 5% of labels changed on purpose.

    python benchmarks/suspects.py SHARED --out benchmarks/results/suspects.csv

SHARED has the corpora in `data`; without them nothing is measured. Of SST-2 sentences 5% get the
other label. Of the spans of CoNLL-2003, MSRA and ResumeNER 5% are changed: another label, dropped,
a word shorter or longer, or a word that is no name is made one. In three folds a linear model over
words gives out-of-fold probabilities, and all methods rank these: ours (`tasks/suspects.py`, as
`softf1 suspects` does with the folds that it trains), the self-confidence of all (1 − p of the
given label, of the least likely word in a sentence), those of cleanlab (its token method for words
and sentences) where it is installed, and chance. The linear model takes seconds where a transformer
takes an hour; the comparison is one of rankings, not of models. How the words of a span make up its
score was chosen on MSRA and ResumeNER.

Ours and cleanlab's `find_label_issues` list a part of the items; what they leave out counts as
missed. `precision` is that of the first k, k being the number of errors; average precision counts
items of equal score as one step.
"""

from __future__ import annotations

import argparse
import csv
import platform
import random
import re
import sys
import warnings
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder

from softf1.data.registry import iterate
from softf1.metrics.ranking import average_precision
from softf1.metrics.schemes import decode_lenient, encode_spans
from softf1.tasks.suspects import find_changed, find_suspect_labels, find_suspect_tags

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHARE, FOLDS, TEXTS, SENTENCES = 0.05, 3, 6000, 3000
OF_ALL = "self-confidence of all"
UNLISTED = -1.0
"""The score of what a method does not list: an error there is missed."""
SST2 = "sst2_sentence/stsa.binary.train"
TAGGED = {
    "conll": ("CoNLL-2003", "conll2003_en/eng.train"),
    "msra": ("MSRA", "msra_ner/msra_train_bio"),
    "resume": ("ResumeNER", "resume_ner/train.char.bmes"),
}
"""The corpora of spans: name and file."""
COLUMNS = (
    "corpus", "level", "method", "items", "errors", "listed", "found", "average_precision",
    "precision", "seed",
    "model", "folds", "cpu", "sklearn", "softf1", "cleanlab",
)  # fmt: skip
Ranking = dict[str, np.ndarray]


def flip_texts(source: Path, rng: random.Random) -> tuple[list[str], list[str], np.ndarray]:
    """A sample of texts with their labels, 5% of them flipped, and which."""
    lines = [line.split(" ", 1) for line in source.read_text("utf-8").splitlines()]
    chosen = rng.sample(lines, TEXTS)
    flipped = np.zeros(TEXTS, bool)
    flipped[rng.sample(range(TEXTS), round(SHARE * TEXTS))] = True
    labels = [
        str(int(label) ^ int(wrong)) for (label, _), wrong in zip(chosen, flipped, strict=True)
    ]
    return [text for _, text in chosen], labels, flipped


def change_spans(source: Path, rng: random.Random) -> tuple[list[Any], list[Any], list[Any]]:
    """A sample of sentences with their tags, 5% of the spans changed, and which words were."""
    sentences = [one for one in iterate(source) if len(one.words) > 3]
    chosen = rng.sample(sentences, SENTENCES)
    spans = [list(decode_lenient(one.tags)) for one in chosen]
    names = sorted({label for own in spans for _, _, label in own})
    places = [(n, m) for n, own in enumerate(spans) for m in range(len(own))]
    hit = set(rng.sample(places, round(SHARE * len(places))))
    tags, wrong = [], []
    for number, (sentence, own) in enumerate(zip(chosen, spans, strict=True)):
        size = len(sentence.words)
        changed: list[Any] = []
        for place, span in enumerate(own):
            there = [*own, *changed]
            hurt = (number, place) in hit
            changed += change_span(span, there, size, names, rng) if hurt else [span]
        before, after = (encode_spans(each, length=size, scheme="BIO") for each in (own, changed))
        tags.append(after)
        wrong.append([a != b for a, b in zip(before, after, strict=True)])
    return [one.words for one in chosen], tags, wrong


def change_span(
    span: tuple[int, int, str], own: list[Any], size: int, names: list[str], rng: random.Random
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
        return [span, (place, place + 1, rng.choice(names))]
    return [(start, end, rng.choice([name for name in names if name != label]))]


class Judged(NamedTuple):
    """Out-of-fold probabilities: of each text (C,), or of each sentence (words, C).

    Attributes:
        chance: Those.
        gold: The numbers of the given labels.
        labels: The labels, or tags.
    """

    chance: list[np.ndarray]
    gold: list[np.ndarray]
    labels: tuple[str, ...]


def fit_folds(texts: Sequence[Sequence[str]], given: Sequence[Any]) -> Judged:
    """A linear model over the words of a text, or over each word and its neighbours.

    Args:
        texts: Words.
        given: The label of each text, or the tags of its words.
    """
    tagged = not isinstance(given[0], str)
    names = LabelEncoder().fit([tag for own in given for tag in own] if tagged else given)
    gold = [np.asarray(names.transform(own if tagged else [own])) for own in given]
    items = list(map(describe_words, texts)) if tagged else [[" ".join(own)] for own in texts]
    chance: list[Any] = [None] * len(texts)
    for train, held in KFold(FOLDS, shuffle=True, random_state=0).split(texts):
        model = make_pipeline(
            CountVectorizer(analyzer=list)
            if tagged
            else TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            SGDClassifier(loss="log_loss", alpha=1e-5, average=True, random_state=0),
        )
        model.fit(
            [one for i in train for one in items[i]], np.concatenate([gold[i] for i in train])
        )
        found = np.zeros((sum(len(gold[i]) for i in held), len(names.classes_)))
        found[:, model.classes_] = model.predict_proba([one for i in held for one in items[i]])
        ends = np.cumsum([len(gold[i]) for i in held])[:-1]
        for number, own in zip(held, np.split(found, ends), strict=True):
            chance[number] = own
    return Judged(chance, gold, tuple(names.classes_.tolist()))


def describe_words(words: Sequence[str]) -> list[list[str]]:
    """What the tagger sees of each word: itself, its shape and ends, and two words either side."""
    shapes = [re.sub("[a-z]+", "a", re.sub("[A-Z]+", "A", re.sub("[0-9]+", "0", w))) for w in words]
    rows = []
    for place, word in enumerate(words):
        row = {"word": word.lower(), "shape": shapes[place]}
        row |= {"end": word[-3:].lower(), "start": word[:3].lower()}
        for step in (-2, -1, 1, 2):
            inside = 0 <= place + step < len(words)
            row[f"word{step}"] = words[place + step].lower() if inside else ""
            row[f"shape{step}"] = shapes[place + step] if inside else ""
        rows.append([f"{key}={value}" for key, value in row.items()])
    return rows


def rank_texts(judged: Judged) -> Ranking:
    """The score of each text by every method, higher for a likelier error."""
    chance, gold = np.concatenate(judged.chance), np.concatenate(judged.gold)
    ranks = {"softf1": np.full(len(gold), UNLISTED)}
    ranks[OF_ALL] = 1 - chance[np.arange(len(gold)), gold]
    for one in find_suspect_labels(chance, gold, judged.labels).suspects:
        ranks["softf1"][one.example] = one.score
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


def rank_words(judged: Judged) -> dict[str, Ranking]:
    """The score of each sentence and of each word by every method."""
    chance, gold = judged.chance, judged.gold
    listed = [np.full(len(own), UNLISTED) for own in gold]
    at = np.cumsum([0, *map(len, gold)])
    suspects = find_suspect_tags(
        np.concatenate(chance), np.concatenate(gold), at, judged.labels, spans=True
    )
    for one in suspects.suspects:
        scores = listed[one.example]
        changed = find_changed(one.given, one.suggested, len(scores))
        scores[changed] = np.maximum(scores[changed], one.score)
    words = {"softf1": listed}
    words[OF_ALL] = [
        1 - own[np.arange(len(tags)), tags] for own, tags in zip(chance, gold, strict=True)
    ]
    sentences = {name: np.array([scores.max() for scores in own]) for name, own in words.items()}
    if find_spec("cleanlab"):
        from cleanlab.token_classification.filter import find_label_issues
        from cleanlab.token_classification.rank import get_label_quality_scores

        given = [own.tolist() for own in gold]
        for method in ("self_confidence", "normalized_margin"):
            whole, single = get_label_quality_scores(given, chance, token_score_method=method)
            sentences[f"cleanlab token {method}"] = 1 - np.asarray(whole)
            words[f"cleanlab token {method}"] = [1 - np.asarray(one) for one in single]
        issues = [np.full(len(own), UNLISTED) for own in gold]
        for number, word in find_label_issues(given, chance, n_jobs=1):
            issues[number][word] = words["cleanlab token self_confidence"][number][word]
        words["cleanlab token find_label_issues"] = issues
        sentences["cleanlab token find_label_issues"] = np.array([own.max() for own in issues])
    flat = {name: np.concatenate(own) for name, own in words.items()}
    return {"sentence": sentences, "word": flat}


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


def measure_texts(shared: Path, seed: int) -> Iterator[dict[str, Any]]:
    """The rows of one seed on SST-2."""
    source = shared / "data" / SST2
    texts, labels, flipped = flip_texts(source, random.Random(seed))
    judged = fit_folds([text.split() for text in texts], labels)
    right = np.mean([c.argmax() == g[0] for c, g in zip(judged.chance, judged.gold, strict=True)])
    about = {"corpus": "SST-2", "seed": seed, "model": f"accuracy {right:.3f}"}
    yield from score(rank_texts(judged), flipped, level="text", **about)


def measure_words(shared: Path, seed: int, corpus: str) -> Iterator[dict[str, Any]]:
    """The rows of one seed on a corpus of spans."""
    name, file = TAGGED[corpus]
    source = shared / "data" / file
    words, tags, wrong = change_spans(source, random.Random(seed))
    truth = {"sentence": np.array([any(own) for own in wrong]), "word": np.concatenate(wrong)}
    judged = fit_folds(words, tags)
    spans, guessed = (
        [decode_lenient([judged.labels[i] for i in own]) for own in ids]
        for ids in (judged.gold, [own.argmax(-1) for own in judged.chance])
    )
    reached = f"F1 {micro_f1(spans, guessed):.3f}"
    for level, ranks in rank_words(judged).items():
        about = {"corpus": name, "level": level, "seed": seed, "model": reached}
        yield from score(ranks, truth[level], **about)


MEASURES = {"sst2": measure_texts} | {
    corpus: partial(measure_words, corpus=corpus) for corpus in TAGGED
}


def main() -> None:
    """Measures and writes the rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--out", type=Path, default=Path("suspects.csv"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--corpora", nargs="+", choices=MEASURES, default=list(MEASURES))
    options = parser.parse_args()
    files = {name: file for name, (_, file) in TAGGED.items()} | {"sst2": SST2}
    wanted = [options.shared / "data" / files[name] for name in options.corpora]
    if missing := [str(path) for path in wanted if not path.is_file()]:
        print(f"skipped: {', '.join(missing)} not there")
        sys.exit(0)
    warnings.simplefilter("ignore")  # of cleanlab
    about = {
        "folds": FOLDS,
        "cpu": platform.processor() or platform.machine(),
        "sklearn": version("scikit-learn"),
        "softf1": version("softf1"),
        "cleanlab": version("cleanlab") if find_spec("cleanlab") else "",
    }
    rows = [
        row | about
        for corpus in options.corpora
        for seed in options.seeds
        for row in MEASURES[corpus](options.shared, seed)
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
