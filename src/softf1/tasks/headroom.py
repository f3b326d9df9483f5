"""How much a score could gain at most, part by part: the result, and the parts that tasks share.

A part says what the score would be if one thing were perfect: the threshold, the labels of found
spans, their boundaries. It is computed in hindsight, on the very items that are scored, so it is an
upper bound, not a promise; only the cross-fitted part takes a threshold chosen on other items.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from softf1.metrics.crossfit import assign_folds
from softf1.metrics.headroom import (
    Best,
    best_thresholds,
    macro_f,
    match_spans,
    micro_f,
    say_gains,
    sweep_bias,
    sweep_outside,
    sweep_sequences,
    sweep_threshold,
)
from softf1.metrics.operating import Units
from softf1.metrics.ranking import average_precision, macro_average_precision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from softf1.metrics.schemes import LabelledSpan

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

SCHEMA = 1
FOLDS = 5
SHOWN = 5
"""How many examples a part lists at most."""
LONGEST = 160
"""Characters of an example's text at most."""

DECISION, RANKING = "a better decision", "a better ranking"
LABELS, LIMITS = "right labels", "right boundaries"
NO_LOGITS = "the bias needs the model's logits, which predictions do not hold"


@dataclass(frozen=True, kw_only=True)
class Gain:
    """The score with one thing perfect.

    Attributes:
        title: What is perfect, or how the decision was made.
        score: The score in that case.
        gain: How far that is above the score as decided; for a ranking, above the best decision.
        wins: What wins the gain, for the summary; empty if the part is not in the summary.
        counts: The numbers behind the score, such as items that become right.
        examples: Some of the items that would change: id, text, found, gold.
    """

    title: str
    score: float
    gain: float
    wins: str = ""
    counts: dict[str, float] = field(default_factory=dict)
    examples: list[dict[str, str]] = field(default_factory=list)


