"""For transformers' Trainer: `compute_loss_func=loss("dsc", …)`, with metrics and class weights.

adapter   `loss`, scaled as the Trainer needs it, exact over micro-batches and processes
trainer   `SoftF1Trainer` and its mixin: two passes, for what `loss` alone cannot make exact
weights   `class_weights_from` a dataset
metrics   functions for `compute_metrics`, and the callback `Tune` that stores thresholds
"""

from softf1.integrations.transformers.adapter import TrainerLoss, loss
from softf1.integrations.transformers.metrics import (
    ClassMetrics,
    LabelSetMetrics,
    TagMetrics,
    Tune,
    decide,
)
from softf1.integrations.transformers.targets import AnswerLabels
from softf1.integrations.transformers.trainer import ExactLossMixin, SoftF1Trainer
from softf1.integrations.transformers.weights import class_weights_from

__all__ = [
    "AnswerLabels",
    "ClassMetrics",
    "ExactLossMixin",
    "LabelSetMetrics",
    "SoftF1Trainer",
    "TagMetrics",
    "TrainerLoss",
    "Tune",
    "class_weights_from",
    "decide",
    "loss",
]
