"""Answers to questions, from the logits of windows: decoding, scores and headroom."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from softf1.metrics.cmrc import score_cmrc
from softf1.metrics.crossfit import assign_folds
from softf1.metrics.headroom import Best, Events, mean_parts, sweep_events
from softf1.metrics.operating import Units
from softf1.metrics.quoref import score_quoref
from softf1.metrics.ranking import average_precision
from softf1.metrics.squad import score_squad, score_squad2
from softf1.tasks.base import DIGITS, Features, Logits, Predict, Prediction, check_items
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
from softf1.tasks.nbest import Positions, find_best_spans, list_answers, null_scores
from softf1.tasks.rows import TextTask, offsets, pad, ranges
from softf1.tasks.sentences import Numbering

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from softf1.data.examples import QAExample
    from softf1.metrics.counts import Mean

    Line = Mapping[str, Any]
    Floats = NDArray[np.float64]

ANSWER = "answer"
"""The only label that bars and operating points of answers have."""

BOTH_LIKELY = math.log(0.25)
"""The least log probability of a further span: start and end as likely as not, 0.5 · 0.5."""


class AnswerTask(TextTask):
    """Decisions about answers to questions; `QA` explains the attributes."""

    positions: Positions
    no_answer: bool
    several: bool
    rules: str | None
    n_best: int
    max_answer: int | None
    longest: int
    listed: int
    null_threshold: float

    def decode(
        self, logits: Logits, features: Features, examples: Sequence[QAExample]
    ) -> list[Prediction]:
        """Returns the best answer to every question; with `several`, all likely spans of it."""
        answers = self.find_answers(logits, features, examples, listed=self.listed)
        return [self._choose_spans(one) for one in answers] if self.several else answers

    def find_answers(
        self, logits: Logits, features: Features, examples: Sequence[QAExample], *, listed: int
    ) -> list[Prediction]:
        """Returns the best answer to every question, with the lead of no answer as `null_score`."""
        start, end, count = _matrices(logits, len(features))
        column = np.arange(start.shape[1])
        # The starts and ends of several spans can be paired in many ways, most of them wrong.
        n_best = self.n_best * 5 if self.several else self.n_best
        spans = find_best_spans(
            start,
            end,
            inside=(column >= 1) & (column <= count[:, None]),
            n_best=n_best,
            max_length=self.max_answer or self.longest,
            positions=self.positions,
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
            start, end, null_position=0, question=features["source"], positions=self.positions
        )
        return [
            self._predict(example.id, candidates, float(score), listed)
            for example, candidates, score in zip(examples, best, null, strict=True)
        ]

    def _predict(self, name: str, candidates: list[Any], null: float, listed: int) -> Prediction:
        best = candidates[0] if candidates else None
        above = null - best.score if best is not None else math.inf
        empty = best is None or (self.no_answer and above > self.null_threshold)
        return {
            "id": name,
            "answer": "" if best is None or empty else best.text,
            "start": 0 if best is None else best.start,
            "end": 0 if best is None else best.end,
            "text": "" if best is None else best.text,
            "null_score": above,
            "confidence": round(self._confidence(candidates, null, empty=empty), DIGITS),
            "candidates": [c._asdict() for c in candidates[: None if self.several else listed]],
        }

    def _confidence(self, candidates: list[Any], null: float, *, empty: bool) -> float:
        """Returns the probability of the answer.

        With softmax over positions, it is a softmax over the scores of the n best spans and, if
        questions may have no answer, of no answer less the tuned threshold. With sigmoid, it is
        the probability of the start times that of the end.
        """
        if not candidates:
            return 1.0
        if self.positions == "sigmoid":
            return math.exp(null if empty else candidates[0].score)
        scores = np.array([candidate.score for candidate in candidates])
        if self.no_answer:
            scores = np.append(scores, null - self.null_threshold)
        shares = np.exp(scores - scores.max())
        return float(shares[-1 if empty else 0] / shares.sum())

    def _choose_spans(self, item: Prediction) -> Prediction:
        """Adds `answers`: the best span, and further likely ones that overlap none before them."""
        taken: list[dict[str, Any]] = []
        for one in item["candidates"] if item["answer"] else []:
            apart = all(one["end"] <= t["start"] or one["start"] >= t["end"] for t in taken)
            if not taken or (apart and one["score"] >= BOTH_LIKELY):
                taken.append(one)
        taken.sort(key=lambda one: one["start"])
        spans = {"answers": [one["text"] for one in taken]}
        return item | spans | {"candidates": item["candidates"][: self.listed]}

    @property
    def scored_by(self) -> str:
        """The rules by which answers are scored, such as squad2."""
        return self.rules or ("squad2" if self.no_answer else "quoref" if self.several else "squad")

    def list_texts(self, line: Line) -> list[str]:
        """The texts of the answer's spans; only one, unless the rules score several (quoref)."""
        several = "answers" in line and self.scored_by == "quoref"
        return list(line["answers"]) if several else [line["answer"]]

    def score(
        self, predictions: Sequence[Prediction], examples: Iterable[QAExample]
    ) -> dict[str, Any]:
        """Computes exact match and F1 by the rules of the corpus."""
        gold = [[answer.texts for answer in example.answers] for example in examples]
        counts = _count_answers([*map(self.list_texts, predictions)], gold, self.scored_by)
        scores = {name: mean.value for name, mean in counts.items()}
        if self.scored_by == "squad2":
            # The best threshold is searched over all answers, also over those held back.
            best = score_squad2(
                [item["text"] for item in predictions],
                [[*chain.from_iterable(answers)] for answers in gold],
                null_scores=[item["null_score"] for item in predictions],
            ).best_f1
            scores |= {"best_f1": best.score, "best_f1_threshold": best.threshold}
        return scores

    def sweep_threshold(self, every: Sequence[Prediction], examples: Sequence[QAExample]) -> Best:
        """Finds the best no-answer threshold; `every` has an answer wherever a span was found."""
        gold = [tuple(tuple(answer.texts) for answer in one.answers) for one in examples]
        texts = [tuple(self.list_texts(item)) for item in every]
        raw, empty = (
            np.array([_count_answer(a, g, self.scored_by)["f1"].value for a, g in pairs])
            for pairs in (zip(texts, gold, strict=True), ((("",), g) for g in gold))
        )
        null = np.array([item["null_score"] for item in every])
        now = np.where(null > self.null_threshold, empty, raw)
        return _sweep_null([one.context for one in examples], now, raw, empty, null)

    def count_line(self, line: Line) -> dict[str, Mean]:
        """Returns exact match and F1 of one answer."""
        return _count_answer(tuple(self.list_texts(line)), _freeze(line), self.scored_by)

    def list_units(self, lines: Sequence[Line]) -> Units:
        """Lists the given answers, each exactly right or not; a context is one item."""
        context = Numbering().numbers([line["context"] for line in lines]).tolist()
        units = Units([], [], [], [], [[] for _ in set(context)])
        for item, line in zip(context, lines, strict=True):
            if line["gold"]:
                units.gold[item].append(ANSWER)
            if line["answer"]:
                right = bool(line["gold"]) and self.count_line(line)["exact"].value == 1
                units.add(item, ANSWER, line["confidence"], right=right)
        return units

    def measure(self, lines: Sequence[Line], given: Any) -> Headroom:
        """Measures the headroom: no-answer threshold and choice, the n best, boundaries."""
        listed = [[one["text"] for one in line.get("candidates") or ()] for line in lines]
        if given is not None and not self.several:
            answers = self.find_answers(*given, listed=self.n_best)
            listed = [[one["text"] for one in answer["candidates"]] for answer in answers]
        now = np.array([self.count_line(line)["f1"].value for line in lines])
        steps: list[Stage] = []
        parts: list[Gain] = []
        missing = []
        reached, ranked = now, None

        def score(line: Line, text: str) -> float:
            return _count_answer((text,), _freeze(line), self.scored_by)["f1"].value

        def compare(title: str, better: Floats, wins: str) -> Gain:
            places = np.flatnonzero(better > now)
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
            more = {"wins": wins, "counts": counts, "examples": examples}
            return make_part(title, _mean(better), _mean(now), **more)

        if self.no_answer:
            # If an answer of several spans was held back, its line has only the best span.
            answered = np.array([bool(line["answer"]) for line in lines], bool)
            raw = np.where(answered, now, [score(line, line["text"]) for line in lines])
            empty = np.array([score(line, "") for line in lines])
            null = np.array([_number(line["null_score"]) for line in lines])
            best = _sweep_null([line["context"] for line in lines], now, raw, empty, null)
            what = "One no-answer threshold"
            parts += sweep_parts(best, what)
            reached = np.maximum(raw, empty)
            parts.append(compare("A perfect choice between the answer and none", reached, DECISION))
            choice = Stage("A perfect choice of no answer", parts[-1].score)
            steps += [Stage(what, best.score), choice]
            answerable = np.array([bool(line["gold"]) for line in lines], bool)
            ranked = average_precision(-null, answerable)
        if any(listed) and not self.several:
            title = f"The best of the {max(map(len, listed))} likeliest answers"
            top = [
                max((score(line, text) for text in texts), default=0.0)
                for line, texts in zip(lines, listed, strict=True)
            ]
            parts.append(compare(title, np.maximum(now, top), RANKING))
            reached = np.maximum(reached, top)
            steps.append(Stage(title, _mean(reached)))
        else:
            why = "answers of several spans have none"
            why = why if self.several else "the predictions list none"
            missing.append(f"the n best answers: {why}")
        near, reached = ((values > 0).astype(float) for values in (now, reached))
        parts.append(compare("Right boundaries where the answer shares a word", near, LIMITS))
        steps.append(Stage("Right boundaries", _mean(reached)))
        steps.append(Stage("Answers that were not found", 1.0))
        more = {"average_precision": ranked, "missing": missing}
        return make_headroom("f1", _mean(now), parts, steps, **more)


