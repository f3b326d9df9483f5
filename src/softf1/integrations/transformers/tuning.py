"""Decisions tuned on every evaluation and kept in the model's config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from transformers import TrainerCallback

from softf1.tasks.card import DECISION

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from softf1.integrations.transformers.metrics import Decision


class Tunable(Protocol):
    """`TagMetrics`, `ClassMetrics` and `LabelSetMetrics` are such."""

    def __call__(self, prediction: Any) -> dict[str, float]:
        """Returns the scores of the plain decision."""

    def tune(self, prediction: Any) -> Decision:
        """Returns the tuned decision."""


class Tune(TrainerCallback):
    """Tunes thresholds or biases on the dev set; give it as callback and as `compute_metrics`.

        tune = Tune(TagMetrics(labels=labels))
        Trainer(…, compute_metrics=tune, callbacks=[tune])

    The decision is in `model.config.softf1_decision` after each evaluation, and so in each
    checkpoint that is saved after one. With `load_best_model_at_end` it is the best model's. Use it
    with `decide(logits, model.config)`.

    The metrics get a `tuned_f1`, by cross-fitting: on items that it was not tuned on.
    """

    def __init__(self, metrics: Tunable) -> None:
        self.metrics = metrics
        self._latest: Decision | None = None
        self._by_step: dict[int, Decision] = {}

    def __call__(self, prediction: Any) -> dict[str, float]:
        """Returns the metrics, and keeps the decision for `on_evaluate`."""
        self._latest = self.metrics.tune(prediction)
        honest: float = self._latest["honest"][self._latest["rule"]]
        return self.metrics(prediction) | {"tuned_f1": honest}

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Stores the decision of this evaluation."""
        if self._latest is None:
            raise ValueError("wanted this callback as compute_metrics too, got no predictions")
        self._by_step[state.global_step] = self._latest
        setattr(kwargs["model"].config, DECISION, self._latest)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Goes back to the decision of the best model, where that was loaded."""
        best = self._by_step.get(state.best_global_step)
        if args.load_best_model_at_end and best is not None:
            setattr(kwargs["model"].config, DECISION, best)


def decide(logits: ArrayLike, config: Any) -> NDArray[Any]:
    """Returns what to predict by the decision in a model's config.

    Args:
        logits: (..., C).
        config: `model.config`, after training or from `from_pretrained`.

    Returns:
        Classes (...), or for several labels a bool for each, (..., C).

    >>> from types import SimpleNamespace
    >>> config = SimpleNamespace(softf1_decision={"biases": [0.0, 1.5]})
    >>> decide([[1.0, 0.0], [3.0, 0.0]], config)
    array([1, 0])
    """
    decision = getattr(config, DECISION, None)
    if decision is None:
        raise ValueError(
            f"wanted a config with {DECISION!r}, which the callback Tune stores, got none"
        )
    if not decision.keys() & {"thresholds", "biases"}:
        raise ValueError(f"wanted thresholds or biases of labels, got {', '.join(decision)}")
    scores = np.asarray(logits, dtype=np.float64)
    if "thresholds" in decision:
        chosen: NDArray[Any] = np.exp(-np.logaddexp(0, -scores)) >= np.array(decision["thresholds"])
        return chosen
    best: NDArray[Any] = (scores + np.array(decision["biases"])).argmax(-1)
    return best
