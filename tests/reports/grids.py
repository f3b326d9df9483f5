"""Grid folders as a comparison and a sweep leave them, from text written for these tests.

A made-up model copies the gold tags and errs by chance: how often it misses a name, invents one
or takes one label for another depends on the loss, the label and the seed.
"""

import json
import math
import random
from pathlib import Path

from softf1.metrics.schemes import encode_spans
from softf1.metrics.spans import count_strict
from softf1.tasks.base import describe_counts

NAMES = {
    "PER": ["Marta Quill", "Ivo Brandt", "Odile", "Tomas Reyer", "Hanne Voss", "Bela"],
    "LOC": ["Norrhaven", "Lake Tessin", "Upper Mill Street", "Calder", "Port Amsel"],
    "ORG": ["Brightwater Bank", "the Tramway Office", "Kestrel Press", "Union of Bakers"],
    "EVENT": ["the Lantern Fair", "Harvest Regatta"],
    "LAW": ["the Ferry Act"],
}
PATTERNS = [
    "{PER} left {LOC} before the rain came .",
    "In {LOC} , {ORG} opened a second office .",
    "{PER} wrote to {ORG} about the broken bridge .",
    "Nobody had seen the boat since Tuesday .",
    "{ORG} paid for {EVENT} again this year .",
    "The bread was late , and the shop stayed shut .",
    "After {EVENT} , {PER} walked home along the river .",
    "{LAW} lets {PER} cross at {LOC} for free .",
    "It was too cold to plant anything .",
    "{PER} and {PER} never agreed on the price .",
]
WEIGHTS = [6, 4, 4, 8, 1, 8, 1, 0.4, 7, 4]
LOSSES = ("ce", "ce+tuned", "wce", "focal", "wfocal", "dice", "tversky", "dsc", "ce+dice")
SKILL = {  # share of names missed, share of plain words taken for names, extra care for rare ones
    "ce": (0.16, 0.006, 0.0),
    "wce": (0.10, 0.020, 0.3),
    "focal": (0.15, 0.006, 0.1),
    "wfocal": (0.11, 0.018, 0.3),
    "dice": (0.11, 0.006, 0.3),
    "tversky": (0.09, 0.013, 0.3),
    "dsc": (0.30, 0.004, 0.0),
    "ce+dice": (0.125, 0.006, 0.2),
}
SCHEME = "BIO"


def write_sentences(count, rng, *, rename=()):
    """(words, spans) of so many sentences; `rename` gives labels other names."""
    named = dict(rename)
    out = []
    for pattern in rng.choices(PATTERNS, WEIGHTS, k=count):
        words, spans = [], []
        for piece in pattern.split():
            if not piece.startswith("{"):
                words.append(piece)
                continue
            label = piece[1:-1]
            name = rng.choice(NAMES[label]).split()
            spans.append((len(words), len(words) + len(name), named.get(label, label)))
            words += name
        out.append((words, spans))
    return out


def predict(sentence, skill, labels, rng):
    """The tags of a model that errs."""
    words, spans = sentence
    miss, invent, care = skill
    found = []
    for start, end, label in spans:
        rare = labels.index(label) / len(labels)
        chance = rng.random()
        if chance < miss * (1 + 3 * rare * (1 - care)):
            continue
        given = rng.choice(labels) if chance > 0.97 else label
        cut = 0.94 < chance <= 0.97 and end - start > 1
        found.append((start, end - cut, given))
    taken = {place for start, end, _ in found for place in range(start, end)}
    gold = {place for start, end, _ in spans for place in range(start, end)}
    free = [place for place in range(len(words)) if place not in taken | gold]
    found += [(n, n + 1, rng.choice(labels[:3])) for n in free if rng.random() < invent]
    return encode_spans(found, length=len(words), scheme=SCHEME)


