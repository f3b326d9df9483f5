"""Fused parts of encoder layers against PyTorch: on a GPU where there is one, else interpreted."""

import importlib.util
import os

import pytest
import torch
from torch import nn
from torch.nn import functional

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

from softf1.kernels.encoder import (  # noqa: E402
    Dropout,
    join_rows,
    linear_gelu,
    linear_norm,
    linear_qkv,
)
from softf1.kernels.row_sums import AddUp, Owed, Sums  # noqa: E402

pytestmark = pytest.mark.needs_tool
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
SHAPES = [(1, 8, 16), (37, 7, 13), (40, 12, 150)]  # rows, inputs, width
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def make(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(dtype).to(DEVICE).requires_grad_()


def make_norm(width):
    norm = nn.LayerNorm(width, eps=1e-3).to(DEVICE)
    with torch.no_grad():
        norm.weight.copy_(make(width, seed=1))
        norm.bias.copy_(make(width, seed=2))
    return norm


def compare(got, expected, inputs, dtype, *, least=1.0):
    """Values, and gradients of a weighted sum of them; `least` is how large those add up."""
    torch.manual_seed(0)
    gradients = []
    weights = [torch.randn_like(one, dtype=torch.float32) for one in expected]
    for outputs in (got, expected):
        total = sum((o.float() * w).sum() for o, w in zip(outputs, weights, strict=True))
        gradients.append(torch.autograd.grad(total, inputs, retain_graph=True))
    for mine, theirs in [*zip(got, expected, strict=True), *zip(*gradients, strict=True)]:
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        scale = theirs.float().abs().max().item()
        torch.testing.assert_close(
            mine.float(), theirs.float(), rtol=0, atol=TOLERANCE[dtype] * max(scale, least)
        )


@every_shape
@every_dtype
def test_a_norm_of_a_residual_and_a_product(shape, dtype):
    rows, inputs, width = shape
    x, weight = make(1, rows, inputs, dtype=dtype), make(width, inputs, dtype=dtype)
    bias, residual, norm = make(width, dtype=dtype), make(1, rows, width), make_norm(width)
    got = linear_norm(x, weight, bias, residual, norm, Dropout())
    expected = norm(functional.linear(x, weight, bias).float() + residual)
    inputs = (x, weight, bias, residual, norm.weight, norm.bias)
    if dtype == torch.float32:
        assert got[1] is None
        compare(got[:1], [expected], inputs, dtype)
    else:
        compare(got, [expected, expected.to(dtype)], inputs, dtype)


@pytest.mark.parametrize("used", [0, 1])
def test_a_norm_of_which_one_output_is_used(used):
    x, weight, bias = (make(*s, dtype=torch.bfloat16) for s in ((4, 8), (6, 8), (6,)))
    residual, norm = make(4, 6), make_norm(6)
    got = linear_norm(x, weight, bias, residual, norm, Dropout())
    plain = norm(functional.linear(x, weight, bias).float() + residual)
    expected = (plain, plain.bfloat16())
    compare([got[used]], [expected[used]], (x, weight, bias, residual), torch.bfloat16)


@every_shape
@every_dtype
def test_gelu_of_a_product(shape, dtype):
    rows, inputs, width = shape
    x, weight = make(rows, inputs, dtype=dtype), make(width, inputs, dtype=dtype)
    bias = make(width, dtype=dtype)
    expected = functional.gelu(functional.linear(x, weight, bias))
    compare([linear_gelu(x, weight, bias)], [expected], (x, weight, bias), dtype)


@every_shape
@every_dtype
def test_three_products_of_one_input(shape, dtype):
    rows, inputs, width = shape
    x = make(1, rows, inputs, dtype=dtype)
    weights = [make(width, inputs, dtype=dtype, seed=n) for n in range(3)]
    biases = [make(width, dtype=dtype, seed=n) for n in range(3)]
    expected = [functional.linear(x, *layer) for layer in zip(weights, biases, strict=True)]
    compare(linear_qkv(x, *weights, *biases), expected, (x, *weights, *biases), dtype)


def test_a_product_that_nothing_follows_has_no_gradient():
    x, layers = make(4, 8), [make(6, 8, seed=n) for n in range(3)] + [make(6) for _ in range(3)]
    query, _, value = linear_qkv(x, *layers)
    (query.sum() + value.sum()).backward()
    assert layers[1].grad.count_nonzero() == layers[4].grad.count_nonzero() == 0
    torch.testing.assert_close(layers[5].grad, torch.full_like(layers[5], 4.0))


def test_gradients_that_lie_in_another_order():
    """Attention gives heads before rows, or one tensor for all three."""
    x, layers = make(2, 5, 8), [make(4, 8, seed=n) for n in range(3)] + [make(4) for _ in range(3)]
    got = linear_qkv(x, *layers)
    expected = [functional.linear(x, layers[n], layers[n + 3]) for n in range(3)]
    heads = [[one.view(2, 5, 2, 2).transpose(1, 2) for one in three] for three in (got, expected)]
    attended = [[functional.scaled_dot_product_attention(*three)] for three in heads]
    compare(*attended, (x, *layers), torch.float32)


def test_frozen_weights_and_inputs_have_no_gradient():
    x, weight, bias = make(4, 8).detach(), make(6, 8).detach(), make(6)
    linear_gelu(x, weight, bias).sum().backward()
    assert x.grad is weight.grad is None
    assert bias.grad.count_nonzero()


@pytest.mark.parametrize("frozen", range(3))
def test_of_three_products_those_that_are_not_frozen_have_gradients(frozen):
    x = make(4, 8)
    layers = [make(6, 8, seed=n) for n in range(3)] + [make(6, seed=n) for n in range(3)]
    layers[frozen].requires_grad_(False)
    got = linear_qkv(x, *layers)
    expected = [functional.linear(x, layers[n], layers[n + 3]) for n in range(3)]
    trained = [one for one in layers if one.requires_grad]
    compare(got, expected, (x, *trained), torch.float32)


def test_tensors_that_lie_one_after_the_other_are_not_copied():
    first, second, third = torch.arange(12.0).view(6, 2).split(2)
    assert join_rows((first, second, third)).data_ptr() == first.data_ptr()
    assert torch.equal(join_rows((first, second, third)), torch.arange(12.0).view(6, 2))
    for others in ((second, first, third), (first, third, second), (first, second, third.clone())):
        assert torch.equal(join_rows(others), torch.cat(others))


def drop(p, seeds, call, *, rows=64, width=96):
    """What a call keeps: with residual and weight 0 and a bias of 1, the norm sees the mask."""
    x, weight = torch.zeros(rows, 8, device=DEVICE), torch.zeros(width, 8, device=DEVICE)
    bias = torch.ones(width, device=DEVICE)
    residual, norm = torch.zeros(rows, width, device=DEVICE), nn.LayerNorm(width).to(DEVICE)
    out, _ = linear_norm(x, weight, bias, residual, norm, Dropout(p, seeds, call))
    return out > 0  # what is kept is above the mean


def test_dropout_drops_the_share_that_it_should_and_other_entries_each_time():
    seeds = torch.tensor([5, 7, 2**62 + 1], device=DEVICE)
    masks = [drop(0.25, seeds, call) for call in range(3)]
    for mask in masks:
        assert mask.float().mean().item() == pytest.approx(0.75, abs=0.02)  # sd 0.0055
        assert mask.float().mean(0).min() > 0.5  # no column and no row is special
        assert mask.float().mean(1).min() > 0.5
    for one, other in ((0, 1), (0, 2), (1, 2)):  # independent: both kept at 0.75²
        both = (masks[one] & masks[other]).float().mean().item()
        assert both == pytest.approx(0.5625, abs=0.025)
    assert torch.equal(drop(0.25, seeds, 1), masks[1])
    assert not torch.equal(masks[0][:, :-1], masks[0][:, 1:])


@every_dtype
def test_backward_drops_what_forward_dropped(dtype):
    """Differentiated by hand through the mask that the kernel drew."""
    rows, inputs, width, p = 20, 6, 24, 0.3
    seeds = torch.tensor([3, 11], device=DEVICE)
    x, weight = make(rows, inputs, dtype=dtype), make(width, inputs, dtype=dtype)
    bias, residual, norm = make(width, dtype=dtype), make(rows, width), make_norm(width)
    mask = drop(p, seeds, 1, rows=rows, width=width) / (1 - p)
    got = linear_norm(x, weight, bias, residual, norm, Dropout(p, seeds, 1))[:1]
    expected = norm(functional.linear(x, weight, bias).float() * mask + residual)
    compare(got, [expected], (x, weight, bias, residual, norm.weight, norm.bias), dtype)


def test_sums_are_made_together_at_the_end():
    """One part is gone through, one twice, one has no part in the loss."""
    x, weight, vectors = make(9, 8), make(8, 8), [make(8, seed=n) for n in range(3)]
    sums = Sums([[vector] for vector in vectors])
    token = AddUp.apply(sums, *vectors)
    owed = [Owed(sums, n, token) for n in range(3)]
    first, second, _ = (
        linear_gelu(x, weight, vector, owed=one) for vector, one in zip(vectors, owed, strict=True)
    )
    again = linear_gelu(first, weight, vectors[0], owed=owed[0])
    expected = functional.gelu(functional.linear(x, weight, vectors[0]))
    expected = functional.gelu(functional.linear(expected, weight, vectors[0]))
    expected = expected + functional.gelu(functional.linear(x, weight, vectors[1]))
    compare([again + second], [expected], (x, weight, *vectors[:2]), torch.float32)
    (again + second).sum().backward()
    assert vectors[2].grad is None
    assert sums.parts == {}


def test_the_same_gradients_every_time():
    x, weight, bias = make(300, 8), make(40, 8), make(40)
    residual, norm, seeds = make(300, 40), make_norm(40), torch.tensor([1], device=DEVICE)
    found = []
    for _ in range(2):
        out, _ = linear_norm(x, weight, bias, residual, norm, Dropout(0.1, seeds, 0))
        found.append(torch.autograd.grad((out * out).sum(), (x, bias, norm.weight, norm.bias)))
    assert all(map(torch.equal, *found))
