"""Answers from start and end scores: the n best spans of every window, then of every question.

The constraints are those of the official scripts. Inside the context, the `n_best` positions with
the best start logits are paired with the `n_best` with the best end logits; a pair is an answer if
it does not end before it starts and is not too long. Its score is the sum of its two scores. Equal
scores go to the earlier window, then the earlier start, then the earlier end. Everything is done
for all windows at once; `offsets` turn positions into characters, so that an answer is always an
exact part of its context.

    >>> context = "Ada met Bo in Rome"
    >>> offsets = np.array([[(0, 0), (0, 3), (4, 7), (8, 10), (11, 13), (14, 18)]])
    >>> spans = find_best_spans([[1, 4, 0, 3, 0, 2]], [[1, 0, 0, 3, 0, 5]],
    ...                    inside=[[False, True, True, True, True, True]], max_length=3)
    >>> (best,), = list_answers(spans, offsets=offsets, question=[0], contexts=[context], n_best=1)
    >>> best.text, best.score
    ('Bo in Rome', 8.0)
"""

from __future__ import annotations

from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.floating]
    Ints = NDArray[np.integer]

Positions = Literal["softmax", "sigmoid"]

# Windows per pass: few enough that their scores stay in the CPU cache.
_CHUNK = 256


class WindowSpans(NamedTuple):
    """The best spans of each window, `(windows, n)`, best first.

    Attributes:
        start: Position of the first token.
        end: Position after the last token.
        score: The score; −inf where a window has fewer spans.
    """

    start: Ints
    end: Ints
    score: Floats


class Candidate(NamedTuple):
    """One answer of an n-best list."""

    text: str
    start: int
    end: int
    score: float


def find_best_spans(
    start_logits: ArrayLike,
    end_logits: ArrayLike,
    *,
    inside: ArrayLike,
    n_best: int = 20,
    max_length: int = 30,
    positions: Positions = "softmax",
) -> WindowSpans:
    """Finds the `n_best` best spans of each window.

    Args:
        start_logits: `(windows, length)`.
        end_logits: `(windows, length)`.
        inside: True where a position is a token of the context, `(windows, length)`.
        n_best: How many starts, ends and spans are kept.
        max_length: The maximum tokens of an answer.
        positions: What the logits are. `softmax` over positions: the score of a span is the sum of
            its logits. `sigmoid` per position: the sum of the logarithms of its probabilities.
    """
    start, end = np.asarray(start_logits), np.asarray(end_logits)
    kept = np.asarray(inside, dtype=bool)
    if not (np.all(start < np.inf) and np.all(end < np.inf)):
        raise ValueError("wanted numbers (or −inf) as logits, got NaN or +inf")
    chunks = [
        _find_chunk(start[rows], end[rows], kept[rows], n_best, max_length, positions)
        for rows in (slice(i, i + _CHUNK) for i in range(0, max(len(start), 1), _CHUNK))
    ]
    return WindowSpans(*map(np.concatenate, zip(*chunks, strict=True)))


def list_answers(
    spans: WindowSpans,
    *,
    offsets: ArrayLike,
    question: ArrayLike,
    contexts: Sequence[str],
    n_best: int = 20,
) -> Iterator[list[Candidate]]:
    """Yields the n-best list of each question; a span of several windows is listed once.

    Args:
        spans: From `find_best_spans`.
        offsets: First character and character after the last of each token in the context,
            `(windows, length, 2)`.
        question: The number of the question of each window, `(windows,)`.
        contexts: The context of each question.
        n_best: The maximum answers of a question.
    """
    owner = np.asarray(question, dtype=np.int64)
    window, rank = np.nonzero(np.isfinite(spans.score))
    first, last, score = (values[window, rank] for values in spans)
    places = np.asarray(offsets)
    start, end = places[window, first, 0], places[window, last - 1, 1]
    order = np.lexsort((-score, owner[window]))  # stable: the earlier window wins a tie
    at = np.searchsorted(owner[window][order], np.arange(len(contexts) + 1)).tolist()
    columns = [x[order].tolist() for x in (start, end, score)]
    for context, rows in zip(contexts, starmap(slice, pairwise(at)), strict=True):
        candidates: dict[tuple[int, int], Candidate] = {}
        for first, last, value in zip(*(column[rows] for column in columns), strict=True):
            if len(candidates) < n_best and (first, last) not in candidates:
                candidates[first, last] = Candidate(context[first:last], first, last, value)
        yield list(candidates.values())