def write_run(folder, *, loss, seed, sentences, skill, labels, options=None, tuned=False):
    """One run folder; gives its scores, and those with biases tuned on dev if there are any."""
    rng = random.Random(f"{loss} {seed} {options}")
    shift = random.Random(seed).uniform(0.9, 1.1)  # what a seed does to every loss alike
    own = (skill[0] * shift * rng.uniform(0.93, 1.07), skill[1] * rng.uniform(0.9, 1.1), skill[2])
    gold = [encode_spans(spans, length=len(words), scheme=SCHEME) for words, spans in sentences]
    found = [predict(sentence, own, labels, rng) for sentence in sentences]
    folder.mkdir(parents=True)
    scores = _judge(folder, sentences, gold, found)
    write_lines(folder / "metrics.jsonl", _metrics(scores["dev"], rng, loss))
    result = _result(loss=loss, seed=seed, scores=scores, labels=labels, options=options or {})
    if tuned:  # a little more is found, and a little more that is not there
        better = (own[0] * 0.8, own[1] * 1.5, own[2])
        again = [predict(sentence, better, labels, rng) for sentence in sentences]
        result["tuned"] = _judge(folder, sentences, gold, again, kind=".tuned")
    write_json(folder / "result.json", result)
    return {loss: scores["test"]} | ({f"{loss}+tuned": result["tuned"]["test"]} if tuned else {})


def _judge(folder, sentences, gold, found, kind=""):
    """Scores on both halves; writes the predictions of the second."""
    half = len(sentences) // 2
    lines = [
        {"schema": 1, "id": f"test-{n}", "words": words, "gold": g, "tags": t}
        for n, ((words, _), g, t) in enumerate(
            zip(sentences[half:], gold[half:], found[half:], strict=True)
        )
    ]
    write_lines(folder / f"predictions.test{kind}.jsonl", lines)
    return {
        "dev": describe_counts(count_strict(gold[:half], found[:half], scheme=SCHEME)),
        "test": describe_counts(count_strict(gold[half:], found[half:], scheme=SCHEME)),
    }


def _metrics(dev, rng, loss):
    scale = {"ce": 1.0, "dsc": 0.7}.get(loss, 0.5)
    lines = []
    for step in range(10, 301, 10):
        value = scale * (0.15 + math.exp(-step / 60)) * rng.uniform(0.9, 1.1)
        lines.append({"event": "step", "step": step, "epoch": step / 60, "loss": value, "lr": 1e-3})
        if step % 60 == 0:
            share = 1 - math.exp(-step / 70) * rng.uniform(0.9, 1.1)
            scores = {name: share * dev[name] for name in ("precision", "recall", "f1", "macro_f1")}
            at = {"step": step, "epoch": step / 60, "split": "dev"}
            lines.append({"event": "eval", **at, "scores": scores})
    return lines


