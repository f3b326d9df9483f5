"""The linear layer and loss in chunks against both in turn: value, gradients, memory."""

import pytest
import torch
from torch.nn import functional

from softf1.kernels import linear, linear_loss
from softf1.losses import _sums, make_loss

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
LOSSES = [
    ("ce", {}),
    ("la", {"weight": [0.5, 1.0, 2.0, 0.25, 1.0]}),
    ("focal", {"reduction": "sum"}),
    ("dsc", {"weight": [0.5, 1.0, 2.0, 0.25, 1.0]}),
    ("dice", {"over": "batch"}),
    ("dsc", {"over": "batch", "average": "micro", "exclude": [0]}),
    ("ce+dice", {"mix": (1.0, 0.5), "dice": {"over": "batch"}}),
    ("ce+dice", {}),
]


def layer(n, h, c, *, dtype=torch.float32):
    """Returns hidden, weight and bias that want gradients, and labels with some ignored."""
    generator = torch.Generator().manual_seed(0)
    sizes = ((n, h), (c, h), (c,))
    tensors = [torch.randn(size, generator=generator).to(DEVICE, dtype) for size in sizes]
    target = torch.randint(0, c, (n,), generator=generator)
    target[1::4] = -100
    return [tensor.requires_grad_() for tensor in tensors], target.to(DEVICE)


def both(tensors, target, loss, **options):
    """Returns value and gradients (of three times the loss) of the unfused form and of ours."""
    results = []
    for fused in (False, True):
        hidden, weight, bias = (tensor.detach().requires_grad_() for tensor in tensors)
        if fused:
            value = linear_loss(hidden, weight, target, loss, bias=bias, **options)
        else:
            value = loss(functional.linear(hidden, weight, bias), target, options.get("mask"))
        (3 * value).backward()
        results.append([value.detach(), hidden.grad, weight.grad, bias.grad])
    return zip(*results, strict=True)


@pytest.mark.parametrize(("name", "options"), LOSSES)
@pytest.mark.parametrize("chunk_rows", [1, 4, 100])
def test_value_and_gradients_are_those_of_both_in_turn(name, options, chunk_rows):
    tensors, target = layer(10, 6, 5)
    mask = torch.arange(10, device=DEVICE) != 7
    loss = make_loss(name, **options).to(DEVICE)
    for expected, got in both(tensors, target, loss, mask=mask, chunk_rows=chunk_rows):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("lean", [True, False])
def test_the_second_pass_sums_up_again_only_where_the_graphs_are_large(lean, monkeypatch):
    tensors, target = layer(10, 6, 40)
    loss = make_loss("dice", over="batch")
    taken, take_sums = [], linear.take_sums

    def counted(*given):
        taken.append(given)
        return take_sums(*given)

    def small_graph(loss, logits, target, mask):  # as that of a kernel: the logits and little else
        if not lean or not torch.is_grad_enabled():
            return counted(loss, logits, target, mask)
        with torch.no_grad():
            sums = counted(loss, logits, target, mask)
        return tuple(_Sums.apply(logits, own, loss, target, mask) for own in sums)

    monkeypatch.setattr(linear, "take_sums", small_graph)
    for expected, got in both(tensors, target, loss, chunk_rows=4):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)
    # 3 chunks; without small graphs one to see how large they are, then two passes
    assert len(taken) == (3 if lean else 1 + 3 + 3)


class _Sums(torch.autograd.Function):
    """Keeps the logits only, and computes what else it needs in backward."""

    @staticmethod
    def forward(ctx, logits, sums, *rest):
        ctx.save_for_backward(logits)
        ctx.rest = rest
        return sums.clone()

    @staticmethod
    def backward(ctx, slopes):
        loss, target, mask = ctx.rest
        with torch.enable_grad():
            logits = ctx.saved_tensors[0].detach().requires_grad_()
            (sums,) = _sums.take_sums(loss, logits, target, mask)
        return torch.autograd.grad(sums, logits, slopes)[0], None, None, None, None