def null_scores(
    start_logits: ArrayLike,
    end_logits: ArrayLike,
    *,
    null_position: ArrayLike,
    question: ArrayLike,
    positions: Positions = "softmax",
) -> Floats:
    """Returns the score of no answer for each question: as officially, the lowest of its windows.

    Subtract the score of the best answer and compare with a threshold tuned on dev.

    Args:
        start_logits: `(windows, length)`.
        end_logits: `(windows, length)`.
        null_position: The position that means no answer (`[CLS]`), one for all or one per window.
        question: The number of the question of each window, `(windows,)`.
        positions: As in `find_best_spans`.
    """
    start, end = np.asarray(start_logits), np.asarray(end_logits)
    owner = np.asarray(question, dtype=np.int64)
    windows = np.arange(len(start))
    place = np.broadcast_to(np.asarray(null_position, dtype=np.int64), windows.shape)
    scores = _value(start[windows, place], positions) + _value(end[windows, place], positions)
    lowest = np.full(int(owner.max(initial=-1)) + 1, np.inf)
    np.minimum.at(lowest, owner, scores)
    return lowest


def _find_chunk(
    start: Floats, end: Floats, inside: NDArray[np.bool_], n: int, max_length: int, kind: Positions
) -> tuple[Ints, Ints, Floats]:
    starts, start_score = _best_positions(start, inside, n, kind)
    ends, end_score = _best_positions(end, inside, n, kind)
    beyond = (ends[:, None, :] - starts[:, :, None]).view(np.uint32)
    score = start_score[:, :, None] + end_score[:, None, :]
    # As unsigned integers, negative lengths are huge, so ends before starts are excluded too.
    np.copyto(score, -np.inf, where=beyond >= max_length)
    score = score.reshape(len(score), starts.shape[1] * ends.shape[1])
    # Positions ascend, so of equal pairs the one with the earlier start, then end, comes first.
    pair = _largest(score, n)
    rows = np.arange(len(score))[:, None]
    pair = pair[rows, np.argsort(-score[rows, pair], axis=1, kind="stable")]
    first, last = np.divmod(pair, ends.shape[1])
    return starts[rows, first], ends[rows, last] + 1, score[rows, pair]


def _best_positions(
    logits: Floats, inside: NDArray[np.bool_], n: int, kind: Positions
) -> tuple[Ints, Floats]:
    """The n positions with the largest logits in ascending order, and their scores."""
    masked = np.where(inside, logits, -np.inf)
    best = _largest(masked, n)
    return best, _value(np.take_along_axis(masked, best, axis=1), kind)


def _largest(scores: Floats, n: int) -> Ints:
    """The columns of the n largest scores of each row, ascending; ties to the lower column."""
    rows, columns = scores.shape
    if n >= columns:
        return np.broadcast_to(np.arange(columns, dtype=np.int32), scores.shape)
    # A sort, which numpy vectorises, takes half the time of a partition at these widths, and a
    # sixth where most scores are −inf.
    smallest = np.sort(scores, axis=1)[:, columns - n, None]
    kept = scores >= smallest
    if np.count_nonzero(kept) > rows * n:
        crowded = np.flatnonzero(np.count_nonzero(kept, axis=1) > n)
        tied = scores[crowded] == smallest[crowded]
        room = n - (kept[crowded] & ~tied).sum(axis=1, keepdims=True)
        kept[crowded] &= ~tied | (np.cumsum(tied, axis=1) <= room)
    flat = np.flatnonzero(kept).reshape(rows, n)
    flat -= columns * np.arange(rows)[:, None]
    return flat.astype(np.int32)


def _value(logits: Floats, kind: Positions) -> Floats:
    values = logits.astype(np.float64)
    return values if kind == "softmax" else -np.logaddexp(0.0, -values)
