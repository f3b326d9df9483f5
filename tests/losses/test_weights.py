import math

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from softf1.losses import class_weights, prior_bias

# The companion study's training counts and the weights that it prints, rounded to two places.
NEWS = {
    "Art": (740, 0.66),
    "Literature": (33, 14.85),
    "Education": (59, 8.31),
    "Philosophy": (44, 11.14),
    "History": (466, 1.05),
    "Space": (640, 0.77),
    "Energy": (32, 15.32),
    "Electronics": (27, 18.16),
    "Communication": (25, 19.61),
    "Computer": (1357, 0.36),
    "Mine": (33, 14.85),
    "Transport": (57, 8.6),
    "Environment": (1217, 0.4),
    "Agriculture": (1021, 0.48),
    "Economy": (1600, 0.31),
    "Law": (51, 9.61),
    "Medical": (51, 9.61),
    "Military": (74, 6.62),
    "Politics": (1024, 0.48),
    "Sports": (1253, 0.39),
}


def test_the_twenty_printed_weights():
    counts = [count for count, _ in NEWS.values()]
    assert sum(counts) == 9804
    weights = [round(weight, 2) for weight in class_weights(counts).tolist()]
    assert weights == [printed for _, printed in NEWS.values()]


def test_balanced_is_scikit_learns():
    labels = [0] * 7 + [1] * 2 + [2] * 11
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert class_weights([7, 2, 11]).tolist() == pytest.approx(expected.tolist())


def test_schemes_by_hand():
    counts = [90, 10]
    assert class_weights(counts, "inverse").tolist() == pytest.approx([100 / 90, 10])
    # lg((n − n_t)/n_t + K): lg(10/90 + 1) = 0.0458, lg(90/10 + 1) = 1
    assert class_weights(counts, "log").tolist() == pytest.approx([math.log10(10 / 9), 1.0])
    assert class_weights(counts, "log", k=2.0)[1].item() == pytest.approx(math.log10(11))
    # (1 − .9)/(1 − .9^n): 0.1/(1 − .9^90) = 0.10001, 0.1/(1 − .9^10) = 0.15353; scaled to mean 1
    raw = [0.1 / (1 - 0.9**90), 0.1 / (1 - 0.9**10)]
    expected = [2 * value / sum(raw) for value in raw]
    assert class_weights(counts, "effective", beta=0.9).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("scheme", ["balanced", "inverse", "log", "effective"])
def test_a_class_that_never_occurs_has_weight_zero(scheme):
    weights = class_weights([5, 0, 20], scheme)
    assert weights[1] == 0
    assert torch.isfinite(weights).all()
    assert weights[0] > weights[2] > 0


def test_sigmoid_gives_the_ratio_of_positive_to_negative():
    # balanced: w = n/(2 n_t): 100/20 over 100/180 = 9
    assert class_weights([90, 10], sigmoid=True).tolist() == pytest.approx([9])
    assert class_weights([[90, 10], [50, 50]], sigmoid=True).tolist() == pytest.approx([9, 1])
    assert class_weights([10, 0], sigmoid=True).tolist() == [0]
    assert class_weights([0, 10], sigmoid=True).tolist() == [1]


def test_prior_bias_is_the_smoothed_log_prior():
    # one added to each of two classes: 9 of 12 and 3 of 12
    bias = prior_bias([8, 2])
    assert bias.tolist() == pytest.approx([math.log(9 / 12), math.log(3 / 12)])
    assert bias.exp().sum().item() == pytest.approx(1)
    assert torch.isfinite(prior_bias([5, 0])).all()


def test_prior_bias_for_sigmoid_is_the_log_odds():
    bias = prior_bias([8, 2], sigmoid=True)
    assert bias.tolist() == pytest.approx([math.log(3 / 9)])
    assert torch.sigmoid(bias).item() == pytest.approx(3 / 12)
    assert prior_bias([[8, 2], [5, 5]], sigmoid=True).tolist() == pytest.approx(
        [math.log(1 / 3), 0]
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: class_weights([]), "one count per class"),
        (lambda: class_weights([[1, 2]]), "one count per class"),
        (lambda: class_weights([1, -1]), "finite counts from 0 up"),
        (lambda: prior_bias([1.0, math.nan]), "finite counts from 0 up"),
        (lambda: prior_bias([1, 2, 3], sigmoid=True), r"pairs \(negative, positive\)"),
        (lambda: class_weights([1, 2], "square"), "wanted scheme to be one of"),
    ],
)
def test_wrong_counts_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
