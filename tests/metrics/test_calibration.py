from __future__ import annotations

import numpy as np
import pytest

from softf1.metrics.calibration import bin_confidence, fit_temperature


def plain_error(confidence, right, bins):
    """The definition, bin by bin."""
    total = 0.0
    for k in range(bins):
        inside = [
            (c, r)
            for c, r in zip(confidence, right, strict=True)
            if k / bins < c <= (k + 1) / bins or (k == 0 and c == 0)
        ]
        if inside:
            gap = abs(sum(c for c, _ in inside) - sum(r for _, r in inside)) / len(inside)
            total += len(inside) / len(confidence) * gap
    return total


@pytest.mark.parametrize("bins", [1, 8, 16])
def test_error_is_its_definition(bins):
    rng = np.random.default_rng(0)
    # Limits of bins included, which are exact for powers of two.
    confidence = rng.choice(np.linspace(0, 1, 65), 500)
    right = rng.random(500) < confidence**2
    error = bin_confidence(confidence, right, bins=bins).error
    assert error == pytest.approx(plain_error(confidence.tolist(), right.tolist(), bins))


def test_calibrated_and_overconfident():
    rng = np.random.default_rng(1)
    confidence = rng.uniform(0.5, 1, 200_000)
    assert bin_confidence(confidence, rng.random(200_000) < confidence).error < 0.01
    # Always sure, right half of the time: wrong by 1/2, in the largest bin too.
    sure = bin_confidence([1.0] * 4, [True, False] * 2)
    assert sure.error == sure.largest_error == 0.5


def test_batches_add_up():
    rng = np.random.default_rng(2)
    confidence, right = rng.random(90), rng.random(90) < 0.5
    parts = [bin_confidence(confidence[i::3], right[i::3]) for i in range(3)]
    total = parts[0] + parts[1] + parts[2]
    assert total.error == pytest.approx(bin_confidence(confidence, right).error)
    with pytest.raises(ValueError, match="wanted 15 bins, got 3"):
        parts[0] + bin_confidence([0.5], [True], bins=3)


def test_nothing_and_wrong_input():
    assert bin_confidence([], []).error == 0
    with pytest.raises(ValueError, match="wanted 2 right or wrong, got 1"):
        bin_confidence([0.1, 0.2], [True])
    for value in (1.1, -0.1, np.nan):
        with pytest.raises(ValueError, match="wanted confidences from 0 to 1"):
            bin_confidence([value], [True])


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_temperature_is_found_again(temperature):
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 2, (50_000, 4))
    gold = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)  # drawn from the softmax
    fitted = fit_temperature(logits * temperature, gold)
    assert fitted == pytest.approx(temperature, rel=0.03)


def test_temperature_is_where_the_likelihood_is_largest():
    rng = np.random.default_rng(4)
    logits, gold = rng.normal(0, 3, (300, 5)), rng.integers(0, 5, 300)
    gold[:200] = np.argmax(logits[:200], axis=1)

    def loss(temperature):
        z = logits / temperature
        return (np.log(np.exp(z).sum(axis=1)) - z[np.arange(300), gold]).mean()

    best = fit_temperature(logits, gold)
    assert loss(best) <= min(loss(best * 1.001), loss(best / 1.001))


def test_temperature_stays_within_its_limits():
    separable = np.array([[9.0, 0.0], [0.0, 9.0]])
    assert 0.05 <= fit_temperature(separable, [0, 1]) < 1  # the surer the better
    assert fit_temperature(separable, [1, 0]) == pytest.approx(20)  # the less sure the better
    assert fit_temperature(separable * 1e6, [0, 1]) > 0
    assert fit_temperature(np.zeros((0, 3)), []) == 1
    with pytest.raises(ValueError, match=r"\(items, classes\) and \(items,\)"):
        fit_temperature([1.0, 2.0], [0, 1])
