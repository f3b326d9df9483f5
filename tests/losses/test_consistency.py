"""The consistency term: values by hand, and what it leaves out."""

import math

import pytest
import torch

from softf1.losses import ConsistentLoss, WindowLoss, consistency_loss, make_loss

INF = math.inf
A, B = torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, 0.0]])
APART = 0.5 * (1 / (1 + math.exp(-2)) - 0.5) * 2
"""½·Σ (a − b)·(log a − log b) with a = (½, ½), b = (σ(2), σ(−2)): the logs differ by 2 in all."""


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_softmax_by_hand():
    target = torch.tensor([0])
    assert consistency_loss(A, B, target).item() == pytest.approx(APART, rel=1e-6)
    assert consistency_loss(B, A, target).item() == pytest.approx(APART, rel=1e-6)
    twice = [torch.cat([x, x]) for x in (A, B)]
    both = torch.tensor([0, 1])
    assert consistency_loss(*twice, both).item() == pytest.approx(APART, rel=1e-6)
    assert consistency_loss(*twice, both, reduction="sum").item() == pytest.approx(2 * APART)
    sums = consistency_loss(*twice, both, reduction="sums")
    assert sums.tolist() == [[pytest.approx(2 * APART)], [2.0]]


def test_three_classes_by_hand():
    a, b = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([[0.0, 0.5, 2.0]])
    p, q = (torch.tensor([math.exp(x) for x in row[0]]) for row in (a.tolist(), b.tolist()))
    p, q = p / p.sum(), q / q.sum()
    wanted = 0.5 * ((p * (p / q).log()).sum() + (q * (q / p).log()).sum())
    assert consistency_loss(a, b, torch.tensor([2])).item() == pytest.approx(wanted.item())


def test_sigmoid_by_hand():
    """½·(σ(a) − σ(b))·(a − b) for each entry: KL(a‖b) + KL(b‖a) of two coins."""
    a, b = torch.tensor([[1.0, -1.0]]), torch.tensor([[0.0, 3.0]])
    first, second = 0.5 * (sigmoid(1) - 0.5), 0.5 * (sigmoid(3) - sigmoid(-1)) * 4
    target = torch.tensor([[1, 0]])
    assert consistency_loss(a, b, target).item() == pytest.approx((first + second) / 2)
    assert consistency_loss(a, b, torch.tensor([[1, -100]])).item() == pytest.approx(first)
    one = consistency_loss(a[:, :1], b[:, :1], torch.tensor([1]))  # a single output
    assert one.item() == pytest.approx(first)


def test_what_is_ignored_or_masked_is_left_out():
    a, b = (torch.cat([x, 9 * x + 1]) for x in (A, B))
    assert consistency_loss(a, b, torch.tensor([1, -100])).item() == pytest.approx(APART)
    assert consistency_loss(a, b, torch.tensor([1, 7]), ignore_index=7).item() == (
        pytest.approx(APART)
    )
    for mask in (torch.tensor([True, False]), torch.tensor([1, 0]), torch.tensor([1.0, 0.0])):
        found = consistency_loss(a, b, torch.tensor([1, 0]), mask=mask)
        assert found.item() == pytest.approx(APART)
        entries = consistency_loss(a, b, torch.ones(2, 2), mask=mask)
        wanted = consistency_loss(a[:1], b[:1], torch.ones(1, 2))
        assert entries.item() == pytest.approx(wanted.item())
    labels = torch.tensor([1, 0], dtype=torch.uint8)  # in which −100 is 156
    assert consistency_loss(a, b, labels, ignore_index=0).item() == pytest.approx(APART)


@pytest.mark.parametrize("side", ["both", "first", "second"])
def test_a_sigmoid_entry_of_minus_infinity_is_left_out(side):
    a, b = torch.tensor([[0.5, 1.0]]), torch.tensor([[0.5, 0.0]])
    a[0, 0] = -INF if side != "second" else 0.5
    b[0, 0] = -INF if side != "first" else 0.5
    wanted = 0.5 * (sigmoid(1) - 0.5)
    assert consistency_loss(a, b, torch.tensor([[0, 1]])).item() == pytest.approx(wanted)
    assert wanted == pytest.approx(0.1155, abs=1e-4)


def test_a_softmax_row_without_a_class_is_left_out():
    hidden = torch.full((1, 2), -INF)
    a, b = (torch.cat([x, hidden]) for x in (A, B))
    assert consistency_loss(a, b, torch.tensor([0, 0])).item() == pytest.approx(APART)
    assert consistency_loss(hidden, hidden, torch.tensor([0])).item() == 0


def test_a_softmax_class_of_minus_infinity_is_taken_out():
    a, b = (torch.cat([x, torch.full((1, 1), -INF)], dim=1) for x in (A, B))
    assert consistency_loss(a, b, torch.tensor([0])).item() == pytest.approx(APART)