class Stage(NamedTuple):
    """A step on the way from the current score to 1, on top of the steps before."""

    title: str
    score: float


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """All parts of one set of predictions.

    Attributes:
        metric: The name of the score.
        decided: The score of the model's own decisions.
        parts: What each thing would gain alone.
        steps: What they would reach one on top of the other; the last reaches 1.
        average_precision: How well items are ranked; None if nothing ranks them.
        missing: What could not be computed, and why.
        unknown: Why it is not known what a better decision or ranking gains; empty if it is.
    """

    metric: str
    decided: float
    parts: list[Gain]
    steps: list[Stage]
    average_precision: float | None = None
    missing: list[str] = field(default_factory=list)
    unknown: str = ""

    def summary(self) -> str:
        """Returns one sentence, with gains in percentage points.

        >>> parts = [Gain(title="One threshold", score=0.858, gain=0.008, wins=DECISION),
        ...          Gain(title="A perfect ranking", score=1.0, gain=0.142, wins=RANKING)]
        >>> Headroom(metric="f1", decided=0.85, parts=parts, steps=[]).summary()
        'a better decision wins at most 0.8, a better ranking 14.2'
        """
        return say_gains([(part.wins, part.gain) for part in self.parts if part.wins], self.unknown)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `headroom.json`, except on which data it was measured."""
        steps = [step._asdict() for step in self.steps]
        return {"schema": SCHEMA, **asdict(self), "steps": steps, "summary": self.summary()}


def make_headroom(
    metric: str, decided: float, parts: Iterable[Gain], steps: Iterable[Stage], **more: Any
) -> Headroom:
    """Makes the headroom from parts and steps, with the score as decided before them."""
    first = Gain(title="As decided", score=decided, gain=0.0)
    way = [Stage(first.title, decided), *steps]
    return Headroom(metric=metric, decided=decided, parts=[first, *parts], steps=way, **more)


def find_nothing(metric: str) -> Headroom:
    """The headroom of data without gold labels, where nothing can be gained."""
    return make_headroom(metric, 0.0, [], [])


def name_example(
    line: Mapping[str, Any], *, found: Any, gold: Any, text: str | None = None
) -> dict[str, str]:
    """Describes an example of a part; long texts are shortened."""
    texts = {"text": line_text(line) if text is None else text, "found": _say(found)}
    cut = {
        key: one if len(one) <= LONGEST else one[: LONGEST - 1] + "…"
        for key, one in {**texts, "gold": _say(gold)}.items()
    }
    return {"id": str(line.get("id", "")), **cut}


def _say(value: Any) -> str:
    return (value if isinstance(value, str) else ", ".join(map(str, value))) or "–"


def make_part(title: str, score: float, base: float, **more: Any) -> Gain:
    """Makes a part whose gain is its score minus `base`."""
    return Gain(title=title, score=score, gain=score - base, **more)


def sweep_parts(
    best: Best, what: str, *, counts: Mapping[str, float] | None = None, **more: Any
) -> list[Gain]:
    """Makes the parts of moving one number: the best in hindsight, and cross-fitted."""
    behind = {**(counts or {}), **({} if best.at is None else {"at": round(best.at, 6)})}
    hindsight = f"{what}, best in hindsight"
    return [
        make_part(hindsight, best.score, best.decided, counts=behind, **more),
        make_part(f"{what}, cross-fitted over {FOLDS} folds", best.honest, best.decided),
    ]


def allow_parts(decided: float, best: float, allowed: float) -> list[Gain]:
    """Makes the part of a threshold per label (`allowed`), and of the better of that and `best`."""
    better = "The better of the two: what the ranking allows"
    return [
        make_part("A threshold for each label, best in hindsight", allowed, decided),
        make_part(better, max(best, allowed), decided, wins=DECISION),
    ]


def rank_part(best: float) -> Gain:
    """Makes the part of a perfect ranking: what even the best decision cannot gain."""
    return make_part("A perfect ranking, beyond the best decision", 1.0, best, wins=RANKING)


def count_changes(
    gold: Sequence[Any], before: Sequence[Any], after: Sequence[Any]
) -> tuple[dict[str, float], list[int]]:
    """Counts items that become right or wrong; also returns some indices of the right ones."""
    rows = list(zip(gold, before, after, strict=True))
    mended = [i for i, (g, b, a) in enumerate(rows) if g == a != b]
    broken = sum(g == b != a for g, b, a in rows)
    return {"mended": len(mended), "broken": broken}, mended[:SHOWN]


def line_text(line: Mapping[str, Any]) -> str:
    """The text of a prediction line of any task."""
    if "words" in line:
        return " ".join(line["words"])
    keys = ("question", "text", "first", "second")
    return " ⇄ ".join(str(line[key]) for key in keys if line.get(key))


def measure_labels(lines: Sequence[Mapping[str, Any]], task: Any) -> Headroom:
    """Measures the headroom of text labels, from the probabilities in the prediction lines."""
    golds = [tuple(line["gold"]) for line in lines]
    given = [tuple(line["labels"]) if "labels" in line else (line["label"],) for line in lines]
    given = [() if labels == (None,) else labels for labels in given]  # None: it was below its bar
    unseen = sorted({x for labels in golds for x in labels} - set(task.labels))
    place = {label: i for i, label in enumerate((*task.labels, *unseen))}
    scores = np.array(
        [[line["probabilities"][label] for label in task.labels] for line in lines], float
    ).reshape(len(lines), len(task.labels))
    right, now = (_one_hot(rows, place) for rows in (golds, given))
    fold = assign_folds(len(lines), folds=FOLDS, seed=0)
    metric, positive = task.primary_metric, task.positive_label
    if not task.multi_label and (positive is None or metric != "f1"):
        logits = np.log(np.maximum(scores, np.finfo(float).tiny))
        # No label is no class (−1) for F1, but for accuracy it must count as a wrong class.
        nothing = len(place) if metric == "accuracy" else -1
        ids = right.argmax(1), np.where(now.any(1), now.argmax(1), nothing)
        named = [*place, "–"]
        return _measure_classes(lines, logits, *ids, labels=named, fold=fold, metric=metric)
    macro = metric == "macro_f1"
    kept = [*place.values()] if positive is None else [place[positive]]
    if not right[:, kept].any():
        return find_nothing("macro_f1" if macro else "f1")
    known = [i for i in kept if i < len(task.labels)]
    padded = np.full(right.shape, -np.inf)
    padded[:, : len(task.labels)] = scores
    best = sweep_threshold(padded[:, kept], right[:, kept], now[:, kept], fold=fold, macro=macro)
    then = now if best.at is None else padded >= best.at
    never = right[:, [i for i in kept if i >= len(task.labels)]].sum(axis=0)
    allowed, _ = best_thresholds(scores[:, known], right[:, known], macro=macro, never=never)
    counts, mended = count_changes(*([tuple(r[kept]) for r in x] for x in (right, now, then)))
    examples = [name_example(lines[i], found=given[i], gold=golds[i]) for i in mended]
    several, what = len(kept) > 1, "One threshold"
    wins = "" if several else DECISION
    parts = sweep_parts(best, what, wins=wins, counts=counts, examples=examples)
    parts += allow_parts(best.decided, best.score, allowed) if several else []
    steps = [Stage(what, best.score)]
    steps += [Stage("A threshold a label", max(best.score, allowed))] if several else []
    name = "macro_f1" if macro else "f1"
    return _up_to_ranking(name, best.decided, parts, steps, scores[:, known], right[:, known])


def _up_to_ranking(
    metric: str,
    decided: float,
    parts: list[Gain],
    steps: list[Stage],
    scores: Floats,
    right: NDArray[np.bool_],
) -> Headroom:
    """The headroom with a perfect ranking as last part and step, and macro average precision."""
    return make_headroom(
        metric,
        decided,
        [*parts, rank_part(steps[-1].score)],
        [*steps, Stage("A perfect ranking", 1.0)],
        average_precision=macro_average_precision(scores, right) if right.any() else None,
    )


def _one_hot(rows: Sequence[Sequence[str]], place: Mapping[str, int]) -> NDArray[np.bool_]:
    out = np.zeros((len(rows), len(place)), bool)
    for row, labels in enumerate(rows):
        out[row, [place[label] for label in labels]] = True
    return out


def _measure_classes(
    lines: Sequence[Mapping[str, Any]],
    logits: Floats,
    gold: Ints,
    now: Ints,
    *,
    labels: Sequence[str],
    fold: Ints,
    metric: str,
    lengths: Ints | None = None,
) -> Headroom:
    """Measures items of one class each: a bias for the most frequent, the better of the best two.

    `labels` are the class names, first those of the columns of `logits` (items, C), then those
    that training never saw; `gold` and `now` are class ids.
    """
    macro, classes = metric == "macro_f1", logits.shape[1]
    usual = int(np.bincount(gold[gold < classes], minlength=1).argmax())
    best = sweep_bias(logits, gold, now, index=usual, fold=fold, macro=macro)
    biased = logits.copy()
    biased[:, usual] += best.at or 0.0
    then = now if best.at is None else biased.argmax(1)
    counts, mended = count_changes(gold.tolist(), now.tolist(), then.tolist())
    owner = np.arange(len(lines)) if lengths is None else np.repeat(np.arange(len(lines)), lengths)

    def show(places: Iterable[int]) -> list[dict[str, str]]:
        return [
            name_example(lines[owner[i]], found=labels[now[i]], gold=labels[gold[i]])
            for i in places
        ]

    what = f"One bias, for {labels[usual]}" if labels else "One bias"
    parts = sweep_parts(best, what, counts=counts, examples=show(mended))
    right = gold[:, None] == np.arange(classes)
    never = np.bincount(gold[gold >= classes] - classes) if (gold >= classes).any() else ()
    shares = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-1e300))
    shares /= shares.sum(axis=1, keepdims=True)
    allowed, _ = best_thresholds(shares, right, macro=macro, never=never)
    parts += allow_parts(best.decided, best.score, allowed)
    second = np.argsort(-logits, axis=1, kind="stable")[:, :2]
    two = np.where((second == gold[:, None]).any(axis=1), gold, now)
    reached = _score_classes(gold, two, len(labels), macro=macro)
    mended = np.flatnonzero(two != now).tolist()
    title, more = "The right one of the two likeliest labels", show(mended[:SHOWN])
    counts = {"mended": len(mended)}
    parts.append(make_part(title, reached, best.decided, counts=counts, examples=more))
    steps = [Stage(what, best.score), Stage("A threshold a label", max(best.score, allowed))]
    return _up_to_ranking(metric, best.decided, parts, steps, shares, right)


def _score_classes(gold: Ints, given: Ints, classes: int, *, macro: bool) -> float:
    table = np.zeros((classes, 3))
    hit = gold == given
    for column, ids in enumerate((gold[hit], given[~hit & (given >= 0)], gold[~hit])):
        np.add.at(table[:, column], ids, 1)
    return float((macro_f if macro else micro_f)(table))


def _number_tags(
    lines: Sequence[Mapping[str, Any]], labels: Sequence[str]
) -> tuple[list[str], Ints, Ints, Ints]:
    """Numbers the tags, those never seen in training last: names, gold, given, words per line."""
    golds, given = (
        list(chain.from_iterable(line[key] for line in lines)) for key in ("gold", "tags")
    )
    every = [*labels, *sorted(set(golds) - set(labels))]
    place = {tag: i for i, tag in enumerate(every)}
    gold, now = (np.array([place[tag] for tag in tags], np.int64) for tags in (golds, given))
    return every, gold, now, np.array([len(line["tags"]) for line in lines], np.int64)


def measure_tags(
    lines: Sequence[Mapping[str, Any]], logits: Floats | None, *, labels: Sequence[str], metric: str
) -> Headroom:
    """Measures the headroom of plain tags; `logits` (words, tags) include the task's biases."""
    every, gold, now, lengths = _number_tags(lines, labels)
    if logits is None:
        decided = _score_classes(gold, now, len(every), macro=metric == "macro_f1")
        rest = make_part("Right tags", 1.0, decided, wins=LABELS)
        return make_headroom(metric, decided, [rest], [Stage(rest.title, 1.0)], unknown=NO_LOGITS)
    fold = np.repeat(assign_folds(len(lines), folds=FOLDS, seed=0), lengths)
    return _measure_classes(
        lines, logits, gold, now, labels=every, fold=fold, metric=metric, lengths=lengths
    )


