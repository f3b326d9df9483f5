"""Every loss against the plain restatement in reference.py, over random shapes and options."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softf1.losses import (
    cross_entropy_loss,
    dice_loss,
    focal_loss,
    self_adjusting_dice_loss,
    tversky_loss,
)
from tests.losses import reference

FAMILY = {"dice": dice_loss, "tversky": tversky_loss, "dsc": self_adjusting_dice_loss}
logit = st.one_of(st.floats(-30, 30, width=32), st.just(-math.inf))
short = settings(max_examples=150, deadline=None)


@st.composite
def batches(draw):
    """(logits, target, what): what = mask and ignore_index, drawn together with the mode."""
    n, classes = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    logits = draw(
        st.lists(st.lists(logit, min_size=classes, max_size=classes), min_size=n, max_size=n)
    )
    if classes == 1 or draw(st.booleans()):
        label = st.one_of(st.sampled_from([0.0, 1.0, -100.0]), st.floats(0, 1, width=32))
        row = st.lists(label, min_size=classes, max_size=classes)
    else:
        row = st.one_of(st.integers(0, classes - 1), st.just(-100))
    target = draw(st.lists(row, min_size=n, max_size=n))
    mask = draw(st.none() | st.lists(st.booleans(), min_size=n, max_size=n))
    return logits, target, {"mask": mask}


def weights(classes):
    return st.none() | st.lists(st.floats(0.125, 5, width=32), min_size=classes, max_size=classes)


def check(function, expected, logits, target, what, options):
    x = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    mask = None if what["mask"] is None else torch.tensor(what["mask"])
    got = function(x, torch.tensor(target), mask=mask, **options)
    wanted = torch.tensor(expected(logits, target, **what, **options), dtype=torch.float64)
    torch.testing.assert_close(got.detach(), wanted, atol=1e-9, rtol=1e-9)
    got.sum().backward()
    assert torch.isfinite(x.grad).all()


@short
@given(data=st.data(), batch=batches())
def test_entropy_losses_equal_the_reference(data, batch):
    logits, target, what = batch
    options = {
        "weight": data.draw(weights(len(logits[0]))),
        "reduction": data.draw(st.sampled_from(["mean", "sum", "none"])),
    }
    if data.draw(st.booleans()):
        options["gamma"] = data.draw(st.sampled_from([0.0, 0.3, 1.0, 2.0, 5.0]))
        check(focal_loss, reference.entropy, logits, target, what, options)
    else:
        options["label_smoothing"] = data.draw(st.sampled_from([0.0, 0.2]))
        check(cross_entropy_loss, reference.entropy, logits, target, what, options)


@st.composite
def family_options(draw, kind, classes, softmax):
    options = {
        "smooth": draw(st.sampled_from([1.0, 0.01, 3.0])),
        "squared": draw(st.booleans()),
        "over": draw(st.sampled_from(["example", "batch"])),
        "weight": draw(weights(classes)),
        "reduction": draw(st.sampled_from(["mean", "sum", "none"])),
        "exclude": draw(st.sets(st.integers(0, classes - 1), max_size=classes - 1).map(sorted)),
    }
    if options["over"] == "batch":
        options["ohem_ratio"] = draw(st.sampled_from([None, 0.0, 0.4, 1.0]))
        options["min_kept"] = draw(st.integers(0, 2))
        if options["exclude"] or not softmax:
            options["average"] = draw(st.sampled_from(["macro", "micro"]))
    if kind == "tversky":
        options["alpha"], options["beta"] = draw(st.floats(0, 2)), draw(st.floats(0, 2))
    if kind == "dsc":
        options["alpha"] = draw(st.sampled_from([0.0, 0.01, 0.5, 1.0, 2.5]))
    return options


@pytest.mark.parametrize("kind", FAMILY)
@short
@given(data=st.data(), batch=batches())
def test_the_dice_family_equals_the_reference(kind, data, batch):
    logits, target, what = batch
    softmax = not isinstance(target[0], list) and len(logits[0]) > 1
    options = data.draw(family_options(kind, len(logits[0]), softmax))
    check(FAMILY[kind], partial(reference.family, kind=kind), logits, target, what, options)