@pytest.mark.parametrize("value", [math.nan, INF, -INF])
def test_the_gradient_of_what_is_left_out_is_0(value):
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 4, dtype=torch.float64)
    logits[:, 1] = value
    for target in (torch.tensor([0, -100, 2]), torch.tensor([[0] * 4, [-100] * 4, [1] * 4])):
        x = logits.clone().requires_grad_()
        consistency_loss(x[0], x[1], target).backward()
        assert (x.grad[:, 1] == 0).all()
        assert (x.grad[:, [0, 2]] != 0).all()


def test_a_value_that_is_not_a_number_is_not_hidden():
    assert consistency_loss(A, math.nan * B, torch.tensor([0])).isnan()


def test_nothing_to_count_is_0():
    assert consistency_loss(A, B, torch.tensor([-100])).item() == 0


def test_wrong_shapes_and_reductions_are_refused():
    with pytest.raises(ValueError, match=r"of one shape, got \(1, 2\) and \(2, 2\)"):
        consistency_loss(A, torch.cat([B, B]), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"wanted a mask of shape \(1,\), got \(2,\)"):
        consistency_loss(A, B, torch.tensor([0]), mask=torch.ones(2))
    with pytest.raises(ValueError, match="mean or sum, got 'none'"):
        consistency_loss(A, B, torch.tensor([0]), reduction="none")


@pytest.mark.parametrize("name", ["ce", "ce+dice"])
def test_the_term_leaves_out_what_the_loss_ignores(name):
    torch.manual_seed(0)
    first, second = torch.randn(2, 4, 3)
    target = torch.tensor([0, 1, 2, 0])
    other = torch.where(target == 0, -100, target)
    own = ConsistentLoss(make_loss(name, ignore_index=0), 1.0)
    usual = ConsistentLoss(make_loss(name), 1.0)
    logits = torch.cat([first, second])
    wanted = usual(logits, other)
    torch.testing.assert_close(own(logits, target), wanted)
    window = WindowLoss(own)
    parts = [slice(0, 1), slice(1, 4)]
    for part in parts:
        window.collect(torch.cat([first[part], second[part]]), target[part])
    window.reduce()
    for part in parts:
        window(torch.cat([first[part], second[part]]), target[part])
    torch.testing.assert_close(window.finish(), wanted)


def test_parts_that_ignore_different_values_are_refused():
    with pytest.raises(ValueError, match=r"one ignore_index in all parts .* \[-100, 0\]"):
        ConsistentLoss(make_loss("ce+dice", ce={"ignore_index": 0}), 1.0)


@pytest.mark.parametrize("factor", [-1.0, math.nan, INF])
def test_a_factor_is_a_finite_number_from_0_up(factor):
    with pytest.raises(ValueError, match="wanted a finite factor from 0 up"):
        ConsistentLoss(make_loss("ce"), factor)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
@pytest.mark.parametrize("name", ["ce", "dice"])
def test_parts_of_a_window_are_the_whole_with_hidden_logits_and_a_mask(name, kind):
    """8 × 1 = 2 × 4 = 1 × 8, with −inf, ignored and masked rows spread unevenly."""
    torch.manual_seed(0)
    logits = torch.randn(2, 8, 4, dtype=torch.float64)
    logits[:, :3, 3] = -INF
    logits[:, 5] = -INF
    target = torch.randint(0, 3, (8,))
    if kind == "sigmoid":
        target = torch.nn.functional.one_hot(target, 4)
    target[2], mask = -100, torch.tensor([1, 1, 1, 0, 1, 1, 0, 1])
    options = {"over": "batch"} if name == "dice" else {}
    found = []
    for size in (8, 4, 1):
        x = logits.clone().requires_grad_()
        window = WindowLoss(ConsistentLoss(make_loss(name, **options), 1.3))
        parts = [slice(i, i + size) for i in range(0, 8, size)]
        for part in parts:
            window.collect(x[:, part].flatten(0, 1), target[part], mask[part])
        window.reduce()
        for part in parts:
            window(x[:, part].flatten(0, 1), target[part], mask[part]).backward()
        found.append((window.finish(), x.grad))
    whole = logits.clone().requires_grad_()
    value = ConsistentLoss(make_loss(name, **options), 1.3)(whole.flatten(0, 1), target, mask)
    value.backward()
    rows = mask.bool()  # a mask is as good as leaving its rows out
    alone = ConsistentLoss(make_loss(name, **options), 1.3)
    torch.testing.assert_close(alone(logits[:, rows].flatten(0, 1), target[rows]), value)
    for own, gradient in found:
        torch.testing.assert_close(own, value)
        torch.testing.assert_close(gradient, whole.grad, rtol=1e-9, atol=1e-12)
