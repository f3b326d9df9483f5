"""The table that the contract tests run over: every registered loss with every set of options."""

import pytest
import torch

from softf1.losses import loss_facts, loss_names, make_loss

WEIGHT = [0.5, 2.0, 1.0, 1.5]
CLASSES = len(WEIGHT)

LEVELS = [
    {},
    {"over": "batch"},
    {"over": "batch", "average": "micro", "exclude": (0,)},
    {"exclude": (0,), "weight": WEIGHT},
    {"over": "batch", "ohem_ratio": 1.0},
]
OPTIONS = {
    "ce": [{}, {"label_smoothing": 0.1}, {"weight": WEIGHT}],
    "wce": [{"weight": WEIGHT}],
    "focal": [{}, {"gamma": 0.0}, {"gamma": 0.3}, {"gamma": 5.0}],
    "wfocal": [{"weight": WEIGHT}],
    "la": [{"weight": WEIGHT}, {"weight": WEIGHT, "tau": 0.5}],
    "dice": [level | form for level in LEVELS for form in ({}, {"squared": False})],
    "tversky": [
        level | form
        for level in LEVELS
        for form in ({"alpha": 0.3, "beta": 0.7}, {"alpha": 0.7, "beta": 0.3, "squared": True})
    ],
    "dsc": [
        level | form
        for level in LEVELS
        for form in (
            {},
            {"alpha": 0.0},
            {"alpha": 0.01, "squared": True, "decay": "paper"},
            {"alpha": 0.5},
            {"alpha": 2.5, "decay": "paper"},
        )
    ],
    "smooth_ap": [{}, {"tau": 0.3}, {"exclude": (0,), "weight": WEIGHT}],
    "pauc": [{}, {"max_fpr": 1.0}, {"exclude": (0,), "weight": WEIGHT}],
    "asymmetric": [{}, {"gamma_positive": 1.0, "clip": 0.0}, {"weight": WEIGHT}],
    "zlpr": [{}, {"margin": 0.5, "weight": WEIGHT}],
    "ce+dice": [{"mix": (1.0, 0.5), "dice": {"over": "batch"}}],
    "ce+smooth_ap": [{"mix": (1.0, 0.5)}],
}
SUMS = ["ce+dice", "ce+smooth_ap"]
RANKINGS = [name for name in loss_names() if loss_facts(name).compares_rows]
SIGMOID_ONLY = ["asymmetric"]
CASES = [(name, options) for name in [*loss_names(), *SUMS] for options in OPTIONS.get(name, [{}])]
every_mode = pytest.mark.parametrize("mode", ["softmax", "sigmoid"])


def every_case(*, but=lambda _name, _options: False):
    """Parametrizes a test by (name, options) of every case, but those for which `but` is true."""
    cases = [case for case in CASES if not but(*case)]
    ids = [f"{name}-{'-'.join(f'{k}={v}' for k, v in options.items())}" for name, options in cases]
    return pytest.mark.parametrize(("name", "options"), cases, ids=ids)


def is_batch_level(name, options):
    parts = [options, *(value for value in options.values() if isinstance(value, dict))]
    return is_ranking(name) or any(part.get("over") == "batch" for part in parts)


def is_ranking(name):
    return any(part in RANKINGS for part in name.split("+"))


def a_mode(name):
    """A mode that the loss has."""
    return "sigmoid" if name in SIGMOID_ONLY else "softmax"


def has_decay(name, options):
    return name == "dsc" and options.get("alpha", 1.0) > 0


def is_detached(name, options):
    return has_decay(name, options) and options.get("decay") != "paper"


def is_by_class(_name, options):
    return "weight" in options or "exclude" in options


def batch(mode, *, n=7, seed=0, dtype=torch.float64):
    """Returns (logits, target) with one ignored row (softmax) or term (sigmoid)."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, CLASSES, generator=generator, dtype=torch.float64).to(dtype)
    if mode == "softmax":
        target = torch.randint(0, CLASSES, (n,), generator=generator)
        target[1] = -100
    else:
        target = torch.randint(0, 2, (n, CLASSES), generator=generator)
        target[1, 2] = -100
    return logits, target


def build(name, options):
    return make_loss(name, **options)