class Sentence(NamedTuple):
    """The gold spans of one sentence, and the found ones with the confidence of each."""

    line: Mapping[str, Any]
    gold: set[LabelledSpan]
    found: dict[LabelledSpan, float]


def list_units(sentences: Iterable[Sentence]) -> Units:
    """Lists the found spans, each right or not, and the labels of the gold spans."""
    units = Units([], [], [], [], [])
    for item, one in enumerate(sentences):
        units.gold.append([label for _, _, label in one.gold])
        for span, sure in one.found.items():
            units.add(item, span[2], sure, right=span in one.gold)
    return units


PERFECT = {
    "labels": ("Right labels for the found spans", LABELS),
    "limits": ("Right boundaries for the found labels", LIMITS),
    "both": ("Both of them", ""),
}


def perfect_spans(sentences: Sequence[Sentence]) -> tuple[dict[str, float], list[Gain]]:
    """Returns F1 as decided and if found spans had right labels, boundaries, or both; and parts."""
    matches = [match_spans(one.gold, one.found) for one in sentences]
    found = sum(len(one.found) for one in sentences)
    gold = sum(len(one.gold) for one in sentences)
    right = sum(match.right for match in matches)
    scores = {"decided": 2 * right / (found + gold) if right else 0.0}
    parts = []
    for name, (title, wins) in PERFECT.items():
        pairs = [
            (one, a, b)
            for one, match in zip(sentences, matches, strict=True)
            for a, b in getattr(match, name)
        ]
        scores[name] = 2 * len(pairs) / (found + gold) if pairs else 0.0
        moved = [pair for pair in pairs if pair[1] != pair[2]]
        examples = [
            name_example(one.line, found=_name(one, a), gold=_name(one, b))
            for one, a, b in moved[:SHOWN]
        ]
        counts = {"spans": len(pairs) - right, "found": found, "gold": gold}
        more = {"wins": wins, "counts": counts, "examples": examples}
        parts.append(make_part(title, scores[name], scores["decided"], **more))
    return scores, parts