def _result(*, loss, seed, scores, labels, options):
    counts = {"O": 21000} | {f"B-{x}": max(6, 1300 // 4**n) for n, x in enumerate(labels)}
    return {
        "schema": 1, "name": "harbour-names", "hash": "0f3a", "task": "tagging",
        "encoder": "bilstm", "loss": loss, "loss_options": options, "seed": seed,
        "headline": "f1", "scores": scores, "best": {"epoch": 5.0, "step": 300, "score": 0.8},
        "epochs": 5.0, "steps": 300, "examples": 1920, "class_counts": {"tags": counts},
        "seconds": {"total": 41.5, "train": 37.0, "evaluate": 3.5, "warmup": 0.4},
        "tokens_per_second": 21000.0 + seed, "examples_per_second": 1900.0,
        "peak_memory": 450 << 20,
        "warnings": ["LAW has 6 training items"] if "LAW" in labels else [],
        "versions": {"softf1": "0.1.0", "torch": "2.13.0", "python": "3.11.9"},
        "device": "cpu", "world": 1, "precision": "fp32",
        "data": {"train": {"path": "harbour/train.conll", "sha256": "9b1c" * 16, "examples": 1920},
                 "test": {"path": "harbour/test.conll", "sha256": "77e0" * 16, "examples": 400}},
        "recipe": {"name": "harbour-names", "task": {"kind": "tagging", "scheme": "BIO"},
                   "encoder": {"name": "bilstm"}, "loss": {"name": loss, **options},
                   "train": {"lr": 0.001, "epochs": 5.0, "batch_size": 32, "seed": seed}},
    }  # fmt: skip


def write_compare(folder, *, losses=LOSSES, seeds=5, sentences=800, rename=(), missing=()):
    """A grid of a comparison with its comparison.json."""
    folder = Path(folder)
    rng = random.Random(7)
    texts = write_sentences(sentences, rng, rename=rename)
    labels = [dict(rename).get(name, name) for name in NAMES]
    cells, scores = [], {}
    for loss in (name for name in losses if not name.endswith("+tuned")):
        for seed in range(seeds):
            name = f"{loss}-s{seed}"
            cell = {"id": name, "loss": loss, "label": loss, "seed": seed, "values": {}}
            cell |= {"folder": f"cells/{name}", "state": "done"}
            if name in missing:
                cells.append(cell | {"state": "failed"})
                continue
            cells.append(cell)
            made = write_run(
                folder / "cells" / name, loss=loss, seed=seed, sentences=texts,
                skill=SKILL.get(loss, SKILL["dice"]), labels=labels,
                tuned=f"{loss}+tuned" in losses,
            )  # fmt: skip
            scores |= {(row, seed): value for row, value in made.items()}
    grid = {
        "schema": 1, "kind": "compare", "recipe": {"name": "harbour-names"}, "axis": ["loss"],
        "baseline": losses[0], "losses": list(losses), "seeds": list(range(seeds)),
        "headline": "f1", "cells": cells, "tuning": _trials(losses),
    }  # fmt: skip
    write_json(folder / "grid.json", grid)
    comparison = compare(scores, losses, seeds, labels, examples=sentences // 2)
    write_json(folder / "comparison.json", comparison)
    return folder


def _trials(losses):
    """Short runs at two learning rates."""
    return [
        {"loss": loss, "values": {"loss.name": loss, "train.lr": lr}, "score": 0.5 + lr * 10,
         "steps": 100, "share": 1 / 3, "folder": f"tuning/{loss}-{n}-33"}
        for loss in losses if not loss.endswith("+tuned")
        for n, lr in enumerate((0.001, 0.0025))
    ]  # fmt: skip


def compare(scores, losses, seeds, labels, *, examples):
    """A comparison in the form of the real one; its intervals are plain, twice the error."""
    rows = []
    for loss in losses:
        own = [(s, scores[loss, s]) for s in range(seeds) if (loss, s) in scores]
        values = [score["f1"] for _, score in own]
        row = {"loss": loss, "n": len(own), "mean": _mean(values), "sd": _sd(values)}
        row |= {key: _mean(score[key] for _, score in own) for key in ("precision", "recall")}
        if loss != losses[0]:
            row |= _differ([score["f1"] - scores[losses[0], s]["f1"] for s, score in own])
        rows.append(row)
    named = [_label(label, n, scores, losses, seeds) for n, label in enumerate(labels)]
    best = max(rows[1:], key=lambda row: row["mean"]) if len(rows) > 1 else rows[0]
    return {
        "schema": 1, "headline": "f1", "split": "test", "examples": examples, "rows": rows,
        "verdict": f"{best['loss']} {100 * best.get('difference', 0):+.1f} F1 over {losses[0]}: "
                   f"{best.get('verdict', 'nothing to compare')}.",
        "notes": ["these figures are made up"], "labels": named, "groups": _groups(named, losses),
    }  # fmt: skip


def _differ(differences):
    middle, sd = _mean(differences), _sd(differences)
    error = math.sqrt(sd**2 / len(differences) + 0.006**2)
    low, high = middle - 2 * error, middle + 2 * error
    sure = low > 0 or high < 0
    return {
        "difference": middle, "low": low, "high": high, "p": 0.01 if sure else 0.3,
        "p_holm": 0.04 if sure else 0.9, "sd_seeds": sd, "sd_examples": 0.006, "df": 11.5,
        "probability": 0.5 * math.erfc(-middle / error / math.sqrt(2)),
        "verdict": ("helps" if middle > 0 else "hurts") if sure else
                   f"no difference that {len(differences)} seeds can show; "
                   "a gain of 0.5 would need 18 seeds",
    }  # fmt: skip


def _label(label, n, scores, losses, seeds):
    known = [scores[k]["labels"].get(label) for k in scores]
    support = next((one["support"] for one in known if one), 0)
    means = {}
    for loss in losses:
        own = [scores[loss, s]["labels"].get(label) for s in range(seeds) if (loss, s) in scores]
        own = [one for one in own if one]
        keys = ("precision", "recall", "f1")
        means[loss] = {key: _mean(one[key] for one in own) if own else 0.0 for key in keys}
    train = max(6, 1300 // 4**n)
    group = "head" if train > 300 else "tail" if train < 30 else "mid"
    return {"label": label, "support_train": train, "support_test": support, "group": group,
            "scores": means}  # fmt: skip


def _groups(labels, losses):
    out = []
    for group in ("head", "mid", "tail"):
        own = [one for one in labels if one["group"] == group]
        means = {x: {"f1": _mean(one["scores"][x]["f1"] for one in own)} for x in losses}
        out.append({"group": group, "labels": [one["label"] for one in own], "scores": means})
    return out


def write_sweep(folder, *, seeds=2, sentences=400):
    """A sweep of Tversky's alpha with beta = 1 − alpha."""
    folder = Path(folder)
    texts = write_sentences(sentences, random.Random(11))
    cells = []
    for tenth in (1, 3, 5, 7, 9):
        alpha = tenth / 10
        skill = (0.04 + 0.25 * alpha, 0.045 * (1.02 - alpha), 0.2)
        for seed in range(seeds):
            name = f"alpha{tenth}-s{seed}"
            options = {"alpha": alpha, "beta": round(1 - alpha, 1)}
            values = {f"loss.{key}": value for key, value in options.items()}
            cell = {"id": name, "loss": "tversky", "label": f"alpha={alpha}", "seed": seed}
            cells.append(cell | {"values": values, "folder": f"cells/{name}", "state": "done"})
            write_run(
                folder / "cells" / name, loss="tversky", seed=seed, sentences=texts, skill=skill,
                labels=list(NAMES), options=options,
            )  # fmt: skip
    grid = {
        "schema": 1, "kind": "sweep", "recipe": {"name": "harbour-names"},
        "axis": ["loss.alpha", "loss.beta"], "baseline": "alpha=0.5", "losses": ["tversky"],
        "seeds": list(range(seeds)), "headline": "f1", "cells": cells, "tuning": [],
    }  # fmt: skip
    write_json(folder / "grid.json", grid)
    return folder


def write_texts(folder, *, loss="ce", seed=0, texts=200, sharpness=2.0):
    """A run of text classification with probabilities."""
    rng, gold_rng = random.Random(f"texts {loss} {seed}"), random.Random(3)
    subjects = {"praise": "lovely", "complaint": "broken", "<script>alert(1)</script>": "odd"}
    labels = list(subjects)
    lines = []
    for n in range(texts):
        gold = gold_rng.choices(labels, [6, 3, 1])[0]
        logits = [rng.gauss(sharpness if label == gold else 0.0, 1.0) for label in labels]
        total = sum(map(math.exp, logits))
        shares = {x: math.exp(v) / total for x, v in zip(labels, logits, strict=True)}
        text = f"The lamp number {n} was {subjects[gold]} when it came ."
        best = max(shares, key=shares.get)
        line = {"schema": 1, "id": str(n), "text": text, "gold": [gold], "label": best}
        lines.append(line | {"probabilities": shares})
    folder.mkdir(parents=True)
    write_lines(folder / "predictions.test.jsonl", lines)
    right = _mean(line["label"] == line["gold"][0] for line in lines)
    scores = {"precision": right, "recall": right, "f1": right, "macro_f1": right, "labels": {}}
    result = _result(loss=loss, seed=seed, scores={"test": scores}, labels=labels, options={})
    write_json(folder / "result.json", result | {"task": "classification", "encoder": "textcnn"})
    return folder


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def write_lines(path, lines):
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def _mean(values):
    known = list(values)
    return sum(known) / len(known)


def _sd(values):
    known = list(values)
    middle = _mean(known)
    return math.sqrt(sum((x - middle) ** 2 for x in known) / max(len(known) - 1, 1))