def _matrices(logits: Logits, windows: int) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Returns start and end logits (windows, 1 + tokens), column 0 for no answer, and tokens."""
    check_items(logits["item"], windows)
    order = np.argsort(logits["item"])
    count = logits["count"][order]
    place = ranges(offsets(logits["count"])[:-1][order], count)
    start, end = (pad(logits[key][place], count, fill=-np.inf, shift=1) for key in ("start", "end"))
    start[:, 0], end[:, 0] = logits["null_start"][order], logits["null_end"][order]
    return start, end, count


def _freeze(line: Line) -> tuple[tuple[str, ...], ...]:
    """The gold answers of a line as tuples, which `lru_cache` can hash."""
    return tuple(map(tuple, line["gold"]))


@lru_cache(maxsize=200_000)  # most predictions are the same from run to run
def _count_answer(
    given: tuple[str, ...], gold: tuple[tuple[str, ...], ...], rules: str
) -> dict[str, Mean]:
    return _count_answers([given], [gold], rules)


def _count_answers(
    given: Sequence[Sequence[str]], gold: Sequence[Sequence[Sequence[str]]], rules: str
) -> dict[str, Mean]:
    """Scores answers of one span or several, exact match and F1, by the rules of a corpus."""
    if rules == "quoref":
        scores = score_quoref(given, gold)
        return {"exact": scores.exact, "f1": scores.f1}
    answers = [text for (text,) in given]
    texts = [[*chain.from_iterable(own)] for own in gold]
    if rules == "squad2":
        both = score_squad2(answers, texts)
        split = {"has_answer_f1": both.has_answer.f1, "no_answer_f1": both.no_answer.f1}
        return {"exact": both.all.exact, "f1": both.all.f1, **split}
    scores = (score_cmrc if rules == "cmrc" else score_squad)(answers, texts)
    return {"exact": scores.exact, "f1": scores.f1}


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0


def _number(score: float | None) -> float:
    """The null score from a file: null there means that no span was found, so it is infinite."""
    return math.inf if score is None else float(score)


def _sweep_null(
    contexts: Sequence[str], now: Floats, raw: Floats, empty: Floats, null: Floats
) -> Best:
    """Tries all no-answer thresholds; questions about one context stay in one fold."""
    number = Numbering()
    context = number.numbers(contexts)
    fold = assign_folds(len(number), folds=FOLDS, seed=0)[context]
    start, decided = np.zeros((2, FOLDS, 1, 2))
    for table, values in ((start, empty), (decided, now)):
        np.add.at(table[:, 0], fold, np.stack([values, np.ones_like(values)], axis=1))
    change = np.stack([raw - empty, np.zeros_like(raw)], axis=1)[:, None]
    events = Events(start, null, fold, np.zeros((len(contexts), 1), np.int64), change)
    return sweep_events(events, decided, score=mean_parts)


def answer_first_words(train: Sequence[QAExample], *, no_answer: bool) -> Predict:
    """Returns a baseline: no answer if most questions have none, else the context's first words.

    It gives as many words as the median answer of the training data has.
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
    """Returns the first `words` words of a text, with the spaces between them as they are.

    >>> _start("a  b c", 2)
    'a  b'
    """
    rest = text.split(maxsplit=words)
    return text[: len(text) - len(rest[words])].rstrip() if len(rest) > words else text
