"""Suspects: labels that may be wrong in the data because a model finds them unlikely.

A model that was not trained on an example predicts its labels. Where the prediction differs from
the given label, the label is a suspect, with the score

    score = 1 − p(given)

For a span it is the mean over the words whose tag would change from the given to the predicted
spans. A model is often sure of another tag at one word of a span and not at the others; if all
words speak against the given tags, the span is far more often wrong. For a text and for a single
word, p(given) is cleanlab's self-confidence; only disagreements of the model are listed.
benchmarks/suspects.py compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from softf1.metrics.schemes import LabelledSpan, decode_lenient, encode_spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Marks = tuple["Mark", ...]

WRONG_LABEL, MISSING_LABEL, EXTRA_LABEL = "wrong label", "missing label", "extra label"
MISSING_SPAN, EXTRA_SPAN, WRONG_BOUNDARY = "missing span", "extra span", "wrong boundary"


class Mark(NamedTuple):
    """A label and the words or characters it covers; without a start it covers the whole text."""

    label: str
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A label or span of one example that may be wrong.

    Attributes:
        example: The number of the example.
        kind: What may be wrong: a label, the boundary of a span, a span that is missing or extra.
        given: The labels in the file.
        suggested: The labels that the model predicts.
        score: 1 − the probability of the given label, from 0 to 1; of a span, the mean over the
            words whose tag would change.
    """

    example: int
    kind: str
    given: tuple[Mark, ...]
    suggested: tuple[Mark, ...]
    score: float


class Suspects(NamedTuple):
    """The suspects, and the number of examples with labels that training never saw."""

    suspects: list[Suspect]
    unknown: int


def find_suspect_labels(
    chance: NDArray[Any], gold: NDArray[Any], labels: Sequence[str]
) -> Suspects:
    """Finds texts whose given label is not the one predicted, for one label per text.

    Args:
        chance: Probabilities (texts, C).
        gold: (texts,), −100 for a label that training never saw.
        labels: Their names.

    >>> chance = np.array([[0.2, 0.8], [0.9, 0.1]])
    >>> found, _ = find_suspect_labels(chance, np.array([0, 0]), ["ham", "spam"])
    >>> [(one.example, one.given[0].label, round(one.score, 2)) for one in found]
    [(0, 'ham', 0.8)]
    """
    known = np.flatnonzero(gold >= 0)
    best = chance.argmax(-1)
    suspects = [
        Suspect(
            example=row,
            kind=WRONG_LABEL,
            given=(Mark(labels[gold[row]]),),
            suggested=(Mark(labels[best[row]]),),
            score=float(1 - chance[row, gold[row]]),
        )
        for row in known[best[known] != gold[known]].tolist()
    ]
    return Suspects(suspects, len(gold) - len(known))


def find_suspect_label_sets(
    chance: NDArray[Any], gold: NDArray[Any], labels: Sequence[str]
) -> Suspects:
    """Finds missing and extra labels, for texts with any number of labels.

    A label that training never saw has no column, so it is never a suspect.

    Args:
        chance: Probabilities (texts, C).
        gold: (texts, C) of 0 and 1.
        labels: Their names.
    """
    given = gold > 0
    suspects = [
        Suspect(
            example=row,
            kind=EXTRA_LABEL if given[row, column] else MISSING_LABEL,
            given=(Mark(labels[column]),) if given[row, column] else (),
            suggested=() if given[row, column] else (Mark(labels[column]),),
            score=float(max(chance[row, column], 1 - chance[row, column])),
        )
        for row, column in np.argwhere((chance >= 0.5) != given).tolist()
    ]
    return Suspects(suspects, 0)


def find_suspect_tags(
    chance: NDArray[Any],
    gold: NDArray[Any],
    at: NDArray[Any],
    labels: Sequence[str],
    *,
    spans: bool,
) -> Suspects:
    """Finds spans whose given and predicted tags differ; single words if tags form no spans.

    Args:
        chance: Probabilities (words, C).
        gold: (words,), −100 for a tag that training never saw.
        at: The first word of each sentence, and the end of the last.
        labels: The tags.
        spans: Whether the tags form spans.
    """
    best = chance.argmax(-1)
    list_places = _list_spans if spans else _list_words
    suspects: list[Suspect] = []
    unknown = 0
    for number, (a, b) in enumerate(pairwise(at.tolist())):
        own, said, rows = gold[a:b], best[a:b], np.arange(a, b)
        unknown += bool((own < 0).any())
        if (own == said).all():
            continue
        given, predicted = ([labels[i] for i in ids] for ids in (np.maximum(own, 0), said))
        for theirs, ours in list_places(given, predicted):
            bounds = [place or 0 for mark in (*theirs, *ours) for place in mark[1:]]
            part = slice(min(bounds), max(bounds))
            if (own[part] < 0).any():
                continue
            changed = find_changed(theirs, ours, b - a)
            score = float(1 - chance[rows[changed], own[changed]].mean())
            kind = name_difference(theirs, ours)
            suspects.append(
                Suspect(example=number, kind=kind, given=theirs, suggested=ours, score=score)
            )
    return Suspects(suspects, unknown)


