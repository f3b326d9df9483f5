"""torch.func and higher derivatives: each loss and level gives the number, or says why not."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jvp, vmap

from tests.losses.cases import batch, build, every_case, every_mode

pytestmark = [  # torch's own, while it loads its forward mode and where vmap is slow
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
]
REFUSED = "hand-written first derivatives only"
EVERYTHING = (
    "ce",
    "wce",
    "focal",
    "wfocal",
    "la",
    "asymmetric",
    "zlpr",
)  # their derivatives are torch's own


def refuses(name):
    return name not in EVERYTHING


def gradient(loss, logits, target):
    x = logits.clone().requires_grad_()
    loss(x, target).backward()
    return x.grad


@every_mode
@every_case()
def test_func_grad_is_the_gradient(name, options, mode):
    logits, target = batch(mode)
    loss = build(name, options)
    torch.testing.assert_close(
        grad(lambda x: loss(x, target))(logits), gradient(loss, logits, target)
    )


@every_mode
@every_case()
def test_forward_mode_gives_the_slope_or_is_refused(name, options, mode):
    logits, target = batch(mode)
    loss = build(name, options)
    direction = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits)

    def dual():
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(loss(forward_ad.make_dual(logits, direction), target))[1]

    ways = [lambda: jvp(lambda x: loss(x, target), (logits,), (direction,))[1], dual]
    for way in ways:
        if refuses(name):
            with pytest.raises(RuntimeError, match=f"{REFUSED}; forward mode"):
                way()
        else:
            expected = (gradient(loss, logits, target) * direction).sum()
            torch.testing.assert_close(way(), expected)


@every_mode
@every_case()
def test_vmap_gives_the_loss_of_each_or_is_refused(name, options, mode):
    logits, target = (
        torch.stack(pair) for pair in zip(batch(mode), batch(mode, seed=1), strict=True)
    )
    loss = build(name, options)
    if refuses(name):
        for mapped in (vmap(loss), vmap(grad(loss))):
            with pytest.raises(RuntimeError, match=f"{REFUSED}; vmap"):
                mapped(logits, target)
        return
    pairs = list(zip(logits, target, strict=True))
    torch.testing.assert_close(
        vmap(loss)(logits, target), torch.stack([loss(*pair) for pair in pairs])
    )
    torch.testing.assert_close(
        vmap(grad(loss))(logits, target), torch.stack([gradient(loss, *pair) for pair in pairs])
    )


@every_mode
@every_case()
def test_a_second_derivative_is_right_or_refused(name, options, mode):
    logits, target = batch(mode)
    loss = build(name, options)

    def penalty(x):
        return grad(lambda y: loss(y, target))(x).square().sum()

    def of_autograd():
        x = logits.clone().requires_grad_()
        (dx,) = torch.autograd.grad(loss(x, target), x, create_graph=True)
        return torch.autograd.grad(dx.square().sum(), x)[0]

    ways = [lambda: grad(penalty)(logits), of_autograd]
    if refuses(name):
        for way in (*ways, lambda: hessian(lambda x: loss(x, target))(logits)):
            with pytest.raises(RuntimeError, match=REFUSED):
                way()
        return
    assert torch.autograd.gradgradcheck(
        lambda x: loss(x, target), (logits.clone().requires_grad_(),)
    )
    torch.testing.assert_close(*[way() for way in ways])