def test_sigmoid_and_leading_axes():
    (hidden, weight, bias), _ = layer(12, 6, 5)
    target = (torch.arange(60, device=DEVICE) % 3 == 0).long().reshape(3, 4, 5)
    loss = make_loss("dice", over="batch")
    hidden = hidden.detach().reshape(3, 4, 6)
    expected = loss(functional.linear(hidden, weight, bias), target)
    got = linear_loss(hidden, weight, target, loss, bias=bias, chunk_rows=5)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("over", ["example", "batch"])
def test_bfloat16_gradients_are_added_in_float32(over):
    tensors, target = layer(64, 8, 5, dtype=torch.bfloat16)
    loss = make_loss("dsc", over=over)
    for expected, got in both(tensors, target, loss, chunk_rows=2):
        assert got.dtype == expected.dtype
        scale = expected.float().abs().max().item()
        torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2 * scale)


def test_only_what_wants_a_gradient_gets_one():
    (hidden, weight, bias), target = layer(8, 4, 3)
    loss = make_loss("dice")
    linear_loss(hidden.detach(), weight, target, loss, bias=bias.detach()).backward()
    assert weight.grad is not None
    assert hidden.grad is None
    assert bias.grad is None
    without = linear_loss(hidden.detach(), weight.detach(), target, loss)
    assert not without.requires_grad


def test_no_rows_is_zero():
    (hidden, weight, bias), target = layer(4, 4, 3)
    for over in ("example", "batch"):
        loss = make_loss("dice", over=over)
        value = linear_loss(hidden[:0], weight, target[:0], loss, bias=bias)
        value.backward()
        assert value == 0
        assert (weight.grad == 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": (3, 5)}, r"wanted hidden \(..., H\) and weight \(C, H\)"),
        ({"target": (7,)}, r"wanted target \(8,\) or \(8, 3\), got \(7,\)"),
        ({"bias": (4,)}, r"wanted bias \(3,\), got \(4,\)"),
        ({"mask": (8, 1)}, r"wanted a mask of shape \(8,\), got \(8, 1\)"),
        ({"chunk_rows": 0}, "wanted chunk_rows >= 1"),
    ],
)
def test_wrong_sizes_are_said(change, message):
    sizes = {"hidden": (8, 4), "weight": (3, 4), "target": (8,)} | change
    rows = sizes.pop("chunk_rows", None)
    given = {name: torch.zeros(size, dtype=torch.int64) for name, size in sizes.items()}
    given |= {name: given[name].float() for name in ("hidden", "weight")}
    with pytest.raises(ValueError, match=message):
        linear_loss(loss=make_loss("dice"), chunk_rows=rows, **given)


def test_losses_that_no_chunk_can_take_are_refused():
    (hidden, weight, _), target = layer(8, 4, 3)
    with pytest.raises(ValueError, match="ohem_ratio is refused"):
        linear_loss(hidden, weight, target, make_loss("dice", over="batch", ohem_ratio=1.0))
    with pytest.raises(ValueError, match='wanted reduction="mean" or "sum"'):
        linear_loss(hidden, weight, target, make_loss("dice", reduction="none"))


@pytest.mark.skipif(not CUDA, reason="needs a GPU")
@pytest.mark.parametrize("over", ["example", "batch"])
def test_131072_classes_within_4_gib(over):
    n, h, c = 32_768, 768, 131_072
    hidden = torch.randn(n, h, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(c, h, device=DEVICE, dtype=torch.bfloat16).mul_(0.02).requires_grad_()
    target = torch.randint(0, c, (n,), device=DEVICE)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    linear_loss(hidden, weight, target, make_loss("dsc", over=over)).backward()
    assert torch.isfinite(hidden.grad).all()
    assert torch.isfinite(weight.grad).all()
    assert torch.cuda.max_memory_allocated() < 4 * 2**30
