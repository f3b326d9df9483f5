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
    """The chosen values of the recipe, the reason, and the values that the recipe sets itself."""

    values: dict[str, Any]
    why: str
    kept: dict[str, Any]

    @property
    def line(self) -> str:
        """Values and reason in one line, for the user."""
        shown, kept = map(show_values, (self.values, self.kept))
        return f"auto: {shown} ({self.why}{'; you set ' if kept else ''}{kept})"


def show_values(values: Mapping[str, Any], *, equals: str = "=") -> str:
    """Lists values of a recipe as they can be written after a command.

    >>> show_values({"loss.name": "dsc", "loss.squared": True})
    'loss.name=dsc, loss.squared=true'
    """
    words = (
        (key, str(value).lower() if isinstance(value, bool) else value)
        for key, value in values.items()
    )
    return ", ".join(f"{key}{equals}{value}" for key, value in words)


def read_rules() -> list[Rule]:
    """Reads the rules; the first one that fits is used."""
    text = files("softf1.recipe").joinpath("auto.toml").read_text("utf-8")
    return [Rule(**rule) for rule in tomllib.loads(text)["rule"]]


def choose_values(
    kind: str,
    *,
    metric: str,
    counts: Mapping[str, NDArray[np.int64]],
    given: Mapping[str, Any],
    positive: int = 1,
    spans: int | None = None,
    target: str = "f1",
) -> Choice:
    """Returns the choice of `auto` for a task.

    Args:
        kind: The task's name in recipes.
        metric: The primary metric.
        counts: How often each class is a target, as `task.class_counts` gives it.
        given: Keys that the recipe sets, such as `train.consistency`: they stay, even at 0.
        positive: Which of two classes is the positive one.
        spans: The number of labels that spans have; None if the tags do not form spans.
        target: What the decision is tuned for, as in `eval.target`.

    >>> import numpy as np
    >>> counts = {"labels": np.array([900, 100])}
    >>> choice = choose_values("pairs", metric="f1", counts=counts, given={})
    >>> choice.values["loss.name"]
    'wce'
    >>> given = {"train.consistency": 0.0}
    >>> choose_values("tagging", metric="f1", counts={}, given=given, spans=99).line
    'auto: loss.name=ce+dice, train.adversarial_relative=0.5 (... you set train.consistency=0.0)'
    """
    several = any(own.ndim == 2 for own in counts.values())
    labels = "several" if several else "one"
    facts = {"kind": kind, "metric": metric, "target": target, "labels": labels}
    amounts = {"positives_below": positive_share(counts, positive), "spans_below": spans}
    rule = next(rule for rule in read_rules() if fits(rule.when, facts, amounts))
    values = {key: value for key, value in rule.values.items() if not _is_given(key, given)}
    sizes = [f"train.{key}" for key in HARDENING]
    kept = {key: given[key] for key in given if key in rule.values or key in sizes}
    return Choice(values, rule.why, kept)


def fits(
    when: Mapping[str, Any], facts: Mapping[str, str], amounts: Mapping[str, float | None]
) -> bool:
    """Whether all conditions of a rule hold; a missing amount is not below any bound."""
    for key, bound in when.items():
        amount = amounts.get(key)
        if not (facts[key] in bound if key in facts else amount is not None and amount < bound):
            return False
    return True


def positive_share(counts: Mapping[str, NDArray[np.int64]], positive: int = 1) -> float | None:
    """Returns the share of the positive one of two classes; None if there are not two.

    >>> import numpy as np
    >>> positive_share({"labels": np.array([80, 20])})
    0.2
    >>> positive_share({"labels": np.array([5, 5, 5])}) is None
    True
    """
    if len(counts) != 1:
        return None
    (own,) = counts.values()
    return int(own[positive]) / max(1, int(own.sum())) if own.shape == (2,) else None


def _is_given(key: str, given: Collection[str]) -> bool:
    """Whether the recipe sets a key; an adversarial step in either unit counts for both."""
    sizes = ("train.adversarial", "train.adversarial_relative")
    return any(other in given for other in (sizes if key in sizes else (key,)))
