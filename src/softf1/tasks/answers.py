"""From logits of windows to answers, and their scores."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from softf1.metrics.cmrc import score_cmrc
from softf1.metrics.crossfit import assign_folds
from softf1.metrics.headroom import Events, mean_of_tables, sweep_events
from softf1.metrics.operating import Units
from softf1.metrics.quoref import score_quoref
from softf1.metrics.ranking import average_precision
from softf1.metrics.squad import score_squad, score_squad2
from softf1.tasks.base import DIGITS
from softf1.tasks.headroom import (
    DECISION,
    FOLDS,
    LIMITS,
    RANKING,
    SHOWN,
    Gain,
    Headroom,
    Stage,
    make_headroom,
    make_part,
    name_example,
    sweep_parts,
)
from softf1.tasks.nbest import find_best_spans, list_answers, null_scores
from softf1.tasks.rows import offsets, pad, ranges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from softf1.data.examples import QAExample
    from softf1.metrics.counts import Mean
    from softf1.metrics.headroom import Best
    from softf1.tasks.base import Features, LineCounts, Logits, Predict, Prediction
    from softf1.tasks.nbest import Positions

ANSWER = "answer"
"""The one label that an answer has."""

BOTH_LIKELY = math.log(0.25)
"""A further span is given where its start and its end are as likely as not, 0.5 · 0.5."""


class Answering(Protocol):
    """The attributes of a task that the functions here read; `QA` explains them."""

    @property
    def positions(self) -> Positions:
        """How positions are predicted: softmax or sigmoid."""

    @property
    def no_answer(self) -> bool:
        """Whether a question may have no answer."""

    @property
    def several(self) -> bool:
        """Whether an answer may have several spans."""

    @property
    def rules(self) -> str | None:
        """How answers are scored."""

    @property
    def n_best(self) -> int:
        """How many spans of a window are candidates."""

    @property
    def max_answer(self) -> int | None:
        """Tokens of an answer at most, if the user set it."""

    @property
    def longest(self) -> int:
        """Tokens of an answer at most otherwise."""

    @property
    def listed(self) -> int:
        """How many candidates a prediction lists."""

    @property
    def null_threshold(self) -> float:
        """How much better no answer must score to be given."""


def find_answers(
    logits: Logits, features: Features, examples: Sequence[QAExample], task: Answering
) -> list[Prediction]:
    """The best answer to every question, and how much better no answer would be."""
    start, end, count = _matrices(logits, len(features))
    column = np.arange(start.shape[1])
    inside = (column >= 1) & (column <= count[:, None])
    # Several starts and ends have many pairings, most of them wrong ones.
    n_best = task.n_best * 5 if task.several else task.n_best
    spans = find_best_spans(
        start,
        end,
        inside=inside,
        n_best=n_best,
        max_length=task.max_answer or task.longest,
        positions=task.positions,
    )
    token = ranges(features["first"], count)
    chars = [
        pad(features[name][token], count, fill=0, width=start.shape[1], shift=1)
        for name in ("char_start", "char_end")
    ]
    best = list_answers(
        spans,
        offsets=np.stack(chars, axis=-1),
        question=features["source"],
        contexts=[example.context for example in examples],
        n_best=n_best,
    )
    null = null_scores(
        start, end, null_position=0, question=features["source"], positions=task.positions
    )
    return [
        _predict(example.id, candidates, float(score), task)
        for example, candidates, score in zip(examples, best, null, strict=True)
    ]


def _matrices(logits: Logits, windows: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    """Start and end logits (windows, 1 + tokens), that of no answer in column 0."""
    order = np.argsort(logits["item"])
    if not np.array_equal(logits["item"][order], np.arange(windows)):
        raise ValueError(f"wanted {windows} windows, each once, got {len(order)}")
    count = logits["count"][order]
    place = ranges(offsets(logits["count"])[:-1][order], count)
    out = []
    for key in ("start", "end"):
        matrix = pad(logits[key][place], count, fill=-np.inf, shift=1)
        matrix[:, 0] = logits[f"null_{key}"][order]
        out.append(matrix)
    return out[0], out[1], count


def _predict(name: str, candidates: list[Any], null: float, task: Answering) -> Prediction:
    best = candidates[0] if candidates else None
    above = null - best.score if best is not None else math.inf
    empty = best is None or (task.no_answer and above > task.null_threshold)
    listed = len(candidates) if task.several else task.listed
    return {
        "id": name,
        "answer": "" if best is None or empty else best.text,
        "start": 0 if best is None else best.start,
        "end": 0 if best is None else best.end,
        "text": "" if best is None else best.text,
        "null_score": above,
        "confidence": round(_confidence(candidates, null, task, empty=empty), DIGITS),
        "candidates": [c._asdict() for c in candidates[:listed]],
    }


def _confidence(candidates: list[Any], null: float, task: Answering, *, empty: bool) -> float:
    """Returns the probability of the answer.

    Softmax over positions: among the n best spans, and no answer where that is allowed, with the
    tuned threshold taken off its score. Sigmoid: of its start times that of its end.
    """
    if not candidates:
        return 1.0
    if task.positions == "sigmoid":
        return math.exp(null if empty else candidates[0].score)
    scores = np.array([candidate.score for candidate in candidates])
    if task.no_answer:
        scores = np.append(scores, null - task.null_threshold)
    shares = np.exp(scores - scores.max())
    return float(shares[-1 if empty else 0] / shares.sum())


def choose_spans(predictions: list[Prediction], task: Answering) -> list[Prediction]:
    """The best span and every further likely one that does not overlap one taken before."""
    out = []
    for item in predictions:
        taken: list[dict[str, Any]] = []
        for one in item["candidates"] if item["answer"] else []:
            apart = all(one["end"] <= t["start"] or one["start"] >= t["end"] for t in taken)
            if not taken or (apart and one["score"] >= BOTH_LIKELY):
                taken.append(one)
        taken.sort(key=lambda one: one["start"])
        spans = {"answers": [one["text"] for one in taken]}
        out.append(item | spans | {"candidates": item["candidates"][: task.listed]})
    return out


def score_answers(
    predictions: Sequence[Prediction], examples: Sequence[QAExample], task: Answering
) -> dict[str, Any]:
    """Exact match and F1 by the rules of the corpus."""
    rules = rules_of(task)
    if rules == "quoref":
        spans = [[list(answer.texts) for answer in example.answers] for example in examples]
        given = [item.get("answers", [item["answer"]]) for item in predictions]
        scores = score_quoref(given, spans)
        return {"exact": scores.exact.value, "f1": scores.f1.value}
    gold = [[text for answer in example.answers for text in answer.texts] for example in examples]
    predicted = [item["answer"] for item in predictions]
    if rules == "squad2":
        return _score_squad2(predictions, predicted, gold)
    scores = (score_cmrc if rules == "cmrc" else score_squad)(predicted, gold)
    return {"exact": scores.exact.value, "f1": scores.f1.value}


def _score_squad2(
    predictions: Sequence[Prediction], predicted: list[str], gold: list[list[str]]
) -> dict[str, Any]:
    scores = score_squad2(predicted, gold)
    # The best threshold is looked for among all answers, those held back too.
    raw = score_squad2(
        [item["text"] for item in predictions],
        gold,
        null_scores=[item["null_score"] for item in predictions],
    )
    return {
        "exact": scores.all.exact.value,
        "f1": scores.all.f1.value,
        "has_answer_f1": scores.has_answer.f1.value,
        "no_answer_f1": scores.no_answer.f1.value,
        "best_f1": raw.best_f1.score,
        "best_f1_threshold": raw.best_f1.threshold,
    }


def rules_of(task: Answering) -> str:
    """The rules by which answers are scored."""
    return task.rules or ("squad2" if task.no_answer else "quoref" if task.several else "squad")


def count_answer(line: Mapping[str, Any], task: Answering) -> LineCounts:
    """Returns what the answer to one question adds to the means behind the scores."""
    rules = rules_of(task)
    given = line.get("answers", [line["answer"]]) if rules == "quoref" else [line["answer"]]
    return _count_texts(tuple(given), tuple(map(tuple, line["gold"])), rules)


def list_answer_units(
    predictions: Sequence[Prediction], examples: Sequence[QAExample], task: Answering
) -> Units:
    """The answers that were given, each exactly right or not; one context is one item."""
    contexts = {text: place for place, text in enumerate({one.context: 0 for one in examples})}
    units = Units([], [], [], [], [[] for _ in contexts])
    for one, example in zip(predictions, examples, strict=True):
        item = contexts[example.context]
        gold = [list(answer.texts) for answer in example.answers]
        if gold:
            units.gold[item].append(ANSWER)
        if one["answer"]:
            exact = count_answer(one | {"gold": gold}, task)["exact"]
            right = bool(gold) and cast("Mean", exact).value == 1
            units.add(item, ANSWER, one["confidence"], right=right)
    return units


@lru_cache(maxsize=200_000)  # most predictions are the same from run to run
def _count_texts(
    given: tuple[str, ...], gold: tuple[tuple[str, ...], ...], rules: str
) -> LineCounts:
    if rules == "quoref":
        scores = score_quoref([given], [gold])
        return {"exact": scores.exact, "f1": scores.f1}
    texts = list(chain.from_iterable(gold))
    if rules == "squad2":
        both = score_squad2(given, [texts])
        split = {"has_answer_f1": both.has_answer.f1, "no_answer_f1": both.no_answer.f1}
        return {"exact": both.all.exact, "f1": both.all.f1, **split}
    scores = (score_cmrc if rules == "cmrc" else score_squad)(given, [texts])
    return {"exact": scores.exact, "f1": scores.f1}


def measure_answers(lines: Sequence[Mapping[str, Any]], task: Answering) -> Headroom:
    """Measures what better decisions, rankings and boundaries of answers would gain."""
    rules = rules_of(task)

    def score(line: Mapping[str, Any], text: str) -> float:
        counts = _count_texts((text,), tuple(map(tuple, line["gold"])), rules)
        return float(counts["f1"].value)  # type: ignore[union-attr]

    now = np.array([count_answer(line, task)["f1"].value for line in lines])  # type: ignore[union-attr]
    decided = float(now.mean()) if len(now) else 0.0
    steps: list[Stage] = []
    parts: list[Gain] = []
    missing = []
    reached, ranked = now, None

    def compare(title: str, better: NDArray[Any], wins: str) -> Gain:
        places = np.flatnonzero(better > now)
        mean = float(better.mean()) if len(better) else 0.0
        examples = [
            name_example(
                lines[i],
                text=lines[i]["question"],
                found=lines[i]["answer"],
                gold=[" + ".join(gold) for gold in lines[i]["gold"]],
            )
            for i in places[:SHOWN]
        ]
        counts = {"mended": len(places), "questions": len(lines)}
        return make_part(title, mean, decided, wins=wins, counts=counts, examples=examples)

    if task.no_answer:
        raw, empty = (
            np.array([score(x, y) for x, y in zip(lines, texts, strict=True)])
            for texts in ([line["text"] for line in lines], [""] * len(lines))
        )
        null = np.array([_number(line["null_score"]) for line in lines])
        best = _sweep_null(lines, now, raw, empty, null)
        what = "One no-answer threshold"
        parts += sweep_parts(best, what)
        reached = np.maximum(raw, empty)
        parts.append(compare("A perfect choice between the answer and none", reached, DECISION))
        steps += [Stage(what, best.score), Stage("A perfect choice of no answer", parts[-1].score)]
        answerable = np.array([bool(line["gold"]) for line in lines], bool)
        ranked = average_precision(-null, answerable)
    listed = [[one["text"] for one in line.get("candidates") or ()] for line in lines]
    if any(listed) and not task.several:
        longest = max(map(len, listed))
        top = [
            max((score(line, text) for text in texts), default=0.0)
            for line, texts in zip(lines, listed, strict=True)
        ]
        title = f"The best of the {longest} likeliest answers"
        parts.append(compare(title, np.maximum(now, top), RANKING))
        reached = np.maximum(reached, top)
        steps.append(Stage(title, float(reached.mean())))
    else:
        why = "answers of several spans have none" if task.several else "the predictions list none"
        missing.append(f"the n best answers: {why}")
    near = np.where(now > 0, 1.0, 0.0)
    parts.append(compare("Right boundaries where the answer shares a word", near, LIMITS))
    reached = np.where(reached > 0, 1.0, 0.0)
    steps.append(Stage("Right boundaries", float(reached.mean()) if len(now) else 0.0))
    steps.append(Stage("Answers that were not found", 1.0))
    return make_headroom("f1", decided, parts, steps, average_precision=ranked, missing=missing)


def _number(score: float | None) -> float:
    """A score of no answer; a file has null for the one of a question without any candidate."""
    return math.inf if score is None else float(score)


def _sweep_null(
    lines: Sequence[Mapping[str, Any]],
    now: NDArray[Any],
    raw: NDArray[Any],
    empty: NDArray[Any],
    null: NDArray[Any],
) -> Best:
    """A threshold up to which answers are given, over all values; contexts stay in one fold."""
    contexts = {line["context"]: None for line in lines}
    number = {context: i for i, context in enumerate(contexts)}
    own = assign_folds(len(contexts), folds=FOLDS, seed=0)
    fold = own[[number[line["context"]] for line in lines]] if lines else own
    start, decided = np.zeros((2, FOLDS, 1, 2))
    for table, values in ((start, empty), (decided, now)):
        np.add.at(table[:, 0], fold, np.stack([values, np.ones_like(values)], axis=1))
    change = np.stack([raw - empty, np.zeros_like(raw)], axis=1)[:, None]
    events = Events(start, null, fold, np.zeros((len(lines), 1), np.int64), change)
    return sweep_events(events, decided, score=mean_of_tables)


def answer_first_words(train: Sequence[QAExample], *, no_answer: bool) -> Predict:
    """No answer where most questions have none; else the context's first words.

    As many words as the answer in the middle of the training data has.
    """
    answered = [one.answers[0] for one in train if one.answers]
    empty = no_answer and 2 * len(answered) < len(train)
    size = median(len(" ".join(one.texts).split()) for one in answered) if answered else 1

    def answer(example: QAExample) -> Prediction:
        text = "" if empty else _start(example.context, max(1, int(size)))
        prediction = {"id": example.id, "answer": text, "start": 0, "end": len(text), "text": text}
        return prediction | {"null_score": 1.0 if empty else -1.0, "candidates": []}

    return lambda examples: [answer(one) for one in examples]


def _start(text: str, words: int) -> str:
    """The first words of a text, as they stand in it.

    >>> _start("a  b c", 2)
    'a  b'
    """
    rest = text.split(maxsplit=words)
    return text[: len(text) - len(rest[words])].rstrip() if len(rest) > words else text