def _name(sentence: Sentence, span: LabelledSpan) -> str:
    start, end, label = span
    return f"{' '.join(sentence.line['words'][start:end])} ({label})"


def measure_spans(
    sentences: Sequence[Sentence],
    best: Best | None,
    *,
    what: str,
    then: Sequence[Sentence] | None = None,
    missing: Sequence[str] = (),
    unknown: str = "",
) -> Headroom:
    """Measures the headroom of spans: a bias or a threshold, labels, boundaries, and the rest.

    Args:
        sentences: The sentences as decided.
        best: The result of moving one number; None if there is none to move.
        what: The name of the number, such as "One bias".
        then: The sentences with the best number; None if they are those as decided.
        missing: What could not be computed.
        unknown: Why some values of the number could not be tried; empty if all were.
    """
    if not any(one.gold for one in sentences):
        return find_nothing("f1")
    scores, perfect = perfect_spans(sentences)
    after = sentences if then is None else then
    steps: list[Stage] = []
    parts: list[Gain] = []
    if best is not None:
        won = [(a, b) for a, b in zip(sentences, after, strict=True) if a.found != b.found]
        mended = sum(len(b.gold & b.found.keys()) - len(a.gold & a.found.keys()) for a, b in won)
        examples = [
            name_example(
                a.line,
                found=[_name(a, span) for span in sorted(a.found)],
                gold=[_name(a, span) for span in sorted(a.gold)],
            )
            for a, b in won
            if len(b.gold ^ b.found.keys()) < len(a.gold ^ a.found.keys())
        ][:SHOWN]
        counts = {"sentences": len(won), "more_right_spans": mended}
        wins = "" if unknown else DECISION
        parts += sweep_parts(best, what, wins=wins, counts=counts, examples=examples)
        parts += [] if unknown else [rank_part(best.score)]
        steps.append(Stage(what, best.score))
    reached, _ = perfect_spans(after)
    steps += [Stage("Right labels", reached["labels"]), Stage("Right boundaries", reached["both"])]
    steps.append(Stage("No span missed or made up", 1.0))
    ranked = [(sure, span in one.gold) for one in sentences for span, sure in one.found.items()]
    lost = sum(len(one.gold - one.found.keys()) for one in sentences)
    sure, right = zip(*ranked, strict=True) if ranked else ((), ())
    return make_headroom(
        "f1",
        scores["decided"],
        [*parts, *perfect],
        steps,
        average_precision=average_precision(sure, right, missed=lost),
        missing=list(missing),
        unknown=unknown,
    )


