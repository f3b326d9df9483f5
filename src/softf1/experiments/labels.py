"""How frequent labels are in the training data, and which of them are head, mid and tail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from softf1.metrics.prefixes import OUTSIDE, SCHEMES, split_tag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GROUPS = ("head", "mid", "tail")


def train_support(
    class_counts: Mapping[str, Any], tasks: Sequence[Any], labels: Sequence[str]
) -> dict[str, int | None]:
    """How often each label is in the training data, from the class counts of a result.

    Spans are counted by the tags that begin one; where a scheme does not tell (IOB1), their tokens
    are. A task whose outputs are not its labels (a query for each) has no counts: None.

    >>> counts = {"tags": {"O": 90, "B-PER": 4, "I-PER": 6}}
    >>> train_support(counts, [], ["PER"])  # the scheme is not known: tokens
    {'PER': 10}
    """
    counts = next((c for c in class_counts.values() if isinstance(c, dict)), {})
    plain = {name: _positives(count) for name, count in counts.items()}
    if set(labels) <= set(plain):
        return {label: plain[label] for label in labels}
    letters = _first_letters(getattr(tasks[-1], "spans", None) if tasks else None)
    support: dict[str, int | None] = dict.fromkeys(labels)
    for tag, count in plain.items():
        letter, label = split_tag(tag)
        if label in support and letter != OUTSIDE and (letters is None or letter in letters):
            support[label] = (support[label] or 0) + count
    return support


def _positives(count: Any) -> int:
    """The count of a class; of (negative, positive), the second."""
    return int(count[1]) if isinstance(count, list) else int(count)


def _first_letters(scheme: str | None) -> set[str] | None:
    """The letters that only the first token of a span has; None where there are none."""
    known = SCHEMES.get(scheme or "")
    if known is None:
        return None
    return set(known.starting) - set(known.inside + known.end) - set(known.split) or None


def group_labels(support: Mapping[str, int]) -> dict[str, str]:
    """Thirds of the labels by frequency: head, mid and tail. Two labels are head and tail.

    >>> group_labels({"a": 9, "b": 1, "c": 4, "d": 7})
    {'a': 'head', 'd': 'head', 'c': 'mid', 'b': 'tail'}
    """
    ranked = sorted(support, key=lambda label: (-support[label], label))
    names = GROUPS if len(ranked) > 2 else ("head", "tail")
    size, more = divmod(len(ranked), len(names))
    groups: list[str] = []
    for place, name in enumerate(names):
        groups += [name] * (size + (place < more))
    return dict(zip(ranked, groups, strict=True))
