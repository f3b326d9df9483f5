"""Which items an epoch holds: all of them, or strata brought to one size.

| sampler | an epoch holds |
|---|---|
| shuffle | every item once |
| oversample | the largest stratum once, the others repeated up to its size |
| undersample | the smallest stratum once, the others thinned to its size, anew each epoch |
| balanced | as many items as there are, equally many of each stratum |

Of two strata the first three are the paper's original set, +positive and −negative; where
`softf1.data.rebalance` edits the copies, these repeat them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from softf1.errors import InputError
from softf1.tasks.contexts import golds_inside
from softf1.tasks.labels import make_targets
from softf1.tasks.ragged import offsets, ranges, rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from softf1.tasks.base import Features

    Ints = NDArray[np.int64]

Sampler = Literal["shuffle", "balanced", "oversample", "undersample"]


def draw_items(
    sampler: Sampler, items: int, strata: Ints | None, random: np.random.Generator
) -> Ints:
    """The items of one epoch in random order; those of a negative stratum are in no stratum.

    >>> strata = np.array([0, 0, 0, 1, -1])
    >>> drawn = draw_items("oversample", 5, strata, np.random.default_rng(0))
    >>> sorted(drawn.tolist())
    [0, 1, 2, 3, 3, 3]
    """
    if sampler == "shuffle":
        return random.permutation(items)
    if strata is None or len(strata) != items:
        got = "none" if strata is None else len(strata)
        raise InputError(f"sampler {sampler} wanted a stratum for each of {items} items, got {got}")
    names, sizes = np.unique(strata[strata >= 0], return_counts=True)
    if not len(names):
        raise InputError(f"sampler {sampler} wanted items with labels, got none")
    members = np.split(np.argsort(strata, kind="stable")[-sizes.sum() :], np.cumsum(sizes)[:-1])
    wanted = _sizes(sampler, sizes, random)
    drawn = [_take(own, count, random) for own, count in zip(members, wanted.tolist(), strict=True)]
    return random.permutation(np.concatenate(drawn))


def _sizes(sampler: Sampler, sizes: Ints, random: np.random.Generator) -> Ints:
    """How many items of each stratum."""
    if sampler == "oversample":
        return np.full_like(sizes, sizes.max())
    if sampler == "undersample":
        return np.full_like(sizes, sizes.min())
    each, more = divmod(int(sizes.sum()), len(sizes))
    lucky = random.permutation(len(sizes)) < more
    return each + lucky.astype(np.int64)


def _take(members: Ints, count: int, random: np.random.Generator) -> Ints:
    """`count` of them: all equally often, but for a random rest."""
    times, rest = divmod(count, len(members))
    return np.concatenate([*[members] * times, random.permutation(members)[:rest]])


def find_strata(task: Any, features: Features) -> Ints:
    """The stratum of every item, by which samplers balance; −1 where there is nothing to learn.

    Classification and pairs: the label; with several labels a text, its rarest one, and one more
    stratum for texts without any. Tagging: 1 where a word has another label than the most
    frequent one (O, in named entities), else 0. QA: 1 where the window holds the answer.
    BERT-MRC: 1 where the window holds a span. A task from another package has its own `strata`.
    """
    own = getattr(task, "strata", None)
    known = {
        "classification": _of_labels,
        "pairs": _of_labels,
        "tagging": _of_tags,
        "qa": _of_answers,
        "mrc_ner": _of_spans,
    }
    if own is not None:
        return np.asarray(own(features), np.int64)
    if task.kind not in known:
        raise InputError(f"task {task.kind} has no strata: wanted sampler shuffle")
    return known[task.kind](task, features)


def _of_labels(task: Any, features: Features) -> Ints:
    everything = np.arange(len(features))
    if not task.multi_label:
        target = make_targets(features, everything, task.labels, multi_label=False)
        labels: Ints = np.maximum(target, -1)
        return labels
    by_rarity = np.argsort(task.class_counts(features)["labels"][:, 1], kind="stable")
    place = dict(zip((task.labels[i] for i in by_rarity), range(len(by_rarity)), strict=True))
    none = len(by_rarity)
    rarity = np.array([place.get(name, none) for name in features.names["labels"]], np.int64)
    rarest = np.full(len(features), none)
    np.minimum.at(rarest, rows(np.diff(features["label_at"])), rarity[features["label"]])
    out: Ints = np.append(by_rarity, none)[rarest]
    return out


def _of_tags(task: Any, features: Features) -> Ints:
    ids = task.label_ids(features)[features["tag"]]
    usual = task.class_counts(features)["tags"].argmax()
    first, end = features["own_first"], features["own_end"]
    tagged, other = (offsets(flag) for flag in (ids >= 0, (ids >= 0) & (ids != usual)))
    holds = (other[end] > other[first]).astype(np.int64)
    return np.where(tagged[end] > tagged[first], holds, -1)


def _of_answers(task: Any, features: Features) -> Ints:  # noqa: ARG001 - one signature for all
    row, _, _ = golds_inside(features, np.arange(len(features)))
    out = np.where(features["unknown"][features["source"]], -1, 0)
    out[row] = 1
    return out


def _of_spans(task: Any, features: Features) -> Ints:  # noqa: ARG001
    source, at = features["source"], features["gold_at"]
    count = at[source + 1] - at[source]
    row = rows(count)
    spans = features["gold"][ranges(at[source], count)] + features["sentence"][source][row, None]
    inside = (spans[:, 0] >= features["first"][row]) & (spans[:, 1] <= features["end"][row])
    out = np.zeros(len(features), np.int64)
    out[row[inside]] = 1
    return out
