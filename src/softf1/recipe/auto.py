"""`loss.name = "auto"`: chooses loss, adversarial step, consistency and a CRF by task and metric.

The rules are data, in auto.toml beside this file, each with its evidence.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AUTO = "auto"
HARDENING = ("adversarial", "adversarial_relative", "consistency")
"""Keys of `[train]` that a rule sets, unless the recipe sets them."""


class Rule(NamedTuple):
    """One rule of auto.toml."""

    name: str
    when: dict[str, Any]
    values: dict[str, Any]
    why: str
    evidence: str


class Choice(NamedTuple):
    """The chosen values of the recipe, and the reason."""

    values: dict[str, Any]
    why: str

    @property
    def line(self) -> str:
        """Values and reason in one line, for the user."""
        shown = ", ".join(f"{key}={value}" for key, value in self.values.items())
        return f"auto: {shown} ({self.why})"


def read_rules() -> list[Rule]:
    """Reads the rules; the first one that fits is used."""
    text = files("softf1.recipe").joinpath("auto.toml").read_text("utf-8")
    return [Rule(**rule) for rule in tomllib.loads(text)["rule"]]


def choose_values(
    kind: str,
    *,
    metric: str,
    counts: Mapping[str, NDArray[np.int64]],
    given: Collection[str],
    spans: int | None = None,
    target: str = "f1",
) -> Choice:
    """Returns the choice of `auto` for a task.

    Args:
        kind: The task's name in recipes.
        metric: The primary metric.
        counts: How often each class is a target, as `task.class_counts` gives it.
        given: Keys that the recipe sets, such as `train.consistency`: they stay, at 0 too.
        spans: How many kinds of spans the tags make up; None where they make up none.
        target: What the decision is tuned for, as `eval.target` has it.

    >>> import numpy as np
    >>> counts = {"labels": np.array([900, 100])}
    >>> choice = choose_values("pairs", metric="f1", counts=counts, given=())
    >>> choice.values["loss.name"]
    'wce'
    >>> given = ["train.consistency"]
    >>> choice = choose_values("tagging", metric="f1", counts={}, given=given, spans=4)
    >>> choice.values
    {'loss.name': 'ce', 'train.adversarial_relative': 0.5, 'task.decoder': 'crf'}
    """
    facts = {"kind": kind, "metric": metric, "target": target}
    amounts = {"positives_below": positive_share(counts), "spans_below": spans}
    rule = next(rule for rule in read_rules() if fits(rule.when, facts, amounts))
    values = {key: value for key, value in rule.values.items() if not _is_given(key, given)}
    return Choice(values, rule.why)


def fits(
    when: Mapping[str, Any], facts: Mapping[str, str], amounts: Mapping[str, float | None]
) -> bool:
    """Whether all conditions of a rule hold; an amount that is not there is not below anything."""
    for key, bound in when.items():
        amount = amounts.get(key)
        if not (facts[key] in bound if key in facts else amount is not None and amount < bound):
            return False
    return True


def positive_share(counts: Mapping[str, NDArray[np.int64]]) -> float | None:
    """The share of the rarer of two classes, or of positive entries; None for several classes.

    >>> import numpy as np
    >>> positive_share({"labels": np.array([[90, 10], [70, 30]])})
    0.2
    >>> positive_share({"labels": np.array([5, 5, 5])}) is None
    True
    """
    totals = [own.sum(0) if own.ndim == 2 else own for own in counts.values()]
    if not totals or any(len(total) != 2 for total in totals):
        return None
    negatives, positives = (sum(int(total[i]) for total in totals) for i in (0, 1))
    return min(negatives, positives) / max(1, negatives + positives)


def _is_given(key: str, given: Collection[str]) -> bool:
    """Whether the recipe sets a key; an adversarial step in either unit counts for both."""
    sizes = ("train.adversarial", "train.adversarial_relative")
    return any(other in given for other in (sizes if key in sizes else (key,)))