def sweep_tags(
    lines: Sequence[Mapping[str, Any]],
    logits: Floats,
    *,
    labels: Sequence[str],
    outside: str,
    scheme: str,
    decode: Callable[[Ints, Floats], tuple[Ints, Floats]] | None = None,
) -> tuple[Best, list[list[str]]]:
    """Tries all biases of O; also returns the tags that the best one gives.

    Args:
        lines: Lines of predictions.
        logits: (words, labels).
        labels: The tags of the model.
        outside: The tag that gets the bias, O.
        scheme: The tag scheme.
        decode: Takes sentences and a bias for each; returns their best sequences, and the scores of
            these without the bias. None takes the best tag of each word.
    """
    every, gold, now, lengths = _number_tags(lines, labels)
    sweep = partial(sweep_outside, logits) if decode is None else partial(sweep_sequences, decode)
    best = sweep(
        gold,
        now,
        lengths=lengths,
        tags=every,
        outside=labels.index(outside),
        scheme=scheme,
        fold=assign_folds(len(lines), folds=FOLDS, seed=0),
    )
    if best.at is None:
        return best, [list(line["tags"]) for line in lines]
    if decode is None:
        shift = np.where(np.arange(len(labels)) == labels.index(outside), best.at, 0.0)
        ids = (logits + shift).argmax(1)
    else:
        ids, _ = decode(np.arange(len(lines)), np.full(len(lines), best.at))
    tags = [labels[i] for i in ids.tolist()]
    return best, [tags[a:b] for a, b in pairwise(accumulate(lengths.tolist(), initial=0))]


def sweep_confidence(
    sentences: Sequence[Sentence], tried: Sequence[Sentence] | None = None
) -> tuple[Best, list[Sentence]]:
    """Tries all confidence thresholds of spans; also returns what the best one keeps.

    Args:
        sentences: The sentences as decided.
        tried: The sentences with all candidate spans; None if only the decided ones are known.
    """
    every = sentences if tried is None else tried
    rows = [
        (i, sure, span in one.gold, span in own.found)
        for i, (one, own) in enumerate(zip(every, sentences, strict=True))
        for span, sure in one.found.items()
    ]
    lost = [
        (i, -np.inf, True, False)
        for i, one in enumerate(every)
        for _ in one.gold - one.found.keys()
    ]
    columns = zip(*rows, *lost, strict=True) if rows or lost else ((), (), (), ())
    owner, sure, right, given = map(np.array, columns)
    fold = assign_folds(len(sentences), folds=FOLDS, seed=0)[owner.astype(np.int64)]
    flags = (flag.astype(bool)[:, None] for flag in (right, given))
    best = sweep_threshold(sure.astype(float)[:, None], *flags, fold=fold)
    if best.at is None:
        return best, list(sentences)
    kept = [
        one._replace(found={span: sure for span, sure in one.found.items() if sure >= best.at})
        for one in every
    ]
    return best, kept
