"""Value and gradient at extreme logits, in three precisions, against 60 digits."""

import itertools
from functools import partial

import mpmath
import pytest
import torch

from softf1.losses import (
    cross_entropy_loss,
    dice_loss,
    focal_loss,
    make_loss,
    self_adjusting_dice_loss,
    tversky_loss,
)
from tests.losses import reference
from tests.losses.cases import a_mode, batch, build, every_case, every_mode
from tests.losses.reference import Exact

# Margins where float32 rounds 1 − p to 0 (17), where exp underflows (104) and far beyond.
SOFTMAX = [
    [1e4, -1e4, 0.0],
    [-1e4, 1e4, 1e4],
    [20.0, 0.0, 1.0],
    [120.0, 0.0, -3.0],
    [9.5, -9.5, 8.0],
    [0.25, -0.5, 0.0],
    [60.0, -60.0, 60.0],
]
SOFTMAX_TARGET = [0, 2, 0, 0, 1, 2, 1]
SIGMOID = [[1e4], [-1e4], [17.5], [-17.5], [120.0], [9.5], [-0.5], [-120.0], [1e4]]
SIGMOID_TARGET = [[1], [1], [1], [0], [1], [0], [1], [1], [0]]
INPUTS = {"softmax": (SOFTMAX, SOFTMAX_TARGET), "sigmoid": (SIGMOID, SIGMOID_TARGET)}

ALPHAS = [0.0, 0.01, 0.3, 0.99, 1.0, 1.5, 4.0]
GAMMAS = [0.0, 0.01, 0.5, 1.0, 2.0, 5.0]
CASES = [
    (cross_entropy_loss, reference.entropy, {}),
    *((focal_loss, reference.entropy, {"gamma": gamma}) for gamma in GAMMAS),
]
for over in ("example", "batch"):
    for squared in (False, True):
        shared = {"over": over, "squared": squared}
        CASES.append((dice_loss, partial(reference.family, kind="dice"), shared))
        tversky = shared | {"alpha": 0.3, "beta": 0.7}
        CASES.append((tversky_loss, partial(reference.family, kind="tversky"), tversky))
        for alpha, decay in itertools.product(ALPHAS, ("detached", "paper")):
            dsc = shared | {"alpha": alpha, "decay": decay}
            expected = partial(reference.family, kind="dsc")
            CASES.append((self_adjusting_dice_loss, expected, dsc))
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def exact(expected, logits, target, options):
    """Returns value and gradient of the reference; a detached decay is held constant."""
    options = dict(options)
    if options.pop("decay", "paper") == "detached":
        decay_of = reference.detached_decay(logits, target, options["alpha"], m=Exact)
        expected = partial(expected, decay_of=decay_of)
    function = partial(expected, target=target, m=Exact, **options)
    return float(function(logits)), torch.tensor(reference.gradient(function, logits))


@pytest.mark.parametrize("mode", INPUTS)
@pytest.mark.parametrize(("function", "expected", "options"), CASES)
@mpmath.workdps(60)
def test_extreme_logits_match_sixty_digits(mode, function, expected, options):
    logits, target = INPUTS[mode]
    for dtype, tolerance in TOLERANCE.items():
        x = torch.tensor(logits, dtype=dtype, requires_grad=True)
        rounded = x.tolist()
        value, gradient = exact(expected, rounded, target, options)
        got = function(x, torch.tensor(target), **options)
        got.backward()
        # The value is float32 whatever the logits are; only the gradient is rounded to their dtype.
        assert got.item() == pytest.approx(value, rel=2e-6, abs=2e-6)
        torch.testing.assert_close(x.grad.float(), gradient, rtol=tolerance, atol=tolerance * 0.1)


@every_mode
@every_case()
def test_finite_at_any_logits(name, options, mode):
    loss = build(name, options)
    _, target = batch(mode)
    for dtype in TOLERANCE:
        largest = min(torch.finfo(dtype).max, 1e30)
        for scale in (1e-30, 1e4, largest):
            logits, _ = batch(mode, seed=3)
            x = (logits.sign() * scale).to(dtype).requires_grad_()
            value = loss(x, target)
            value.backward()
            assert torch.isfinite(value)
            assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("smooth", [0.0, 1e-30, 1e-8, 1e8])
@pytest.mark.parametrize("over", ["example", "batch"])
@pytest.mark.parametrize("name", ["dice", "tversky", "dsc"])
@every_mode
def test_finite_at_any_smooth(name, over, smooth, mode):
    logits, target = batch(mode, dtype=torch.float32)
    for scale in (0.0, 1.0, 200.0):
        x = (logits * scale).requires_grad_()
        value = make_loss(name, smooth=smooth, over=over)(x, target)
        value.backward()
        assert 0 <= value.detach() <= 1 + 1e-6
        assert torch.isfinite(x.grad).all()


@every_mode
@every_case()
def test_autocast_computes_as_without(name, options, mode):
    logits, target = batch(mode, dtype=torch.bfloat16)
    loss = build(name, options)
    outside, inside = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    expected = loss(outside, target)
    expected.backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(inside, target)
    value.backward()
    assert torch.equal(expected, value)
    assert torch.equal(outside.grad, inside.grad)


@every_case()
def test_a_gradient_scaler_takes_a_step(name, options):
    logits, target = batch(a_mode(name), dtype=torch.float32)
    torch.manual_seed(0)
    head = torch.nn.Linear(logits.shape[1], logits.shape[1])
    before = head.weight.detach().clone()
    optimizer = torch.optim.SGD(head.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with torch.autocast("cpu", dtype=torch.float16):
        value = build(name, options)(head(logits), target)
    scaler.scale(value).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**10  # no overflow was found
    assert torch.isfinite(head.weight).all()
    assert not torch.equal(before, head.weight)
