"""Made-up grids with a known truth: what two losses predict, with noise of seeds and of examples.

A model says yes to an example where

    quality · (±1 by its class) + ease of the example + what the loss makes of the example
    + what the seed does + noise > 0

all normal, so that the F1 on endless data, averaged over endless seeds, is an integral over one
normal variable.
"""

import math
from typing import NamedTuple

import numpy as np


class Noise(NamedTuple):
    """Standard deviations of the example's ease, its ease for a loss, the seed, and the rest."""

    ease: float = 1.0
    loss: float = 0.5
    seed: float = 0.15
    rest: float = 0.5


REGIMES = {
    "seeds": Noise(loss=0.05, seed=0.6, rest=0.05),
    "examples": Noise(loss=1.0, seed=0.02, rest=0.1),
    "rest": Noise(loss=0.1, seed=0.02, rest=1.0),
    "mixed": Noise(),
}


def normal_cdf(x):
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x])


def true_f1(noise, quality, share):
    """F1 on endless data, the mean over seeds."""
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    spread = math.sqrt(noise.ease**2 + noise.loss**2 + noise.rest**2)
    tp = share * normal_cdf((quality + points * noise.seed) / spread)
    fp = (1 - share) * normal_cdf((-quality + points * noise.seed) / spread)
    return float((weights * 2 * tp / (tp + fp + share)).sum() / weights.sum())


def draw(rng, noise, qualities, *, share=0.2, seeds=5, examples=300):
    """Counts (losses, seeds, examples, 3) of tp, fp, fn on one test set."""
    gold = rng.random(examples) < share
    side = np.where(gold, 1.0, -1.0)
    ease = noise.ease * rng.normal(size=examples)
    tables = []
    for quality in qualities:
        of_loss = noise.loss * rng.normal(size=examples)
        of_seed = noise.seed * rng.normal(size=(seeds, 1))
        rest = noise.rest * rng.normal(size=(seeds, examples))
        yes = quality * side + ease + of_loss + of_seed + rest > 0
        tables.append(np.stack([yes & gold, yes & ~gold, ~yes & gold], axis=-1))
    return np.array(tables, dtype=float)


def f1(sums):
    below = 2 * sums[..., 0] + sums[..., 1] + sums[..., 2]
    return 2 * sums[..., 0] / np.where(below == 0, 1, below)