def find_suspect_spans(
    given: Sequence[Mapping[LabelledSpan, float]], predicted: Sequence[Mapping[LabelledSpan, float]]
) -> list[Suspect]:
    """Finds spans that are only given or only predicted, where spans may overlap.

    A given span and a predicted one are one suspect if they cover the same words, or if they
    overlap and have the same label.

    Args:
        given: The spans in the file with their probabilities, for each sentence.
        predicted: The spans that the model predicts.

    >>> find_suspect_spans([{(0, 2, "PER"): 0.1}], [{(0, 2, "LOC"): 0.9}])[0].kind
    'wrong label'
    """
    suspects = []
    for number, (theirs, ours) in enumerate(zip(given, predicted, strict=True)):
        missing = {span: sure for span, sure in ours.items() if span not in theirs}
        pairs: list[tuple[list[LabelledSpan], list[LabelledSpan], float]] = []
        for span in sorted(theirs.keys() - ours.keys()):
            better = _find_partner(span, missing)
            missing = {other: sure for other, sure in missing.items() if other not in better}
            pairs.append(([span], better, 1 - theirs[span]))
        pairs += [([], [span], sure) for span, sure in missing.items()]
        for old, new, score in pairs:
            own, suggested = _marks(old, set(old)), _marks(new, set(new))
            kind = name_difference(own, suggested)
            suspects.append(
                Suspect(example=number, kind=kind, given=own, suggested=suggested, score=score)
            )
    return suspects


def _find_partner(span: LabelledSpan, others: Mapping[LabelledSpan, float]) -> list[LabelledSpan]:
    """The likeliest other span over the same words, or of the same label over some of them."""
    start, end, label = span
    same = [one for one in others if one[:2] == span[:2]]
    near = [one for one in others if one[0] < end and start < one[1] and one[2] == label]
    return sorted(same or near, key=others.__getitem__)[-1:]


def find_changed(given: Marks, suggested: Marks, size: int) -> NDArray[np.bool_]:
    """The words whose tag differs between given and suggested spans, (size,).

    >>> find_changed((Mark("PER", 0, 3),), (Mark("PER", 0, 2), Mark("LOC", 3, 4)), 5).tolist()
    [False, False, True, True, False]
    """
    theirs, ours = (
        encode_spans(
            [(m.start or 0, m.end or 0, m.label) for m in marks], length=size, scheme="BIO"
        )
        for marks in (given, suggested)
    )
    changed: NDArray[np.bool_] = np.array(theirs) != np.array(ours)
    return changed


def name_difference(given: Sequence[Mark], suggested: Sequence[Mark]) -> str:
    """The kind of error between given and suggested spans.

    >>> name_difference([Mark("PER", 0, 1)], [Mark("PER", 0, 2)])
    'wrong boundary'
    """
    if not given or not suggested:
        return EXTRA_SPAN if given else MISSING_SPAN
    same = [mark[1:] for mark in given] == [mark[1:] for mark in suggested]
    return WRONG_LABEL if same else WRONG_BOUNDARY


def _list_words(given: Sequence[str], predicted: Sequence[str]) -> Iterator[tuple[Marks, Marks]]:
    """Words whose given and predicted tags differ."""
    for place, (theirs, ours) in enumerate(zip(given, predicted, strict=True)):
        if theirs != ours:
            yield (Mark(theirs, place, place + 1),), (Mark(ours, place, place + 1),)


def _list_spans(given: Sequence[str], predicted: Sequence[str]) -> Iterator[tuple[Marks, Marks]]:
    """Spans that are only given or only predicted; overlapping ones form one suspect."""
    theirs, ours = set(decode_lenient(given)), set(decode_lenient(predicted))
    held: list[tuple[int, int, str]] = []
    end = 0
    for span in [*sorted(theirs ^ ours), None]:
        if held and (span is None or span[0] >= end):
            yield _marks(held, theirs), _marks(held, ours)
            held = []
        if span is not None:
            held.append(span)
            end = max(end, span[1])


def _marks(spans: Sequence[LabelledSpan], own: set[LabelledSpan]) -> Marks:
    return tuple(
        Mark(label, start, end) for start, end, label in spans if (start, end, label) in own
    )
